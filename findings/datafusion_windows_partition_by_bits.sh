#!/usr/bin/env bash
# Expected: PARTITION BY, GROUP BY and joins agree about which values are equal.
# What happens: 0.0 and -0.0 are one group for GROUP BY, DISTINCT, UNION and a join, and two partitions for a
# window; rank() puts -0.0 before 0.0, though neither is less than the other by `<`.
# Versions: DataFusion 55.0.0 (Python).
# Who meets it: "newest row of each key" by row_number() = 1 keeps two rows where GROUP BY makes one; shares of a
# total (x / sum(x) OVER (PARTITION BY f)) do not add up as the grouped report says. Also what runs on DataFusion.
# Output seen:
#   GROUP BY: [(0.0, 2)]
#   joined pairs: 4
#   rows with row_number() = 1: 2
#   count(*) OVER (PARTITION BY f): [1, 1]
#   rank() OVER (ORDER BY f): [2, 1], rows where a.f < b.f: 0
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-python3}
"$python" -m venv --without-pip venv
"$python" -m pip --python venv/bin/python install --quiet --disable-pip-version-check --no-compile \
    datafusion==55.0.0 pyarrow==26.0.1
venv/bin/python -W ignore - <<'EOF'
from datafusion import SessionContext

ctx = SessionContext()
ctx.sql("CREATE TABLE t AS SELECT * FROM (VALUES (1, 0.0::double), (2, -0.0::double)) v(id, f)").collect()


def rows(query):
    return [tuple(row.values()) for row in ctx.sql(query).to_pylist()]


groups = rows("SELECT f, count(*) AS n FROM t GROUP BY f")
print("GROUP BY:", groups)
pairs = len(rows("SELECT a.id AS x, b.id AS y FROM t a JOIN t b ON a.f = b.f"))
print("joined pairs:", pairs)
newest = rows("SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY f ORDER BY id) AS r FROM t) WHERE r = 1")
print("rows with row_number() = 1:", len(newest))
counts = [n for _, n in sorted(rows("SELECT id, count(*) OVER (PARTITION BY f) AS n FROM t"))]
print("count(*) OVER (PARTITION BY f):", counts)
ranks = [r for _, r in sorted(rows("SELECT id, rank() OVER (ORDER BY f) AS r FROM t"))]
less = len(rows("SELECT a.id FROM t a, t b WHERE a.f < b.f"))
print(f"rank() OVER (ORDER BY f): {ranks}, rows where a.f < b.f: {less}")
assert groups == [(0.0, 2)] and pairs == 4
assert len(newest) == 2 and counts == [1, 1] and ranks == [2, 1] and less == 0
EOF
