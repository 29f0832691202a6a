"""The writers of rows: `formats.RowWriter` for each format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import IOBase
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from dormouse.results.cells import json_cells, json_objects, json_text
from dormouse.results.json_lines import json_lines

ROW_GROUP_ROWS = 128 * 1024
ROW_GROUP_BYTES = 32 * 1024 * 1024
"""The most bytes of a row group of a Parquet file, in memory."""
_JSON_ROWS = 8 * 1024
"""How many rows are Python objects at once."""


class ParquetRows:
    """Parquet: zstd, with page indexes and checksums; exact for every type but those that Parquet
    lacks. `sorted_by` are the positions of the columns that the rows are sorted by.

    Floats have no statistics: these would leave out NaN, and readers who believe them lose rows.
    Whether there is NaN is only known at the end of the stream.
    """

    def __init__(
        self, sink: BinaryIO | pa.NativeFile, schema: pa.Schema, *, sorted_by: Sequence[int] = ()
    ) -> None:
        """Write into `sink`."""
        self._schema = schema
        self._writer = pq.ParquetWriter(
            cast(pa.NativeFile, sink),
            schema,
            compression="zstd",
            write_statistics=_bounded_columns(schema),
            sorting_columns=[pq.SortingColumn(at) for at in sorted_by] or None,
            write_page_index=True,
            write_page_checksum=True,
        )
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = self._pending_bytes = 0
        self.rows = 0

    @property
    def room(self) -> int:
        """How many more rows the pending row group takes; at least one."""
        return max(1, ROW_GROUP_ROWS - self._pending_rows)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        while batch.num_rows:
            part = batch.slice(0, self.room)
            batch = batch.slice(part.num_rows)
            self._pending.append(part)
            self._pending_rows += part.num_rows
            self._pending_bytes += part.nbytes
            self.rows += part.num_rows
            if self._pending_rows >= ROW_GROUP_ROWS or self._pending_bytes >= ROW_GROUP_BYTES:
                self._write_group()

    def close(self, metadata: Mapping[str, str] | None = None) -> None:
        """Write the pending row group and the footer, which has `metadata`."""
        if self._pending:
            self._write_group()
        if metadata:
            self._writer.add_key_value_metadata(dict(metadata))
        self._writer.close()

    def end(self) -> None:
        """Release what is held, whether the file is complete or not."""
        self._writer.close()

    def _write_group(self) -> None:
        group = pa.Table.from_batches(self._pending, self._schema)
        self._writer.write_table(group, row_group_size=group.num_rows)
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0


class ArrowRows:
    """A stream of Arrow IPC, with the types that the rows have."""

    def __init__(self, sink: BinaryIO, schema: pa.Schema) -> None:
        """Write into `sink`."""
        self._writer: Any = pa.ipc.new_stream(cast(IOBase, sink), schema)
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        self._writer.write_batch(batch)
        self.rows += batch.num_rows

    def close(self) -> None:
        """Write the end of the stream."""
        self._writer.close()

    end = close


class ArrowFileRows(ArrowRows):
    """A file of Arrow IPC, whose footer says where each batch is."""

    def __init__(self, sink: BinaryIO, schema: pa.Schema) -> None:
        """Write into `sink`."""
        self._writer: Any = pa.ipc.new_file(cast(IOBase, sink), schema)
        self.rows = 0


class CsvRows:
    """CSV as RFC 4180 has it, in UTF-8: a header, then a line for each row; a null is empty, an
    empty text is quoted. Other types than numbers and texts are the texts of `cells`.
    """

    def __init__(self, sink: BinaryIO, schema: pa.Schema) -> None:
        """Write into `sink`."""
        self._schema = pa.schema([_csv_field(field) for field in schema])
        self._writer = csv.CSVWriter(sink, self._schema)
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        columns = [_csv_column(batch.column(i), f.type) for i, f in enumerate(self._schema)]
        self._writer.write_batch(pa.record_batch(columns, schema=self._schema))
        self.rows += batch.num_rows

    def close(self) -> None:
        """Write what is pending."""
        self._writer.close()

    end = close


class JsonRows:
    """JSON lines: an object for each row."""

    def __init__(self, sink: BinaryIO, schema: pa.Schema) -> None:
        """Write into `sink`."""
        self._sink = sink
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        for start in range(0, batch.num_rows, _JSON_ROWS):
            part = batch.slice(start, _JSON_ROWS)
            self._sink.write(json_lines(json_objects(part)))
            self.rows += part.num_rows

    def close(self) -> None:
        """Do nothing: each line is complete by itself."""

    end = close


def _bounded_columns(schema: pa.Schema) -> list[str]:
    """Return the paths of the Parquet columns that get statistics: all but those of floats."""
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, schema).close()
    leaves = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    columns = [leaves.column(i) for i in range(len(leaves))]
    floats = {each.path for each in columns if each.physical_type in ("FLOAT", "DOUBLE")}
    return [each.path for each in columns if each.path not in floats]


def _csv_field(field: pa.Field[Any]) -> pa.Field[Any]:
    return field if _csv_has(field.type) else pa.field(field.name, pa.string())


def _csv_has(kind: pa.DataType) -> bool:
    is_plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_string(kind)
    return is_plain or pa.types.is_boolean(kind)


def _csv_column(column: pa.Array[Any], kind: pa.DataType) -> pa.Array[Any]:
    if _csv_has(column.type):
        return column
    texts = [None if value is None else json_text(value) for value in json_cells(column)]
    return pa.array(texts, kind)
