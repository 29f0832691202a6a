#!/usr/bin/env bash
# Expected: an engine runs a clause, or refuses it. sqlglot.executor refuses much: window functions, ROLLUP.
# What happens: QUALIFY and DISTINCT ON parse, and are then left out without a word: "the newest row of each key"
# gives all rows.
# Versions: sqlglot 30.30.0 (DuckDB 2.0.1 gives the right answers beside it).
# Who meets it: tests that run statements in plain Python through sqlglot instead of a database.
# Output seen:
#   QUALIFY: executor [(1, 10), (1, 11), (2, 20)], DuckDB [(1, 11), (2, 20)]
#   DISTINCT ON: executor [(1, 10), (1, 11), (2, 20)], DuckDB [(1, 11), (2, 20)]
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-python3}
"$python" -m venv --without-pip venv
"$python" -m pip --python venv/bin/python install --quiet --disable-pip-version-check --no-compile \
    sqlglot==30.30.0 duckdb==2.0.1
venv/bin/python -W ignore - <<'EOF'
import duckdb
from sqlglot.executor import execute

ROWS = [(1, 10), (1, 11), (2, 20)]
QUERIES = {
    "QUALIFY": "SELECT k, v FROM t QUALIFY row_number() OVER (PARTITION BY k ORDER BY v DESC) = 1",
    "DISTINCT ON": "SELECT DISTINCT ON (k) k, v FROM t ORDER BY k, v DESC",
}
con = duckdb.connect()
con.execute("CREATE TABLE t (k INT, v INT)")
con.executemany("INSERT INTO t VALUES (?, ?)", ROWS)
tables = {"t": [dict(zip(("k", "v"), row)) for row in ROWS]}
for clause, query in QUERIES.items():
    mine = sorted(execute(query, schema={"t": {"k": "int", "v": "int"}}, tables=tables, dialect="duckdb").rows)
    right = sorted(con.sql(query).fetchall())
    print(f"{clause}: executor {mine}, DuckDB {right}")
    assert mine == ROWS and right == [(1, 11), (2, 20)]
EOF
