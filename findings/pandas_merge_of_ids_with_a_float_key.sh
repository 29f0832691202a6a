#!/usr/bin/env bash
# Expected: merge of an integer key with a float key finds exact partners, or warns (it does warn if a float is
# not whole).
# What happens: integers are compared as floats: 9007199254740993 finds the row of 9007199254740992, without a
# warning. isin() over the same two columns tells them apart.
# Versions: pandas 3.1.1, numpy 2.4.6.
# Who meets it: ids of 64 bits on one side, and on the other a column that became float64 because one id was
# missing (reindex, a left join, a CSV with an empty field): rows of one customer get those of the next one.
# Output seen:
#   merge: [(9007199254740992, 'a'), (9007199254740993, 'a')], warnings: 0
#   isin: [True, False]
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-python3}
"$python" -m venv --without-pip venv
"$python" -m pip --python venv/bin/python install --quiet --disable-pip-version-check --no-compile \
    pandas==3.1.1 numpy==2.4.6
venv/bin/python -W ignore - <<'EOF'
import warnings

import pandas as pd

ids = pd.DataFrame({"id": [2**53, 2**53 + 1]})
names = pd.DataFrame({"id": [2**53], "name": ["a"]}).reindex([0, 1])
assert str(names["id"].dtype) == "float64"
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    merged = ids.merge(names, on="id")
pairs = list(zip(merged["id"].tolist(), merged["name"].tolist()))
print(f"merge: {[(int(key), name) for key, name in pairs]}, warnings: {len(caught)}")
assert pairs == [(2**53, "a"), (2**53 + 1, "a")] and not caught
member = ids["id"].isin(names["id"]).tolist()
print("isin:", member)
assert member == [True, False]
EOF
