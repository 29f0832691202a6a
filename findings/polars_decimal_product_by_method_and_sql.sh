#!/usr/bin/env bash
# Expected: one library multiplies two decimals in one way: 19.99 * 0.05 = 0.9995.
# What happens: the same product is 0.9995 in Polars' SQL, and 1.00 as an expression: there the result keeps the
# greater scale of the two factors and is rounded to it, where SQL engines add the scales. 0.05 * 0.05 is 0.00.
# Versions: Polars 2.1.0, DuckDB 2.0.1 beside it.
# Who meets it: prices times rates. Every row is rounded before the sum, and what was moved from a method chain to
# SQL, or back, gives other totals.
# Output seen:
#   expression: ['1.00', '0.00'] Decimal(precision=38, scale=2)
#   Polars SQL: ['0.9995', '0.0025']
#   DuckDB: ['0.9995', '0.0025']
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-python3}
"$python" -m venv --without-pip venv
"$python" -m pip --python venv/bin/python install --quiet --disable-pip-version-check --no-compile \
    polars==2.1.0 duckdb==2.0.1 pyarrow==26.0.1
venv/bin/python -W ignore - <<'EOF'
from decimal import Decimal

import duckdb
import polars as pl

money = pl.Decimal(10, 2)
t = pl.DataFrame(
    {"price": [Decimal("19.99"), Decimal("0.05")], "rate": [Decimal("0.05")] * 2},
    schema={"price": money, "rate": money},
)
product = t.select(pl.col("price") * pl.col("rate")).to_series()
method = [str(value) for value in product]
print("expression:", method, product.dtype)
sql = [str(row[0]) for row in t.sql("SELECT price * rate FROM self").rows()]
print("Polars SQL:", sql)
other = [str(row[0]) for row in duckdb.sql("SELECT price * rate FROM t").fetchall()]
print("DuckDB:", other)
assert method == ["1.00", "0.00"] and product.dtype == pl.Decimal(38, 2)
assert sql == other == ["0.9995", "0.0025"]
EOF
