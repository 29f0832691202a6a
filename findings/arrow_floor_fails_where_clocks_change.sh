#!/usr/bin/env bash
# Expected: each instant with a zone has an hour that it belongs to, so floor_temporal(unit="hour") answers.
# What happens: one instant in the hour that comes twice in autumn fails the whole column, and so does ceiling
# to the hour before a gap in spring, though each instant is given in UTC and nothing about it is in doubt.
# Unit "day" works. Minutes, which no change of clocks shifts, fail as well.
# Versions: pyarrow 26.0.1. The documentation names one error, an unknown zone, and there is no option such as
# `ambiguous`, which assume_timezone (and pandas' floor) has.
# Who meets it: whoever counts events by hour or minute of local time: the job runs all year, and fails for the
# files of one night. A way out: floor in UTC (right for zones whose offsets are whole hours), label after.
# Output seen:
#   day: ['2026-10-24 22:00', '2026-10-24 22:00']
#   floor hour: ArrowInvalid: Local time is ambiguous: 2026-10-25 02:00:00 is ambiguous.  It could be
#   floor minute: ArrowInvalid: Local time is ambiguous: 2026-10-25 02:30:00 is ambiguous.  It could be
#   ceil hour in spring: ArrowInvalid: Local time does not exist: 2026-03-29 02:00:00 is in a gap between
#   by way of UTC: ['2026-10-25 00:00', '2026-10-25 01:00']
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-python3}
"$python" -m venv --without-pip venv
"$python" -m pip --python venv/bin/python install --quiet --disable-pip-version-check --no-compile \
    pyarrow==26.0.1 tzdata==2026.6
venv/bin/python -W ignore - <<'EOF'
import datetime as dt

import pyarrow as pa
import pyarrow.compute as pc


def instants(*utc):
    naive = pa.array([dt.datetime.fromisoformat(text) for text in utc], pa.timestamp("s"))
    return naive.cast(pa.timestamp("s", "UTC")).cast(pa.timestamp("s", "Europe/Berlin"))


def utc(array):
    return [f"{value:%Y-%m-%d %H:%M}" for value in array.cast(pa.timestamp("s", "UTC")).to_pylist()]


def refused(label, function, array, unit, start):
    try:
        function(array, unit=unit)
    except pa.ArrowInvalid as error:
        first = str(error).splitlines()[0]
        print(f"{label}: ArrowInvalid: {first}")
        assert first.startswith(start)
    else:
        raise SystemExit(f"{label} works now")


autumn, spring = instants("2026-10-25T00:30", "2026-10-25T01:30"), instants("2026-03-29T00:30")
days = utc(pc.floor_temporal(autumn, unit="day"))
print("day:", days)
assert days == ["2026-10-24 22:00"] * 2
refused("floor hour", pc.floor_temporal, autumn, "hour", "Local time is ambiguous")
refused("floor minute", pc.floor_temporal, autumn, "minute", "Local time is ambiguous")
refused("ceil hour in spring", pc.ceil_temporal, spring, "hour", "Local time does not exist")
hours = utc(pc.floor_temporal(autumn.cast(pa.timestamp("s", "UTC")), unit="hour"))
print("by way of UTC:", hours)
assert hours == ["2026-10-25 00:00", "2026-10-25 01:00"]
EOF
