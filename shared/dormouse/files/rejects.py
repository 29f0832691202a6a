"""Rows of a CSV or JSON file that cannot be read: left out, and written to a file of their own.

Only single records are left out. Where records begin and end must be certain: a quote that is not
closed, or a header of other columns, still refuses the file.
"""

import base64
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

import msgspec
import pyarrow as pa

from dormouse.arrow.types import Array
from dormouse.errors import InvariantError, RefusedSourceError

MOST_REJECTED = 10_000
"""A file with more rejected rows is refused: each takes a conversion or more to find."""
_PLACE = re.compile(r"(?:line|row) (\d+)[,:]? ")
Finish = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Checks and completes rows once they have the table's types."""
Refused = Iterable[tuple[int, RefusedSourceError]]
"""Indexes of rows in a batch, each with why it is refused."""
_T = TypeVar("_T")


class RowRefusal(RefusedSourceError):
    """Why the first bad row of a batch is refused; ``every()`` finds all that are bad alike.

    They are only looked for where rows may be left out, so a file that is refused whole costs no
    more for them.
    """

    def __init__(self, first: RefusedSourceError, every: Callable[[], Refused]) -> None:
        super().__init__(str(first), hint=first.hint)
        self.every = every

    def __reduce__(self) -> tuple[object, ...]:
        """Be a plain refusal in other processes, such as Spark's driver."""
        return RefusedSourceError, (str(self),), {"hint": self.hint}


def refuse_rows(rows: Sequence[int], refusal: Callable[[int], RefusedSourceError]) -> None:
    """Raise a RowRefusal if there are `rows` of a batch, by their indexes; `refusal` says why."""
    if rows:
        raise RowRefusal(refusal(rows[0]), lambda: ((row, refusal(row)) for row in rows))


def refuse_each(items: Sequence[_T], check: Callable[[_T], object]) -> None:
    """Raise a RowRefusal if `check` refuses any of the items, one for each row of a batch."""

    def every() -> Iterator[tuple[int, RefusedSourceError]]:
        for row, item in enumerate(items):
            try:
                check(item)
            except RefusedSourceError as error:
                yield row, error

    for _, first in every():
        raise RowRefusal(first, every) from first


@dataclass(frozen=True, slots=True)
class RejectedRows:
    """The rows that were left out of one file, and the path in the data root that has them."""

    key: str
    rows: int
    path: str = ""


class RowNumbers:
    """Where the rows of a file are in it: in their order, the lines at which readers of text say
    that they begin, or else their numbers from 1. Readers may run ahead in another thread. Nothing
    is kept unless it `is_asked`.
    """

    def __init__(self, *, is_asked: bool = True) -> None:
        self._is_asked = is_asked
        self._lines: deque[Array] = deque()
        self._taken = 0

    def add(self, lines: Iterable[int] | Callable[[], Iterable[int]]) -> None:
        """Say where the next rows are, before they are yielded."""
        if self._is_asked:
            self._lines.append(_numbers(lines() if callable(lines) else lines))

    def take(self, rows: int) -> Array:
        """Return where the next rows are, which were yielded."""
        first = self._taken + 1
        self._taken += rows
        if not self._lines:
            return _numbers(range(first, first + rows))
        parts: list[Array] = []
        while rows and self._lines:
            lines = self._lines.popleft()
            parts.append(lines.slice(0, rows))
            if len(lines) > rows:
                self._lines.appendleft(lines.slice(rows))
            rows -= min(rows, len(lines))
        return pa.concat_arrays(parts)


NOT_ASKED = RowNumbers(is_asked=False)


def _numbers(numbers: Iterable[int]) -> Array:
    if isinstance(numbers, range):
        return pa.arange(numbers.start, numbers.stop)  # type: ignore[attr-defined,no-any-return]  # stubs lag
    return pa.array(list(numbers), pa.int64())


class Rejects:
    """Collects the rows that are left out of the file `key`, in the local file `path` if given."""

    def __init__(self, key: str, path: Path | None = None) -> None:
        self.rows = 0
        self.reasons: list[str] = []
        self._key, self._path = key, path

    def add(self, line: int, record: bytes, error: RefusedSourceError) -> None:
        """Leave a record out. Raises RefusedSourceError: there are too many."""
        self.rows += 1
        reason = _PLACE.sub("", error.explanation, count=1)
        if len(self.reasons) < 10:
            self.reasons.append(f"line {line}: {reason}")
        if self.rows > MOST_REJECTED:
            raise RefusedSourceError(
                f"more than {MOST_REJECTED:,} rows cannot be read, such as {self.reasons[0]}"
            )
        if self._path is None:
            return
        row = {"file": self._key, "line": line, "reason": reason, **_content(record)}
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(row) + b"\n")

    def check(self, rows: int) -> None:
        """Check that some `rows` can be read, if there are any. Raises RefusedSourceError: none."""
        if self.rows and not rows:
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
    convert: Callable[[Sequence[int]], pa.RecordBatch],
    rejects: Rejects,
    misfits: Sequence[tuple[int, bytes, RefusedSourceError]] = (),
    numbers: RowNumbers = NOT_ASKED,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of records, except those of records that alone cannot be converted.

    `records` are not blank, each with its line; ``convert(rows)`` returns the rows of those with
    these indexes. If it names bad ones, they are left out, and the others are tried again: so all
    that are bad for one reason, such as the cells of a column, take one more conversion. `misfits`
    were found to be bad before. `numbers` gets the line of each row
    that is yielded.
    Raises RefusedSourceError: it is not about single records, or too many are bad.
    """
    rows: Sequence[int] = range(len(records))
    bad = list(misfits)
    while rows and rejects.rows + len(bad) <= MOST_REJECTED:
        try:
            batch = convert(rows)
        except RowRefusal as error:
            refusals = dict(islice(error.every(), MOST_REJECTED + 1))
            if not refusals:
                raise
            bad += [(*records[rows[at]], refusal) for at, refusal in refusals.items()]
            rows = [row for at, row in enumerate(rows) if at not in refusals]
        else:
            if batch.num_rows != len(rows):
                raise InvariantError(f"{len(rows)} records became {batch.num_rows} rows")
            numbers.add(records[row][0] for row in rows)
            yield batch
            break
    for line, record, refusal in sorted(bad, key=lambda each: each[0]):
        rejects.add(line, record, refusal)
