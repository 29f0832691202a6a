#!/usr/bin/env bash
# Expected: what is written as JSON and read back is the same instant.
# What happens: msgspec writes offsets in hours and minutes, as RFC 3339 has them, and drops their seconds without
# moving the time: New York before 18 November 1883 is -04:56:02, written as -04:56, which is another instant.
# Most zones have such offsets before their standard time began, so 0001-01-01, a usual "unknown", is hit as well.
# Versions: msgspec 0.22.0, tzdata 2026.6. Python's isoformat() writes the seconds, and msgspec refuses to read those.
# Who meets it: who stores zoned dates of births, maps, archives as messages: keys differ after one round trip.
# Output seen:
#   written: "1880-01-01T00:00:00-04:56"
#   back: 2 seconds off, equal: False
#   with seconds, as Python writes it: ValidationError Invalid RFC3339 encoded datetime
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-python3}
"$python" -m venv --without-pip venv
"$python" -m pip --python venv/bin/python install --quiet --disable-pip-version-check --no-compile \
    msgspec==0.22.0 tzdata==2026.6
venv/bin/python -W ignore - <<'EOF'
import datetime as dt
from zoneinfo import ZoneInfo

import msgspec

value = dt.datetime(1880, 1, 1, tzinfo=ZoneInfo("America/New_York"))
written = msgspec.json.encode(value)
print("written:", written.decode())
back = msgspec.json.decode(written, type=dt.datetime)
off = abs((back - value.astimezone(dt.UTC)).total_seconds())
print(f"back: {off:.0f} seconds off, equal: {back == value}")
assert written == b'"1880-01-01T00:00:00-04:56"' and off == 2 and back != value
try:
    msgspec.json.decode(msgspec.json.encode(value.isoformat()), type=dt.datetime)
except msgspec.ValidationError as error:
    print("with seconds, as Python writes it:", type(error).__name__, error)
else:
    raise SystemExit("offsets with seconds are read now")
EOF
