#!/usr/bin/env bash
# Expected: ascii_lower returns each text in lower case, as utf8_lower does. An array of texts may begin anywhere in
# its buffer: the format says that the first offset may be another than 0, and validate(full=True) accepts it.
# What happens: the result has the bytes of the texts at its beginning, but the offsets of the array that was given.
# It is an invalid array: texts are shifted, and the last ones lie beyond the end of the buffer. ascii_upper and
# ascii_swapcase do the same. match_substring on the result finds other rows, without an error.
# Versions: pyarrow 26.0.1.
# Who meets it: who calls it on arrays that another library hands over, such as DataFusion to a function in Python.
# Output seen:
#   given: ['ABC', 'DEF'], valid
#   utf8_lower: ['abc', 'def']
#   ascii_lower: invalid: Offset invariant failure: offset for slot 2 out of bounds: 9 > 6
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-python3}
"$python" -m venv --without-pip venv
"$python" -m pip --python venv/bin/python install --quiet --disable-pip-version-check --no-compile \
    pyarrow==26.0.1
venv/bin/python - <<'EOF'
import pyarrow as pa
import pyarrow.compute as pc

ends = pa.array([3, 6, 9], pa.int32()).buffers()[1]
given = pa.StringArray.from_buffers(2, ends, pa.py_buffer(b"xxxABCDEFxxx"))
given.validate(full=True)
print(f"given: {given.to_pylist()}, valid")
print("utf8_lower:", pc.utf8_lower(given).to_pylist())
lower = pc.ascii_lower(given)
try:
    lower.validate(full=True)
except pa.ArrowInvalid as error:
    print("ascii_lower: invalid:", error)
    raise SystemExit(0)
raise SystemExit("it is valid now")
EOF
