"""What rows of files and frames do to a table that keeps the latest ones: insert, update, delete.

A column `_change` says it, or the form of the file, as that of the messages of `change_data`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.arrow.types import Array, arrow_schema
from dormouse.errors import RefusedSourceError
from dormouse.files.change_data import FIRST, OPERATION, Emptied, operations
from dormouse.files.rejects import refuse_rows
from dormouse.rows.latest import entombed
from dormouse.schema.schema import CHANGE, TOMBSTONE, Field, Schema
from dormouse.schema.types import Primitive
from dormouse.tables.properties import Properties

CHANGES = ("insert", "update", "delete")
_NO_ORDER = "it is no value by which rows are ordered, as NaN; or no change sequence of 35 digits"


@dataclass(frozen=True, slots=True)
class FileChanges:
    """How files and frames say what becomes of rows, in a table with this schema; `by` is its
    column `latest_by`, if it has one, and `form` its property `change_data`. `emptied` is called
    each time a message says that the source emptied its table; `placed` are columns whose values
    the folders of a file say, also of rows that delete.
    """

    schema: Schema
    by: str = ""
    form: str = ""
    emptied: Callable[[Emptied], None] = lambda _: None
    placed: Collection[str] = ()

    @property
    def added(self) -> tuple[Field, ...]:
        """The columns that files and frames may have besides those of the table."""
        is_dms = self.form == "dms"
        return (Field(OPERATION, Primitive.STRING, nullable=True), CHANGE) if is_dms else (CHANGE,)

    @property
    def file_schema(self) -> Schema:
        """The columns that files may have: a row that deletes needs only the keys and `by`."""
        is_ordered = self.form != "dms"  # of which a full load has no order
        values = (
            f if f.name == self.by and is_ordered else replace(f, nullable=True)
            for f in self.schema.values
        )
        return replace(self.schema, values=(*values, *self.added))

    def stored(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file or frame with `TOMBSTONE` in place of `CHANGE`; one of 0 is
        since the commit of its row.

        Raises:
            RefusedSourceError: as `checked`.
        """
        schema = arrow_schema(self.schema.with_values(TOMBSTONE))
        for batch in self.checked(batches):
            deletes = _deletes(batch)
            rows = batch.drop_columns([field.name for field in self.added])
            rows = rows.append_column(TOMBSTONE.name, pa.nulls(batch.num_rows, pa.int64()))
            columns = entombed(rows, deletes, self.schema, self.by, 0).columns
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def checked(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of a file or frame as they are; of AWS DMS, with `CHANGE` for `OPERATION`.

        Raises:
            RefusedSourceError: a row does none of `CHANGES`; one that deletes has other values than
                it needs; or one of another kind lacks some. The message says which row, and why.
        """
        before = 0
        for batch in batches:
            if self.form == "dms":
                batch = self._with_operations(batch, before)  # noqa: PLW2901
            for name, wrong, reason in self._faults(batch):
                _refuse(name, wrong, reason, before)
            before += batch.num_rows
            yield batch

    def _with_operations(self, batch: pa.RecordBatch, before: int) -> pa.RecordBatch:
        """Return rows of AWS DMS with `CHANGE`, and with positions as its messages have them: rows
        of files say an operation, and of rows that they delete also what they were.
        """
        operation, said = batch.column(OPERATION), batch.column(CHANGE.name)
        is_message = pc.is_valid(said)
        if operation.null_count == batch.num_rows:  # messages, a full load, or read a second time
            change = pc.coalesce(said, pa.scalar("insert"))
        else:
            change = operations(operation, lambda row: f"row {before + row + 1}")
            _refuse(CHANGE.name, is_message, "the column Op says what the row does", before)
        deletes = pc.equal(change, pa.scalar("delete"))

        def column(name: str, cells: Any) -> Any:
            if name in (CHANGE.name, OPERATION):
                return change if name == CHANGE.name else pa.nulls(len(cells), cells.type)
            if name == self.by:
                rank = pc.if_else(deletes, pa.scalar("-1"), pa.scalar("-2"))
                nothing = pa.scalar(None, cells.type)
                is_load = pc.equal(change, pa.scalar("insert"))
                at = pc.if_else(pc.equal(cells, pa.scalar("", cells.type)), nothing, cells)
                at = pc.coalesce(at, pc.if_else(is_load, pa.scalar(FIRST, cells.type), nothing))
                at = pc.if_else(pc.match_substring_regex(at, "^[0-9]{35}$"), at, nothing)
                placed = pc.binary_join_element_wise(at, rank, "")
                return pc.if_else(is_message, cells, placed)
            is_key = name in {field.name for field in self.schema.keys}
            return cells if is_key else pc.if_else(deletes, pa.scalar(None, cells.type), cells)

        columns = [column(*each) for each in zip(batch.schema.names, batch.columns, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)

    def _faults(self, batch: pa.RecordBatch) -> Iterator[tuple[str, Array, str]]:
        """Yield columns with the rows that are wrong there, and why."""
        deletes, change = _deletes(batch), batch.column(CHANGE.name)
        is_change = pc.or_(pc.is_null(change), pc.is_in(change, pa.array(CHANGES)))
        yield CHANGE.name, pc.invert(is_change), f"it is none of {', '.join(CHANGES)}"
        for field in self.schema.values:
            cells = batch.column(field.name)
            if field.name == self.by:
                yield field.name, pc.is_null(cells, nan_is_null=True), _NO_ORDER
            elif field.name not in self.placed:
                filled = pc.and_(deletes, pc.is_valid(cells))
                yield field.name, filled, "a row that deletes has only the keys and latest_by"
            if not field.nullable and cells.null_count:
                missing = pc.and_(pc.invert(deletes), pc.is_null(cells))
                yield field.name, missing, "there is no value, and the column cannot be null"


def changes_in_files(schema: Schema, properties: Properties) -> FileChanges | None:
    """Return how files say what becomes of rows of a table; None if it keeps all rows."""
    if properties.keep == "all":
        return None
    return FileChanges(schema.opened, properties.latest_by, properties.change_data)


def _deletes(batch: pa.RecordBatch) -> Array:
    flags = pc.equal(batch.column(CHANGE.name), pa.scalar("delete"))
    return flags.fill_null(False)


def _refuse(column: str, wrong: Any, reason: str, before: int) -> None:
    refuse_rows(
        pc.indices_nonzero(wrong).to_pylist(),
        lambda row: RefusedSourceError(f"row {before + row + 1}, column {column!r}: {reason}"),
    )
