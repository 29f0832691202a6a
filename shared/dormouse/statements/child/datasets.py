"""A reference to a table as a dataset of Arrow, whose rows come from the caller's process.

DataFusion reads datasets by calling Python: for each scan, it asks for the fragments, and then each
fragment's scanner for batches with the columns that it needs. It drops the batches when it has
enough, which closes the pipe, so that the other side stops reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.dataset as ds

Open: TypeAlias = Callable[[Sequence[str]], Iterator[pa.RecordBatch]]
"""Open the rows of a scan, with these columns."""


class TableDataset(ds.Dataset):
    """A dataset with the schema of a table."""

    def __init__(self, schema: pa.Schema, rows: Open) -> None:
        """Read nothing: `rows` is called when a plan runs."""
        self._schema, self._rows = schema, rows

    @property
    def schema(self) -> pa.Schema:
        """The schema."""
        return self._schema

    def scanner(self, columns: Sequence[str], **_: Any) -> _Scanner:  # type: ignore[override]
        """Return what reads columns; the filter is one that the rows have passed."""
        return _Scanner(self._schema, columns, self._rows)

    def get_fragments(self, filter: object = None) -> Iterator[_Fragment]:
        """Return the only fragment: rows come as one stream."""
        return iter([_Fragment(self)])


@dataclass(frozen=True, slots=True)
class _Fragment:
    dataset: TableDataset

    def scanner(self, _schema: pa.Schema, columns: Sequence[str], **_: Any) -> _Scanner:
        return self.dataset.scanner(columns)


@dataclass(frozen=True, slots=True)
class _Scanner:
    schema: pa.Schema
    columns: Sequence[str]
    rows: Open

    @property
    def projected_schema(self) -> pa.Schema:
        return pa.schema([self.schema.field(name) for name in self.columns])

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        return self.rows(self.columns)
