"""Tables that keep the latest row of each row key: how their rows are stored, and found again.

A stored row is of a key at one moment. The latest hides the others: the one with the greatest value
in the column `latest_by`, if the table has one, and of these the one that was committed last, which
`SEQUENCE` tells. A tombstone says that there is no row any more. It has the row key, the sort keys
and `latest_by`, and no other value. A row that a filter or a deletion hides becomes a tombstone
when it is written again: if it just went away, an older row of its key would come back.

Since the order of rows is fixed, any shards can be merged in any order: the latest row of the
latest rows of some is the latest of all.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.arrow.types import Array, Tally
from dormouse.rows.predicates import Predicate
from dormouse.schema.schema import SEQUENCE, TOMBSTONE, Schema
from dormouse.schema.types import UUID_BYTES, FieldType, ListType, MapType, Primitive, StructType

_NO_TIME, _SINCE_COMMIT = pa.scalar(None, pa.int64()), pa.scalar(0, pa.int64())


def with_tombstones(
    batches: Iterable[pa.RecordBatch], schema: Schema, by: str, shown: Predicate, now_ms: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `batches`, and tombstones in place of those that `shown` is not true of."""
    for batch, is_shown in shown.tested(batches):
        yield entombed(batch, pc.invert(is_shown), schema, by, now_ms)


def entombed(
    batch: pa.RecordBatch, gone: Array, schema: Schema, by: str, now_ms: int
) -> pa.RecordBatch:
    """Return rows with tombstones, since `now_ms`, in place of those that are `gone`."""
    if not pc.any(gone).as_py():
        return batch
    names = {*(field.name for field in schema.keys), by, SEQUENCE.name, TOMBSTONE.name}
    fields = {field.name: field for field in schema.values if field.name not in names}

    def column(name: str, cells: Any) -> Any:
        if name == TOMBSTONE.name:
            since = pc.if_else(gone, pa.scalar(now_ms, pa.int64()), _NO_TIME)
            return pc.coalesce(cells, since)
        field = fields.get(name)
        if field is None:
            return cells
        blank = None if field.nullable else _blank(field.type)
        return pc.if_else(gone, pa.scalar(blank, cells.type), cells)

    columns = [column(*each) for each in zip(batch.schema.names, batch.columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def without_tombstones(
    batches: Iterable[pa.RecordBatch], before_ms: int | None, removed: Tally
) -> Iterator[pa.RecordBatch]:
    """Yield rows without the tombstones from before a time, or all; `removed` counts them."""
    for batch in batches:
        since: Any = batch.column(TOMBSTONE.name)
        if since.null_count == batch.num_rows:
            yield batch  # as most are: to filter it would copy it
            continue
        is_old: Any = pc.is_valid(since)
        if before_ms is not None:
            since = pc.if_else(pc.equal(since, _SINCE_COMMIT), batch.column(SEQUENCE.name), since)
            is_old = pc.less(since, pa.scalar(before_ms, pa.int64()))
        rest = batch.filter(pc.invert(pc.fill_null(is_old, pa.scalar(False))))
        removed.rows += batch.num_rows - rest.num_rows
        if rest.num_rows:
            yield rest


_BLANKS: dict[FieldType, object] = {
    Primitive.BOOLEAN: False,
    Primitive.STRING: "",
    Primitive.BYTES: b"",
    Primitive.UUID: bytes(UUID_BYTES),
    Primitive.DYNAMIC: "null",
}
"""What tombstones have where a column cannot be null; in all others 0, which Arrow takes for times,
dates and decimals too.
"""


def _blank(kind: FieldType) -> object:
    match kind:
        case ListType() | MapType():
            return []
        case StructType(members=members):
            return {m.name: None if m.nullable else _blank(m.type) for m in members}
    return _BLANKS.get(kind, 0)
