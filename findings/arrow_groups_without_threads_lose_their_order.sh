#!/usr/bin/env bash
# Expected: group_by(..., use_threads=False) returns groups in the order of their first rows. The documentation
# says that only with threads no stable order of the output is guaranteed, and for 1, 2, 3 … that is what comes.
# What happens: three small integers in ascending order, each in two rows, come back in another order. Of random
# ascending lists of up to twelve keys below 200, about one in fifty does. Values stay with their keys; whoever
# puts the columns of the result beside another column by position gives values to other keys.
# Versions: pyarrow 26.0.1.
# Who meets it: whoever reduces sorted rows, and takes the result for sorted.
# Output seen:
#   keys [47, 109, 172] as groups: [47, 172, 109]
#   keys 1 to 1000 as groups: in order
#   of 10000 ascending lists, in another order: 2.1 %
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-python3}
"$python" -m venv --without-pip venv
"$python" -m pip --python venv/bin/python install --quiet --disable-pip-version-check --no-compile \
    pyarrow==26.0.1
venv/bin/python -W ignore - <<'EOF'
import random

import pyarrow as pa


def groups(keys):
    twice = pa.table({"k": pa.array([k for k in keys for _ in range(2)], pa.int64())})
    return twice.group_by("k", use_threads=False).aggregate([([], "count_all")])["k"].to_pylist()


few = groups([47, 109, 172])
print("keys [47, 109, 172] as groups:", few)
assert few == [47, 172, 109]

many = groups(range(1, 1001))
print("keys 1 to 1000 as groups:", "in order" if many == sorted(many) else "in another order")
assert many == sorted(many)

draw = random.Random(7)
lists = [sorted(draw.sample(range(200), draw.randint(2, 12))) for _ in range(10_000)]
moved = sum(groups(keys) != keys for keys in lists)
print(f"of 10000 ascending lists, in another order: {moved / 100:.1f} %")
assert moved > 100
EOF
