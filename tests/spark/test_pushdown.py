"""Filters of Spark: done here just as Spark does them, or left to it; and read by little."""

from __future__ import annotations

import datetime as dt
import pickle
from dataclasses import replace
from decimal import Decimal
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from dormouse import access
from dormouse.arrow.order import ranges_to_read
from dormouse.arrow.types import arrow_schema, conform
from dormouse.keys import KeyRange
from dormouse.query.selection import select
from dormouse.rows.predicates import Predicate, parse_predicate
from dormouse.schema.schema import parse_schema
from dormouse_spark.datasource import FilteredReader, Leaf, TableSnapshot, by_leaf
from dormouse_spark.pushdown import push_down
from dormouse_spark.types import spark_arrow_schema
from tests.spark import filters as f
from tests.support.every_type import EVERY_TYPE, row_of_every_type
from tests.support.spark_access import WorldAccess
from tests.support.world import LETTERS, World, letters

ROWS = [
    *(row_of_every_type(n) for n in range(12)),
    {**row_of_every_type(1), "i": 99, "f": float("nan"), "d": float("nan")},
    {**row_of_every_type(2), "i": 98, "f": -0.0, "d": -0.0},
]
EVERYTHING = KeyRange()
ORDERED = (f.GreaterThan, f.GreaterThanOrEqual, f.LessThan, f.LessThanOrEqual)
VALUES = sorted({name for row in ROWS for name in row} - {"ls", "m", "st"})


def kept(given: Any) -> list[Any]:
    """Return the numbers of the rows that the library finds for a filter that it must take."""
    found = push_down([given], EVERY_TYPE)
    assert found.condition is not None and not found.left, given
    rows = pa.RecordBatch.from_pylist(ROWS, arrow_schema(EVERY_TYPE))
    taken = Predicate(found.condition, EVERY_TYPE).apply([rows])
    return [number for batch in taken for number in batch.column("i").to_pylist()]


SPARK_ROWS = [
    row
    for batch in [pa.RecordBatch.from_pylist(ROWS, arrow_schema(EVERY_TYPE))]
    for row in conform(batch, spark_arrow_schema(batch.schema)).to_pylist()
]


def sparks(given: Any) -> list[Any]:
    return [row["i"] for row in SPARK_ROWS if f.says(given, row)]


def is_number(value: object) -> bool:
    return value is not None and value == value


@pytest.mark.parametrize("column", VALUES)
def test_comparisons_with_values_of_every_type_find_the_rows_spark_does(column: str) -> None:
    values = [row[column] for row in SPARK_ROWS if is_number(row[column])]
    kinds = [f.EqualTo, f.EqualNullSafe, *(() if column == "o" else ORDERED)]
    for kind, value in product(kinds, values[:4] + values[-1:]):
        for given in (kind((column,), value), f.Not(kind((column,), value))):
            assert kept(given) == sparks(given), given
    among = f.In((column,), values[:3])
    for given in (among, f.Not(among), f.Not(f.Not(among))):
        assert kept(given) == sparks(given), given


def test_negative_zero_is_zero() -> None:
    for column, value in product(("f", "d"), (0.0, -0.0)):
        assert 98 in kept(f.EqualTo((column,), value))
        assert 98 not in kept(f.LessThan((column,), value))


@pytest.mark.parametrize("column", [field.name for field in EVERY_TYPE.fields])
def test_nulls_of_every_type_are_found(column: str) -> None:
    for given in (
        f.IsNull((column,)),
        f.IsNotNull((column,)),
        f.Not(f.IsNull((column,))),
        f.EqualNullSafe((column,), None),
    ):
        assert kept(given) == [
            row["i"]
            for row in ROWS
            if (row[column] is None) == isinstance(given, f.IsNull | f.EqualNullSafe)
        ]


@pytest.mark.parametrize("kind", [f.StringStartsWith, f.StringEndsWith, f.StringContains])
@pytest.mark.parametrize("text", ["ü", "\0", "", "%", "üü\0"])
def test_parts_of_text_are_found_whatever_they_are(kind: type, text: str) -> None:
    assert kept(kind(("s",), text)) == sparks(kind(("s",), text))


@pytest.mark.parametrize(
    "given",
    [
        f.EqualTo(("st", "x"), 1.0),
        f.EqualTo(("nothing",), 1),
        f.EqualTo(("l",), None),
        f.EqualTo(("l",), True),
        f.EqualTo(("l",), 2**63),
        f.EqualTo(("d",), float("nan")),
        f.LessThan(("d",), float("inf")),
        f.LessThan(("o",), True),
        f.EqualTo(("t",), dt.datetime(1970, 1, 1, tzinfo=dt.UTC).replace(tzinfo=None)),
        f.EqualTo(("day",), dt.datetime(1970, 1, 1, tzinfo=dt.UTC)),
        f.EqualTo(("n",), Decimal("0.000001")),
        f.EqualTo(("n",), Decimal(10) ** 26),
        f.EqualTo(("n",), Decimal("NaN")),
        f.EqualTo(("ls",), ["a"]),
        f.In(("l",), [1, None]),
        f.In(("l",), []),
        f.In(("l",), list(range(1001))),
        f.StringStartsWith(("b",), b"a"),
        f.Not(f.EqualTo(("d",), float("nan"))),
        object(),
    ],
)
def test_what_has_no_equal_is_left_to_spark(given: Any) -> None:
    found = push_down([given, f.EqualTo(("i",), 1)], EVERY_TYPE)
    assert found.left == (given,)
    assert found.condition is not None and found.condition.sql == '("i" = 1)'


def test_all_that_is_taken_is_one_condition_however_much_it_is() -> None:
    where = parse_predicate("note IS NOT NULL", LETTERS).condition
    many = [f.GreaterThan(("at",), n) for n in range(200)]
    found = push_down(many, LETTERS, where)
    assert found.condition is not None
    rows = pa.RecordBatch.from_pylist(
        [{"letter": "a", "at": at, "note": note} for at in (150, 250) for note in ("x", None)],
        arrow_schema(LETTERS),
    )
    (left,) = Predicate(found.condition, LETTERS).apply([rows])
    assert left.to_pylist() == [{"letter": "a", "at": 250, "note": "x"}]
    assert push_down([], LETTERS, where).condition == where
    assert push_down([], LETTERS).condition is None


def reader_of(
    world: World, *texts: str, asked: KeyRange = EVERYTHING, **options: Any
) -> FilteredReader:
    """Return what reads a table of three leaves, with filters."""
    table = world.create(splits=[("h",), ("p",)], **options)
    for number, text in enumerate(texts):
        world.drop(f"letters/{number}.parquet", letters(text, at=100 * number))
    world.settle()
    state = world.state(table)
    leaves = tuple(by_leaf(state, ranges_to_read(table, [asked], None)))
    selection = select(table.schema, state.version, 0, [asked], permission=access.EVERYTHING)
    return FilteredReader(TableSnapshot(table, selection, leaves, WorldAccess(world)))


def letters_read(reader: FilteredReader) -> list[str]:
    """Return the letters of each partition, read by a copy of the reader, as a task does."""
    sent = pickle.loads(pickle.dumps(reader))
    tasks = [pickle.loads(pickle.dumps(task)) for task in reader.partitions()]
    found = [batch.column("letter").to_pylist() for task in tasks for batch in sent.read(task)]
    assert len(tasks) >= len(found)
    return ["".join(letters) for letters in found]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], ["aabg", "hio", "ppz"]),
        ([f.GreaterThanOrEqual(("letter",), "i"), f.LessThan(("letter",), "q")], ["io", "pp"]),
        ([f.In(("letter",), ["a", "b", "z"])], ["aab", "z"]),
        ([f.EqualTo(("letter",), "q")], []),
        ([f.IsNull(("letter",))], []),
        ([f.EqualTo(("letter",), "a"), f.GreaterThan(("at",), 99)], ["a"]),
    ],
)
def test_filters_on_keys_leave_out_leaves_and_ranges_within_them(
    world: World, given: list[Any], expected: list[str]
) -> None:
    reader = reader_of(world, "abhpz", "agiop")
    assert reader.pushFilters(given) == ()
    assert letters_read(reader) == expected


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (KeyRange.exactly(("h", 102)), ["h"]),
        (KeyRange.exactly(("h", 7)), []),
        (KeyRange(("a", 1), ("h", 102)), ["abg"]),
    ],
)
def test_options_bound_sort_keys_too(world: World, asked: KeyRange, expected: list[str]) -> None:
    assert letters_read(reader_of(world, "abpz", "aghio", asked=asked)) == expected


def test_of_rows_of_which_the_last_is_kept_no_sort_key_finds_an_older_one(world: World) -> None:
    reader = reader_of(world, "aa", "ab", aggregations="last(note)")
    assert letters_read(reader) == ["ab"]
    reader.pushFilters([f.EqualTo(("letter",), "a"), f.EqualTo(("at",), 1)])
    assert letters_read(reader) == []
    asked = KeyRange.exactly(("a", 1))
    snapshot = reader.snapshot
    older = replace(
        snapshot, selection=replace(snapshot.selection, condition=None, ranges=(asked,))
    )
    assert letters_read(FilteredReader(older)) == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (f.EqualTo(("id",), Decimal("1.50")), [["1.50"]]),
        (f.In(("id",), [Decimal("-2"), Decimal("2.5")]), [["-2.00"], ["2.50"]]),
        (f.GreaterThan(("id",), Decimal("1.5")), [["2.00"], ["2.50"]]),
        (f.LessThanOrEqual(("id",), Decimal("1.49")), [["-2.00"], ["1.00"]]),
    ],
)
def test_filters_on_decimal_keys_leave_out_leaves(
    world: World, given: Any, expected: list[list[str]]
) -> None:
    schema = parse_schema("id: decimal(12,2)", ["id"])
    table = world.create("prices", schema, splits=[(0,), (1.5,), ("2.5",)])
    world.drop("prices/1.csv", b"id\n-2\n1\n1.5\n2\n2.5\n")
    world.settle()
    state = world.state(table)
    leaves = tuple(by_leaf(state, ranges_to_read(table, [EVERYTHING], None)))
    selection = select(schema, state.version, 0, [EVERYTHING], permission=access.EVERYTHING)
    reader = FilteredReader(TableSnapshot(table, selection, leaves, WorldAccess(world)))
    assert reader.pushFilters([given]) == () and len(reader.partitions()) == len(expected)
    found = [batch["id"].to_pylist() for task in reader.partitions() for batch in reader.read(task)]
    assert [[str(number) for number in batch] for batch in found] == expected


def test_several_ranges_of_one_leaf_are_one_partition(world: World) -> None:
    reader = reader_of(world, "acegz")
    reader.pushFilters([f.In(("letter",), ["a", "e", "z"])])
    assert [len(task.parts) for task in reader.partitions() if isinstance(task, Leaf)] == [2, 1]


def test_filters_narrow_the_requested_selection(world: World) -> None:
    reader = reader_of(world, "abc")
    where = parse_predicate("letter <> 'b'", LETTERS).condition
    reader.snapshot = reader.snapshot.narrowed(where)
    left = [f.EqualTo(("st", "x"), 1)]
    assert list(reader.pushFilters([f.IsNotNull(("note",)), *left])) == left
    assert letters_read(reader) == ["ac"]


def test_a_task_is_sent_its_own_leaf_and_not_all(world: World) -> None:
    reader = reader_of(world, "ahp")
    sent = pickle.loads(pickle.dumps(reader))
    assert sent.snapshot.leaves == ()
    with pytest.raises(AssertionError, match="knows no leaves"):
        sent.partitions()
