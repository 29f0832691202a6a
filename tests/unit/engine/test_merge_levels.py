"""Merges of many or wide inputs: the same rows in key order, in bounded memory."""

from __future__ import annotations

import datetime as dt
import errno
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from dormouse.errors import CorruptDataError
from dormouse.keys import KeyRange
from dormouse.ports import Cache
from dormouse.rows import merging, wide_rows
from dormouse.rows import merging as merge_levels
from dormouse.rows.merging import INPUTS_BYTES, LEAST_INPUTS, fan_in, inputs_at_once
from dormouse.rows.predicates import parse_predicate
from dormouse.rows.wide_rows import WideRows, merge_rows
from dormouse.schema.schema import SEQUENCE, Schema
from dormouse.shards import footer, parquet
from dormouse.shards.reading import Slice, find_blocks
from dormouse.storage import FolderStorage
from dormouse.tables.properties import Properties
from tests.support.depth import in_turn
from tests.support.distant_folder import DistantFolder
from tests.support.every_type import EVERY_TYPE, row_of_every_type
from tests.support.memory_storage import MemoryStorage
from tests.support.tables import MEMORY_BYTES, ShardTable, batches_of

INPUTS, ROWS = 7, 12
ALL_ROWS_ARE_WIDE, NO_ROW_IS_WIDE = 0, 2**40


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> ShardTable:
    """Return shards of which each has the same keys, and values of its own."""
    folder = tmp_path_factory.mktemp("table")
    (folder / "scratch").mkdir()
    made = ShardTable(FolderStorage(folder / "data"), EVERY_TYPE, folder / "scratch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "FIRST_ROW_GROUP_ROWS", 4)  # so that there are several row groups
        for shard in range(INPUTS):
            made.add([{**row_of_every_type(n), "l": shard} for n in range(ROWS)])
    return made


def merged(
    table: ShardTable, span: KeyRange | None = None, **options: Any
) -> list[dict[str, object]]:
    shards = sorted(table.state.shards.values(), key=lambda shard: shard.id)
    slices = [Slice(shard, span or KeyRange()) for shard in shards]
    memory: dict[str, Any] = {"scratch": table.folder, "memory_bytes": MEMORY_BYTES}
    batches = merging.merge_slices(
        table.storage, "table", slices, table.schema, **memory, **options
    )
    return [row for batch in batches for row in batch.to_pylist()]


HALF = KeyRange(((-86_400_000_000 + 2),), ((-86_400_000_000 + 5),))


def _keys(row: dict[str, object]) -> list[object]:
    return [row.get(field.name) for field in EVERY_TYPE.keys]


ASKED: dict[str, dict[str, Any]] = {
    "all": {},
    "a range of keys": {"span": HALF},
    "some columns": {"columns": ["s", "l"]},
    "a condition": {"where": parse_predicate("l < 4 AND d > 1", EVERY_TYPE)},
    "a condition, other columns": {
        "where": parse_predicate("l = 4", EVERY_TYPE),
        "columns": ["st", "m"],
    },
}


MERGES = list(product([ALL_ROWS_ARE_WIDE, NO_ROW_IS_WIDE], [2, 3, INPUTS]))
"""Whether rows are wide, and how many inputs are merged at once."""


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_the_same_rows_come_in_key_order_however_they_are_merged(
    table: ShardTable, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wide_rows, "WIDE_ROW_BYTES", NO_ROW_IS_WIDE)
    expected = merged(table, **asked)
    assert len(expected) > ROWS // 3
    for how in in_turn(MERGES, parts=3):
        wide, most = how
        monkeypatch.setattr(wide_rows, "WIDE_ROW_BYTES", wide)
        monkeypatch.setattr(merging, "inputs_at_once", lambda *_, most=most: most)
        found = merged(table, **asked)
        assert [_keys(row) for row in found] == [_keys(row) for row in expected], how
        assert sorted(map(repr, found)) == sorted(map(repr, expected)), how
        assert not list(table.folder.iterdir()), how


def test_rows_of_many_columns_are_merged_without_datafusion(
    table: ShardTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = merged(table)
    monkeypatch.setattr(wide_rows, "MOST_COLUMNS", EVERY_TYPE.leaf_columns - 1)
    monkeypatch.delattr(merging.engine, "batches_of")
    found = merged(table)
    assert [_keys(row) for row in found] == [_keys(row) for row in expected]
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def test_inputs_that_end_with_the_same_keys_are_not_taken_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wide_rows, "TAKEN_BYTES", wide_rows.BATCH_BYTES * INPUTS // 8)
    rows, schema = 800, PATHS_THAT_MEET
    for first in range(INPUTS):
        keys = pa.array(range(first, rows * INPUTS, INPUTS), pa.int64())
        pq.write_table(pa.table({"k": keys}), tmp_path / f"{first}.parquet")
    columns = pa.schema([("k", pa.int64())])
    files = [WideRows.of_file(tmp_path / f"{n}.parquet", columns) for n in range(INPUTS)]
    batches = list(merge_rows(files, schema))
    found = [key for batch in batches for key in batch.column("k").to_pylist()]
    assert found == list(range(rows * INPUTS))
    assert max(batch.num_rows for batch in batches) <= INPUTS * rows // 8


def test_each_row_has_the_number_of_its_shard_however_rows_are_merged(
    table: ShardTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = [structs.replace(s, sequence=n) for n, s in enumerate(table.state.shards.values())]
    schema = replace(EVERY_TYPE, values=(*EVERY_TYPE.values, SEQUENCE))
    expected = sorted(number for number in range(INPUTS) for _ in range(ROWS))
    for wide, most in in_turn(MERGES, parts=3):
        monkeypatch.setattr(wide_rows, "WIDE_ROW_BYTES", wide)
        monkeypatch.setattr(merging, "inputs_at_once", lambda *_, most=most: most)
        batches = merging.merge_slices(
            table.storage,
            "table",
            [Slice(shard, KeyRange()) for shard in shards],
            schema,
            scratch=table.folder,
            memory_bytes=MEMORY_BYTES,
        )
        found = [n for batch in batches for n in batch.column(SEQUENCE.name).to_pylist()]
        assert sorted(found) == expected, (wide, most)


@pytest.mark.parametrize("span", [KeyRange(), HALF], ids=["all", "half"])
def test_footers_are_not_decoded_without_a_condition(
    table: ShardTable, span: KeyRange, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = merged(table, span)
    monkeypatch.setattr(footer, "read_metadata", _raise_arrow_error)
    assert merged(table, span) == expected
    with pytest.raises(pa.ArrowInvalid):
        merged(table, span, **ASKED["a condition"])


@pytest.mark.parametrize("wide", [ALL_ROWS_ARE_WIDE, NO_ROW_IS_WIDE], ids=["wide", "narrow"])
@pytest.mark.parametrize("storage", [FolderStorage, DistantFolder])
@pytest.mark.parametrize("known", [[], [0], [1], [0, 1]])
@pytest.mark.parametrize("columns", [5, len(EVERY_TYPE.values)], ids=["flat", "nested"])
def test_a_condition_takes_the_rows_of_shards_of_any_schema_however_they_were_read(
    tmp_path: Path,
    wide: int,
    storage: type[FolderStorage],
    known: list[int],
    columns: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As purges and filters do: after a merge. The footers of the shards `known` are cached."""
    monkeypatch.setattr(wide_rows, "WIDE_ROW_BYTES", wide)
    monkeypatch.setattr(merging.engine, "MAX_BATCH_BYTES", 1)  # or small batches are joined to one
    schema = replace(EVERY_TYPE, values=EVERY_TYPE.values[:columns])
    names = {field.name for field in schema.fields}
    rows = [
        {name: value for name, value in row_of_every_type(n).items() if name in names}
        for n in range(ROWS)
    ]
    made = ShardTable(storage(tmp_path / "data"), schema, tmp_path)
    made.add(rows)
    later = replace(schema.values[0], name="later", id=schema.next_field_id)
    made.schema = replace(
        schema, values=(*schema.values, later), next_field_id=schema.next_field_id + 1
    )
    made.add([{**row, "t": cast(dt.datetime, row["t"]) + dt.timedelta(1)} for row in rows])
    shards = sorted(made.state.shards.values(), key=lambda shard: shard.id)
    slices, cache = [Slice(shard, KeyRange()) for shard in shards], Cache()
    some = [slices[number] for number in known]
    find_blocks(made.storage, "table", some, made.schema, cache, footers=True)
    memory: dict[str, Any] = {"scratch": made.folder, "memory_bytes": MEMORY_BYTES}
    batches = merging.merge_slices(
        made.storage, "table", slices, made.schema, cache=cache, **memory
    )
    condition = parse_predicate("d > 1", made.schema)
    found = [row for batch in condition.apply(batches) for row in batch.to_pylist()]
    expected = [row for row in made.rows() if row["d"] is not None and cast(float, row["d"]) > 1]
    assert len(found) == len(expected) > 0
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


@pytest.mark.parametrize("wide", [ALL_ROWS_ARE_WIDE, NO_ROW_IS_WIDE], ids=["wide", "narrow"])
def test_no_rows_of_many_inputs_are_no_rows(
    table: ShardTable, wide: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wide_rows, "WIDE_ROW_BYTES", wide)
    monkeypatch.setattr(merging, "inputs_at_once", lambda memory_bytes, input_bytes: 2)
    assert merged(table, where=parse_predicate("l > 100", EVERY_TYPE)) == []


def test_what_the_system_refuses_is_no_damage_of_a_shard(
    table: ShardTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(wide_rows, "WIDE_ROW_BYTES", ALL_ROWS_ARE_WIDE)
    monkeypatch.setattr("dormouse.rows.wide_rows.of_shard", refused)
    with pytest.raises(OSError, match="too many open files"):
        merged(table)


def test_a_file_that_cannot_be_decoded_is_named(
    table: ShardTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wide_rows, "WIDE_ROW_BYTES", ALL_ROWS_ARE_WIDE)
    monkeypatch.setattr("dormouse.rows.wide_rows.of_shard", _raise_arrow_error)
    with pytest.raises(CorruptDataError, match=r"job\d-0\.parquet is damaged: odd page"):
        merged(table)


def _raise_arrow_error(*_: object, **__: object) -> None:
    raise pa.ArrowInvalid("odd page")


@given(st.integers(1, 3000), st.integers(2, 200))
def test_inputs_are_merged_in_as_few_levels_as_the_limit_allows(inputs: int, most: int) -> None:
    width, taken = fan_in(inputs, most), []

    def merge(parts: Sequence[list[int]]) -> list[Any]:
        taken.append(len(parts))
        return [sum(parts, [])]

    def written(local: Path, merged: list[list[int]]) -> list[int]:
        return merged[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge_levels, "_write", written)
        found = merge_levels.merge_in_levels(
            [[n] for n in range(inputs)], most, merge, lambda _, rows: rows, Path("scratch")
        )
        assert list(found) == [list(range(inputs))]
    assert max(taken) <= width <= most
    if inputs <= most:
        assert taken == [inputs]
    elif inputs <= most * most:
        assert len(taken) == 1 + -(-inputs // width)


def test_files_in_between_of_many_columns_have_few_column_chunks(tmp_path: Path) -> None:
    """Each takes 2.5 KB while the file is written: in row groups of a megabyte, more than rows."""
    numbers = pa.array(range(1000), pa.int64())
    rows = pa.record_batch([numbers] * 300, [f"c{i}" for i in range(300)])
    row_groups = []

    def merge(_: Sequence[Path]) -> Iterator[pa.RecordBatch]:
        yield from (rows.slice(at, 50) for at in range(0, 1000, 50))

    def reopen(local: Path, _: pa.Schema) -> Path:
        row_groups.append(pq.read_metadata(local).num_row_groups)
        return local

    inputs = [tmp_path] * 4
    assert len([*merge_levels.merge_in_levels(inputs, 2, merge, reopen, tmp_path)]) == 20
    assert row_groups == [1, 1]


@given(st.integers(0, 2**34), st.floats(0, 1e9))
def test_what_is_held_of_all_inputs_is_bounded(memory_bytes: int, input_bytes: float) -> None:
    most = inputs_at_once(memory_bytes, input_bytes)
    assert most >= LEAST_INPUTS
    if most > LEAST_INPUTS:
        assert most * input_bytes <= min(INPUTS_BYTES, memory_bytes)


WIDE_INPUTS, WIDE_ROWS, VALUE_BYTES = 50, 3, 1_000_000
UNEVEN_INPUTS, NARROW_ROWS = 40, 500
MOST_MB = {"wide": 120, "uneven": 180}
"""What a merge may take besides what the process took before. Wide rows: measured 40 to 55; all
inputs at once take 210, as batches of DataFusion 440 and more. Wide rows among narrow ones, in all
inputs at the same keys: measured 119; as batches of DataFusion 435.
"""
MERGE = "import sys; from tests.unit.engine.test_merge_levels import main; main(*sys.argv[1:])"


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")
@pytest.mark.parametrize(
    ("kind", "expected"),
    in_turn(
        [("wide", WIDE_INPUTS * WIDE_ROWS), ("uneven", UNEVEN_INPUTS * (WIDE_ROWS + NARROW_ROWS))],
        parts=2,
    ),
)
def test_many_inputs_with_values_of_a_megabyte_take_little_memory(
    kind: str, expected: int, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", MERGE, kind, str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    rows, peak_mb = done.stdout.split()
    assert int(rows) == expected
    assert float(peak_mb) < MOST_MB[kind]


def main(kind: str, folder: str) -> None:
    """Merge rows of a kind; print how many, and by how much the peak of memory grew."""
    schema = Schema.from_json(
        {
            "rowKeyFields": [{"name": "k", "type": "StringType"}],
            "valueFields": [{"name": "v", "type": "StringType"}],
        }
    )
    scratch = Path(folder) / "scratch"
    scratch.mkdir()
    made = ShardTable(FolderStorage(Path(folder) / "data"), schema, scratch)
    chance = random.Random(1)
    for shard in range(WIDE_INPUTS if kind == "wide" else UNEVEN_INPUTS):
        rows = [
            {"k": f"m{chance.randbytes(5).hex()}", "v": chance.randbytes(VALUE_BYTES // 2).hex()}
            for _ in range(WIDE_ROWS)
        ]
        if kind == "uneven":
            keys = [chance.choice("az") + chance.randbytes(5).hex() for _ in range(NARROW_ROWS)]
            rows += [{"k": key, "v": "narrow"} for key in keys]
        rows.sort(key=itemgetter("k"))
        made.add_sorted(batches_of(rows, schema, 50), f"job{shard}")
    before_mb, rows_merged = _peak_mb(), 0
    slices = [Slice(shard, KeyRange()) for shard in made.state.shards.values()]
    for batch in merging.merge_slices(
        made.storage, "table", slices, schema, scratch=scratch, memory_bytes=2**29
    ):
        rows_merged += batch.num_rows
    print(rows_merged, _peak_mb() - before_mb)


def _peak_mb() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 1024


PATHS_THAT_MEET = Schema.from_json(
    {
        "rowKeyFields": [{"name": "k", "type": "LongType"}],
        "valueFields": [
            {
                "name": "s",
                "type": {"StructType": {"fields": [{"name": "b", "type": "BooleanType"}]}},
            },
            {"name": "s.b", "type": "LongType"},
        ],
    }
)


@pytest.mark.parametrize("wide", [ALL_ROWS_ARE_WIDE, NO_ROW_IS_WIDE], ids=["wide", "narrow"])
def test_a_column_may_be_called_as_a_member_of_another(
    tmp_path: Path, wide: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wide_rows, "WIDE_ROW_BYTES", wide)
    made = ShardTable(MemoryStorage(), PATHS_THAT_MEET, tmp_path)
    made.properties = Properties(bloom_columns="s.b")
    rows: list[dict[str, object]] = [{"k": k, "s": {"b": k > 4}, "s.b": -k} for k in range(9)]
    made.add(rows)
    assert merged(made) == rows
    assert made.rows(where='"s.b" = -3') == rows[3:4]
    for name in ("s", "s.b"):
        assert merged(made, columns=[name]) == [{name: row[name]} for row in rows]
