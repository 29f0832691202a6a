"""Text files as UTF-8, whatever their encoding is."""

from __future__ import annotations

import codecs
from typing import BinaryIO, cast

from dormouse.errors import RefusedSourceError
from dormouse.tables.properties import CsvDialect

UTF8_BOM = codecs.BOM_UTF8
"""The byte order mark that some programs write at the start of a UTF-8 file."""
ENCODING_HINT = "the table's property csv_encoding says how its files are encoded"


def strip_bom(start: bytes) -> bytes:
    """Return the first bytes of a text file without a UTF-8 byte order mark.

    Raises:
        RefusedSourceError: the byte order mark is that of UTF-16.
    """
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise RefusedSourceError(
            "the file is in UTF-16", hint="write it in UTF-8, or set csv_encoding"
        )
    return start.removeprefix(UTF8_BOM)


def in_utf8(file: BinaryIO, dialect: CsvDialect) -> BinaryIO:
    """Return a file of a dialect as one of UTF-8."""
    is_utf8 = dialect.encoding == "utf-8"
    return file if is_utf8 else cast(BinaryIO, _Recoded(file, dialect.encoding))


class _Recoded:
    """A file of another encoding as UTF-8."""

    def __init__(self, file: BinaryIO, encoding: str) -> None:
        self._file, self._encoding = file, encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()

    def read(self, size: int) -> bytes:
        """Return about as many bytes, and none at the end."""
        while True:
            data = self._file.read(size)
            try:
                text = self._decoder.decode(data, final=not data)
            except UnicodeError as error:
                raise RefusedSourceError(
                    f"the CSV file is not {self._encoding}", hint=ENCODING_HINT
                ) from error
            if text or not data:
                return text.encode()
