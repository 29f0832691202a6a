"""A few rows of large row groups: only the pages that hold them are decoded, whatever the types."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.arrow.types import arrow_schema
from dormouse.keys import KeyRange
from dormouse.ports import Cache
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import Primitive
from dormouse.shards import decoding, parquet, reading, thrift
from dormouse.shards.reading import DECODE_THREADS, READS_AT_ONCE, in_threads
from dormouse.storage import FolderStorage
from tests.support.tables import ShardTable
from tests.unit.readers.test_read_ahead import Rounds

PAGE_ROWS, ROWS = 8, 300
VALUES: dict[str, Any] = {
    "IntType": lambda n: n - 150,
    "LongType": lambda n: n * 10**12,
    "FloatType": lambda n: n / 4,
    "DoubleType": lambda n: n / 7,
    "BooleanType": lambda n: n % 3 == 0,
    "StringType": lambda n: f"text {n * 7919 % 1000}",
    "ByteArrayType": lambda n: bytes([n % 256]) * (n % 5),
    "DateType": lambda n: n,
    "TimestampType": lambda n: n * 10**9,
}
SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "k", "type": "StringType"}],
        "sortKeyFields": [{"name": "n", "type": "LongType"}],
        "valueFields": [
            {"name": f"{kind} {nullable}", "type": kind, "nullable": nullable}
            for kind in VALUES
            for nullable in (False, True)
        ]
        + [{"name": "repeats", "type": "StringType"}],
    }
)


def row(n: int) -> dict[str, object]:
    """Return the row `n`; rows come in the order of the keys, ten to each row key."""
    values: dict[str, object] = {"k": f"{n // 10:03}", "n": n, "repeats": f"one of {n % 3}"}
    for kind, make in VALUES.items():
        for nullable in (False, True):
            values[f"{kind} {nullable}"] = None if nullable and n % 4 == 0 else make(n)
    return values


@pytest.fixture(autouse=True, scope="module")
def small_pages() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "PAGE_ROWS", PAGE_ROWS)
        patch.setattr(decoding, "PAGE_ROWS", PAGE_ROWS)
        patch.setattr(parquet, "FIRST_ROW_GROUP_ROWS", 100)
        patch.setattr(parquet, "MAX_ROW_GROUP_ROWS", 100)
        yield


@pytest.fixture(scope="module")
def table(small_pages: None, tmp_path_factory: pytest.TempPathFactory) -> ShardTable:
    folder = tmp_path_factory.mktemp("table")
    table = ShardTable(FolderStorage(folder / "data"), SCHEMA, folder)
    table.add([row(n) for n in range(ROWS)])
    return table


@pytest.fixture
def decoded_rows(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The first column and the rows of each excerpt that is decoded."""
    seen: list[tuple[str, int]] = []
    original = decoding.excerpt

    def watched(fields: Sequence[Field], groups: Any) -> pa.RecordBatch:
        batch = original(fields, groups)
        seen.append((fields[0].name, batch.num_rows))
        return batch

    monkeypatch.setattr(decoding, "excerpt", watched)
    return seen


KEYS = st.integers(0, ROWS - 1)


WRITTEN = pa.Table.from_pylist([row(n) for n in range(ROWS)], arrow_schema(SCHEMA)).to_pylist()
NAMES = [field.name for field in SCHEMA.fields]
KEPT = Cache()
"""Blocks that earlier look-ups have decoded, of other columns."""


@given(
    st.lists(KEYS, min_size=1, max_size=4),
    st.lists(st.tuples(KEYS, st.integers(0, 12)), max_size=2),
    st.none() | st.lists(st.sampled_from(NAMES), min_size=1, unique=True),
)
def test_any_keys_and_ranges_return_their_rows(
    table: ShardTable, keys: list[int], ranges: list[tuple[int, int]], columns: list[str] | None
) -> None:
    wanted = [KeyRange.exactly((f"{n // 10:03}", n)) for n in keys]
    wanted += [KeyRange((f"{n // 10:03}", n), (f"{(n + m) // 10:03}", n + m)) for n, m in ranges]
    numbers = sorted({*keys, *(n + i for n, m in ranges for i in range(m))} & set(range(ROWS)))
    expected = [{name: WRITTEN[n][name] for name in columns or NAMES} for n in numbers]
    assert table.rows(*wanted, columns=columns) == expected
    assert table.rows(*wanted, columns=columns, cache=KEPT) == expected


def test_of_a_key_only_the_pages_that_hold_it_are_decoded(
    table: ShardTable, decoded_rows: list[tuple[str, int]]
) -> None:
    assert len(table.rows(KeyRange.exactly(("012", 123)))) == 1
    assert decoded_rows == [("k", 100), ("IntType False", PAGE_ROWS)]


def test_the_pages_of_a_block_are_found_once(
    table: ShardTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache()
    assert len(table.rows(KeyRange.exactly(("012", 123)), cache=cache)) == 1
    monkeypatch.delattr(thrift, "pages_of")
    assert table.rows(KeyRange.exactly(("019", 199)), cache=cache) == [WRITTEN[199]]


def test_a_wide_range_is_decoded_by_whole_row_groups(
    table: ShardTable, decoded_rows: list[tuple[str, int]]
) -> None:
    assert len(table.rows(KeyRange(("001",), ("029",)))) == 280
    assert decoded_rows == [("k", 300)]


def test_nested_values_of_several_pages_are_decoded_whole(
    tmp_path: Path, decoded_rows: list[tuple[str, int]]
) -> None:
    """They have more values than rows, and pages do not say which rows they have."""
    numbers = {"ListType": {"elementType": "LongType"}}
    nested = {"MapType": {"keyType": "StringType", "valueType": numbers}}
    schema = Schema.from_json(
        {
            "rowKeyFields": [{"name": "k", "type": "LongType"}],
            "valueFields": [{"name": "v", "type": nested, "nullable": True}],
        }
    )
    table = ShardTable(FolderStorage(tmp_path / "data"), schema, tmp_path)
    rows = [
        {"k": k, "v": None if k % 7 == 0 else [(f"{k}-{i}", [k] * i) for i in range(k % 5)]}
        for k in range(300)
    ]
    table.add(rows)
    for row in (rows[14], rows[123], rows[299]):
        assert table.rows(KeyRange.exactly((row["k"],))) == [row]
    assert {number for _, number in decoded_rows} == {100, 96, 8}, "whole blocks"


def test_pages_of_different_lengths_are_put_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wide values end a page by its size, before it has as many rows as those of others."""
    monkeypatch.setattr(parquet, "PAGE_ROWS", 10**6)
    monkeypatch.setattr(parquet, "FIRST_ROW_GROUP_ROWS", 6000)
    monkeypatch.setattr(parquet, "MAX_ROW_GROUP_ROWS", 6000)
    schema = Schema.from_json(
        {
            "rowKeyFields": [{"name": "k", "type": "LongType"}],
            "valueFields": [
                {"name": "wide", "type": "StringType"},
                {"name": "narrow", "type": "LongType"},
            ],
        }
    )
    table = ShardTable(FolderStorage(tmp_path / "data"), schema, tmp_path)
    rows = [{"k": n, "wide": f"{n:04}" * 120, "narrow": -n} for n in range(6000)]
    table.add(rows)
    asked = [0, 1023, 1024, 2500, 5999]
    assert table.rows(*(KeyRange.exactly((n,)) for n in asked)) == [rows[n] for n in asked]


def test_a_table_with_a_nested_column_is_decoded_by_whole_row_groups(
    tmp_path: Path, decoded_rows: list[tuple[str, int]]
) -> None:
    schema = Schema.from_json(
        {
            "rowKeyFields": [{"name": "k", "type": "LongType"}],
            "valueFields": [
                {"name": "l", "type": {"ListType": {"elementType": "LongType"}}},
                {"name": "v", "type": "LongType"},
            ],
        }
    )
    table = ShardTable(FolderStorage(tmp_path / "data"), schema, tmp_path)
    rows = [{"k": n, "l": list(range(n % 4)), "v": -n} for n in range(ROWS)]
    table.add(rows)
    assert table.rows(KeyRange.exactly((123,))) == [rows[123]]
    assert table.rows(KeyRange.exactly((123,)), columns=["v"]) == [{"v": -123}]
    assert decoded_rows[-1] == ("v", PAGE_ROWS)


def test_columns_that_were_renamed_or_added_since_are_read(
    table: ShardTable, monkeypatch: pytest.MonkeyPatch, decoded_rows: list[tuple[str, int]]
) -> None:
    first, *others = SCHEMA.values
    added = Field("added", Primitive.LONG, nullable=True, id=SCHEMA.next_field_id)
    renamed = replace(first, name="renamed")
    monkeypatch.setattr(table, "schema", replace(SCHEMA, values=(added, renamed, *others)))
    found = table.rows(KeyRange.exactly(("012", 123)), columns=["renamed", "added", "n"])
    assert found == [{"renamed": row(123)["IntType False"], "added": None, "n": 123}]
    assert decoded_rows == [("k", 100), (first.name, PAGE_ROWS)]


def test_a_single_task_runs_in_the_thread_that_waits_and_several_do_not() -> None:
    def run(tasks: int) -> Iterator[bool]:
        with in_threads(tasks, 2) as start:
            for wait in [start(threading.get_ident) for _ in range(tasks)]:
                yield wait() == wait() == threading.get_ident()

    assert list(run(1)) == [True]
    assert list(run(3)) == [False] * 3


def test_the_error_of_a_task_reaches_who_waits() -> None:
    def fail() -> None:
        raise LookupError("gone")

    for tasks in (1, 2):
        with in_threads(tasks, 2) as start:
            wait = start(fail)
            with pytest.raises(LookupError, match="gone"):
                wait()


def test_all_queries_of_a_process_share_their_threads() -> None:
    def run(_: int) -> set[int]:
        with in_threads(9, 2) as start:
            return {wait() for wait in [start(threading.get_ident) for _ in range(9)]}

    with ThreadPoolExecutor(8) as queries:
        assert len(set().union(*queries.map(run, range(8)))) <= 2


@pytest.mark.parametrize(
    ("is_remote", "few_bytes", "pools"),
    [
        (False, 0, [DECODE_THREADS]),
        (False, 1_000_000, []),
        (True, 0, [READS_AT_ONCE, READS_AT_ONCE, DECODE_THREADS]),
    ],
)
def test_only_reads_that_wait_for_a_network_and_much_to_decode_have_threads(
    is_remote: bool,
    few_bytes: int,
    pools: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Footers, blocks of each of three shards, and what decodes them."""
    monkeypatch.setattr(decoding, "LOOK_UP_GAP_BYTES", 0)
    monkeypatch.setattr(decoding, "FEW_BYTES", few_bytes)
    monkeypatch.setattr(FolderStorage, "is_remote", is_remote)
    schema = Schema.from_json(
        {
            "rowKeyFields": [{"name": "k", "type": "LongType"}],
            "valueFields": [{"name": "v", "type": "StringType"}],
        }
    )
    splits = [(900,), (1800,)]
    table = ShardTable(FolderStorage(tmp_path / "data"), schema, tmp_path, splits)
    table.add([{"k": n, "v": f"value {n}"} for n in range(2700)])
    started: list[int] = []

    def threads(most: int, process: int) -> ThreadPoolExecutor:
        started.append(most)
        return ThreadPoolExecutor(most)

    monkeypatch.setattr(reading, "_threads", threads)
    asked = [leaf * 900 + 200 * i for leaf in range(3) for i in range(4)]
    found = table.rows(*(KeyRange.exactly((n,)) for n in asked), columns=["k"])
    assert [row["k"] for row in found] == asked
    assert started == pools


def test_112_keys_of_16_shards_wait_for_two_rounds_of_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All footers, and then all blocks; as far apart as those of long shards."""
    monkeypatch.setattr(decoding, "LOOK_UP_GAP_BYTES", 0)
    schema = Schema.from_json(
        {
            "rowKeyFields": [{"name": "k", "type": "LongType"}],
            "valueFields": [{"name": "v", "type": "StringType"}],
        }
    )
    leaf_rows = 300
    splits = [(leaf * leaf_rows,) for leaf in range(1, 16)]
    table = ShardTable(FolderStorage(tmp_path / "data"), schema, tmp_path, splits)
    table.add([{"k": n, "v": f"value {n}"} for n in range(16 * leaf_rows)])
    asked = [leaf * leaf_rows + 48 * i for leaf in range(16) for i in range(7)]
    keys = [KeyRange.exactly((n,)) for n in asked]
    counted = table.query(*keys, columns=["k"])
    assert [row["k"] for row in counted.read_all().to_pylist()] == asked
    reads = counted.reads.requests - 16
    assert 40 <= reads <= READS_AT_ONCE
    table.storage = Rounds(tmp_path / "data", [16, reads])
    assert [row["k"] for row in table.rows(*keys, columns=["k"])] == asked
