"""Queries as a client asks them: of versions and times, by conditions, counted."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dormouse.client.table import TableHandle
from dormouse.errors import DormouseError, InvalidRequestError, NotFoundError
from tests.support.instances import InMemory
from tests.support.world import LETTERS, World, letters


@pytest.fixture
def memory(tmp_path: Path) -> InMemory:
    return InMemory.over(World(tmp_path))


def add(table: TableHandle, text: str) -> int:
    """Ingest letters; return the version that first has them."""
    schema = pa.schema([("letter", pa.string()), ("at", pa.int64()), ("note", pa.string())])
    table.ingest(pa.Table.from_pylist(letters(text), schema)).wait()
    return table.state().version


def spelled(rows: pa.RecordBatchReader) -> str:
    return "".join(rows.read_all()["letter"].to_pylist())


def now(memory: InMemory) -> dt.datetime:
    return dt.datetime.fromtimestamp(memory.world.clock.now_ms() / 1000, dt.UTC)


def test_a_table_is_read_as_it_was_at_a_version_or_a_time(memory: InMemory) -> None:
    table = memory.instance.create_table("letters", LETTERS)
    first = add(table, "dab")
    then = now(memory)
    memory.world.clock.advance(seconds=5)
    add(table, "c")
    assert spelled(table.query()) == "abcd"
    assert spelled(table.query(as_of=first)) == "abd"
    assert spelled(table.query(as_of=then)) == "abd"
    assert table.count(as_of=first) == 3
    assert table.query(as_of=first).version == first


@pytest.mark.parametrize(
    ("as_of", "error", "reason"),
    [
        (1000, NotFoundError, "has no version 1000"),
        (0, NotFoundError, "has no version 0: its first is version 1, of 20"),
        ("2999-01-01", NotFoundError, r"2999-01-01T00:00:00\+00:00 is in the future: it is "),
        ("9999-12-31T23:59:59-23:59", NotFoundError, "59-23:59 is in the future"),  # no time of UTC
        ("1999-01-01", NotFoundError, "no version of 1999-01-01T00:00:00.000Z: its first is"),
        (dt.datetime(1, 1, 1, tzinfo=dt.UTC), NotFoundError, "no version of 0001-01-01T00:00:00"),
        (-1, InvalidRequestError, "-1 is not a version"),
        (True, InvalidRequestError, "True is not a version"),
        ("a day ago", InvalidRequestError, "'a day ago' is neither a version nor a tag nor a time"),
        (dt.datetime(2026, 1, 1), InvalidRequestError, "has no time zone"),  # noqa: DTZ001  # just that
    ],
)
def test_a_version_that_cannot_be_read_is_refused_with_the_reason(
    memory: InMemory, as_of: Any, error: type[Exception], reason: str
) -> None:
    table = memory.instance.create_table("letters", LETTERS)
    add(table, "a")
    with pytest.raises(error, match=reason):
        table.query(as_of=as_of)
    with pytest.raises(error, match=reason):
        table.count(as_of=as_of)


def test_a_time_to_come_is_refused_at_each_door_but_for_the_skew_of_clocks(
    memory: InMemory,
) -> None:
    table = memory.instance.create_table("letters", LETTERS)
    add(table, "a")
    here = now(memory)
    assert table.count(as_of=here + dt.timedelta(minutes=5)) == 1
    late = here + dt.timedelta(minutes=5, seconds=1)
    statement = f"SELECT 1 FROM letters FOR VERSION AS OF '{late.isoformat()}'"
    for ask in (
        lambda: table.query(as_of=late).read_all(),
        lambda: table.query(as_of=late, run="remote").read_all(),
        lambda: table.shards(as_of=late),
        lambda: table.files(as_of=late),
        lambda: table.changes(late),
        lambda: table.restore(late),
        lambda: memory.instance.sql(statement),
        lambda: table.export(as_of=late).wait(),
    ):
        with pytest.raises(DormouseError, match="is in the future: it is 20"):
            ask()


def test_a_limit_beyond_what_arrow_counts_limits_nothing(memory: InMemory) -> None:
    table = memory.instance.create_table("letters", LETTERS)
    add(table, "abc")
    assert spelled(table.query(limit=2**63)) == "abc"


def test_numbers_of_numpy_are_numbers(memory: InMemory) -> None:
    properties = {"gc_delay_seconds": np.int64(60)}
    table = memory.instance.create_table("letters", LETTERS, properties)  # type: ignore[arg-type]
    add(table, "abc")
    limit: Any = np.int64(2)
    assert spelled(table.query(limit=limit)) == "ab"
    seconds: Any = np.int32(60)
    assert spelled(table.query(limit=limit, run="remote", timeout_seconds=seconds)) == "ab"
    assert table.current().properties.gc_delay_seconds == 60


def test_iterators_of_keys_and_columns_say_what_lists_do_whatever_is_read_twice(
    memory: InMemory,
) -> None:
    table = memory.instance.create_table("letters", LETTERS)
    add(table, "abcd")
    cold = replace(table, services=replace(table.services, store=memory.world.new_store))
    columns: Any = iter(["letter"])
    found = cold.query(iter([("a", "b")]), exact=iter("c"), columns=columns)
    assert spelled(found) == "ac"


@pytest.mark.parametrize("asked", [{"limit": "5"}, {"limit": 0.5}, {"limit": True}, {"where": 5}])
def test_what_is_of_the_wrong_type_is_refused_with_the_reason(
    memory: InMemory, asked: dict[str, Any]
) -> None:
    table = memory.instance.create_table("letters", LETTERS)
    with pytest.raises(InvalidRequestError, match="a limit is a number|SQL text"):
        table.query(**asked)


def test_a_version_older_than_is_kept_is_not_found_and_never_half_read(memory: InMemory) -> None:
    table = memory.instance.create_table("letters", LETTERS, {"gc_delay_seconds": 60})
    versions = [add(table, text) for text in ("ab", "cd", "ef", "gh")]
    memory.instance.wait()
    for _ in range(6):
        memory.world.clock.advance(seconds=3600)
        memory.world.age_objects(seconds=3600)
        memory.world.sweep()
        memory.world.settle()
    assert spelled(table.query()) == "abcdefgh"
    for version in versions:
        with pytest.raises(NotFoundError) as caught:
            table.query(as_of=version).read_all()
        assert caught.value.hint


def test_conditions_are_sql_on_any_column_and_go_with_keys(memory: InMemory) -> None:
    table = memory.instance.create_table("letters", LETTERS, split_points=["c"])
    add(table, "abcdef")
    assert spelled(table.query(where="at >= 2 AND letter <> 'e'")) == "cdf"
    assert spelled(table.query([("b", "e")], where="note = 'd3' OR at = 1")) == "bd"
    assert spelled(table.query(exact=["a", "f"], where="at > 0")) == "f"
    assert table.count(where="at % 2 = 0") == 3
    with pytest.raises(InvalidRequestError, match="colour"):
        table.query(where="colour = 'red'")


def test_counts_read_no_rows_where_the_state_knows_them(memory: InMemory) -> None:
    table = memory.instance.create_table("letters", LETTERS, split_points=["c"])
    add(table, "abcdef")
    add(table, "abcdef")
    for stored in list(memory.world.storage.list(f"{table.table.id}/data/")):
        memory.world.storage.delete([stored.path])
    assert table.count() == 12
    assert table.count([(None, "c")]) == 4
    with pytest.raises(NotFoundError):
        table.count([(None, "b")])


@pytest.mark.parametrize("is_sql", [False, True], ids=["query", "sql"])
def test_a_look_up_takes_two_requests_cold_and_none_warm(memory: InMemory, is_sql: bool) -> None:
    """One for the index of the shard and one for a block, which are kept."""
    table = memory.instance.create_table("letters", LETTERS)
    add(table, "abcdef")
    requests = []
    for letter in ("b", "e"):
        if is_sql:
            text = "SELECT * FROM letters WHERE letter = $1"
            found = memory.instance.sql(text, [letter])
        else:
            found = table.query(exact=letter)
        assert found.to_arrow().column("letter").to_pylist() == [letter]
        requests.append(found.reads.requests)
    assert requests == [2, 0]


def test_footers_are_kept_for_all_queries_of_a_client(memory: InMemory) -> None:
    table = memory.instance.create_table("letters", LETTERS)
    add(table, "abc")
    requests = []
    for handle in (table, memory.instance.table("letters")):
        found = handle.query(exact="b")
        assert spelled(found.reader) == "b"
        requests.append(found.reads.requests)
    assert requests == [2, 0]
