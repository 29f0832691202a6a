#!/usr/bin/env bash
# Expected: the optimised statement has the rows of the original one: that is what sqlglot.optimizer is for.
# What happens: a derived table on the nullable side of a LEFT JOIN is merged into the outer query although its
# column is an expression that is never null: coalesce(c, 0). In the original, rows without a partner have null
# there; after the merge, coalesce turns that null into 0, too. Both run in the same DuckDB, on the same rows.
# Versions: sqlglot 30.30.0, DuckDB 2.0.1. Near relatives (joins within the derived table) were repaired in 2025.
# Who meets it: what builds on the optimiser for lineage, rewriting and cost, or runs what it returns. An anti-join
# ("customers without orders") finds nobody.
# Output seen:
#   SELECT "e"."a" AS "a" FROM "e" AS "e" LEFT JOIN "o" AS "o" ON "e"."a" = "o"."a" WHERE COALESCE("o"."c", 0) IS NULL
#   original: [(1,), (3,)]
#   optimised: []
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
import sqlglot
from sqlglot.optimizer import optimize

QUERY = """SELECT e.a FROM e LEFT JOIN (SELECT a, coalesce(c, 0) AS n FROM o) AS x ON e.a = x.a
WHERE x.n IS NULL"""
SCHEMA = {"e": {"a": "int"}, "o": {"a": "int", "c": "int"}}

con = duckdb.connect()
con.execute("CREATE TABLE e AS SELECT * FROM (VALUES (1), (2), (3)) v(a)")
con.execute("CREATE TABLE o AS SELECT * FROM (VALUES (2, 20), (4, NULL)) v(a, c)")
optimised = optimize(sqlglot.parse_one(QUERY, read="duckdb"), schema=SCHEMA, dialect="duckdb").sql("duckdb")
print(optimised)
before, after = sorted(con.sql(QUERY).fetchall()), sorted(con.sql(optimised).fetchall())
print("original:", before)
print("optimised:", after)
assert before == [(1,), (3,)] and after == []
EOF
