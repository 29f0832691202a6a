"""The result of a query: one type for the client, exports and Spark."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pyarrow as pa

from dormouse.arrow.types import Array, conform, frame_schema, pandas_schema
from dormouse.errors import InvalidRequestError, MissingPackageError
from dormouse.schema.schema import CHANGE, VERSION
from dormouse.shards.reading import ReadCounters
from dormouse.showing import MAX_CELL, HtmlText, Shown, show_table

SHOWN_ROWS = 10
"""How many rows a result shows of itself."""
MAX_COLUMNS = 20
"""How many columns it shows in a notebook."""
MAX_WIDTH = 100
"""How wide its text may be; columns that do not fit are counted."""


class PeekableBatches:
    """Batches of which the first can be looked at before they are taken.

    Once they are closed, or making them has failed, what is missing is an error, not their end.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self._ahead: deque[pa.RecordBatch] = deque()
        self._failure: BaseException | None = None
        self._is_whole = False
        self.taken_rows = 0
        self.is_begun = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches, from where they were left."""
        return self

    def __next__(self) -> pa.RecordBatch:
        self.is_begun = True
        batch = self._ahead.popleft() if self._ahead else self._next()
        if batch is None:
            raise StopIteration
        self.taken_rows += batch.num_rows
        return batch

    def check_not_begun(self) -> None:
        """Raise InvalidRequestError if a batch was taken, or the batches were closed."""
        if self.is_begun:
            raise _read_once("was begun or closed before")

    def close(self) -> None:
        """Let go of the batches, and of what makes them."""
        self.is_begun = True
        if self._ahead or not self._is_whole:
            self._failure = self._failure or _read_once("was closed before it was read to its end")
        self._ahead.clear()
        if isinstance(self._batches, Generator):
            self._batches.close()

    def peek(self, rows: int) -> list[pa.RecordBatch]:
        """Return the next batches, with more than `rows` rows if there are so many."""
        while sum(batch.num_rows for batch in self._ahead) <= rows:
            batch = self._next()
            if batch is None:
                break
            self._ahead.append(batch)
        return list(self._ahead)

    def _next(self) -> pa.RecordBatch | None:
        """Return the next batch that is made; None at the end."""
        if self._failure is not None:
            raise self._failure
        try:
            batch = next(self._batches, None)
        except BaseException as error:
            is_own = isinstance(error, Exception)
            self._failure = error if is_own else _read_once("was interrupted")
            raise
        self._is_whole = batch is None
        return batch


class _OneStream:
    """The batches of a result for one stream of them: the first that takes one."""

    def __init__(self, batches: PeekableBatches) -> None:
        self._batches = batches
        self._has_begun = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        if not self._has_begun:
            self._batches.check_not_begun()
        self._has_begun = True
        return next(self._batches)


@dataclass(frozen=True, slots=True, repr=False)
class QueryResult(Shown):
    """The rows of a selection, sorted by the keys: a stream of Arrow batches, readable once.

    Rows are read from storage while the stream is read. Whatever speaks Arrow reads it as it is,
    batch by batch: ``duckdb.sql("FROM result")``, ``polars.DataFrame(result)``. To read a result
    that was begun or closed, in whatever way, raises InvalidRequestError. `version` is the version
    of the table that is read. A statement in SQL may read several: then it is 0, and `versions` has
    them by the tables' names, ascending. `reads` counts what was read so far. To show a result, in
    a notebook too, reads its first rows; they stay in the stream.
    """

    schema: pa.Schema
    batches: PeekableBatches
    reads: ReadCounters
    version: int
    versions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def reader(self) -> pa.RecordBatchReader:
        """The stream. Raises InvalidRequestError: the result was begun or closed before."""
        self.batches.check_not_begun()
        return pa.RecordBatchReader.from_batches(self.schema, _OneStream(self.batches))

    def for_programs(self) -> QueryResult:
        """Return the stream in the types of a program, instead of those of shards."""
        return self.in_types(frame_schema)

    def in_types(self, types: Callable[[pa.Schema], pa.Schema]) -> QueryResult:
        """Return the stream in other types, which a function makes of its own."""
        schema = types(self.schema)
        if schema.equals(self.schema):
            return self
        batches = PeekableBatches(conform(batch, schema) for batch in self.batches)
        return replace(self, schema=schema, batches=batches)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self.reader)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.reader.__arrow_c_stream__(requested_schema)  # type: ignore[no-untyped-call]

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches while they are read."""
        return iter(self.reader)

    def to_arrow(self) -> pa.Table:
        """Read all rows into memory."""
        return self.reader.read_all()

    read_all = to_arrow

    def to_pandas(self) -> Any:
        """Read all rows into a frame of pandas.

        Columns of whole numbers with nulls are ``Int64`` and the like; within lists, maps and
        structs they are Python's. As floats, which pandas makes of them otherwise, numbers beyond
        2^53 would change.
        Raises MissingPackageError: pandas is not installed.
        """
        pandas = _imported("pandas")
        table = self.to_arrow().cast(pandas_schema(self.schema))
        frame = table.to_pandas(integer_object_nulls=True)
        for at, column in enumerate(table.columns):
            if pa.types.is_integer(column.type) and column.null_count:
                name = str(column.type).replace("int", "Int").replace("u", "U")
                frame.isetitem(at, pandas.api.types.pandas_dtype(name).__from_arrow__(column))
        return frame

    def to_polars(self) -> Any:
        """Read all rows into a frame of Polars.
        Raises MissingPackageError: Polars is not installed.
        """
        return _imported("polars").DataFrame(self)

    def close(self) -> None:
        """Stop reading, and release what is held."""
        self.batches.close()

    def _shown(self) -> tuple[str, HtmlText]:
        several = [f"{name} {each}" for name, numbers in self.versions.items() for each in numbers]
        numbers = [f"version {self.version}"] if self.version else ["a statement"]
        title = f"rows of {', '.join(several or numbers)}"
        if self.batches.is_begun:
            title += f", {self.batches.taken_rows:,} read: a result is read once"
            return _show_rows(title, self.schema, [], 0)
        return _show_rows(title, self.schema, self.batches.peek(SHOWN_ROWS), SHOWN_ROWS)


def _read_once(how: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"the result {how}",
        hint="a result is read once: keep what to_arrow() returns, or query again",
    )


def _imported(package: str) -> ModuleType:
    if find_spec(package) is None:
        raise MissingPackageError(
            f"{package} is not installed",
            hint=f"pip install {package}, or read the rows by to_arrow()",
        )
    return import_module(package)


def with_changes(
    result: QueryResult, changes: Iterable[tuple[str, Array, pa.RecordBatch]], limit: int | None
) -> QueryResult:
    """Return rows in place of those of `result`, up to a limit: what happened to some, the version
    of each, and the rows. The first two become their first columns.
    """
    added = (CHANGE.name, pa.string()), (VERSION.name, pa.int64())
    fields = [pa.field(name, kind, nullable=False) for name, kind in added]
    schema = pa.schema([*fields, *result.schema])

    def batches() -> Iterator[pa.RecordBatch]:
        rest = limit
        for change, versions, batch in changes:
            some = batch if rest is None else batch.slice(0, rest)
            rest = None if rest is None else rest - some.num_rows
            kinds = pa.repeat(pa.scalar(change), some.num_rows)
            of_rows = [kinds, versions[: some.num_rows]]
            yield pa.RecordBatch.from_arrays([*of_rows, *some.columns], schema=schema)
            if rest == 0:
                return

    return replace(result, schema=schema, batches=PeekableBatches(batches()))


def _show_rows(
    title: str, schema: pa.Schema, batches: Sequence[pa.RecordBatch], most: int
) -> tuple[str, HtmlText]:
    """Return the first rows of batches, under the names of their columns; up to `most` of them.

    Text has as many columns as fit a line, HTML up to `MAX_COLUMNS`.
    """
    rows: list[Sequence[object]] = []
    count = 0
    for batch in batches:
        part = batch.slice(0, max(0, most - count))
        cells = [_texts(column) for column in part.columns[:MAX_COLUMNS]]
        rows += zip(*cells, strict=True)
        count += batch.num_rows
    ends = "more rows" if count > most else ""
    fitting = _columns_that_fit(schema.names[:MAX_COLUMNS], rows)
    text = show_table(title, schema.names[:fitting], [row[:fitting] for row in rows])[0]
    html_text = show_table(title, schema.names[:MAX_COLUMNS], rows)[1]
    note, html_note = (_note(len(schema.names) - n, ends) for n in (fitting, MAX_COLUMNS))
    return text + (f"\n{note}" if note else ""), html_text + (
        f"<p>{html_note}</p>" * bool(html_note)
    )


def _columns_that_fit(names: Sequence[str], rows: Sequence[Sequence[object]]) -> int:
    """Return how many columns a line of text can have, at least one."""
    width = 0
    for at, name in enumerate(names):
        cells = (len(str(row[at])) for row in rows)
        width += min(MAX_CELL, max(len(name), *cells, 0)) + 2
        if width > MAX_WIDTH and at:
            return at
    return len(names)


def _note(columns: int, ends: str) -> str:
    """Return what is not shown, as text; empty if all is."""
    parts = [f"{columns:,} more columns"] if columns > 0 else []
    more = ", ".join([*parts, *([ends] if ends else [])])
    return f"… {more}" if more else ""


def _texts(column: pa.Array[Any]) -> list[str | None]:
    """Return cells as text; by Arrow's own conversion, which knows every year and nanosecond."""
    if pa.types.is_temporal(column.type) or pa.types.is_decimal(column.type):
        return column.cast(pa.string()).to_pylist()
    return [
        value if value is None else value.hex() if isinstance(value, bytes) else str(value)
        for value in column.to_pylist()
    ]
