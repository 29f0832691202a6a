"""The record of a job is true, even if its process crashed before it could record the outcome."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from dormouse.errors import OutcomeUnknownError, UnavailableError
from dormouse.messages.requests import ReinitialiseTable, SplitPartitions
from dormouse.messages.stages import OutboundMessage, PartitionSplits
from dormouse.state.jobs import JobEvent, Tracked
from dormouse.tables.table import Table
from tests.support.made_once import made_once
from tests.support.world import Crash, World, letters


@contextmanager
def end_untold(world: World, monkeypatch: pytest.MonkeyPatch, error: Exception) -> Iterator[None]:
    """Raise an error in the stage that records the end of a job."""
    tell = world.tracker.record

    def failing_record(job: Tracked, event: JobEvent, at_ms: int) -> None:
        if event.state == "finished":
            raise error
        tell(job, event, at_ms)

    with monkeypatch.context() as patch:
        patch.setattr(world.tracker, "record", failing_record)
        yield


@made_once
def filled(world: World, **properties: object) -> Table:
    """Return a table of two ingests whose changes nobody has planned for yet."""
    table = world.create(**{"gc_delay_seconds": 0, **properties})
    for number in range(2):
        world.drop(f"letters/{number}.parquet", letters("abcd", at=10 * number))
    world.deliver_all_but("table-changes")
    return table


def states(world: World, table: Table, kind: str) -> set[str]:
    return {r.state for r in world.tracker.records(table.id) if r.kind == kind}


def untold(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    queue: str,
    kind: str,
    properties: dict[str, object],
) -> tuple[Table, OutboundMessage]:
    """Bring a table to a job whose process dies before recording it; return its message too."""
    pairs = {"compaction_strategy": "batch", "compaction_files": 2}
    table = filled(world, **pairs, **properties)
    world.sweep()
    while (message := world.queue.popleft()).queue != queue:
        world.queue += world.deliver(message)
    with end_untold(world, monkeypatch, Crash()), pytest.raises(Crash):
        world.deliver(message)
    assert states(world, table, kind) == {"running"}
    return table, message


UNTOLD = pytest.mark.parametrize(
    ("queue", "kind", "properties"),
    [
        ("compaction-jobs", "compaction", {}),
        ("partition-splits", "split", {"split_threshold_rows": 6}),
        ("gc-candidates", "garbage", {}),
    ],
)


@UNTOLD
def test_a_redelivery_records_the_outcome_of_a_job_that_crashed_after_its_commit(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    queue: str,
    kind: str,
    properties: dict[str, object],
) -> None:
    table, message = untold(world, monkeypatch, queue, kind, properties)
    world.queue.appendleft(message)
    world.settle()
    assert states(world, table, kind) == {"finished"}


@UNTOLD
def test_a_redelivery_records_that_a_crashed_job_is_over_although_its_table_was_reset(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    queue: str,
    kind: str,
    properties: dict[str, object],
) -> None:
    table, message = untold(world, monkeypatch, queue, kind, properties)
    world.administer(ReinitialiseTable("empty", table.name))
    world.deliver(message)
    assert states(world, table, kind) == {"finished"}


def test_an_ingest_that_committed_and_could_not_record_it_has_not_failed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = world.create()
    world.drop("letters/1.parquet", letters("abc"))
    throttled = UnavailableError("throttled")
    with end_untold(world, monkeypatch, throttled), pytest.raises(UnavailableError):
        world.deliver(world.queue.popleft())
    assert states(world, table, "ingest") == {"running"}


@pytest.mark.parametrize("kind", ["purge", "export"])
def test_a_finished_job_does_not_fail_because_its_objects_could_not_be_deleted(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    table = filled(world)
    if kind == "purge":
        world.purge(table, "letter = 'z'")
    else:
        world.export(table, to="out")
    delete = world.storage.delete

    def unanswered(paths: Sequence[str]) -> None:
        delete(paths)
        raise OutcomeUnknownError("no answer")

    message = world.queue.popleft()
    with monkeypatch.context() as patch, pytest.raises(OutcomeUnknownError):
        patch.setattr(world.storage, "delete", unanswered)
        world.deliver(message)
    world.deliver(message)
    assert states(world, table, kind) == {"finished"}


def test_the_next_audit_records_that_one_which_crashed_over_orphans_is_finished(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(world)
    orphan = f"{table.id}/data/{0:032x}-0.parquet"
    world.storage.put(orphan, b"left by a job that died")
    world.age_objects(seconds=table.properties.orphan_age_seconds + 1)
    with end_untold(world, monkeypatch, Crash()), pytest.raises(Crash):
        world.sweep(audit=True)
    assert states(world, table, "garbage") == {"running"}
    world.sweep(audit=True)
    assert states(world, table, "garbage") == {"finished"}


def test_a_forced_split_whose_message_was_lost_is_sent_when_the_request_comes_again(
    world: World,
) -> None:
    table = filled(world)
    request = SplitPartitions("s", table.name, "root", forced=True)
    for _ in range(2):  # the process dies before it sends, so the request comes again
        world.queue.clear()
        world.administer(request)
    (message,) = world.queue
    assert isinstance(message.message, PartitionSplits)
    world.settle()
    world.administer(request)
    record = world.job_record("s")
    assert record is not None and record.state == "accepted", "what is split already is no refusal"
