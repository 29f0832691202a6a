#!/usr/bin/env bash
# Expected: pandas 3 holds 9999-12-31 in microseconds, its own unit now. Asked whether it is among dates in
# nanoseconds, the answer is no, as `==` says.
# What happens: merge, isin, concat and get_indexer convert the microseconds to nanoseconds first, and raise for
# the one far date; the rows that do match are lost with it. Which unit a column has depends on its source:
# text and datetime give microseconds, one stamp with nine digits, or a file with nanoseconds, gives nanoseconds.
# Versions: pandas 3.1.1, numpy 2.4.6.
# Who meets it: tables with valid_to = 9999-12-31 that are joined with what another writer wrote in nanoseconds.
# With pandas 2 both sides had nanoseconds, and the far date failed when it was made, not in the join.
# Output seen:
#   ==: [False, True]
#   merge: OutOfBoundsDatetime
#   isin: OutOfBoundsDatetime
#   concat: OutOfBoundsDatetime
#   get_indexer: OutOfBoundsDatetime
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

left = pd.DataFrame({"t": pd.to_datetime(["9999-12-31", "2026-01-01"])})
right = pd.DataFrame({"t": pd.to_datetime(["2026-01-01"]).astype("datetime64[ns]"), "v": 1})
assert str(left["t"].dtype) == "datetime64[us]"
equal = (left["t"] == right["t"][0]).tolist()
print("==:", equal)
assert equal == [False, True]
calls = {
    "merge": lambda: left.merge(right, on="t"),
    "isin": lambda: left["t"].isin(right["t"]),
    "concat": lambda: pd.concat([left["t"], right["t"]]),
    "get_indexer": lambda: pd.DatetimeIndex(right["t"]).get_indexer(pd.DatetimeIndex(left["t"])),
}
for name, call in calls.items():
    try:
        call()
    except pd.errors.OutOfBoundsDatetime as error:
        print(f"{name}: {type(error).__name__}")
    else:
        raise SystemExit(f"{name} answers now")
EOF
