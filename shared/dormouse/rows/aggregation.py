"""Reduce the rows of each group to one row, in a sorted stream of any length.

Each batch is reduced by itself. Only the last group of a batch can continue in the next batch, so
at most two batches are in memory, however large a group is. A batch in which no two rows share a
group passes through unchanged.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.arrow.types import Array, Tally
from dormouse.arrow.values import (
    canonical,
    from_sortable,
    sort_columns,
    to_sortable,
    with_ties_in_order,
)
from dormouse.rows.predicates import Predicate
from dormouse.schema.schema import SEQUENCE, TOMBSTONE, Schema
from dormouse.schema.types import UUID_BYTES, FieldType, ListType, MapType, Primitive, StructType
from dormouse.tables.row_rules import Aggregation, Kept, Operation


def aggregate_groups(
    batches: Iterable[pa.RecordBatch],
    schema: Schema,
    aggregation: Aggregation,
    removed: Tally | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield one row for each group of rows; `batches` are sorted by the keys of `schema`.

    The batches need all keys and any subset of the values; an aggregation that keeps whole rows
    needs all values. `removed` counts the input rows beyond the first of each group.

    For example, with a group key `k` and `sum(n)`:

        batch 1: (a, 1) (a, 2) (b, 3)    reduced: (a, 3) (b, 3)
        batch 2: (b, 4) (c, 5)           reduced: (b, 4) (c, 5)

    The last row of batch 1 and the first of batch 2 share the group b, so these two are reduced
    again to (b, 7). The aggregations are associative, so reducing partial results is correct.
    """
    tally = Tally() if removed is None else removed
    keys = [field.name for field in aggregation.group_keys(schema)]
    pending: pa.RecordBatch | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        part = _reduced(batch, schema, aggregation, tally)
        if pending is None:
            pending = part
            continue
        borders = [pending.slice(pending.num_rows - 1), part.slice(0, 1)]
        if any(borders[0].column(name)[0] != borders[1].column(name)[0] for name in keys):
            yield pending
            pending = part
            continue
        if pending.num_rows > 1:
            yield pending.slice(0, pending.num_rows - 1)
        pending = _reduced(_joined(borders), schema, aggregation, tally)
        if part.num_rows > 1:
            pending = _joined([pending, part.slice(1)])
    if pending is not None:
        yield pending


def latest_rows(
    batches: Iterable[pa.RecordBatch],
    schema: Schema,
    aggregation: Aggregation,
    removed: Tally | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the latest row of each row key of `batches`, which are sorted by it, and have all
    columns by which that is found. `removed` counts the others.
    """
    by = [schema.field_named(aggregation.by)] if aggregation.by else []
    order = Schema(schema.row_keys, (), (*by, SEQUENCE), is_part=True)
    return aggregate_groups(batches, order, Aggregation(kept="latest"), removed)


def _reduced(
    batch: pa.RecordBatch, schema: Schema, aggregation: Aggregation, removed: Tally
) -> pa.RecordBatch:
    """Return a batch with one row for each group of `batch`."""
    begins = _begins(batch, [field.name for field in aggregation.group_keys(schema)])
    if begins is None:
        return batch
    removed.rows += batch.num_rows - begins.true_count
    if aggregation.kept == "latest":
        return batch.filter(_greatest(pc.invert(begins.slice(1)), _order(batch, schema)))
    if aggregation.kept:
        return _kept(batch, begins, schema, aggregation.kept)
    return _folded(batch, begins, aggregation)


def _kept(batch: pa.RecordBatch, begins: Array, schema: Schema, rule: Kept) -> pa.RecordBatch:
    """Return the row of each group with the least (`first`) or greatest (`last`) sort key.

    Rows that agree in all keys are compared by their values, so that the choice does not depend on
    the order of the input.
    """
    key_begins = _begins(batch, [field.name for field in schema.keys])
    if key_begins is not None:
        ties = pc.invert(key_begins.slice(1))
        batch = with_ties_in_order(batch, ties, lambda tied: _order(batch.filter(tied), schema))
    is_last = pa.concat_arrays([begins.slice(1), pa.array([True])])
    return batch.filter(begins if rule == "first" else is_last)


def _order(batch: pa.RecordBatch, schema: Schema) -> list[Array]:
    """Return columns by which rows are ordered by their values; last by the bits of equal cells."""
    cells = [sort_columns(batch.column(field.name)) for field in schema.values]
    return [each[0] for each in cells] + [each[-1] for each in cells if len(each) > 1]


def _greatest(same: Array, order: Sequence[Array]) -> Array:
    """Return for each row whether it is the greatest of its group; `same` says of each row but the
    first whether it is in the group of the row before.

    Of each two neighbours in a group, the lesser one goes, until no two are left. Most groups are
    of two rows: that is one comparison of all, where to sort them takes much longer.
    """
    later: Any = pa.scalar(True)
    for column in reversed(order):
        before, after = column.slice(0, len(same)), column.slice(1)
        later = pc.or_(pc.less(before, after), pc.and_(pc.equal(before, after), later))
    edge = pa.array([False])
    lesser = [pc.and_(same, later), edge], [edge, pc.and_not(same, later)]
    stay: Array = pc.invert(pc.or_(*map(pa.concat_arrays, lesser)))
    if len(same) < 2 or not pc.any(pc.and_(same.slice(0, len(same) - 1), same.slice(1))).as_py():
        return stay
    groups: Any = pc.cumulative_sum(pc.invert(pa.concat_arrays([edge, same])).cast(pa.int32()))
    rest = groups.filter(stay)
    again = pc.equal(rest.slice(0, len(rest) - 1), rest.slice(1))
    greatest: Array = pc.replace_with_mask(
        stay, stay, _greatest(again, [column.filter(stay) for column in order])
    )
    return greatest


def _folded(
    batch: pa.RecordBatch, begins: pa.BooleanArray, aggregation: Aggregation
) -> pa.RecordBatch:
    """Return `batch` with each group of several rows folded; rows that are alone in their group
    stay as they are.

    Only the rows of larger groups are folded, and then put back into their places: usually these
    are few, and folding costs more than copying.
    """
    alone = pc.and_(begins, pa.concat_arrays([begins.slice(1), pa.array([True])]))
    together = pc.invert(alone)
    rows, starts = batch.filter(together), begins.filter(together)
    cells = _folded_cells(
        rows, pc.cumulative_sum(starts.cast(pa.int32())), dict(aggregation.operations)
    )
    first = rows.filter(starts)
    columns = [cells.get(name, first.column(name)) for name in batch.schema.names]
    batch_after = pa.RecordBatch.from_arrays(columns, schema=batch.schema)
    if batch_after.num_rows == begins.true_count:
        return batch_after
    first_rows = pc.indices_nonzero(begins).cast(pa.int64())
    is_folded = together.take(first_rows)
    after_batch = pc.add(pc.cumulative_sum(is_folded.cast(pa.int64())), batch.num_rows - 1)
    return _joined([batch, batch_after]).take(pc.if_else(is_folded, after_batch, first_rows))


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    whole: pa.RecordBatch = pa.concat_batches(batches)  # type: ignore[attr-defined]  # stubs lack it
    return whole


def _begins(batch: pa.RecordBatch, names: Sequence[str]) -> pa.BooleanArray | None:
    """Return for each row whether it differs from the one before in `names`; None if all do."""
    same: pa.BooleanArray | None = None
    before, after = batch.slice(0, batch.num_rows - 1), batch.slice(1)
    for name in names:
        here = pc.equal(before.column(name), after.column(name))
        same = here if same is None else pc.and_(same, here)
        if not pc.any(same).as_py():
            return None
    assert same is not None  # every table has a row key
    return pa.concat_arrays([pa.array([True]), pc.invert(same)])


def _folded_cells(
    batch: pa.RecordBatch, groups: Array, operations: dict[str, Operation]
) -> dict[str, Array]:
    """Return the columns of `batch` that have an operation, with one cell for each group."""
    names = [name for name in batch.schema.names if name in operations]
    maps = [name for name in names if operations[name].startswith("map_")]
    plain = [name for name in names if name not in maps]
    folds = [(operations[name], batch.column(name)) for name in plain]
    cells_by_name = dict(zip(plain, _fold([groups], folds)[1:], strict=True))
    for name in maps:
        how = operations[name].removeprefix("map_")
        cells_by_name[name] = _folded_maps(batch.column(name), groups, how)
    return cells_by_name


def _fold(by: Sequence[Array], folds: Sequence[tuple[str, Array]]) -> list[Array]:
    """Return the distinct rows of `by`, in the order of its first column, followed by each column
    of `folds`, aggregated over them.

    Arrow does not say in which order it returns groups, and does return them in another one than
    that of their first rows where hashes of few numbers collide (seen in 26.0, without threads).
    """
    columns = [to_sortable(column) for column in (*by, *(column for _, column in folds))]
    names = [str(i) for i in range(len(columns))]
    keys = names[: len(by)]
    rows = pa.Table.from_arrays(columns, names)
    aggregations: list[Any] = list(zip(names[len(by) :], [how for how, _ in folds], strict=True))
    groups = rows.group_by(keys, use_threads=False).aggregate(aggregations).sort_by(keys[0])
    results: list[Any] = [groups.column(name) for name in keys]
    results += [groups.column(f"{name}_{how}") for name, how in aggregations]
    types = [column.type for column in (*by, *(column for _, column in folds))]
    return [from_sortable(r.combine_chunks(), kind) for r, kind in zip(results, types, strict=True)]


def _folded_maps(maps: Any, groups: Array, how: str) -> Array:
    """Fold the values of each key over the maps of each group; the keys of a result are ascending.

    Of keys that are equal but differ in their bits (-0.0 and 0.0, NaNs), the least is kept.
    """
    kind = maps.type
    entry = pa.struct([pa.field("key", kind.key_type, nullable=False), ("value", kind.item_type)])
    lists: Any = maps.cast(pa.list_(entry))
    keys, values = pc.list_flatten(lists).flatten()
    of_entries = groups.take(pc.list_parent_indices(lists))
    one_of_equal = canonical(keys)
    folds = [(how, values)] if one_of_equal is keys else [(how, values), ("min", keys)]
    of_keys, keys, values, *least = _fold([of_entries, one_of_equal], folds)
    keys = least[0] if least else keys
    rows = pa.Table.from_arrays([of_keys, to_sortable(keys)], ["group", "key"])
    order = pc.sort_indices(rows, [("group", "ascending"), ("key", "ascending")])
    # count each group once more than it has keys, so that groups without keys are counted too
    every = pa.concat_arrays([pc.unique(groups), of_keys])
    counts = pc.value_counts(every).field("counts")
    ends = pc.subtract(pc.cumulative_sum(counts), pa.array(range(1, len(counts) + 1), pa.int64()))
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends]).cast(pa.int32())
    columns: Any = (offsets, keys.take(order), values.take(order))
    folded: Array = pa.MapArray.from_arrays(*columns, type=kind)
    return folded


# Tables that keep the latest row of each row key: how their rows are stored, and found again.
#
# A stored row is of a key at one moment. The latest hides the others: the one with the greatest
# value in the column `latest_by`, if the table has one, and of these the one that was committed
# last, which `SEQUENCE` tells. A tombstone says that there is no row any more. It has the row key,
# the sort keys and `latest_by`, and no other value. A row that a filter or a deletion hides becomes
# a tombstone when it is written again: if it just went away, an older row of its key would come
# back.
#
# Since the order of rows is fixed, any shards can be merged in any order: the latest row of the
# latest rows of some is the latest of all.


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
dates and decimals too."""


def _blank(kind: FieldType) -> object:
    match kind:
        case ListType() | MapType():
            return []
        case StructType(members=members):
            return {m.name: None if m.nullable else _blank(m.type) for m in members}
    return _BLANKS.get(kind, 0)
