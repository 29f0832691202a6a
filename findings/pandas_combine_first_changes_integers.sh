#!/usr/bin/env bash
# Expected: combine_first of two int64 frames whose result is int64 has the numbers that were there.
# What happens: 9007199254740993 comes back as 9007199254740992. The rows are aligned by way of float64, and the
# result is made int64 again, so the type gives no hint. With the nullable Int64 the numbers are right; update() and an
# outer merge are right with int64, too.
# Versions: pandas 3.1.1, numpy 2.4.6.
# Who meets it: "new rows over old rows" by key, pandas' one-line upsert, with ids of 64 bits (snowflake ids, hashes,
# nanoseconds since 1970) among the columns.
# Output seen:
#   int64: int64 [9007199254740992, 9007199254740992]
#   Int64: Int64 [9007199254740993, 9007199254740993]
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-python3}
"$python" -m venv --without-pip venv
"$python" -m pip --python venv/bin/python install --quiet --disable-pip-version-check --no-compile \
    pandas==3.1.1 numpy==2.4.6
venv/bin/python -W ignore - <<'EOF'
import pandas as pd

ID = 2**53 + 1
for dtype, expected in (("int64", ID - 1), ("Int64", ID)):
    new = pd.DataFrame({"id": [ID]}, index=[0], dtype=dtype)
    old = pd.DataFrame({"id": [ID]}, index=[1], dtype=dtype)
    both = new.combine_first(old)
    print(f"{dtype}: {both['id'].dtype} {both['id'].tolist()}")
    assert str(both["id"].dtype) == dtype and both["id"].tolist() == [expected] * 2
EOF
