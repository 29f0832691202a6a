"""Rules on rows: whatever the shards and the order of merges, the rows of one pass over all."""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Context, Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dormouse.arrow.order import sort_in_memory
from dormouse.arrow.types import arrow_schema
from dormouse.keys import KeyRange
from dormouse.rows.merging import merge_slices
from dormouse.rows.predicates import apply_row_rules
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import DecimalType, FieldType, ListType, MapType, Primitive
from dormouse.shards.reading import Slice
from dormouse.state.partitions import Shard
from dormouse.storage import FolderStorage
from dormouse.tables.properties import Properties
from dormouse.tables.row_rules import RowRules, row_rules
from tests.support.batches import WITHIN, Row, cells, sort_key_of
from tests.support.depth import examples
from tests.support.tables import ShardTable

NOW_MS = 1_700_000_000_000
FLOATS = st.sampled_from([math.nan, -math.nan, -0.0, 0.0, 1.5, -1.5, math.inf, -math.inf])
DOUBLES = ListType(Primitive.DOUBLE)
TOTALS = [Primitive.INT, Primitive.LONG, DecimalType(38, 3)]
ORDERED: list[FieldType] = [*WITHIN, DecimalType(9, 2)]
SMALL = st.integers(0, 2)
DIGITS = Context(prec=60)


def value_cells(kind: FieldType) -> st.SearchStrategy[object]:
    """Return cells with the floats that are hard to order."""
    if kind in (Primitive.FLOAT, Primitive.DOUBLE):
        return FLOATS
    if isinstance(kind, DecimalType):
        most = 10 ** (kind.precision - 2)  # room for sums
        units = st.sampled_from([-most, -1, 0, 1, most]) | st.integers(-most, most)
        return units.map(lambda n: DIGITS.scaleb(Decimal(n), -kind.scale))
    if isinstance(kind, MapType):
        entry = st.tuples(value_cells(kind.key), st.none() | value_cells(kind.value))
        return st.lists(entry, max_size=3, unique_by=lambda pair: bits(pair[0]))
    if kind == ListType(Primitive.DOUBLE):
        return st.lists(FLOATS, max_size=1)
    return cells(kind)


@st.composite
def folded_fields(draw: st.DrawFn, name: str) -> tuple[Field, str]:
    """Return a value field and the operation on it."""
    op = draw(st.sampled_from(["sum", "min", "max"]))
    kind: FieldType = draw(st.sampled_from(TOTALS if op == "sum" else ORDERED))
    if draw(st.booleans()):
        return Field(name, MapType(draw(st.sampled_from(WITHIN)), kind)), f"map_{op}"
    return Field(name, kind), op


@st.composite
def folding_tables(draw: st.DrawFn) -> tuple[Schema, str]:
    """Return schemas with an operation for each value field."""
    values = [draw(folded_fields(name)) for name in ("v", 'quo"te', "w(,)")]
    sort_keys = (Field("s", Primitive.LONG),) if draw(st.booleans()) else ()
    schema = Schema((Field("k", Primitive.STRING),), sort_keys, tuple(f for f, _ in values))
    quoted = ['"' + field.name.replace('"', '""') + '"' for field, _ in values]
    return schema, ", ".join(f"{op}({n})" for n, (_, op) in zip(quoted, values, strict=True))


KEPT_VALUES = (
    Field("n", Primitive.DOUBLE, nullable=True),
    Field("t", ListType(Primitive.TIMESTAMP)),
    Field("f", ListType(Primitive.DOUBLE), nullable=True),
    Field("g", Primitive.FLOAT),
    Field("m", MapType(Primitive.STRING, Primitive.DATE), nullable=True),
)
KEEPING = Schema((Field("k", Primitive.STRING),), (Field("s", Primitive.LONG),), KEPT_VALUES)


def rows_of(schema: Schema) -> st.SearchStrategy[list[Row]]:
    """Return rows whose keys often meet."""
    columns: dict[str, st.SearchStrategy[object]] = {}
    for field in schema.fields:
        column = value_cells(field.type)
        if field in schema.keys:
            column = SMALL if field.type is Primitive.LONG else st.sampled_from(["a", "b"])
        columns[field.name] = st.none() | column if field.nullable else column
    return st.lists(st.fixed_dictionaries(columns), max_size=12)


def batches(rows: Sequence[Row], schema: Schema, size: int) -> Iterable[pa.RecordBatch]:
    whole = pa.RecordBatch.from_pylist(list(rows), arrow_schema(schema))
    ordered = sort_in_memory([whole], schema)
    for batch in ordered:
        yield from (batch.slice(start, size) for start in range(0, batch.num_rows, size))


def refine(rows: Sequence[Row], schema: Schema, rules: RowRules, size: int) -> list[Row]:
    """Return the rows after one pass, as lists of rows again."""
    found = apply_row_rules(batches(rows, schema, size), schema, rules, NOW_MS)
    return [row for batch in found for row in batch.to_pylist()]


def bits(value: object) -> object:
    """Return a cell so that only the very same cell equals it; NaNs by their sign."""
    match value:
        case float():
            return struct.pack(">d", value)
        case dt.datetime():
            return value.replace(tzinfo=None)
        case list() | tuple():
            return [bits(item) for item in value]
    return value


def canonical(rows: Iterable[Row]) -> list[object]:
    return [[(name, bits(row[name])) for name in sorted(row)] for row in rows]


def merged_any_way(
    data: st.DataObject, rows: list[Row], schema: Schema, rules: RowRules
) -> list[Row]:
    """Write rows to shards, merge some of them, some times, and query."""
    shuffled = data.draw(st.permutations(rows))
    parts = data.draw(st.integers(1, 4))
    shards = [refine(shuffled[i::parts], schema, rules, 3) for i in range(parts)]
    for _ in range(data.draw(st.integers(0, 3))):
        size = data.draw(st.integers(1, len(shards)))
        inputs, shards = shards[:size], shards[size:]
        held = data.draw(st.permutations([row for shard in inputs for row in shard]))
        shards.append(refine(held, schema, rules, data.draw(st.integers(1, 5))))
    return refine([row for shard in shards for row in shard], schema, rules, 4)


@settings(deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_folded_rows_do_not_depend_on_shards_and_merges(data: st.DataObject) -> None:
    schema, aggregations = data.draw(folding_tables())
    rules = row_rules(schema, Properties(aggregations=aggregations))
    rows = data.draw(rows_of(schema))
    found = merged_any_way(data, rows, schema, rules)
    assert canonical(found) == canonical(folded(rows, schema, aggregations))


@pytest.mark.parametrize("kept", ["first", "last"])
@settings(deadline=None, max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_kept_rows_do_not_depend_on_shards_and_merges(kept: str, data: st.DataObject) -> None:
    names = [field.name for field in KEEPING.values]
    aggregations = ", ".join(f"{kept}({name})" for name in names)
    rules = row_rules(KEEPING, Properties(aggregations=aggregations))
    rows = data.draw(rows_of(KEEPING))
    expected = refine(rows, KEEPING, rules, 1000)
    assert canonical(merged_any_way(data, rows, KEEPING, rules)) == canonical(expected)
    of_rows = canonical(rows)
    pick = min if kept == "first" else max
    for row in expected:
        assert canonical([row])[0] in of_rows
        assert row["s"] == pick(r["s"] for r in rows if r["k"] == row["k"])  # type: ignore[type-var]
    assert [row["k"] for row in expected] == sorted({str(row["k"]) for row in rows})


@pytest.mark.parametrize("kept", ["first", "last"])
def test_equal_floats_are_ties_and_the_next_value_decides(kept: str) -> None:
    values = (
        Field("x", Primitive.DOUBLE),
        Field("l", ListType(Primitive.DOUBLE)),
        Field("n", Primitive.LONG),
    )
    schema = Schema(KEEPING.row_keys, KEEPING.sort_keys, values)
    rules = row_rules(schema, Properties(aggregations=f"{kept}(x), {kept}(l), {kept}(n)"))
    for low, high in ((-0.0, 0.0), (0.0, -0.0), (math.nan, -math.nan), (-math.nan, math.nan)):
        for x, y in ((low, 1.0), (1.0, low)):
            first: Row = {"k": "a", "s": 0, "x": x, "l": [y], "n": 1}
            second = first | {"x": high if x is low else x, "l": [high if y is low else y], "n": 2}
            expected = first if kept == "first" else second
            for rows in ([first, second], [second, first]):
                found = refine(rows, schema, rules, 2)
                assert canonical(found) == canonical([expected])


@pytest.mark.parametrize("kept", ["first", "last"])
@pytest.mark.parametrize("field", [Field("x", Primitive.FLOAT), Field("x", DOUBLES)])
def test_of_rows_that_are_equal_but_for_bits_the_bits_decide_in_any_order(
    kept: str, field: Field
) -> None:
    schema = Schema(KEEPING.row_keys, KEEPING.sort_keys, (field,))
    rules = row_rules(schema, Properties(aggregations=f"{kept}(x)"))
    zeros = [[zero] if field.type == DOUBLES else zero for zero in (-0.0, 0.0)]
    found_signs = set()
    for found_cells in (zeros, zeros[::-1]):
        (row,) = refine([{"k": "a", "s": 0, "x": cell} for cell in found_cells], schema, rules, 2)
        found = row["x"][0] if isinstance(row["x"], list) else row["x"]
        found_signs.add(math.copysign(1, float(str(found))))
    assert len(found_signs) == 1


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_group_is_one_row_wherever_batches_end_within_it(size: int) -> None:
    schema = Schema(KEEPING.row_keys, (), (Field("n", Primitive.LONG),))
    rules = row_rules(schema, Properties(aggregations="sum(n)"))
    rows: list[Row] = [{"k": key, "n": 1} for key in "abbbbc"]
    expected = [{"k": "a", "n": 1}, {"k": "b", "n": 4}, {"k": "c", "n": 1}]
    assert refine(rows, schema, rules, size) == expected


def test_a_nan_with_a_sign_is_no_least_value() -> None:
    schema = Schema(KEEPING.row_keys, (), (Field("x", Primitive.DOUBLE),))
    rows: list[Row] = [{"k": "a", "x": x} for x in (-math.nan, -math.inf, math.inf)]
    least = refine(rows, schema, row_rules(schema, Properties(aggregations="min(x)")), 3)
    most = refine(rows, schema, row_rules(schema, Properties(aggregations="max(x)")), 3)
    assert least == [{"k": "a", "x": -math.inf}]
    assert math.isnan(float(str(most[0]["x"])))


def folded(rows: Sequence[Row], schema: Schema, aggregations: str) -> list[Row]:
    """Fold in plain Python: what is expected."""
    ops = [call.rpartition("(")[0].partition("(")[0] for call in aggregations.split('"), ')]
    groups: dict[object, list[Row]] = {}
    for row in sorted(rows, key=lambda r: sort_key_of(r, schema)):
        groups.setdefault(sort_key_of(row, schema), []).append(row)
    result = []
    for group in groups.values():
        one = dict(group[0])
        for field, op in zip(schema.values, ops, strict=True):
            if len(group) > 1:
                one[field.name] = fold_cells([row[field.name] for row in group], field.type, op)
        result.append(one)
    return result


def fold_cells(found: Sequence[object], kind: FieldType, op: str) -> object:
    if isinstance(kind, MapType):
        entries: dict[object, list[object]] = {}
        least: dict[object, object] = {}
        for cell in found:
            assert isinstance(cell, list)
            for key, value in cell:
                one = str(bits(one_of_equal(key)))
                least[one] = min(key, least.get(one, key), key=rank)
                entries.setdefault(one, []).append(value)
        how = op.removeprefix("map_")
        folded_entries = ((least[k], fold_cells(v, kind.value, how)) for k, v in entries.items())
        return sorted(folded_entries, key=lambda entry: rank(entry[0]))
    present = [cell for cell in found if cell is not None]
    if not present:
        return None
    if op == "sum":
        return total(present, kind)
    pick: Callable[..., object] = min if op == "min" else max
    return pick(present, key=rank)


def total(found: Sequence[object], kind: FieldType) -> object:
    """Add up as two's complement does in 32, 64 or 128 bits."""
    width = {Primitive.INT: 32, Primitive.LONG: 64}.get(kind, 128)  # type: ignore[arg-type]
    scale = kind.scale if isinstance(kind, DecimalType) else 0
    units = sum(int(DIGITS.scaleb(Decimal(str(cell)), scale)) for cell in found)
    wrapped = (units + (1 << width - 1)) % (1 << width) - (1 << width - 1)
    return DIGITS.scaleb(Decimal(wrapped), -scale) if scale else wrapped


def one_of_equal(cell: object) -> object:
    """Return the same cell for all that are equal."""
    if isinstance(cell, float):
        return math.nan if math.isnan(cell) else cell + 0.0
    return cell


def rank(cell: object) -> Any:
    """Return what cells are ordered by: floats by value, NaN above all, and equal ones by bits."""
    if isinstance(cell, float):
        sign = math.copysign(1, cell)
        return (1, -sign, 0) if math.isnan(cell) else (0, cell, sign)
    return cell.encode() if isinstance(cell, str) else cell


@settings(deadline=None, max_examples=examples(12), suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_shards_written_merged_and_queried_return_what_one_pass_returns(
    data: st.DataObject,
) -> None:
    kept = data.draw(st.sampled_from(["", "first", "last"]))
    schema, aggregations = data.draw(folding_tables())
    if kept:
        schema = KEEPING
        aggregations = ", ".join(f"{kept}({field.name})" for field in KEPT_VALUES)
    properties = Properties(aggregations=aggregations, filters="where(k <> 'c')")
    rules = row_rules(schema, properties)
    files = data.draw(st.lists(rows_of(schema), min_size=1, max_size=4))
    with TemporaryDirectory() as folder:
        table = ShardTable(FolderStorage(Path(folder) / "data"), schema, Path(folder))
        shards: list[Shard] = []
        for number, rows in enumerate(files):
            ordered = apply_row_rules(batches(rows, schema, 5), schema, rules, NOW_MS)
            shards += [new.shard for new in table.add_sorted(iter(ordered), f"ingest{number}")]
        for number in range(data.draw(st.integers(0, 2)) if shards else 0):
            size = data.draw(st.integers(1, len(shards)))
            inputs, shards = shards[:size], shards[size:]
            ordered = apply_row_rules(merged(table, inputs), schema, rules, NOW_MS)
            shards += [new.shard for new in table.add_sorted(iter(ordered), f"merge{number}")]
        last = apply_row_rules(merged(table, shards), schema, rules, NOW_MS)
        found = [row for batch in last for row in batch.to_pylist()]
    everything = [row for rows in files for row in rows]
    assert canonical(found) == canonical(refine(everything, schema, rules, 1000))


def merged(table: ShardTable, shards: Sequence[Shard]) -> Iterator[pa.RecordBatch]:
    """Merge shards as a compaction does."""
    slices = [Slice(shard, KeyRange()) for shard in shards]
    return merge_slices(
        table.storage, "table", slices, table.schema, scratch=table.folder, memory_bytes=2**20
    )
