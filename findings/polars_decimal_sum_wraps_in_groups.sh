#!/usr/bin/env bash
# Expected: a sum of decimals that does not fit is an error, in each place in the same way.
# What happens: Polars refuses the sum of a whole column, and wraps the same sum to a negative number within
# group_by and over. pyarrow refuses an addition that may not fit, and wraps the sum, whole or in groups.
# Versions: Polars 2.1.0, pyarrow 26.0.1.
# Who meets it: sums of large units (wei, satoshi, nanos) in decimal(38, 0). The check by a total of all rows raises,
# the report by customer is quietly wrong.
# Output seen:
#   Polars, whole: ComputeError overflow in decimal addition in sum
#   Polars, group_by: -40282366920938463463374607431768211459
#   Polars, over: -40282366920938463463374607431768211459
#   pyarrow, add: ArrowInvalid Decimal precision out of range [1, 38]: 39
#   pyarrow, sum: -40282366920938463463374607431768211459
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-python3}
"$python" -m venv --without-pip venv
"$python" -m pip --python venv/bin/python install --quiet --disable-pip-version-check --no-compile \
    polars==2.1.0 pyarrow==26.0.1
venv/bin/python -W ignore - <<'EOF'
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

WRAPPED = 3 * (10**38 - 1) - 2**128
t = pl.DataFrame({"g": [1, 1, 1], "d": [Decimal("9" * 38)] * 3}, schema={"g": pl.Int64, "d": pl.Decimal(38, 0)})
total = pl.col("d").sum()
arrow = pa.array([Decimal("9" * 38)] * 3, pa.decimal128(38, 0))
cases = {
    "Polars, whole": (lambda: t.select(total).item(), "ComputeError"),
    "Polars, group_by": (lambda: t.group_by("g").agg(total)["d"].item(), WRAPPED),
    "Polars, over": (lambda: t.select(total.over("g"))["d"][0], WRAPPED),
    "pyarrow, add": (lambda: pc.add(arrow, arrow), "ArrowInvalid"),
    "pyarrow, sum": (lambda: pc.sum(arrow).as_py(), WRAPPED),
}
for label, (call, expected) in cases.items():
    try:
        seen = call()
        print(f"{label}: {seen}")
    except (pl.exceptions.ComputeError, pa.ArrowInvalid) as error:
        seen = type(error).__name__
        print(f"{label}: {seen} {str(error).splitlines()[0]}")
    assert seen == expected
EOF
