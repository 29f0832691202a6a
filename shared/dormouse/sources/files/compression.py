"""Compressed files: gzip, bzip2 and zstd, recognised by their first bytes and read as a stream."""

from __future__ import annotations

import bz2
import gzip
import io
import zlib
from typing import Any, BinaryIO, cast

import pyarrow as pa

from dormouse.errors import RefusedSourceError

BUFFER_BYTES = 64 * 1024
MAX_UNPACKED_BYTES, MAX_UNPACK_RATIO = 512 * 1024 * 1024, 200
"""A file that unpacks to more than this many bytes, and to more than this many times its size, is
refused: it could unpack to a thousand times its size, for hours.
"""
WORDS = {".gz": "gzipped", ".bz2": "bzipped", ".zst": "zstd-compressed"}
"""What a file with such an ending is."""
_BZIP2 = b"BZh"
_BZIP2_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")
"""What follows the level: a block, or the end of an empty file. Text may begin with BZh, too."""
HEAD_BYTES = 10


def compression_of(head: bytes) -> str:
    """Return the ending of files that begin with `head`, its first `HEAD_BYTES`; or nothing."""
    if head.startswith(b"\x1f\x8b"):
        return ".gz"
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return ".zst"
    is_bzip2 = head.startswith(_BZIP2) and head[4:].startswith(_BZIP2_BLOCKS)
    return ".bz2" if is_bzip2 else ""


def unpacked(file: BinaryIO, compression: str) -> io.BufferedReader:
    """Return the content of a compressed file, with a limit on how much it may unpack to."""
    return io.BufferedReader(_Unpacked(file, compression), BUFFER_BYTES)


def _opened(file: BinaryIO, compression: str) -> BinaryIO:
    match compression:
        case ".gz":
            return cast(BinaryIO, gzip.GzipFile(fileobj=file))
        case ".bz2":
            return cast(BinaryIO, bz2.BZ2File(file))
        case _:
            return cast(BinaryIO, pa.CompressedInputStream(_native(file), "zstd"))


def _native(file: BinaryIO) -> pa.NativeFile:
    return pa.PythonFile(cast(io.IOBase, file))


class _Unpacked(io.RawIOBase):
    """The content of a compressed file."""

    def __init__(self, file: BinaryIO, compression: str) -> None:
        self._stored_bytes = file.seek(0, io.SEEK_END)
        file.seek(0)
        self._packed, self._file = file, _opened(file, compression)
        self._what = f"the {WORDS[compression]} file"
        self._unpacked_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Read as raw files do.

        Raises:
            RefusedSourceError: the file is damaged, or unpacks to too much.
        """
        content = self._read(len(buffer))
        buffer[: len(content)] = content
        self._unpacked_bytes += len(content)
        times = self._unpacked_bytes / max(1, self._stored_bytes)
        if self._unpacked_bytes > MAX_UNPACKED_BYTES and times > MAX_UNPACK_RATIO:
            raise RefusedSourceError(
                f"{self._what} takes {self._stored_bytes:,} bytes and unpacks to more than "
                f"{MAX_UNPACK_RATIO} times of that",
                hint=f"files that unpack to over {MAX_UNPACKED_BYTES >> 20} MiB may not: cut it",
            )
        return len(content)

    def _read(self, count: int) -> bytes:
        try:
            return self._file.read(count)
        except (EOFError, zlib.error, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # of the disk; what is wrong with the content has no number
            raise RefusedSourceError(f"{self._what} is damaged: {error}") from error

    def close(self) -> None:
        self._file.close()
        self._packed.close()
        super().close()
