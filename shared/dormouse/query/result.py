"""The result of a query: one type for the client, exports and Spark."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pyarrow as pa

from dormouse.arrow.types import conform, frame_schema, pandas_schema
from dormouse.errors import MissingPackageError
from dormouse.readers.read_counters import ReadCounters
from dormouse.showing import MAX_CELL, HtmlText, Shown, show_table

SHOWN_ROWS = 10
"""How many rows a result shows of itself."""
MAX_COLUMNS = 20
"""How many columns it shows in a notebook."""
MAX_WIDTH = 100
"""How wide its text may be; columns that do not fit are counted."""


class PeekableBatches:
    """Batches of which the first can be looked at before they are taken."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Take none yet."""
        self._batches = iter(batches)
        self._ahead: deque[pa.RecordBatch] = deque()
        self.taken_rows = 0
        self.is_begun = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches, from where they were left."""
        return self

    def __next__(self) -> pa.RecordBatch:
        """Take a batch."""
        self.is_begun = True
        batch = self._ahead.popleft() if self._ahead else next(self._batches)
        self.taken_rows += batch.num_rows
        return batch

    def close(self) -> None:
        """Let go of the batches, and of what makes them."""
        self._ahead.clear()
        if isinstance(self._batches, Generator):
            self._batches.close()

    def peek(self, rows: int) -> list[pa.RecordBatch]:
        """Return the next batches, with more than `rows` rows if there are so many."""
        while sum(batch.num_rows for batch in self._ahead) <= rows:
            batch = next(self._batches, None)
            if batch is None:
                break
            self._ahead.append(batch)
        return list(self._ahead)


@dataclass(frozen=True, slots=True, repr=False)
class QueryResult(Shown):
    """The rows of a selection, sorted by the keys: a stream of Arrow batches, readable once.

    Rows are read from storage while the stream is read. Whatever speaks Arrow reads it as it is,
    batch by batch: ``duckdb.sql("FROM result")``, ``polars.DataFrame(result)``,
    ``pandas.DataFrame.from_arrow(result)``. `version` is the version of the table that is read. A
    statement in SQL may read several: then it is 0, and `versions` has them by the tables' names,
    ascending. `reads` counts what was read so far. To show a result, in a notebook too, reads its
    first rows; they stay in the stream.
    """

    schema: pa.Schema
    batches: PeekableBatches
    reads: ReadCounters
    version: int
    versions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    reader: pa.RecordBatchReader = field(init=False)

    def __post_init__(self) -> None:
        """Make the stream."""
        reader = pa.RecordBatchReader.from_batches(self.schema, self.batches)
        object.__setattr__(self, "reader", reader)

    def for_programs(self) -> QueryResult:
        """Return the stream in the types of a program, instead of those of shards."""
        schema = frame_schema(self.schema)
        if schema.equals(self.schema):
            return self
        batches = PeekableBatches(conform(batch, schema) for batch in self.batches)
        return replace(self, schema=schema, batches=batches)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches."""
        return iter(self.reader)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the stream by the Arrow C stream interface."""
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

        Raises:
            MissingPackageError: pandas is not installed.
        """
        _imported("pandas")
        return self.to_arrow().cast(pandas_schema(self.schema)).to_pandas()

    def to_polars(self) -> Any:
        """Read all rows into a frame of Polars.

        Raises:
            MissingPackageError: Polars is not installed.
        """
        return _imported("polars").DataFrame(self)

    def close(self) -> None:
        """Stop reading, and release what is held."""
        self.reader.close()
        self.batches.close()

    def _shown(self) -> tuple[str, HtmlText]:
        several = [f"{name} {each}" for name, read in self.versions.items() for each in read]
        title = f"rows of {', '.join(several)}" if several else f"rows of version {self.version}"
        if self.batches.is_begun:
            title += f", {self.batches.taken_rows:,} read: a result is read once"
            return _show_rows(title, self.schema, [], 0)
        return _show_rows(title, self.schema, self.batches.peek(SHOWN_ROWS), SHOWN_ROWS)


def _imported(package: str) -> ModuleType:
    if find_spec(package) is None:
        raise MissingPackageError(
            f"{package} is not installed",
            hint=f"pip install {package}, or read the rows by to_arrow()",
        )
    return import_module(package)


def _show_rows(
    title: str, schema: pa.Schema, batches: Sequence[pa.RecordBatch], most: int
) -> tuple[str, HtmlText]:
    """Return the first rows of batches, under the names of their columns; up to `most` of them.

    Text has as many columns as fit a line, HTML up to `MAX_COLUMNS`.
    """
    rows: list[Sequence[object]] = []
    there = 0
    for batch in batches:
        part = batch.slice(0, max(0, most - there))
        cells = [_texts(column) for column in part.columns[:MAX_COLUMNS]]
        rows += zip(*cells, strict=True)
        there += batch.num_rows
    ends = "more rows" if there > most else ""
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
