"""The result of a query: one type for the client, exports and Spark."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pyarrow as pa

from dormouse.errors import MissingPackageError
from dormouse.readers.read_counters import ReadCounters
from dormouse.showing import HtmlText, Shown, show_table

SHOWN_ROWS = 10
"""How many rows a result shows of itself."""
MAX_COLUMNS = 20
"""How many columns it shows."""


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
    batch by batch and without a copy: ``duckdb.sql("FROM result")``, ``polars.DataFrame(result)``,
    ``pandas.DataFrame.from_arrow(result)``. `version` is the version of the table that is read.
    `reads` counts what was read so far. To show a result, in a notebook too, reads its first rows;
    they stay in the stream.
    """

    schema: pa.Schema
    batches: PeekableBatches
    reads: ReadCounters
    version: int
    reader: pa.RecordBatchReader = field(init=False)

    def __post_init__(self) -> None:
        """Make the stream."""
        reader = pa.RecordBatchReader.from_batches(self.schema, self.batches)
        object.__setattr__(self, "reader", reader)

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
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Read all rows into a frame of Polars.

        Raises:
            MissingPackageError: Polars is not installed.
        """
        return _imported("polars").DataFrame(self)

    def close(self) -> None:
        """Stop reading, and release what is held."""
        self.reader.close()

    def _shown(self) -> tuple[str, HtmlText]:
        title = f"rows of version {self.version}"
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
    """Return the first rows of batches, under the names of their columns; up to `most` of them."""
    shown = schema.names[:MAX_COLUMNS]
    rows: list[Sequence[object]] = []
    there = 0
    for batch in batches:
        part = batch.slice(0, max(0, most - there))
        cells = [_texts(part.column(at)) for at in range(len(shown))]
        rows += zip(*cells, strict=True)
        there += batch.num_rows
    more = [f"{len(schema.names) - len(shown):,} more columns"] if shown != schema.names else []
    more += ["more rows"] if there > most else []
    text, html_text = show_table(title, shown, rows)
    if not more:
        return text, html_text
    note = "… " + ", ".join(more)
    return f"{text}\n{note}", f"{html_text}<p>{note}</p>"


def _texts(column: pa.Array[Any]) -> list[str | None]:
    """Return cells as text; by Arrow's own conversion, which knows every year and nanosecond."""
    if pa.types.is_temporal(column.type) or pa.types.is_decimal(column.type):
        return column.cast(pa.string()).to_pylist()
    return [None if value is None else _value(value) for value in column.to_pylist()]


def _value(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return str(value)
