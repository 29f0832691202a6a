#!/usr/bin/env bash
# Expected: a query fails or answers the same by both engines of Polars; a column of another length is an error.
# What happens: the streaming engine repeats a column of one row in all rows. A filter inside `select` that leaves one
# value fills the column with it, where the other engine raises ShapeError; with two left, both raise.
# Versions: Polars 2.1.0. Known since January 2026: https://github.com/pola-rs/polars/issues/26023
# Who meets it: whoever collects with engine="streaming" what was tried with the other engine: a batch in which one
# row passes gets a price in every row, and the next batch fails.
# Output seen:
#   one is left, in-memory: ShapeError
#   one is left, streaming: [(1, 5), (2, 5), (3, 5)]
#   two are left, in-memory: ShapeError
#   two are left, streaming: ShapeError
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-python3}
"$python" -m venv --without-pip venv
"$python" -m pip --python venv/bin/python install --quiet --disable-pip-version-check --no-compile \
    polars==2.1.0
venv/bin/python - <<'EOF'
import polars as pl

orders = pl.LazyFrame({"id": [1, 2, 3], "price": [3, 5, 4]})
answers = []
for name, least in (("one is left", 5), ("two are left", 4)):
    query = orders.select("id", pl.col("price").filter(pl.col("price") >= least))
    for engine in ("in-memory", "streaming"):
        try:
            answers.append(query.collect(engine=engine).rows())
        except pl.exceptions.ShapeError as error:
            answers.append(type(error).__name__)
        print(f"{name}, {engine}: {answers[-1]}")
assert answers == ["ShapeError", [(1, 5), (2, 5), (3, 5)], "ShapeError", "ShapeError"]
EOF
