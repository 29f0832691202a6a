"""Types widened in place: values of shards from before are those of the wider type, wherever they
are read, compared, merged and hidden.
"""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.arrow.types import arrow_schema
from dormouse.errors import InvalidRequestError
from dormouse.keys import KeyRange
from dormouse.messages.requests import CompactTable, DeleteRows, SplitPartitions
from dormouse.messages.stages import CompactionJob, OutboundMessage, SelectionMessage
from dormouse.rows.predicates import parse_predicate
from dormouse.schema.schema import parse_schema
from dormouse.schema.types import Primitive
from dormouse.shards import parquet
from dormouse.state.state import AssignJob
from dormouse.tables.table import Alteration, Table, apply_alteration
from tests.support.queries import query_rows
from tests.support.world import Crash, World

BEFORE = (
    "k:int, s:decimal(4,2), n:int, f:float?, d:decimal(4,2)?, at:timestamp?, wall:timestamp_ntz?"
)
WIDER = {
    "k": "long",
    "s": "decimal(20,2)",
    "n": "long",
    "f": "double",
    "d": "decimal(30,2)",
    "at": "timestamp_ns",
    "wall": "timestamp_ntz_ns",
}
SMALL = float(np.float32(0.1))
"""What a float of 0.1 is as a double."""
Row = dict[str, Any]


def nanoseconds(count: int) -> Any:
    return pa.scalar(count, pa.timestamp("ns", "UTC"))


def drop(world: World, table: Table, name: str, rows: Sequence[Mapping[str, object]]) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows), arrow_schema(table.schema)), sink)
    world.drop(f"{table.name}/{name}.parquet", sink.getvalue())
    world.settle()


def compact(world: World, table: Table) -> None:
    world.administer(CompactTable(world.ids.new(), table.name, all=True))
    world.settle()


def read(world: World, table: Table, where: str = "", *, look_up: bool = True) -> pa.Table:
    found = query_rows(
        world.storage,
        table,
        world.state(table),
        [],
        where=parse_predicate(where, table.schema) if where else None,
        now_ms=0,
        scratch=world.services.scratch,
        memory_bytes=2**26,
        look_up_bytes=2**24 if look_up else 0,
    )
    return found.reader.read_all()


def keys(world: World, table: Table, where: str = "", *, look_up: bool = True) -> list[int]:
    return list(read(world, table, where, look_up=look_up)["k"].to_pylist())


def made(
    world: World, schema: str = BEFORE, sort_keys: Sequence[str] = ("s",), **set_: Any
) -> Table:
    settings = {"gc_delay_seconds": 0, **set_}
    return world.create("t", parse_schema(schema, ["k"], sort_keys), **settings)


def old_row(k: int) -> Row:
    time = dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=k)
    return {
        "k": k,
        "s": Decimal(k) / 4,
        "n": 10 * k,
        "f": 0.1 * k,
        "d": Decimal(k) / 2,
        "at": time,
        "wall": time.replace(tzinfo=None),
    }


def new_row(k: int) -> Row:
    big = Decimal(10) ** 15 + k
    return old_row(1) | {"k": 2**31 + k, "s": big, "n": 2**40 + k, "f": 0.1, "d": big}


CONDITIONS = [
    ("k = 3", {3}),
    ("k > 2147483647", {2**31, 2**31 + 1}),
    ("k IN (2, 2147483648)", {2, 2**31}),
    ("s = 0.75", {3}),
    ("s >= 99.99", {2**31, 2**31 + 1}),
    ("n = 30", {3}),
    ("n = 1099511627776", {2**31}),
    ("n > 2147483648", {2**31, 2**31 + 1}),
    ("n < 2147483648", {1, 2, 3}),
    ("f = 0.1", {2**31, 2**31 + 1}),
    (f"f = {SMALL!r}", {1}),
    ("f > 0.1 AND f < 0.2", {1}),
    ("d = 1.5", {3}),
    ("d > 100", {2**31, 2**31 + 1}),
    ("at = TIMESTAMP '2024-01-01 00:00:00.000002'", {2}),
    ("at = TIMESTAMP '2024-01-01 00:00:00.000002001'", set()),
    ("at > TIMESTAMP '2024-01-01 00:00:00.000002001'", {3}),
    ("at >= TIMESTAMP '2024-01-01 00:00:00.000002000'", {2, 3}),
    ("wall < TIMESTAMP '2024-01-01 00:00:00.000002001'", {1, 2, 2**31, 2**31 + 1}),
    ("k = 2 AND s = 0.5", {2}),
    ("CAST(d AS TEXT) = '1.50'", {3}),
]


@pytest.mark.parametrize("is_merged", [False, True])
@pytest.mark.parametrize("look_up", [False, True])
def test_conditions_compare_earlier_values_in_the_wider_type(
    world: World, is_merged: bool, look_up: bool
) -> None:
    table = made(world)
    drop(world, table, "1", [old_row(k) for k in (1, 2, 3)])
    table = world.alter(table, types=WIDER)
    drop(world, table, "2", [new_row(k) for k in (0, 1)])
    if is_merged:
        compact(world, table)
        assert len(world.state(table).shards) == 1
    assert read(world, table, look_up=look_up).schema == arrow_schema(table.schema)
    for where, expected in CONDITIONS:
        assert set(keys(world, table, where, look_up=look_up)) == expected, where
    found = read(world, table, "k < 4", look_up=look_up)
    assert found["f"].to_pylist() == [float(np.float32(0.1 * k)) for k in (1, 2, 3)]
    assert found["d"].to_pylist() == [Decimal(k) / 2 for k in (1, 2, 3)]
    assert [each.value % 10_000 for each in found["at"]] == [1000, 2000, 3000]


def test_a_wide_row_key_is_found_split_and_merged_beside_earlier_ones(world: World) -> None:
    table = made(world, "k:int, n:int", ())
    drop(world, table, "1", [{"k": k, "n": k} for k in range(-50, 50)])
    table = world.alter(table, types={"k": "long"})
    drop(world, table, "2", [{"k": 2**40 * k, "n": k} for k in range(-50, 50)])
    expected = sorted([*range(-50, 50), *(2**40 * k for k in range(-50, 50))])
    assert keys(world, table) == keys(world, table, look_up=False) == expected
    assert [row["n"] for row in world.rows(table, KeyRange((2**40,), (2**41,)))] == [1]
    world.administer(SplitPartitions(world.ids.new(), "t", forced=True))
    world.settle()
    assert len(list(world.state(table).partitions.leaves())) > 1
    compact(world, table)
    assert keys(world, table) == expected


def bloomed(world: World, table: Table, where: str) -> tuple[list[int], int]:
    found = query_rows(
        world.storage,
        table,
        world.state(table),
        [],
        columns=["k"],
        where=parse_predicate(where, table.schema),
        now_ms=0,
        scratch=world.services.scratch,
        memory_bytes=2**26,
    )
    rows = found.reader.read_all()["k"].to_pylist()
    return rows, found.reads.row_groups


@pytest.mark.parametrize(
    ("then", "now", "value", "other"),
    [
        ("int", "long", lambda n: 7 * n, "7000000001"),
        ("decimal(6,0)", "decimal(30,0)", lambda n: Decimal(7 * n), "1" + "0" * 20),
        ("timestamp", "timestamp_ns", lambda n: 7 * n, "TIMESTAMP '1970-01-01 00:00:00.000007001'"),
    ],
)
def test_a_bloom_filter_of_the_earlier_type_is_asked_for_its_values(
    world: World,
    then: str,
    now: str,
    value: Callable[[int], object],
    other: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parquet, "FIRST_ROW_GROUP_ROWS", 100)
    monkeypatch.setattr(parquet, "MAX_ROW_GROUP_ROWS", 100)
    table = made(world, f"k:int, n:{then}", (), bloom_columns="n")
    rows = [{"k": k, "n": value(k * 7919 % 4000)} for k in range(4000)]
    drop(world, table, "1", rows)
    table = world.alter(table, types={"n": now})
    literal = "TIMESTAMP '1970-01-01 00:00:00.000700'" if then == "timestamp" else "700"
    (k,) = [row["k"] for row in rows if row["n"] == value(100)]
    found, row_groups = bloomed(world, table, f"n = {literal}")
    assert found == [k]
    assert 0 < row_groups < 10  # of 40
    assert bloomed(world, table, f"n = {other}")[0] == []
    assert bloomed(world, table, f"n IN ({literal}, {other})")[0] == [k]


def test_statistics_of_the_earlier_type_exclude_no_row(world: World) -> None:
    table = made(world, "k:int, n:int, at:timestamp", ())
    drop(world, table, "1", [{"k": k, "n": k, "at": k} for k in range(20_000)])
    table = world.alter(table, types={"n": "long", "at": "timestamp_ns"})
    for where in ("n = 9000", "at = TIMESTAMP '1970-01-01 00:00:00.009'"):
        assert keys(world, table, where) == keys(world, table, where, look_up=False) == [9000]
    assert keys(world, table, "n > 2147483648") == []


def test_a_filter_and_an_age_go_on_in_the_wider_type(world: World) -> None:
    table = made(
        world, "k:int, n:int, at:timestamp", (), filters="where(n > 5), ageOff(at, 86400000)"
    )
    now = world.clock.now_ms() * 1000
    drop(world, table, "1", [{"k": k, "n": k, "at": now - k * 43_200_000_000} for k in range(8)])
    drop(world, table, "2", [{"k": 10, "n": 10, "at": now}])
    assert [row["k"] for row in world.rows(table)] == [10]
    table = world.alter(table, types={"n": "long", "at": "timestamp_ns"})
    drop(world, table, "3", [{"k": 11, "n": 2**40, "at": now * 1000}])
    assert [row["k"] for row in world.rows(table)] == [10, 11]
    compact(world, table)
    assert [row["k"] for row in world.rows(table)] == [10, 11]


@pytest.mark.parametrize(
    ("aggregations", "expected"), [("sum(n)", 2**31 + 2), ("max(n)", 2**31), ("min(n)", 2)]
)
def test_an_aggregation_of_earlier_and_wider_values_is_of_the_wider_type(
    world: World, aggregations: str, expected: int
) -> None:
    table = made(world, "k:int, n:int", (), aggregations=aggregations)
    drop(world, table, "1", [{"k": 1, "n": 2}])
    table = world.alter(table, types={"n": "long"})
    drop(world, table, "2", [{"k": 1, "n": 2**31}])
    assert world.rows(table) == [{"k": 1, "n": expected}]
    compact(world, table)
    assert world.rows(table) == [{"k": 1, "n": expected}]


def test_maps_of_earlier_and_wider_values_are_summed(world: World) -> None:
    table = made(world, "k:int, m:map<string,int>", (), aggregations="map_sum(m)")
    drop(world, table, "1", [{"k": 1, "m": [("a", 1), ("b", 2)]}])
    table = world.alter(table, types={"m.value": "long"})
    drop(world, table, "2", [{"k": 1, "m": [("a", 2**40)]}])
    expected = [{"k": 1, "m": [("a", 2**40 + 1), ("b", 2)]}]
    assert world.rows(table) == expected
    compact(world, table)
    assert world.rows(table) == expected


def test_the_latest_row_is_that_with_the_greatest_value_in_the_wider_type(world: World) -> None:
    table = made(world, "k:int, n:int, v:string", (), keep="latest", latest_by="n")
    drop(world, table, "1", [{"k": k, "n": 2**31 - 1, "v": "old"} for k in (1, 2)])
    table = world.alter(table, types={"n": "long", "k": "long"})
    drop(world, table, "2", [{"k": 1, "n": 2**31, "v": "new"}, {"k": 2, "n": 5, "v": "late"}])
    assert [row["v"] for row in world.rows(table)] == ["new", "old"]
    compact(world, table)
    assert [row["v"] for row in world.rows(table)] == ["new", "old"]


DELETED = [
    ("n:int", "n = 3", "long", 3, [1]),
    ("n:float", "n > 0.1 AND n < 0.11", "double", 0.1, [1]),
    ("n:decimal(4,2)", "n = 1.25", "decimal(38,2)", Decimal("1.25"), [1]),
    ("n:map<string,int>", "n['a'] = 4", "map<string,long>", [("a", 4)], [1]),
    ("n:list<float>", "n[1] = 0.5", "list<double>", [0.5], [1]),
]


@pytest.mark.parametrize(("column", "where", "now", "value", "left"), DELETED)
def test_a_row_that_was_deleted_stays_so_when_its_type_widens(
    world: World, column: str, where: str, now: str, value: object, left: list[int]
) -> None:
    table = made(world, f"k:int, {column}", ())
    other = [] if isinstance(value, list) else type(value)(9)
    drop(world, table, "1", [{"k": 1, "n": other}, {"k": 2, "n": value}])
    world.administer(DeleteRows("d", "t", SelectionMessage(where=where)))
    world.settle()
    assert keys(world, table) == left
    table = world.alter(table, types={"n": now})
    drop(world, table, "2", [{"k": 3, "n": value}])
    for look_up in (False, True):
        assert keys(world, table, look_up=look_up) == [*left, 3]
    table = world.alter(table, drop=["n"])
    assert keys(world, table) == [*left, 3]
    compact(world, table)
    assert keys(world, table) == [*left, 3]
    assert not world.state(table).deletions


def test_a_deletion_compares_in_the_types_of_its_time(world: World) -> None:
    table = made(world, "k:int, n:decimal(4,2), e:decimal(30,20)", ())
    rows = [{"k": k, "n": Decimal(1), "e": Decimal(k)} for k in (1, 2)]
    drop(world, table, "1", rows)
    world.administer(DeleteRows("d", "t", SelectionMessage(where="n = e")))
    table = world.alter(table, types={"n": "decimal(38,2)"})
    with pytest.raises(InvalidRequestError, match="cannot be compared"):
        parse_predicate("n = e", table.schema)
    drop(world, table, "2", [{"k": 3, "n": Decimal(10) ** 35, "e": Decimal(1)}])
    for look_up in (False, True):
        assert keys(world, table, look_up=look_up) == [2, 3]
    compact(world, table)
    assert keys(world, table) == [2, 3]


def test_an_alteration_while_an_ingest_and_a_compaction_run_loses_nothing(world: World) -> None:
    table = made(world, "k:int, n:int", ())
    for number in range(3):
        drop(world, table, str(number), [{"k": number, "n": number}])
    world.before_next_commit(lambda: world.alter(table, types={"k": "long", "n": "long"}))
    drop(world, table, "4", [{"k": 4, "n": 4}])
    table = altered(world, table)
    drop(world, table, "5", [{"k": 2**40, "n": 2**40}])
    expected = [0, 1, 2, 4, 2**40]
    assert [row["n"] for row in world.rows(table)] == expected
    compact(world, table)
    assert [row["n"] for row in world.rows(table)] == expected


def test_a_compaction_that_began_before_is_adopted_after_it(world: World) -> None:
    table = made(world, "k:int, n:int", ())
    for number in range(2):
        drop(world, table, str(number), [{"k": number, "n": number}])
    state = world.state(table)
    (leaf,) = state.partitions.leaves()
    inputs = tuple(r.shard for r in state.references_in(leaf.id))
    world.services.store(table).commit(AssignJob("job", leaf.id, inputs), generation=0)
    job = OutboundMessage("compaction-jobs", CompactionJob(table.id, 0, "job"))
    world.before_next_commit(world.crash)
    with pytest.raises(Crash):
        world.deliver(job)
    table = world.alter(table, types={"n": "long"})
    world.queue += world.deliver(job)
    world.settle()
    assert len(world.state(table).shards) == 1
    drop(world, table, "2", [{"k": 2, "n": 2**40}])
    compact(world, table)
    assert [row["n"] for row in world.rows(table)] == [0, 1, 2**40]


def altered(world: World, table: Table) -> Table:
    found = world.tables.get(table.id)
    assert found is not None
    return found


@pytest.mark.parametrize("year", [1600, 2300])
def test_times_that_nanoseconds_cannot_hold_refuse_the_alteration(world: World, year: int) -> None:
    table = made(world, "k:int, at:timestamp?", ())
    drop(world, table, "0", [{"k": 0, "at": None}])
    outside = dt.datetime(year, 1, 1, tzinfo=dt.UTC)
    drop(world, table, "1", [{"k": 1, "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC)}])
    drop(world, table, "2", [{"k": 2, "at": outside}])
    with pytest.raises(InvalidRequestError, match="1677 to 2262"):
        world.alter(table, types={"at": "timestamp_ns"})
    world.administer(DeleteRows("d", "t", SelectionMessage(where="at < now() OR at > now()")))
    world.settle()
    with pytest.raises(InvalidRequestError, match="deletions"):
        world.alter(table, types={"at": "timestamp_ns"})
    compact(world, table)
    table = world.alter(table, types={"at": "timestamp_ns"})
    assert keys(world, table) == [0]


def test_a_time_that_came_while_its_type_was_altered_is_an_error_that_does_not_quote_it(
    world: World,
) -> None:
    table = made(world, "k:int, at:timestamp?", ())
    drop(world, table, "1", [{"k": 1, "at": dt.datetime(2300, 1, 1, tzinfo=dt.UTC)}])
    alteration = Alteration(types={"at": Primitive.TIMESTAMP_NS})
    schema = apply_alteration(table.schema, alteration, table.properties)
    table = world.tables.change(table.id, lambda kept: replace(kept, schema=schema))
    for look_up in (False, True):
        with pytest.raises(InvalidRequestError, match="a stored time is not in") as raised:
            read(world, table, look_up=look_up)
        assert "2300" not in raised.value.explanation


def test_nested_times_get_nanoseconds_only_in_a_table_without_rows(world: World) -> None:
    table = made(world, "k:int, at:list<timestamp>?", ())
    again = world.alter(table, types={"at": "list<timestamp_ns>"})
    assert again.schema.field_named("at").type != table.schema.field_named("at").type
    other = world.create("u", table.schema)
    drop(world, other, "1", [{"k": 1, "at": []}])
    with pytest.raises(InvalidRequestError, match="nested"):
        world.alter(other, types={"at.element": "timestamp_ns"})
