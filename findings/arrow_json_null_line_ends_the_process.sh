#!/usr/bin/env bash
# Expected: a line of JSON that is no object is an error, as 5, "x" and [] are.
# What happens: a file whose first line is null ends the process with a segmentation fault (exit 139), with and
# without threads; nothing in Python can catch it. A null after a line with an object is a row of nulls.
# Versions: pyarrow 26.0.1. `null` is a whole JSON text (RFC 8259), and what jq prints for a missing value.
# Who meets it: whoever reads JSON lines of others with pyarrow.json, or a dataset of format json: one short
# file ends the reader. A way out: leave such lines out before, or read lines with another library.
# Output seen:
#   5: ArrowInvalid: JSON parse error: Column() changed from object to number in row 0
#   []: ArrowInvalid: JSON parse error: Column() changed from object to array in row 0
#   {"a": 1} and null: [{'a': 1}, {'a': None}]
#   null: the process ended with signal 11
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-python3}
"$python" -m venv --without-pip venv
"$python" -m pip --python venv/bin/python install --quiet --disable-pip-version-check --no-compile pyarrow==26.0.1
cat > read.py <<'EOF'
import sys

import pyarrow as pa
from pyarrow import json

schema = pa.schema([("a", pa.int64())])
parse = json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
try:
    print(json.read_json(pa.BufferReader(sys.argv[1].encode()), parse_options=parse).to_pylist())
except pa.ArrowInvalid as error:
    print(f"ArrowInvalid: {error}")
EOF
venv/bin/python -W ignore - <<'EOF'
import subprocess
import sys


def read(lines):
    return subprocess.run([sys.executable, "read.py", lines], capture_output=True, text=True)


for lines in ("5", "[]"):
    shown = read(lines).stdout.strip()
    print(f"{lines}: {shown}")
    assert shown.startswith("ArrowInvalid")
shown = read('{"a": 1}\nnull').stdout.strip()
print(f'{{"a": 1}} and null: {shown}')
assert shown == "[{'a': 1}, {'a': None}]"
ended = read("null")
if ended.returncode >= 0:
    raise SystemExit(f"null: {ended.stdout}")
print(f"null: the process ended with signal {-ended.returncode}")
EOF
