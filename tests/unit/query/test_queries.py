"""Keys, ranges, conditions, columns and limits together: what a query gives, and what it reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dormouse.errors import DamagedShardError, InvalidRequestError, NotFoundError
from dormouse.keys import Key, KeyRange, encode_key
from dormouse.ports import Cache
from dormouse.query.rows import LOOK_UP_BYTES
from dormouse.rows.predicates import Predicate, parse_predicate
from dormouse.schema.schema import Schema
from dormouse.schema.types import Primitive
from dormouse.shards import reading
from dormouse.sql.conditions import Call, Column, Condition, Literal, parse_condition
from dormouse.sql.key_bounds import key_bounds
from dormouse.storage import FolderStorage
from dormouse.stored.paths import shard_path
from dormouse.tables.properties import Properties
from tests.support.depth import examples
from tests.support.queries import count_rows, query_rows
from tests.support.small_blocks import write_small_blocks
from tests.support.tables import MEMORY_BYTES, NOW_MS, ShardTable

SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "a", "type": "StringType"}, {"name": "b", "type": "IntType"}],
        "sortKeyFields": [{"name": "s", "type": "LongType"}],
        "valueFields": [{"name": "v", "type": "LongType", "nullable": True}],
    }
)
Row = dict[str, object]
NAMES = ["a", "b", "s", "v"]

LETTERS = st.sampled_from("klm")
NUMBERS = st.integers(0, 4)
ROWS = st.lists(
    st.builds(
        lambda a, b, s, v: {"a": a, "b": b, "s": s, "v": v},
        LETTERS,
        NUMBERS,
        NUMBERS,
        st.none() | NUMBERS,
    ),
    max_size=25,
)
SPLITS: st.SearchStrategy[Key] = st.tuples(LETTERS) | st.tuples(LETTERS, NUMBERS)
BOUNDS: st.SearchStrategy[Key] = SPLITS | st.tuples(LETTERS, NUMBERS, NUMBERS)
RANGES = st.builds(KeyRange, st.just(()) | BOUNDS, st.none() | BOUNDS) | BOUNDS.map(
    KeyRange.exactly
)


@dataclass(frozen=True)
class Test:
    """A condition, and what it means: true, false, or None where it is neither."""

    __test__ = False

    sql: str
    holds: Callable[[Row], bool | None]


def _compared(name: str, op: str, value: object) -> Test:
    operations: dict[str, Callable[[object, object], bool]] = {
        "=": lambda x, y: x == y,
        "<": lambda x, y: x < y,  # type: ignore[operator]  # of one type, both
        "<=": lambda x, y: x <= y,  # type: ignore[operator]
        ">": lambda x, y: x > y,  # type: ignore[operator]
        ">=": lambda x, y: x >= y,  # type: ignore[operator]
        "<>": lambda x, y: x != y,
    }
    shown = f"'{value}'" if isinstance(value, str) else str(value)

    def holds(row: Row) -> bool | None:
        return None if row[name] is None else operations[op](row[name], value)

    return Test(f"{name} {op} {shown}", holds)


def _both(x: Test, y: Test) -> Test:
    def holds(row: Row) -> bool | None:
        found = {x.holds(row), y.holds(row)}
        return False if False in found else None if None in found else True

    return Test(f"({x.sql} AND {y.sql})", holds)


def _either(x: Test, y: Test) -> Test:
    def holds(row: Row) -> bool | None:
        found = {x.holds(row), y.holds(row)}
        return True if True in found else None if None in found else False

    return Test(f"({x.sql} OR {y.sql})", holds)


OPERATORS = st.sampled_from(["=", "<", "<=", ">", ">=", "<>"])
TESTS = st.recursive(
    st.builds(_compared, st.just("a"), OPERATORS, LETTERS)
    | st.builds(_compared, st.sampled_from(["b", "s", "v"]), OPERATORS, NUMBERS)
    | st.just(Test("v IS NULL", lambda row: row["v"] is None))
    | st.just(Test("a IN ('k', 'm')", lambda row: row["a"] in ("k", "m")))
    | st.just(Test("a LIKE 'l%'", lambda row: str(row["a"]).startswith("l")))
    | st.just(Test("3 < b", lambda row: row["b"] > 3)),  # type: ignore[operator]  # a number
    lambda inner: st.builds(_both, inner, inner) | st.builds(_either, inner, inner),
    max_leaves=4,
)


def key_of(row: Row) -> Key:
    return (str(row["a"]), int(str(row["b"])), int(str(row["s"])))


def kept(rows: Sequence[Row], how: str) -> list[Row]:
    """Return of sorted rows the first or last of each row key; those of one key have one value."""
    found: dict[Key, Row] = {}
    for row in rows if how == "last" else reversed(rows):
        found[key_of(row)[:2]] = row
    return sorted(found.values(), key=key_of)


def shown(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    return sorted(str([row[name] for name in columns]) for row in rows)


@pytest.mark.parametrize("look_up_bytes", [0, 600, LOOK_UP_BYTES])
@settings(deadline=None, max_examples=examples(50), suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_query_returns_what_sorting_and_testing_every_row_returns(
    look_up_bytes: int, data: st.DataObject
) -> None:
    files = data.draw(st.lists(ROWS, max_size=3))
    splits = sorted(data.draw(st.sets(SPLITS, max_size=2)))
    ranges = data.draw(st.lists(RANGES, max_size=4))
    test = data.draw(st.none() | TESTS)
    columns = data.draw(st.none() | st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    limit = data.draw(st.none() | st.integers(0, 30))
    how = data.draw(st.sampled_from(["", "first", "last"]))
    if how:  # which of equal keys is kept is tested elsewhere
        files = [[row | {"v": key_of(row)[2]} for row in file] for file in files]
    rows = sorted((row for file in files for row in file), key=key_of)
    rows = kept(rows, how) if how else rows
    expected = [
        row
        for row in rows
        if not ranges or any(r.contains(encode_key(key_of(row))) for r in ranges)
    ]
    expected = [row for row in expected if test is None or test.holds(row)]
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        write_small_blocks(patch, 2)
        patch.setattr(reading, "FIRST_BYTES", 200)
        patch.setattr(reading, "MIN_ROW_GROUPS", 1)
        table = ShardTable(FolderStorage(Path(folder) / "data"), SCHEMA, Path(folder), splits)
        table.properties = Properties(
            bloom_columns=data.draw(st.sampled_from(["", "v", "s, v, a"]))
        )
        for file in files:
            table.add(file)
        table.properties = Properties(aggregations=f"{how}(v)" if how else "")
        where = test.sql if test else None
        found = table.rows(
            *ranges, columns=columns, where=where, limit=limit, look_up_bytes=look_up_bytes
        )
        counted = counted_rows(table, ranges, where)
    names = columns or NAMES
    assert counted == len(expected)
    assert len(found) == min(len(expected), len(expected) if limit is None else limit)
    if limit is None:
        assert shown(found, names) == shown(expected, names)
    keys = [[row[name] for name in NAMES[:3] if name in names] for row in expected]
    assert [[row[n] for n in NAMES[:3] if n in names] for row in found] == keys[: len(found)]


def counted_rows(table: ShardTable, ranges: Sequence[KeyRange], where: str | None) -> int:
    return count_rows(
        table.storage,
        table.table,
        table.state,
        ranges,
        where=parse_predicate(where, SCHEMA) if where else None,
        now_ms=NOW_MS,
        scratch=table.folder,
        memory_bytes=MEMORY_BYTES,
    )


@given(st.lists(st.tuples(LETTERS, NUMBERS, NUMBERS), min_size=1), TESTS)
def test_the_keys_a_condition_leaves_room_for_hold_every_row_that_matches(
    keys: list[tuple[str, int, int]], test: Test
) -> None:
    spans = key_bounds(parse_condition(test.sql, SCHEMA), SCHEMA)
    for a, b, s in keys:
        for v in (None, 0, 4):
            if test.holds({"a": a, "b": b, "s": s, "v": v}):
                assert any(span.contains(encode_key((a, b, s))) for span in spans)


@pytest.mark.parametrize(
    ("sql", "spans"),
    [
        ("a = 'k' AND b BETWEEN 1 AND 3", [KeyRange(("k", 1), ("k", 4))]),
        ("a = 'k' AND b > 2147483647", [KeyRange(("k", 2147483648), ("k\0",))]),
        ("'k' <= a AND a < 'm'", [KeyRange(("k",), ("m",))]),
        ("a = 'k' AND a = 'l'", []),
        ("a IN ('l', 'k') AND b = 1", [KeyRange.exactly(("k", 1)), KeyRange.exactly(("l", 1))]),
        ("a = 'k' AND b = 1 AND s >= 2", [KeyRange(("k", 1, 2), ("k", 2))]),
        ("s = 2 AND b = 1 AND a = 'k'", [KeyRange.exactly(("k", 1, 2))]),
        ("a = 'k' AND s = 2", [KeyRange.exactly(("k",))]),
        ("a = 'k' OR v = 1", [KeyRange()]),
        ("starts_with(a, 'kl') AND a < 'kz'", [KeyRange(("kl",), ("km",))]),
        ("a LIKE 'kl%m_' OR a LIKE 'x_'", [KeyRange(("kl",), ("km",)), KeyRange(("x",), ("y",))]),
        ("a LIKE 'k\\%%'", [KeyRange(("k",), ("l",))]),
        ("starts_with(a, '\ud7ff')", [KeyRange(("\ud7ff",), ("\ue000",))]),
        ("starts_with(a, 'k\U0010ffff')", [KeyRange(("k\U0010ffff",), ("l",))]),
        ("starts_with(a, '\U0010ffff')", [KeyRange(("\U0010ffff",))]),
        ("a LIKE '%k' OR starts_with('k', a)", [KeyRange()]),
        ("a ILIKE 'k%'", [KeyRange()]),
        ("NOT a LIKE 'k%'", [KeyRange()]),
        ("NOT a = 'k'", [KeyRange()]),
        ("b = 1", [KeyRange()]),
    ],
)
def test_bounds_on_keys_are_found_in_conditions(sql: str, spans: list[KeyRange]) -> None:
    assert key_bounds(parse_condition(sql, SCHEMA), SCHEMA) == spans


@pytest.fixture
def table(tmp_path: Path) -> ShardTable:
    """A table of two leaves with two shards each."""
    table = ShardTable(FolderStorage(tmp_path / "data"), SCHEMA, tmp_path, [("l",)])
    for s in range(2):
        table.add([{"a": a, "b": b, "s": s, "v": b} for a in "klm" for b in range(4)])
    return table


def test_a_condition_on_keys_opens_only_the_shards_it_leaves_room_for(table: ShardTable) -> None:
    result = table.query(where="a = 'k' AND v > 1")
    assert [row["b"] for row in result.reader.read_all().to_pylist()] == [2, 2, 3, 3]
    assert len(result.reads.shards) == 2
    nothing = table.query(where="a = 'k' AND a = 'l'")
    assert (nothing.reader.read_all().num_rows, nothing.reads.shards) == (0, set())


@pytest.mark.parametrize("look_up_bytes", [0, LOOK_UP_BYTES])
def test_what_the_engine_cannot_evaluate_is_not_reported_as_a_damaged_shard(
    table: ShardTable, look_up_bytes: int
) -> None:
    text, pattern = Column("a", Primitive.STRING), Literal("_" * 11_000, Primitive.STRING)
    condition = Condition(Call("LIKE", (text, pattern), Primitive.BOOLEAN))
    rows = query_rows(
        table.storage,
        table.table,
        table.state,
        [],
        where=Predicate(condition, SCHEMA),
        now_ms=NOW_MS,
        scratch=table.folder,
        memory_bytes=MEMORY_BYTES,
        look_up_bytes=look_up_bytes,
    )
    with pytest.raises(InvalidRequestError, match="cannot be evaluated"):
        rows.reader.read_all()


@pytest.mark.parametrize("look_up_bytes", [0, LOOK_UP_BYTES])
def test_conditions_that_nothing_can_meet_are_no_missing_shards(
    table: ShardTable, look_up_bytes: int
) -> None:
    for where in ("v = 1 AND v = 2", "1 = 2", "v IS NULL AND v > 3"):
        assert table.rows(where=where, look_up_bytes=look_up_bytes) == []


@pytest.mark.parametrize("look_up_bytes", [0, LOOK_UP_BYTES])
def test_where_rows_are_summed_conditions_on_values_see_the_sums(
    table: ShardTable, look_up_bytes: int
) -> None:
    body = SCHEMA.to_json() | {"valueFields": [{"name": "v", "type": "LongType"}]}
    storage = FolderStorage(table.folder / "sums")
    summing = ShardTable(storage, Schema.from_json(body), table.folder)
    summing.properties = Properties(aggregations="sum(v)", filters="where(b < 3)")
    for _ in range(2):
        summing.add([{"a": "k", "b": b, "s": 0, "v": b} for b in range(4)])
    found = summing.rows(where="v > 1 AND v < 5", columns=["b"], look_up_bytes=look_up_bytes)
    assert found == [{"b": 1}, {"b": 2}]
    assert summing.rows(where="v > 1", limit=1, look_up_bytes=look_up_bytes) == [
        {"a": "k", "b": 1, "s": 0, "v": 2}
    ]


def test_a_version_whose_shards_were_collected_says_what_to_do(table: ShardTable) -> None:
    gone = sorted(table.state.shards)[0]
    table.storage.delete([shard_path("table", gone)])
    with pytest.raises(NotFoundError, match=rf"version \d+ of table 'table'.*{gone}") as caught:
        table.rows()
    assert "newer version" in caught.value.hint


def test_a_shard_that_the_newest_version_lacks_is_said_to_be_lost(
    table: ShardTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "tests.support.queries.Resources.newest_version", lambda *_: table.state.version
    )
    gone = sorted(table.state.shards)[0]
    table.storage.delete([shard_path("table", gone)])
    with pytest.raises(DamagedShardError, match=f"is missing.*{gone}") as caught:
        table.rows()
    assert "newer version" not in caught.value.explanation
    assert "--skip-damaged" in caught.value.hint


@pytest.mark.parametrize("look_up_bytes", [0, LOOK_UP_BYTES])
def test_of_rows_of_which_the_last_is_kept_an_older_one_is_not_found_by_its_sort_key(
    table: ShardTable, look_up_bytes: int
) -> None:
    table.properties = Properties(aggregations="last(v)")
    older, last = (KeyRange.exactly(("k", 1, s)) for s in (0, 1))
    assert table.rows(older, look_up_bytes=look_up_bytes) == []
    assert table.rows(where="a = 'k' AND b = 1 AND s = 0", look_up_bytes=look_up_bytes) == []
    assert [row["s"] for row in table.rows(last, look_up_bytes=look_up_bytes)] == [1]


def test_row_groups_are_left_out_by_sort_keys_within_a_row_key_and_at_its_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_small_blocks(monkeypatch, 4)
    table = ShardTable(FolderStorage(tmp_path / "data"), SCHEMA, tmp_path)
    firsts = {"k": 0, "l": 100, "m": 200}
    rows = [{"a": a, "b": 0, "s": s + i, "v": 0} for a, s in firsts.items() for i in range(10)]
    table.add(rows)  # k to 3 | to 7 | k to 9, l to 101 | to 105 | to 109 | m

    def groups_read(wanted: KeyRange) -> int:
        found = table.query(wanted)
        found.reader.read_all()
        return found.reads.row_groups

    assert groups_read(KeyRange.exactly(("l",))) == 3
    assert groups_read(KeyRange.exactly(("l", 0, 101))) == 1
    assert groups_read(KeyRange.exactly(("l", 0, 104))) == 1
    assert groups_read(KeyRange(("l", 0, 104), ("l", 0, 107))) == 2
    assert groups_read(KeyRange(("l", 0, 104), ("l", 1))) == 2
    for missing in (("k", 0, 150), ("l", 0, 1)):
        assert groups_read(KeyRange.exactly(missing)) == 1  # where it would be


def test_columns_of_a_condition_are_read_but_not_returned(table: ShardTable) -> None:
    assert table.rows(KeyRange.exactly(("k", 1)), where="v = 1", columns=["b"]) == [{"b": 1}] * 2
    with pytest.raises(InvalidRequestError, match="colour"):
        table.rows(where="colour = 1")


def test_kept_footers_and_blocks_are_read_once(table: ShardTable) -> None:
    cache = Cache()
    key = KeyRange.exactly(("k", 1))
    cold, warm = table.query(key, cache=cache), table.query(key, cache=cache)
    assert cold.reader.read_all() == warm.reader.read_all()
    assert (cold.reads.requests, warm.reads.requests) == (4, 0)
    assert (cold.reads.row_groups, warm.reads.row_groups) == (2, 2)


def test_a_shard_deleted_since_some_of_it_was_kept_is_missed_by_those_who_need_more(
    table: ShardTable,
) -> None:
    cache = Cache()
    keys = table.rows(columns=["a"], cache=cache)
    table.storage.delete([shard_path("table", min(table.state.shards))])
    assert table.rows(columns=["a"], cache=cache) == keys
    for look_up_bytes in (0, LOOK_UP_BYTES):
        with pytest.raises(NotFoundError, match="cannot be read any more"):
            table.rows(cache=cache, look_up_bytes=look_up_bytes)


def test_a_limit_over_many_partitions_opens_the_first_few(tmp_path: Path) -> None:
    splits: list[Key] = [("k", b) for b in range(1, 40)]
    table = ShardTable(FolderStorage(tmp_path / "data"), SCHEMA, tmp_path, splits)
    table.add([{"a": "k", "b": b, "s": 0, "v": b} for b in range(40)])
    found = table.query(limit=3)
    assert [row["b"] for row in found.reader.read_all().to_pylist()] == [0, 1, 2]
    assert len(found.reads.shards) <= 4
    assert len(table.query().reader.read_all()) == 40


@pytest.mark.parametrize("look_up_bytes", [0, LOOK_UP_BYTES])
def test_a_condition_on_a_column_that_older_shards_lack_takes_it_for_null(
    table: ShardTable, look_up_bytes: int
) -> None:
    fields = [*SCHEMA.to_json()["valueFields"]]  # type: ignore[misc]  # it is a list
    fields.append({"name": "later", "type": "LongType", "nullable": True})
    body = {name: part for name, part in SCHEMA.to_json().items() if name != "nextFieldId"}
    table.schema = Schema.from_json(body | {"valueFields": fields})
    table.add([{"a": "k", "b": 9, "s": 9, "v": 9, "later": 5}])
    for where in ("later > 1", "later > 1 AND a < 'l'"):
        found = table.rows(where=where, columns=["b"], look_up_bytes=look_up_bytes)
        assert found == [{"b": 9}]
    nulls = table.rows(where="later IS NULL", columns=["b"], look_up_bytes=look_up_bytes)
    assert len(nulls) == 24
    assert table.rows(where="later < 1", look_up_bytes=look_up_bytes) == []
