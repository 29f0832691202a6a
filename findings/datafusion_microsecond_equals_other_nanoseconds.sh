#!/usr/bin/env bash
# Expected: a microsecond that is cast to nanoseconds equals no time between two microseconds.
# What happens: 1 microsecond, cast to nanoseconds, equals 1,500 nanoseconds, and is not less: the optimiser casts the
# literal to microseconds instead of the column to nanoseconds, and cuts off what does not fit.
# Versions: DataFusion 55.0.0 (Python).
# Who meets it: tables whose times became nanoseconds (and joins of both units by a literal): `=`, `IN` and `<` find
# other rows than the values that the same query shows. A function around the cast, greatest(…), keeps it in place.
# Output seen:
#   1 us, 2 us as nanoseconds: = 1500: 1 rows, < 1500: 0 rows, with greatest: 0 and 1 rows
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
us, ns = ("'Timestamp(%s, None)'" % unit for unit in ("Microsecond", "Nanosecond"))
ctx.sql(f"CREATE TABLE t AS SELECT arrow_cast(c, {us}) AS at FROM (VALUES (1), (2)) v(c)").collect()


def count(column, op):
    return len(ctx.sql(f"SELECT at FROM t WHERE {column} {op} arrow_cast(1500, {ns})").to_pylist())


cast = f"arrow_cast(at, {ns})"
found = [count(column, op) for column in (cast, f"greatest({cast})") for op in "=<"]
print("1 us, 2 us as nanoseconds: = 1500: %d rows, < 1500: %d rows, with greatest: %d and %d rows" % tuple(found))
assert found == [1, 0, 0, 1]
EOF
