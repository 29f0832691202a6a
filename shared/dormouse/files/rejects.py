"""Rows of a CSV or JSON file that cannot be read: left out, and written to a file of their own.

Only single records are left out. Where records begin and end must be certain: a quote that is not
closed, or a header of other columns, still refuses the file.
"""

from __future__ import annotations

import base64
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa

from dormouse.errors import InvariantError, RefusedSourceError

MOST_REJECTED = 10_000
"""A file with more rejected rows is refused: each takes some conversions to find."""
_PLACE = re.compile(r"(?:line|row) (\d+)[,:]? ")
Finish = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Checks and completes rows once they have the table's types."""


@dataclass(frozen=True, slots=True)
class RejectedRows:
    """The rows that were left out of one file, and the path in the data root that has them."""

    key: str
    rows: int
    path: str = ""


class Rejects:
    """Collects the rows that are left out of the file `key`, in the local file `path` if given."""

    def __init__(self, key: str, path: Path | None = None) -> None:
        """Start with none."""
        self.rows = 0
        self.reasons: list[str] = []
        self._key, self._path = key, path

    def add(self, line: int, record: bytes, error: RefusedSourceError) -> None:
        """Leave a record out.

        Raises:
            RefusedSourceError: there are too many.
        """
        self.rows += 1
        reason = _PLACE.sub("", error.explanation, count=1)
        if len(self.reasons) < 10:
            self.reasons.append(f"line {line}: {reason}")
        if self.rows > MOST_REJECTED:
            raise RefusedSourceError(
                f"more than {MOST_REJECTED:,} rows cannot be read, the first in {self.reasons[0]}"
            )
        if self._path is None:
            return
        row = {"file": self._key, "line": line, "reason": reason, **_content(record)}
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(row) + b"\n")

    def check(self, kept: int) -> None:
        """Check that some rows of the file were kept, unless it has none.

        Raises:
            RefusedSourceError: all were left out.
        """
        if self.rows and not kept:
            raise RefusedSourceError(
                f"none of the {self.rows:,} rows can be read, the first in {self.reasons[0]}"
            )


def _content(record: bytes) -> dict[str, str]:
    text = record.rstrip(b"\r\n")
    try:
        return {"text": text.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(text).decode()}


def without_rejected(
    records: Sequence[tuple[int, bytes]],
    convert: Callable[[int, int], pa.RecordBatch],
    rejects: Rejects,
    misfits: Sequence[tuple[int, bytes, RefusedSourceError]] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of records, except those of records that alone cannot be converted.

    `records` are not blank, each with its line; ``convert(first, end)`` returns the rows of some of
    them. If it fails, the record that the error names is bad, and the others are tried again: those
    before it, and those after it in two halves. So one bad record among n takes four conversions,
    and n of them take n. An error that names none leaves two halves. `misfits` were found to be bad
    before.
    """
    spans, kept = [(0, len(records))], 0
    bad = list(misfits)
    while spans:
        first, end = spans.pop()
        if first == end:
            continue
        try:
            found = convert(first, end)
        except RefusedSourceError as error:
            at = _record_named(error, records, first, end)
            if at is not None:
                bad.append((*records[at], error))
                middle = (at + 1 + end) // 2
                spans += [(middle, end), (at + 1, middle), (first, at)]
            else:
                middle = (first + end) // 2
                spans += [(middle, end), (first, middle)]
        else:
            kept += found.num_rows
            yield found
    for line, record, refusal in sorted(bad, key=lambda each: each[0]):
        rejects.add(line, record, refusal)
    read = len(records) + len(misfits)
    if kept + len(bad) != read:
        raise InvariantError(f"{read} records became {kept} rows, and {len(bad)} were rejected")


def _record_named(
    error: RefusedSourceError, records: Sequence[tuple[int, bytes]], first: int, end: int
) -> int | None:
    """Return which of the records from `first` up to `end` an error is about; None if unknown."""
    if end - first == 1:
        return first
    named = _PLACE.match(str(error))
    if named is None or not str(error).startswith("line"):
        return None
    at = bisect_left(records, int(named[1]), first, end, key=lambda record: record[0])
    after = bisect_right(records, int(named[1]), first, end, key=lambda record: record[0])
    return at if after == at + 1 else None  # several items of an array may be in one line
