"""What a process left half done when it died is found by the next one that looks, at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.features.planning import plan_table
from dormouse.folder.queues import SqliteQueues, jobs_in_queues, sweep_soon
from dormouse.folder.wiring import OpenFolder, open_folder
from dormouse.messages.stages import CompactionJob, OutboundMessage, TableChanged
from tests.support.waiting import LIMIT_SECONDS
from tests.support.world import LETTERS

CHANGES = "table-changes"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "mice"


def table_to_compact(root: Path, folder: Path) -> str:
    """Make a table with enough files for a compaction; return its id. Nothing was planned yet."""
    with Instance.open(root, background=False) as instance:
        properties = {"compaction_strategy": "batch", "compaction_files": 100}
        table = instance.create_table("letters", LETTERS, properties)
        for number in range(3):
            path = folder / f"{number}.csv"
            path.write_text(f"letter,at,note\na,{number},x\n")
            table.ingest(path)
        assert table.status().shards == 3
        found = instance.services.tables.named("letters")
        assert found is not None
        due = dict(found.settings) | {"compaction_files": 3}
        instance.services.tables.change(found.id, lambda table: table.with_settings(due, {}))
        assert instance.folder is not None
        instance.folder.queues.send([OutboundMessage(CHANGES, TableChanged(found.id))])
        return found.id


def planned_but_not_sent(opened: OpenFolder, table_id: str) -> list[OutboundMessage]:
    """Receive the change of a table and assign what is due, as the planner does before it sends."""
    assert opened.queues.receive(CHANGES, 10)
    messages = list(plan_table(opened.services, TableChanged(table_id)))
    assert [message.queue for message in messages] == ["compaction-jobs"]
    return messages


@pytest.fixture
def dead(root: Path, tmp_path: Path) -> Iterator[str]:
    """Let a process die after it assigned a job, and before it sent the message."""
    table_id = table_to_compact(root, tmp_path)
    opened = open_folder(root, background=False)
    opened.worker.schedule.run_due(opened.services, opened.queues)
    planned_but_not_sent(opened, table_id)
    assert opened.process is not None
    opened.process.close()  # as the kernel does for a killed one
    yield table_id
    opened.database.close()


def test_a_job_that_a_planner_assigned_before_it_died_is_run_at_once(root: Path, dead: str) -> None:
    with Instance.open(root, background=False) as instance:
        assert instance.folder is not None
        instance.folder.finish(LIMIT_SECONDS)
        assert instance.table("letters").status().shards == 1
        assert instance.table("letters").count() == 3


def test_a_job_that_waits_in_a_queue_or_is_a_dead_letter_is_not_sent_again(
    root: Path, tmp_path: Path
) -> None:
    table_id = table_to_compact(root, tmp_path)
    opened = open_folder(root, background=False)
    (message,) = planned_but_not_sent(opened, table_id)
    assert isinstance(message.message, CompactionJob)
    opened.queues.send([message])

    def swept() -> None:
        with opened.database.writing() as connection:
            connection.execute("UPDATE settings SET value = '0' WHERE name = 'swept_ms'")
        opened.worker.schedule.run_due(opened.services, opened.queues)

    opened.worker.schedule.run_due(opened.services, opened.queues)
    swept()
    assert opened.queues.depths(["compaction-jobs"]) == {"compaction-jobs": 1}
    assert jobs_in_queues(opened.database) == {message.message.job_id}
    (received,) = opened.queues.receive("compaction-jobs", 10)
    swept()
    opened.queues.bury(received, "it failed")
    swept()
    assert opened.queues.depths(["compaction-jobs"]) == {"compaction-jobs": 0}
    opened.close()


def test_a_process_that_leaves_in_the_middle_lets_the_next_one_look_for_what_it_left(
    root: Path, tmp_path: Path
) -> None:
    table_id = table_to_compact(root, tmp_path)
    opened = open_folder(root, background=False)
    opened.worker.schedule.run_due(opened.services, opened.queues)
    received = opened.queues.receive(CHANGES, 10)
    assert list(plan_table(opened.services, TableChanged(table_id)))
    opened.queues.give_back(received)
    opened.close()
    with Instance.open(root, background=False) as instance:
        assert instance.folder is not None
        instance.folder.finish(LIMIT_SECONDS)
        assert instance.table("letters").status().shards == 1


BEGIN: dict[str, Callable[[TableHandle], object]] = {
    "purge": lambda table: table.purge("letter = 'a'"),
    "export": lambda table: table.export(),
}


def table_with_two_rows(instance: Instance, folder: Path) -> TableHandle:
    table = instance.create_table("letters", LETTERS)
    path = folder / "two.csv"
    path.write_text("letter,at,note\na,1,x\nb,1,x\n")
    table.ingest(path)
    return table


@pytest.mark.parametrize("kind", BEGIN)
def test_what_was_begun_without_its_first_message_is_done_while_one_waits_for_it(
    kind: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    def unfinished() -> int:
        return sum(job.kind == kind and job.state != "finished" for job in table.jobs())

    with Instance.open(root, background=False) as instance:
        table = table_with_two_rows(instance, tmp_path)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(SqliteQueues, "send", interrupted)
            BEGIN[kind](table)
    with Instance.open(root, background=False) as instance:
        table = instance.table("letters")
        assert unfinished() == 1
        instance.polling.until_nothing(unfinished, timeout_seconds=LIMIT_SECONDS)
        assert table.count() == (1 if kind == "purge" else 2)


@pytest.mark.parametrize("kind", BEGIN)
def test_what_has_a_message_is_not_sent_again(kind: str, root: Path, tmp_path: Path) -> None:
    with Instance.open(root, background=False) as instance:
        BEGIN[kind](table_with_two_rows(instance, tmp_path))
        opened = instance.folder
        assert opened is not None
        depths = opened.queues.depths(["purges", "exports"])
        assert sum(depths.values()) == 1
        with opened.database.writing() as connection:
            sweep_soon(connection)
        opened.worker.schedule.run_due(opened.services, opened.queues)
        assert opened.queues.depths(["purges", "exports"]) == depths
