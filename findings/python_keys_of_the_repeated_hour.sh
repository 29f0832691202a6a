#!/usr/bin/env bash
# Expected: two instants that a column tells apart are two keys of a Python dict.
# What happens: pyarrow, Polars and DuckDB hand zoned timestamps to Python as datetime with a ZoneInfo. Python
# compares and hashes two of one zone by their clock alone and leaves out `fold` (PEP 495 says so): 02:30 summer
# time and 02:30 winter time are equal, one key, 0 seconds apart. Polars' own rows_by_key(unique=True) loses a row by it,
# though its n_unique counts two.
# pandas' Timestamp tells them apart, its to_pydatetime() does not.
# Versions: pyarrow 26.0.1, Polars 2.1.0, DuckDB 2.0.1 (with pytz 2026.6), pandas 3.1.1.
# Who meets it: "rows by time" in a dict, a set of what was seen, a comparison of two versions row by row: one hour a
# year is lost or taken for the other. A way out: convert to UTC before values become Python's.
# Output seen (distinct instants, distinct keys):
#   pyarrow: 2, 1
#   Polars: 2, 1, rows_by_key: 1 of 2 rows
#   DuckDB: 2, 1
#   pandas: 2, Timestamp 2, to_pydatetime 1
#   difference: 0:00:00, in UTC: 1:00:00
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-python3}
"$python" -m venv --without-pip venv
"$python" -m pip --python venv/bin/python install --quiet --disable-pip-version-check --no-compile \
    pyarrow==26.0.1 polars==2.1.0 duckdb==2.0.1 pandas==3.1.1 \
    pytz==2026.6 tzdata==2026.6
venv/bin/python -W ignore - <<'EOF'
import datetime as dt

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

utc = pa.array([dt.datetime(2026, 10, 25, hour, 30) for hour in (0, 1)], pa.timestamp("us"))
local = utc.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us", "Europe/Berlin"))
values = local.to_pylist()
arrow = pc.count_distinct(local).as_py(), len(set(values))
print("pyarrow: {}, {}".format(*arrow))

frame = pl.DataFrame({"t": local, "v": [1, 2]})
polars = frame["t"].n_unique(), len(set(frame["t"].to_list()))
kept = sum(len(rows) for rows in frame.rows_by_key("t", unique=True).values())
print("Polars: {}, {}, rows_by_key: {} of 2 rows".format(*polars, kept))

con = duckdb.connect()
con.execute("SET TimeZone = 'Europe/Berlin'")
rows = con.execute("SELECT t FROM (VALUES ('2026-10-25 00:30Z'::timestamptz), ('2026-10-25 01:30Z')) v(t)").fetchall()
duck = con.execute("SELECT count(DISTINCT t) FROM (SELECT unnest(?) t)", [[row[0] for row in rows]]).fetchone()[0]
print(f"DuckDB: {duck}, {len(set(rows))}")

series = local.to_pandas()
pandas = series.nunique(), len(set(series)), len({value.to_pydatetime() for value in series})
print("pandas: {}, Timestamp {}, to_pydatetime {}".format(*pandas))
apart = values[1] - values[0], values[1].astimezone(dt.UTC) - values[0].astimezone(dt.UTC)
print("difference: {}, in UTC: {}".format(*apart))
assert arrow == polars == (2, 1) and kept == 1 and (duck, len(set(rows))) == (2, 1) and pandas == (2, 2, 1)
assert apart == (dt.timedelta(0), dt.timedelta(hours=1))
EOF
