#!/usr/bin/env bash
# Expected: narwhals runs one expression over frames of many libraries; the answer is that of the expression, which
# is written as in Polars.
# What happens: nulls are made equal with care, but ties and NaN are not. round() of 2.5 is 2 over Polars and 3 over
# pyarrow and DuckDB. NaN is above all numbers over Polars and DuckDB, and above none over pyarrow: a filter has other
# rows, and the greatest two are other ones; over DuckDB max() is NaN, too.
# Versions: narwhals 2.29.0, Polars 2.1.0, pyarrow 26.0.1, DuckDB 2.0.1.
# Who meets it: libraries that take "any frame" and test with one of them.
# Output seen:
#   round of 0.5, 1.5, 2.5: polars [0.0, 2.0, 2.0], pyarrow [1.0, 2.0, 3.0], duckdb [1.0, 2.0, 3.0]
#   rows with n > 0: polars [1, 2, 3], pyarrow [1, 3], duckdb [1, 2, 3]
#   top_k(1) by n: polars [2], pyarrow [3], duckdb [2]
#   max of n: polars [3.0], pyarrow [3.0], duckdb [nan]
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-python3}
"$python" -m venv --without-pip venv
"$python" -m pip --python venv/bin/python install --quiet --disable-pip-version-check --no-compile \
    narwhals==2.29.0 polars==2.1.0 pyarrow==26.0.1 duckdb==2.0.1
venv/bin/python -W ignore - <<'EOF'
import duckdb
import narwhals as nw
import polars as pl

table = pl.DataFrame({"k": [1, 2, 3], "x": [0.5, 1.5, 2.5], "n": [1.0, float("nan"), 3.0]}).to_arrow()
FRAMES = {"polars": pl.from_arrow(table), "pyarrow": table, "duckdb": duckdb.from_arrow(table)}
CASES = {
    "round of 0.5, 1.5, 2.5": (lambda f: f.select("k", r=nw.col("x").round(0)), "r"),
    "rows with n > 0": (lambda f: f.filter(nw.col("n") > 0), "k"),
    "top_k(1) by n": (lambda f: f.top_k(1, by="n"), "k"),
    "max of n": (lambda f: f.select(nw.col("n").max().alias("k")), "k"),
}
EXPECTED = {
    "round of 0.5, 1.5, 2.5": ["[0.0, 2.0, 2.0]", "[1.0, 2.0, 3.0]", "[1.0, 2.0, 3.0]"],
    "rows with n > 0": ["[1, 2, 3]", "[1, 3]", "[1, 2, 3]"],
    "top_k(1) by n": ["[2]", "[3]", "[2]"],
    "max of n": ["[3.0]", "[3.0]", "[nan]"],
}
for label, (ask, column) in CASES.items():
    seen = []
    for frame in FRAMES.values():
        result = ask(nw.from_native(frame).lazy()).collect("pyarrow").to_native().sort_by("k")
        seen.append(str(result[column].to_pylist()))
    print(f"{label}: " + ", ".join(f"{name} {value}" for name, value in zip(FRAMES, seen)))
    assert seen == EXPECTED[label]
EOF
