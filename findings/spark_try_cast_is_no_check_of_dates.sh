#!/usr/bin/env bash
# Expected: with ANSI mode on (the default since 4.0) try_cast gives null for text that is not of the type, so
# `try_cast(s AS date) IS NULL` finds bad rows.
# What happens: a date may be followed by a blank or a T and anything: '2026-01-05 banana' is a date. A year alone is
# one. '12:30' is a timestamp: today's, so the same file has other values each day. '1d' is a double.
# Versions: PySpark 4.3.0, Java 17. It is meant so: what follows a blank or a T after the day is ignored for a date.
# Who meets it: who separates good from bad rows by try_cast: shifted columns and concatenated fields pass.
# Output seen:
#   date '2026-01-05 banana': 2026-01-05
#   date '2026-01-05Tomorrow': 2026-01-05
#   date '2026': 2026-01-01
#   timestamp '2026-01-05 banana': None
#   timestamp '12:30': the 12:30 of today: True
#   double '1d': 1.0
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-python3}
"$python" -m venv --without-pip venv
"$python" -m pip --python venv/bin/python install --quiet --disable-pip-version-check --no-compile \
    pyspark==4.3.0
venv/bin/python -W ignore - <<'EOF'
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")


def cast(text, kind):
    return spark.sql(f"SELECT try_cast('{text}' AS {kind})").first()[0]


for text, expected in (("2026-01-05 banana", "2026-01-05"), ("2026-01-05Tomorrow", "2026-01-05"), ("2026", "2026-01-01")):
    seen = cast(text, "date")
    print(f"date '{text}': {seen}")
    assert str(seen) == expected
tail = cast("2026-01-05 banana", "timestamp")
print("timestamp '2026-01-05 banana':", tail)
today = spark.sql("SELECT try_cast('12:30' AS timestamp) - current_date() = INTERVAL '12:30' HOUR TO MINUTE").first()[0]
print("timestamp '12:30': the 12:30 of today:", today)
number = cast("1d", "double")
print("double '1d':", number)
assert tail is None and today is True and number == 1.0
EOF
