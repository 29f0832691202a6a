"""What a client says of waiting, jobs, exports, purges and rebuilds is so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dormouse.client.contents import SINCE_INGESTED
from dormouse.client.operations import DeadLetterQueues, queue_states
from dormouse.client.table import TableHandle
from dormouse.client.waiting import WAIT_SECONDS, Polling
from dormouse.errors import DormouseError, NotFoundError
from dormouse.jobs import record
from dormouse.messages.stages import TableChanged
from dormouse.ports import NO_TABLE, QueueCounts
from dormouse.state.jobs import Failed, Refused, TrackedJob
from dormouse.stored.paths import PURGES
from tests.support.adapters import FakeClock
from tests.support.instances import InMemory, WorldQueues
from tests.support.world import World, letters, letters_file


@pytest.fixture
def memory(tmp_path: Path) -> InMemory:
    return InMemory.over(World(tmp_path / "world"))


@pytest.fixture
def handle(memory: InMemory) -> TableHandle:
    memory.world.create()
    memory.world.drop("letters/1.parquet", letters("ab"))
    memory.world.settle()
    return memory.instance.table("letters")


def test_looks_that_find_nothing_must_follow_one_another() -> None:
    """Between two queues a message is in neither; what it causes is there a look later."""
    clock, found = FakeClock(), iter([0, 3, 0, 0, 9])
    polling = Polling(clock, lambda seconds: clock.advance(seconds=1))
    seen: list[int] = []
    polling.until_nothing(
        lambda: next(found), timeout_seconds=WAIT_SECONDS, looks=2, watch=seen.append
    )
    assert seen == [0, 3, 0, 0]


def test_the_longer_a_look_takes_the_longer_is_the_pause_in_which_others_work() -> None:
    clock, costs, pauses = FakeClock(), iter([0, 1, 60, 0]), [0.0]

    def look() -> int:
        clock.advance(seconds=next(costs))
        return 4 - len(pauses)

    polling = Polling(clock, pauses.append)
    polling.until_nothing(look, timeout_seconds=WAIT_SECONDS)
    assert pauses[1:] == [0.5, 4, 10]


def test_a_file_that_was_refused_and_is_ingested_since_is_shown_as_finished(
    memory: InMemory, handle: TableHandle, tmp_path: Path
) -> None:
    path = tmp_path / "2.parquet"
    path.write_bytes(letters_file(letters("c")))
    ingested = handle.ingest(path)
    ingested.wait()
    (source,) = ingested.sources
    record(memory.world.services, TrackedJob(handle.table.id, source.id, "ingest"), Refused("bad"))
    found = {job.job_id: (job.state, job.reason) for job in handle.jobs()}
    assert found[source.id] == ("finished", SINCE_INGESTED)


def test_files_of_a_table_whose_name_begins_alike_are_not_shown(
    memory: InMemory, handle: TableHandle
) -> None:
    for key in ("letters/0.parquet", "letters_of_others/0.parquet"):
        record(memory.world.services, TrackedJob(NO_TABLE, key, "ingest"), Refused(subject=key))
    subjects = {job.subject for job in handle.jobs() if job.state == "refused"}
    assert subjects == {"letters/0.parquet"}


def test_the_manifest_of_another_export_at_the_same_place_is_none(handle: TableHandle) -> None:
    export = handle.export(to="out")
    export.wait()
    with pytest.raises(NotFoundError, match="not complete"):
        replace(export, id="another").manifest()


def test_waiting_for_a_failed_purge_raises_with_its_reason(
    memory: InMemory, handle: TableHandle
) -> None:
    purge = handle.purge("letter = 'a'")
    services = memory.world.services
    record(
        services, TrackedJob(handle.table.id, purge.id, "purge"), Failed("column at was dropped")
    )
    memory.world.storage.delete([PURGES.path(handle.table.id, purge.id)])
    with pytest.raises(DormouseError, match="failed: column at was dropped"):
        purge.wait()


def test_what_follows_from_a_rebuild_is_sent(memory: InMemory, handle: TableHandle) -> None:
    handle.rebuild()
    assert TableChanged(handle.table.id) in [m.message for m in memory.world.queue]


class InHands(WorldQueues):
    """Queues of which somebody looks at all messages just now."""

    def _counts(self, queue: str) -> QueueCounts:
        return QueueCounts(waiting=0, in_flight=2, delayed=0)


def test_dead_letters_that_are_in_flight_are_counted(memory: InMemory) -> None:
    services, queues = memory.world.services, InHands(memory.world)
    states, _ = queue_states(queues, memory.instance.ages, services.clock.now_ms())
    assert {(state.in_flight, state.dead) for state in states} == {(2, 2)}
    assert {each.dead for each in DeadLetterQueues(services, queues).summary()} == {2}
