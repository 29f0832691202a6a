"""Answer plain statements that read little in the process of the caller: no other is needed.

What they read is bounded before they begin, so no limit of time or memory has to end them. Rows are
those that any query selects: rules of the table, versions and access apply as everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from msgspec import structs

from dormouse.errors import InvalidRequestError
from dormouse.key_forms.arrow import key_scalar
from dormouse.query.planner import selected_ranges, slices_to_read
from dormouse.query.result import QueryResult
from dormouse.query.rows import LOOK_UP_BYTES, reading_version
from dormouse.readers.read_counters import CountedObjects
from dormouse.readers.reading import find_row_groups
from dormouse.schema.schema import Primitive
from dormouse.sql.plain.reading import read_text
from dormouse.sql.plain.statements import Output, Plain, read_plain
from dormouse.statements.limits import Limits
from dormouse.statements.protocol import First, Named, Scan, ScanRows
from dormouse.statements.scans import Tables, check_reads, known_ends
from dormouse.tables.row_rules import row_rules

MAX_SHARDS = 64
"""The most shards whose indexes are read to find out how much would be read."""
MAX_FIRST_ROWS = 100_000
"""The most rows of a LIMIT, if these are simply the first ones."""
_NAME = "#0"
"""The name of the only reference, which `sql.statements` gives the first one, too."""


def answer_plain(
    tables: Tables, text: str, parameters: Mapping[str, object], limits: Limits
) -> QueryResult | None:
    """Return the rows of a statement; None if it is not plain, or reads too much for this process.

    Raises:
        DormouseError: it is no query, its table cannot be read, or it reads more than its limit.
    """
    found = _plain_scan(tables, text, parameters)
    if found is None:
        return None
    plain, scan = found
    if scan.first is None and not _reads_little(tables, scan):
        return None
    check_reads(tables, [ScanRows(_NAME, scan)], limits)
    if scan.first is not None and not tables.find_first(_NAME, scan):
        return None
    read, batches = tables.rows(_NAME, scan)
    if scan.first is not None:
        batches = _sorted(pa.Table.from_batches(batches, read), scan.first)
    if plain.aggregates:
        return tables.result(_aggregated_schema(plain, read), _aggregated(plain, read, batches))
    chosen = [read.field(output.column).with_name(output.name) for output in plain.outputs]
    return tables.result(pa.schema(chosen), _renamed(plain, pa.schema(chosen), batches))


def is_answered_directly(tables: Tables, text: str, parameters: Mapping[str, object]) -> bool:
    """Return whether a statement is plain and reads little, so that it needs no process.

    Raises:
        DormouseError: it is no query, or its table cannot be read.
    """
    found = _plain_scan(tables, text, parameters)
    return found is not None and found[1].first is None and _reads_little(tables, found[1])


def _plain_scan(
    tables: Tables, text: str, parameters: Mapping[str, object]
) -> tuple[Plain, Scan] | None:
    """Return a statement as a plain one, and its scan; None if it is not plain."""
    said = read_text(text)
    if said is None or said.parameters != set(parameters):
        return None
    schema = tables.find(Named(_NAME, said.table, said.as_of, said.line, said.column))
    plain = read_plain(said, schema, parameters)
    if plain is None:
        return None
    scan = Scan(columns=plain.columns, where=plain.where, limit=plain.limit, ends=plain.ends)
    if plain.first is not None and plain.limit is not None:
        order = plain.first
        column, rows = order.column.name, plain.limit
        first = First(column, rows, order.descending, order.nulls_first, ties=False)
        scan = structs.replace(scan, limit=None, first=first)
    try:
        tables.selection(_NAME, scan)
    except InvalidRequestError:  # the condition is too large, or a date is none: DataFusion says so
        return None
    return plain, scan


def _reads_little(tables: Tables, scan: Scan) -> bool:
    visible, state = tables.references[_NAME]
    table, selection = visible.table, tables.selection(_NAME, scan)
    if selection.condition is None and row_rules(table.schema, table.properties).is_empty:
        if not scan.columns:
            return True  # the state and footers count all but the rows at the ends of ranges
        if scan.ends and known_ends(table, state) is not None:
            return True
        if scan.limit is not None and scan.limit <= MAX_FIRST_ROWS:
            return True
    parts = slices_to_read(state, selected_ranges(table, selection))
    slices = [slice for part in parts for slice in part]
    if len({slice.shard.id for slice in slices}) > MAX_SHARDS:
        return False
    objects = CountedObjects(tables.resources.storage, tables.reads)
    with reading_version(tables.resources, table, state.version):
        found = find_row_groups(objects, table.id, slices, table.schema, tables.resources.cache)
    read = (g.index.column_bytes(n, table.schema.fields) for g in found for n in g.numbers)
    return sum(read) <= LOOK_UP_BYTES


def _sorted(rows: pa.Table, first: First) -> Iterator[pa.RecordBatch]:
    """Yield the first rows by a column, in DataFusion's order."""
    import pyarrow.compute as pc  # which takes long to import, and look-ups need none of it

    column: Any = rows.column(first.column).combine_chunks()
    if pa.types.is_floating(column.type):
        column = _ordinals(column)
    direction: Any = "descending" if first.descending else "ascending"
    nulls: Any = "at_start" if first.nulls_first else "at_end"
    order = pc.array_sort_indices(column, order=direction, null_placement=nulls)
    yield from rows.take(order.slice(0, first.rows)).to_batches()


def _ordinals(column: Any) -> Any:
    """Return whole numbers that sort as the floats of a column do, -0.0 before 0.0: their bits, of
    which a negative number has all but its sign turned over.
    """
    import pyarrow.compute as pc

    kind = pa.int32() if pa.types.is_float32(column.type) else pa.int64()
    bits, others = column.view(kind), pa.scalar(2 ** (kind.bit_width - 1) - 1, kind)
    is_negative = pc.less(bits, pa.scalar(0, kind))
    return pc.if_else(is_negative, pc.bit_wise_xor(bits, others), bits)


def _renamed(
    plain: Plain, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        columns = [batch.column(output.column) for output in plain.outputs]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _aggregated_schema(plain: Plain, read: pa.Schema) -> pa.Schema:
    """Return the schema of the only row, with the types that DataFusion's functions have."""
    return pa.schema([_aggregated_field(output, read) for output in plain.outputs])


def _aggregated_field(output: Output, read: pa.Schema) -> pa.Field[pa.DataType]:
    if output.function == "count":
        return pa.field(output.name, pa.int64(), nullable=False)
    kind = read.field(output.column).type
    if output.function == "sum" and pa.types.is_integer(kind):
        kind = pa.int64()
    return pa.field(output.name, kind)


def _aggregated(
    plain: Plain, read: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the only row."""
    schema = _aggregated_schema(plain, read)
    found = list(batches)
    rows = sum(batch.num_rows for batch in found)
    table = pa.Table.from_batches(found, read) if plain.columns else None
    values = [
        key_scalar(rows, Primitive.LONG)
        if table is None or not output.column
        else _aggregate(output.function, table.column(output.column), field.type)
        for output, field in zip(plain.outputs, schema, strict=True)
    ]
    # not pa.array: it imports pandas where that is installed, which takes longer than the rest
    columns = [pa.repeat(value, 1) for value in values]  # type: ignore[arg-type]  # stubs lag
    yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _aggregate(function: str, column: pa.ChunkedArray[Any], kind: pa.DataType) -> Any:
    import pyarrow.compute as pc  # which takes long to import, and counts need none of it

    return {"sum": pc.sum, "min": pc.min, "max": pc.max}[function](column).cast(kind)
