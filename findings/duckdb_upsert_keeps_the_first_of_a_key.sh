#!/usr/bin/env bash
# Expected: INSERT OR REPLACE of (1, 'old'), (1, 'new') in one statement leaves 'new', as SQLite does with the very
# same text; or it is refused, as PostgreSQL refuses a second update of one row in ON CONFLICT DO UPDATE.
# What happens: DuckDB keeps the first row of each key and leaves out the later ones without a word: replace, update
# and a counter in DO UPDATE alike. Row by row (executemany) the last one wins.
# Versions: DuckDB 2.0.1, Python's own SQLite.
# Who meets it: who loads a batch of changes, oldest first, into a table with a key: it gets each row's oldest state,
# and another state if the same rows come in more batches. A way out: QUALIFY row_number() OVER (PARTITION BY k
# ORDER BY at DESC) = 1 on the source.
# Output seen:
#   INSERT OR REPLACE: DuckDB [(1, 'old')], SQLite [(1, 'new')]
#   ON CONFLICT DO UPDATE, three rows: DuckDB [(1, 'a', 0)], SQLite [(1, 'c', 2)]
#   executemany: DuckDB [(1, 'new')], SQLite [(1, 'new')]
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-python3}
"$python" -m venv --without-pip venv
"$python" -m pip --python venv/bin/python install --quiet --disable-pip-version-check --no-compile \
    duckdb==2.0.1
venv/bin/python -W ignore - <<'EOF'
import sqlite3

import duckdb

TABLE = "CREATE TABLE t (k INTEGER PRIMARY KEY, v VARCHAR, n INTEGER DEFAULT 0)"
REPLACE = "INSERT OR REPLACE INTO t (k, v) VALUES "
UPDATE = "INSERT INTO t (k, v) VALUES {} ON CONFLICT (k) DO UPDATE SET v = excluded.v, n = n + 1"


def both(label, work, columns, expected):
    seen = []
    for connect in (duckdb.connect, sqlite3.connect):
        con = connect(":memory:")
        con.execute(TABLE)
        work(con)
        seen.append(con.execute(f"SELECT {columns} FROM t").fetchall())
    print(f"{label}: DuckDB {seen[0]}, SQLite {seen[1]}")
    assert seen == expected


both(
    "INSERT OR REPLACE",
    lambda con: con.execute(REPLACE + "(1, 'old'), (1, 'new')"),
    "k, v",
    [[(1, "old")], [(1, "new")]],
)
both(
    "ON CONFLICT DO UPDATE, three rows",
    lambda con: con.execute(UPDATE.format("(1, 'a'), (1, 'b'), (1, 'c')")),
    "k, v, n",
    [[(1, "a", 0)], [(1, "c", 2)]],
)
both(
    "executemany",
    lambda con: con.executemany(REPLACE + "(1, ?)", [("old",), ("new",)]),
    "k, v",
    [[(1, "new")], [(1, "new")]],
)
EOF
