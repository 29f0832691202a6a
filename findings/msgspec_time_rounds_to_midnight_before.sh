#!/usr/bin/env bash
# Expected: a time of day with more than six digits is cut or rounded to the nearest microsecond, or refused.
# What happens: msgspec rounds half up, and carries into the day, which a time of day does not have: 23:59:59.9999999
# becomes 00:00:00, the *begin* of the day. Of a date and time the carry goes to the next day, and year.
# Python's own fromisoformat cuts.
# Versions: msgspec 0.22.0; Python 3.11 or newer for fromisoformat.
# Who meets it: times of .NET (7 digits), Go, Java or Parquet (9 digits), where "end of day" is
# 23:59:59.9999999: an end before its begin, from JSON and MessagePack alike.
# Output seen:
#   time 23:59:59.9999999: msgspec 00:00:00, Python 23:59:59.999999
#   datetime 2026-12-31T23:59:59.9999999+00:00: msgspec 2027-01-01T00:00:00+00:00, Python 2026-12-31T23:59:59.999999+00:00
#   MessagePack, time: 00:00:00
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-python3}
"$python" -m venv --without-pip venv
"$python" -m pip --python venv/bin/python install --quiet --disable-pip-version-check --no-compile \
    msgspec==0.22.0
venv/bin/python -W ignore - <<'EOF'
import datetime as dt
import json

import msgspec

for kind, text, expected in (
    (dt.time, "23:59:59.9999999", "00:00:00"),
    (dt.datetime, "2026-12-31T23:59:59.9999999+00:00", "2027-01-01T00:00:00+00:00"),
):
    mine = msgspec.json.decode(json.dumps(text), type=kind).isoformat()
    python = kind.fromisoformat(text).isoformat()
    print(f"{kind.__name__} {text}: msgspec {mine}, Python {python}")
    assert mine == expected and python == text.replace(".9999999", ".999999")
packed = msgspec.msgpack.decode(msgspec.msgpack.encode("23:59:59.9999999"), type=dt.time).isoformat()
print("MessagePack, time:", packed)
assert packed == "00:00:00"
EOF
