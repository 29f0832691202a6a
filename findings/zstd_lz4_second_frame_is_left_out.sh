#!/usr/bin/env bash
# Expected: a file of two frames, one after the other, is both of them: the formats of zstd and lz4 say so, and
# appending to a compressed log makes such files.
# What happens: the one-call decompress() of the two usual packages returns the first frame and says nothing of
# the rest, while their own file readers return both; so do backports.zstd (Python 3.14's module), cramjam, pyarrow.
# A skippable frame in front, which carries no data, is an error for zstandard.decompress and for nothing else.
# Versions: zstandard 0.25.0, lz4 4.4.5, backports.zstd 1.8.0, cramjam 2.14.0, pyarrow 26.0.1. zstandard documents it:
# `allow_extra_data` is true by default; its option to read on, `read_across_frames`, raises "not yet implemented".
# Who meets it: who reads objects whole into memory: rows are lost without an error, from the second append on.
# Output seen (of 4000 bytes):
#   zstandard.decompress 2000, zstandard.open 4000, backports.zstd 4000, cramjam 4000, pyarrow 4000
#   lz4.frame.decompress 2000, lz4.frame.open 4000, cramjam 4000, pyarrow 4000
#   skippable frame in front: zstandard ZstdError, backports.zstd 2000, pyarrow 2000
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python=${PYTHON:-python3}
"$python" -m venv --without-pip venv
"$python" -m pip --python venv/bin/python install --quiet --disable-pip-version-check --no-compile \
    zstandard==0.25.0 lz4==4.4.5 backports.zstd==1.8.0 cramjam==2.14.0 \
    pyarrow==26.0.1
venv/bin/python -W ignore - <<'EOF'
import io

import cramjam
import lz4.frame
import pyarrow as pa
import zstandard
from backports import zstd


def arrow(data, codec):
    return pa.CompressedInputStream(pa.BufferReader(data), codec).read()


first, second = b"a\n" * 1000, b"b\n" * 1000
frames = zstandard.compress(first) + zstandard.compress(second)
sizes = {
    "zstandard.decompress": len(zstandard.decompress(frames)),
    "zstandard.open": len(zstandard.open(io.BytesIO(frames), "rb").read()),
    "backports.zstd": len(zstd.decompress(frames)),
    "cramjam": len(cramjam.zstd.decompress(frames)),
    "pyarrow": len(arrow(frames, "zstd")),
}
print(", ".join(f"{name} {size}" for name, size in sizes.items()))
assert list(sizes.values()) == [2000, 4000, 4000, 4000, 4000]
frames = lz4.frame.compress(first) + lz4.frame.compress(second)
sizes = {
    "lz4.frame.decompress": len(lz4.frame.decompress(frames)),
    "lz4.frame.open": len(lz4.frame.open(io.BytesIO(frames)).read()),
    "cramjam": len(cramjam.lz4.decompress(frames)),
    "pyarrow": len(arrow(frames, "lz4")),
}
print(", ".join(f"{name} {size}" for name, size in sizes.items()))
assert list(sizes.values()) == [2000, 4000, 4000, 4000]
skippable = (0x184D2A50).to_bytes(4, "little") + (3).to_bytes(4, "little") + b"abc" + zstandard.compress(first)
try:
    zstandard.decompress(skippable)
except zstandard.ZstdError:
    others = len(zstd.decompress(skippable)), len(arrow(skippable, "zstd"))
    print(f"skippable frame in front: zstandard ZstdError, backports.zstd {others[0]}, pyarrow {others[1]}")
    assert others == (2000, 2000)
else:
    raise SystemExit("zstandard.decompress skips skippable frames now")
EOF
