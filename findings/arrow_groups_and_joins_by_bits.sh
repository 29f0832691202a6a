#!/usr/bin/env bash
# Expected: what `==` calls equal is one group, and finds its partner in a join.
# What happens: 0.0 and -0.0 are equal for `==`, and tie in a rank; but grouping, joining, `unique`, `is_in`
# and `count_distinct` compare them by their bits. NaN is the reverse: unequal for `==`, found by a join; and a
# NaN whose sign bit is set, which x86 makes of 0.0/0.0, is another one.
# Versions: pyarrow 26.0.1.
# Who meets it: whoever finds new rows by a "left anti" join, or adds up by a float key: a value that was
# computed as -0.0 (rounding -0.3, 0.0 * -1) is news for ever, and its sum is split in two.
# Output seen:
#   0.0 == -0.0: True, ranks [1, 1]
#   groups: [{'k': 0.0, 'n': 1}, {'k': -0.0, 'n': 1}]
#   left anti join with 0.0 leaves: [-0.0]
#   is_in: [True, False], count_distinct: 2
#   nan == nan: False, join: 1 row, distinct nan and -nan: 2
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-python3}
"$python" -m venv --without-pip venv
"$python" -m pip --python venv/bin/python install --quiet --disable-pip-version-check --no-compile \
    pyarrow==26.0.1
venv/bin/python -W ignore - <<'EOF'
import pyarrow as pa
import pyarrow.compute as pc

zeros = pa.array([0.0, -0.0])
equal = pc.equal(zeros[0], zeros[1]).as_py()
ranks = pc.rank(zeros, tiebreaker="min").to_pylist()
print(f"0.0 == -0.0: {equal}, ranks {ranks}")
assert equal and ranks == [1, 1]

table = pa.table({"k": zeros})
groups = table.group_by("k").aggregate([([], "count_all")]).rename_columns(["k", "n"]).to_pylist()
print("groups:", groups)
assert [row["n"] for row in groups] == [1, 1]

known = pa.table({"k": [0.0]})
new = table.join(known, "k", join_type="left anti")["k"].to_pylist()
print("left anti join with 0.0 leaves:", new)
assert [str(value) for value in new] == ["-0.0"]

found, distinct = pc.is_in(zeros, pa.array([0.0])).to_pylist(), pc.count_distinct(zeros).as_py()
print(f"is_in: {found}, count_distinct: {distinct}")
assert found == [True, False] and distinct == 2

nan = pa.table({"k": [float("nan")]})
same, joined = pc.equal(nan["k"][0], nan["k"][0]).as_py(), nan.join(nan, "k", join_type="inner").num_rows
signs = pc.count_distinct(pa.array([float("nan"), -float("nan")])).as_py()
print(f"nan == nan: {same}, join: {joined} row, distinct nan and -nan: {signs}")
assert (same, joined, signs) == (False, 1, 2)
EOF
