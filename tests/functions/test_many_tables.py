"""Two hundred tables: what one needs, or breaks, does not keep the others waiting."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

import pytest

from dormouse.aws.handling import Event, handle_changes, handle_notifications
from dormouse.errors import ContendedError, CorruptDataError, DamagedEntryError, UnavailableError
from dormouse.features.batch_files import batch_files
from dormouse.features.planning import plan_table
from dormouse.messages.stages import (
    CompactionJob,
    IngestJob,
    OfTable,
    OutboundMessage,
    TableChanged,
    encode,
)
from dormouse.ports import Services
from dormouse.state.partitions import PartitionTree
from dormouse.state.sources import Source, table_name_of
from dormouse.state.state import ReleaseJob
from dormouse.tables.table import Table
from tests.functions.conftest import TABLE_ID, Functions, record
from tests.support.lambda_context import Context
from tests.support.trees import initialise
from tests.support.world import LETTERS, letters

TABLES = 200


@pytest.fixture
def tables(functions: Functions) -> list[Table]:
    """Two hundred tables; in the first and the last a compaction is due."""
    world = functions.world
    found = [Table(f"{number:016}", f"t{number:03}", LETTERS) for number in range(TABLES)]
    root = tuple(PartitionTree.from_split_points([]).by_id.values())
    for table in found:
        world.tables.by_id[table.id] = table
        world.services.store(table).commit(initialise(root, table.schema.key_types), generation=0)
    for table in (found[0], found[-1]):
        for number in range(4):
            world.drop(f"{table.name}/{number}.parquet", letters("abc", at=number))
    while world.queue:
        world.deliver(world.queue.popleft())
    return found


def changed(functions: Functions, tables: list[Table]) -> list[str]:
    """Plan tables as batches of a hundred messages; return the ids of failed messages."""
    failed = []
    for start in range(0, len(tables), 100):
        some = tables[start : start + 100]
        records = [record(table.name, encode(TableChanged(table.id))) for table in some]
        answer = handle_changes({"Records": records}, Context(), "table-changes", plan_table)
        failed += [item["itemIdentifier"] for item in answer["batchItemFailures"]]
    return failed


def planned(functions: Functions) -> Counter[str]:
    sent = (outgoing.message for outgoing in functions.sent())
    return Counter(m.table_id for m in sent if isinstance(m, CompactionJob))


def test_each_table_that_needs_it_is_planned_though_others_fail_or_flood_the_queue(
    functions: Functions, tables: list[Table]
) -> None:
    assert changed(functions, [tables[0]] * 99 + [tables[-1]]) == []
    assert planned(functions) == {tables[0].id: 1, tables[-1].id: 1}
    for table in (tables[0], tables[-1]):  # so that it is due again
        jobs = functions.world.state(table).jobs
        functions.world.services.store(table).commit(*map(ReleaseJob, jobs), generation=0)
    broken = tables[50]
    functions.world.services.store(broken).destroy()
    assert changed(functions, tables) == [broken.name]
    assert planned(functions) == {tables[0].id: 1, tables[-1].id: 1}


@pytest.mark.parametrize("queue", ["table-changes", "iceberg-changes"])
def test_a_table_for_which_the_time_is_too_short_goes_to_the_end_of_the_queue(
    functions: Functions, tables: list[Table], queue: str
) -> None:
    change = TableChanged(tables[0].id)
    event: Event = {"Records": [record("one", encode(change))]}
    answer = handle_changes(event, Context(left_ms=100_000), queue, never)
    assert answer["batchItemFailures"] == []
    assert functions.sent() == [OutboundMessage(queue, change)]


def never(_: Services, message: TableChanged) -> list[OutboundMessage]:
    raise AssertionError(message)


def corrupt(functions: Functions, table: Table) -> None:
    """Damage all that is kept of a table's state."""
    state = functions.world.folder / "data" / table.id / "state"
    for path in state.rglob("*"):
        if path.is_file():
            path.chmod(0o644)
            path.write_bytes(b"damaged")
    functions.world.services.store.cache_clear()  # type: ignore[attr-defined]  # as cold processes


def test_a_table_whose_state_is_damaged_holds_up_no_other(
    functions: Functions, tables: list[Table]
) -> None:
    few = [functions.table, *tables[:3]]
    for table in tables[3:]:
        functions.world.tables.delete(table)
    broken = tables[1]
    corrupt(functions, broken)
    assert changed(functions, few) == [broken.name]
    assert planned(functions) == {tables[0].id: 1}
    for function in ("sweep", "measure"):
        with pytest.raises(ExceptionGroup, match="for some tables") as failed:
            functions.invoke(function, "good")
        (error,) = failed.value.exceptions
        assert isinstance(error, CorruptDataError)
    measured = {name for name, _ in functions.world.metrics.emitted}
    assert measured >= {table.name for table in few if table != broken}
    swept = [o.message.table_id for o in functions.sent() if isinstance(o.message, OfTable)]
    assert {*swept} == {table.id for table in few if table != broken}
    sources = [functions.world.sources.drop(f"{t.name}/new.csv", b"letter,at\na,1\n") for t in few]
    assert notified(functions, sources) == []
    assert len(functions.sent()) == len(few), "an ingest fails by itself, in a batch of its own"


def test_a_table_that_the_registry_cannot_read_holds_up_no_other(
    functions: Functions, tables: list[Table]
) -> None:
    functions.world.tables.damaged.add(tables[1].id)
    for function in ("sweep", "measure"):
        with pytest.raises(ExceptionGroup, match="for some tables") as failed:
            functions.invoke(function, "good")
        assert [type(error) for error in failed.value.exceptions] == [DamagedEntryError]
    measured = {name for name, _ in functions.world.metrics.emitted}
    assert measured == {functions.table.name, *(t.name for t in tables)} - {tables[1].name}
    functions.sent()
    sources = [
        functions.world.sources.drop(f"{t.name}/new.csv", b"letter,at\na,1\n") for t in tables[:8]
    ]
    assert notified(functions, sources) == [tables[1].name]
    jobs = [o.message for o in functions.sent()]
    assert {job.table_id for job in jobs if isinstance(job, IngestJob)} == {
        table.id for table in tables[:8] if table != tables[1]
    }


def test_an_unavailable_service_is_not_called_for_each_file(
    functions: Functions, tables: list[Table]
) -> None:
    asked = []

    def throttled(*_: object) -> list[OutboundMessage]:
        asked.append(1)
        raise UnavailableError("throttled")

    sources = [functions.world.sources.drop(f"{t.name}/new.csv", b"x") for t in tables[:8]]
    assert notified(functions, sources, throttled) == [table.name for table in tables[:8]]
    assert len(asked) == 1


def notified(
    functions: Functions,
    sources: list[Source],
    stage: Callable[..., list[OutboundMessage]] = batch_files,
) -> list[str]:
    """Notify of files in one batch; return the tables whose messages must come again."""
    records = [record(table_name_of(source.key), notification(source)) for source in sources]
    answer = handle_notifications({"Records": records}, Context(), "files", stage)
    return [item["itemIdentifier"] for item in answer["batchItemFailures"]]


def notification(source: Source) -> str:
    found = {"key": source.key, "eTag": source.etag, "size": source.size_bytes}
    bucket = {"name": source.bucket}
    event = {"eventName": "ObjectCreated:Put", "s3": {"bucket": bucket, "object": found}}
    return json.dumps({"Records": [event]})


def test_a_table_whose_commits_are_contended_holds_up_no_other(
    functions: Functions, tables: list[Table]
) -> None:
    def contended() -> None:
        raise ContendedError("others are first all the time")

    functions.world.before_next_commit(contended)
    assert changed(functions, [tables[0], tables[-1]]) == [tables[0].name]
    assert planned(functions) == {tables[-1].id: 1}
    assert changed(functions, [tables[0]]) == []
    assert planned(functions) == {tables[0].id: 1}


def test_every_table_is_swept_in_turn_though_some_cannot_be(
    functions: Functions, tables: list[Table]
) -> None:
    for table in tables[:3]:
        functions.world.services.store(table).destroy()
    with pytest.raises(ExceptionGroup, match="for some tables"):
        functions.invoke("sweep", "good")
    swept = [o.message.table_id for o in functions.sent() if isinstance(o.message, OfTable)]
    assert sorted(swept) == sorted([TABLE_ID, *(table.id for table in tables[3:])])
    first = set()
    for _ in range(3):
        functions.world.clock.advance(seconds=300)
        with pytest.raises(ExceptionGroup):
            functions.invoke("sweep", "good")
        first.add(str(functions.sent()[0].message))
    assert len(first) == 3, "each time another table is the first"


def test_while_all_tables_are_quiet_the_registry_is_read_four_times_an_hour(
    functions: Functions, tables: list[Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, reads = functions.world, []
    read = world.tables.list_readable

    def listed() -> tuple[list[Table], list[DamagedEntryError]]:
        reads.append(world.clock.now_ms())
        return read()

    def an_hour() -> int:
        reads.clear()
        for _ in range(60):
            functions.invoke("measure", "good")
            world.clock.advance(seconds=60)
        return len(reads)

    for table in tables:
        jobs = world.state(table).jobs
        world.services.store(table).commit(*map(ReleaseJob, jobs), generation=0)
    world.clock.advance(seconds=3600)
    monkeypatch.setattr(world.tables, "list_readable", listed)
    world.metrics.emitted.clear()
    assert an_hour() == 4
    assert world.metrics.emitted == []
    initialised = world.create("another")
    world.drop("another/1.parquet", letters("abc"))
    world.settle()
    assert an_hour() > 15, "each minute for a quarter of an hour"
    assert {name for name, _ in world.metrics.emitted} == {initialised.name}
