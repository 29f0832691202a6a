"""The syntax of CSV files, strictly by RFC 4180: divide a file into blocks of
whole records, and validate them.

Arrow parses records fast, but tolerates misplaced quotes: one stray quote can turn half a file into
a single value. Each block is therefore validated first, by the bytes next to its quotes, about as
fast as Arrow parses. Only a block that is not well formed is read again field by field, to find the
position of the error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.arrow.types import Array
from dormouse.errors import RefusedSourceError
from dormouse.tables.csv_dialect import CsvDialect

BLOCK_BYTES = 1024 * 1024
"""How much of a file is parsed at once."""
RECORD_BYTES = 4 * 1024 * 1024
"""The largest allowed record."""
FIELD_LINES = 1000
"""How many line ends a quoted field may contain: two stray quotes turn
everything between them into one field.
"""
UTF8_BOM = b"\xef\xbb\xbf"
"""The byte order mark that some programs write at the start of a UTF-8 file."""
_HINT = (
    "a field is enclosed in quotes as a whole, and quotes within are doubled; the properties "
    "csv_quote and csv_separator say which characters these are"
)


@dataclass(frozen=True, slots=True)
class Block:
    """Whole records, as they are in the file; `line` is the line
    number of the first, counted from 1.
    """

    data: bytes
    line: int
    line_ends: int = 0

    def line_of(self, at: int) -> int:
        """Return the line number of the byte at offset `at` of the block."""
        return self.line + self.data.count(b"\n", 0, at)


@dataclass(frozen=True, slots=True)
class Record:
    """One record: the line where it begins, the offset in its block where
    it ends, its fields as written.
    """

    line: int
    end: int
    fields: tuple[bytes, ...]

    @property
    def is_blank(self) -> bool:
        """Return whether the record is an empty line."""
        return self.fields == (b"",)


class CsvStructure:
    """The grammar of one dialect; `names` are the names of the columns, once they are known."""

    def __init__(self, dialect: CsvDialect) -> None:
        """Compile the grammar."""
        self.names: tuple[str, ...] = ()
        self._quote, self._separator = dialect.quote.encode(), dialect.separator.encode()
        quote, separator = re.escape(self._quote), re.escape(self._separator)
        never = b"(?!)"
        opened = b"%b[^%b]*+(?:%b%b[^%b]*+)*+" % (quote, quote, quote, quote, quote)
        quoted = opened + quote if quote else never
        self._opened = re.compile(opened if quote else never)
        self._quoted = re.compile(quoted)
        self._between = re.compile(b"%b[^%b]*%b" % (quote, quote, quote) if quote else never)
        self._field = re.compile(
            b"(%b|[^%b%b\r\n]*+)(%b|\r?\n|\\Z)" % (quoted, separator, quote, separator)
        )
        self._unquoted = re.compile(b"[^%b\r\n]*" % quote)
        self._before = _codes(self._separator + b"\n" + self._quote)
        self._after = _codes(self._separator + b"\r\n" + self._quote)

    def end_of_records(self, data: bytes) -> int:
        """Return the offset after the last complete record of `data`; 0 if there is none.

        `data` begins with a record. A line end after an odd number of quotes is inside a quoted
        field.

        For example, in `a,"b⏎c",d⏎e,"f⏎` the last line end follows 3 quotes, so it is inside the
        field `"f⏎…`. The search goes back to the line end before the third quote: after `d`, it
        follows 2 quotes, so the complete records are `a,"b⏎c",d⏎`.
        """
        end = data.rfind(b"\n") + 1
        if not self._quote or self._quote not in data:
            return end
        quotes = data.count(self._quote, 0, end)
        while quotes % 2:
            earlier = data.rfind(b"\n", 0, data.rfind(self._quote, 0, end)) + 1
            quotes -= data.count(self._quote, earlier, end)
            end = earlier
        return end

    def validate(self, block: Block) -> None:
        """Check that quotes and line ends are where RFC 4180 allows them.

        Raises:
            RefusedSourceError: one is not; the message says in which line and column.
        """
        if not self._is_well_formed(block.data):
            for _ in self.records(block):
                pass

    def check_lines(self, block: Block, records: int) -> None:
        """Check that no field of a well-formed block with that many records spans too many lines.

        Raises:
            RefusedSourceError: one does; the message says in which line and column it begins.
        """
        if block.line_ends - records > FIELD_LINES and any(
            field[0].count(b"\n") > FIELD_LINES for field in self._quoted.finditer(block.data)
        ):
            for _ in self.records(block):
                pass

    def records(self, block: Block) -> Iterator[Record]:
        """Yield the records of a block, read field by field, blank lines included.

        Raises:
            RefusedSourceError: the block is not well formed; the message says in which line and
                column.
        """
        data, at, line = block.data, 0, block.line
        while at < len(data):
            first_line, ended = line, self._separator
            fields: list[bytes] = []
            while ended == self._separator:
                found = self._field.match(data, at)
                if found is None:
                    raise self._broken(block, at, len(fields))
                field, ended = found.groups()
                if field.count(b"\n") > FIELD_LINES:
                    reason = f"the quoted field has more than {FIELD_LINES:,} line ends"
                    raise self.refused(line, len(fields), reason, _HINT)
                fields.append(field)
                line += data.count(b"\n", at, found.end())
                at = found.end()
            yield Record(first_line, at, tuple(fields))

    def text(self, field: bytes) -> bytes:
        """Return the text of a field, without its enclosing quotes
        and with doubled quotes undone.
        """
        if self._quote and field.startswith(self._quote):
            return field[1:-1].replace(self._quote * 2, self._quote)
        return field

    def refused(self, line: int, column: int, reason: str, hint: str = "") -> RefusedSourceError:
        """Return the error for one field; `column` counts from 0."""
        name = repr(self.names[column]) if column < len(self.names) else str(column + 1)
        return RefusedSourceError(f"line {line}, column {name}: {reason}", hint=hint)

    def _is_well_formed(self, data: bytes) -> bool:
        """Return whether each quote and carriage return is where it is allowed.

        In well-formed data, quotes alternately open and close; a doubled quote closes and opens
        again. Before each opening quote there must be a separator, a line end or a quote, and
        likewise after each closing one.

        For example, in `a,"b""c",d` the quotes open, close, open, close. The third one opens
        directly after a quote; the last one closes before a separator. In `a,b"c",d` the first
        quote would open after `b`, so the data is not well formed.
        """
        if self._quote and self._quote in data and not self._neighbours_fit(data):
            return False
        if b"\r" not in data or data.count(b"\r") == data.count(b"\r\n"):
            return True
        outside = self._between.sub(lambda _: self._quote, data)
        return outside.count(b"\r") == outside.count(b"\r\n")

    def _neighbours_fit(self, data: bytes) -> bool:
        padded = b"\n" + data + b"\n"
        codes = pa.Array.from_buffers(pa.uint8(), len(padded), [None, pa.py_buffer(padded)])
        quotes = pc.indices_nonzero(pc.equal(codes, pa.scalar(self._quote[0], pa.uint8())))
        if len(quotes) % 2:
            return False
        by_turns = pa.py_buffer(b"\x55" * (len(quotes) // 8 + 1))  # true, false, true, …
        opens = pa.Array.from_buffers(pa.bool_(), len(quotes), [None, by_turns])
        before = pc.is_in(codes.take(pc.subtract(quotes, 1)), self._before)
        after = pc.is_in(codes.take(pc.add(quotes, 1)), self._after)
        return bool(pc.all(pc.if_else(opens, before, after)).as_py())

    def _broken(self, block: Block, at: int, column: int) -> RefusedSourceError:
        """Return the error for the malformed field at offset `at` of a block."""
        data, opened = block.data, self._opened.match(block.data, at)
        if opened is None:
            stop = self._unquoted.match(data, at)
            end = stop.end() if stop else at
            reason, hint = "a quote inside a field that does not begin with one", _HINT
            if data[end : end + 1] == b"\r":
                reason = "a carriage return without a line feed, outside of quotes"
                hint = "lines end in LF or CRLF"
            return self.refused(block.line_of(end), column, reason, hint)
        if opened.end() == len(data):
            reason = "the quote that opens the field is not closed"
            return self.refused(block.line_of(at), column, reason, _HINT)
        reason = "text after the quote that closes the field"
        return self.refused(block.line_of(opened.end()), column, reason, _HINT)


def _codes(characters: bytes) -> Array:
    return pa.array(list(characters), pa.uint8())


class CsvBlocks:
    """Reads a file block by block."""

    def __init__(self, file: BinaryIO, structure: CsvStructure) -> None:
        """Start at the first byte, after a UTF-8 byte order mark if there is one.

        Raises:
            RefusedSourceError: the file is in UTF-16.
        """
        self._file, self._structure = file, structure
        self._data, self._line = strip_bom(file.read(BLOCK_BYTES)), 1
        self._next = file.read(BLOCK_BYTES)

    def header(self) -> list[bytes]:
        """Read the first record that is not blank, and return the texts of its fields.

        Raises:
            RefusedSourceError: there is none, or it is not well formed.
        """
        while self._data:
            block = self._take()
            for record in self._structure.records(block):
                if not record.is_blank:
                    self._data = block.data[record.end :] + self._data
                    self._line = block.line_of(record.end)
                    return [self._structure.text(field) for field in record.fields]
        raise RefusedSourceError(
            "the file is empty: the names of its columns are missing",
            hint="the property csv_header says whether there are any",
        )

    def __iter__(self) -> Iterator[Block]:
        """Yield blocks, each validated. Raises RefusedSourceError if a block is not well formed."""
        while self._data:
            block = self._take()
            self._structure.validate(block)
            yield block

    def _take(self) -> Block:
        """Read the next complete records from the file, without validating them."""
        end = 0
        while not end:
            end = self._structure.end_of_records(self._data) if self._next else len(self._data)
            if not end and len(self._data) > RECORD_BYTES:
                raise self._too_long()
            if not end:
                self._data += self._next
                self._next = self._file.read(BLOCK_BYTES)
        data = self._data[:end]
        block = Block(data, self._line, data.count(b"\n"))
        self._line += block.line_ends
        self._data = self._data[end:]
        if self._next and len(self._data) < BLOCK_BYTES:
            self._data += self._next
            self._next = self._file.read(BLOCK_BYTES)
        return block

    def _too_long(self) -> RefusedSourceError:
        """Return the error for the next record: it is too long, or an
        earlier error makes it appear so.
        """
        for _ in self._structure.records(Block(self._data, self._line)):
            pass
        return RefusedSourceError(
            f"line {self._line}: the record is longer than {RECORD_BYTES:,} bytes"
        )


def strip_bom(start: bytes) -> bytes:
    """Return the first bytes of a text file without a UTF-8 byte order mark.

    Raises:
        RefusedSourceError: the byte order mark is that of UTF-16.
    """
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise RefusedSourceError("the file is in UTF-16", hint="write it in UTF-8")
    return start.removeprefix(UTF8_BOM)
