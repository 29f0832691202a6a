#!/usr/bin/env bash
# Expected: group_by_dynamic(every="2h") and dt.truncate("2h") name the same windows: both speak of "every" in the
# same words.
# What happens: on the days on which clocks change they part: group_by_dynamic counts two hours of elapsed time from
# the first window, so windows begin at odd hours of local time for the rest of the data; truncate keeps to the clock.
# Versions: Polars 2.1.0.
# Who meets it: who fills a table of windows by one and looks into it by the other. No row finds its window from that
# night on. A way out: truncate first, then group_by.
# Output seen (begin of window in UTC: rows, one row each half hour, Europe/Berlin, 25 October 2026):
#   group_by_dynamic: {'22:00': 4, '00:00': 4, '02:00': 4}
#   truncate: {'22:00': 4, '00:00': 2, '01:00': 4, '03:00': 2}
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-python3}
"$python" -m venv --without-pip venv
"$python" -m pip --python venv/bin/python install --quiet --disable-pip-version-check --no-compile \
    polars==2.1.0 tzdata==2026.6
venv/bin/python -W ignore - <<'EOF'
import datetime as dt

import polars as pl

begin, end = dt.datetime(2026, 10, 24, 22), dt.datetime(2026, 10, 25, 3, 30)
local = pl.datetime_range(begin, end, "30m", time_zone="UTC", eager=True).dt.convert_time_zone("Europe/Berlin")
t = pl.DataFrame({"t": local})


def windows(grouped):
    named = grouped.sort("t").with_columns(pl.col("t").dt.convert_time_zone("UTC").dt.strftime("%H:%M"))
    return dict(named.rows())


dynamic = windows(t.group_by_dynamic("t", every="2h").agg(pl.len()))
truncated = windows(t.group_by(pl.col("t").dt.truncate("2h")).agg(pl.len()))
print("group_by_dynamic:", dynamic)
print("truncate:", truncated)
assert dynamic == {"22:00": 4, "00:00": 4, "02:00": 4}
assert truncated == {"22:00": 4, "00:00": 2, "01:00": 4, "03:00": 2}
EOF
