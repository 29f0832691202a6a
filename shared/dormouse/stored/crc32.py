"""The CRC-32 of zlib, gzip and S3: of all bytes that shards describe, and of what S3 is sent.

ISA-L computes it with the processor's instructions for it, several times as fast as zlib. It has no
wheels for some platforms; there zlib computes the same values.
"""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]
