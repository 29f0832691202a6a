"""A wait for work that is a dead letter ends, and names it, instead of running out of time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote_plus

import pytest

from dormouse.client.instance import Instance
from dormouse.client.queries import ask
from dormouse.client.table import TableHandle
from dormouse.client.waiting import STALLED_LOOKS, WAIT_SECONDS
from dormouse.errors import DeadLetterError, TimedOutError, UnavailableError
from dormouse.messages.stages import AnswerQuery, OutboundMessage, encode
from tests.support.instances import InMemory
from tests.support.world import World, letters, letters_file


@pytest.fixture
def memory(tmp_path: Path) -> InMemory:
    return InMemory.over(World(tmp_path / "world"))


@pytest.fixture
def handle(memory: InMemory) -> TableHandle:
    memory.world.create()
    for name in "ab":
        memory.world.drop(f"letters/{name}.parquet", letters(name))
        memory.world.settle()
    return memory.instance.table("letters")


def let_fail(memory: InMemory, monkeypatch: pytest.MonkeyPatch, queue: str) -> None:
    """Make each message of a queue a dead letter from now on."""
    deliver = memory.world.deliver

    def delivered(outgoing: OutboundMessage) -> list[OutboundMessage]:
        if outgoing.queue != queue:
            return deliver(outgoing)
        memory.world.dead_letters.add(queue, encode(outgoing.message), "the disk broke")
        return []

    monkeypatch.setattr(memory.world, "deliver", delivered)


def ingest(instance: Instance, path: Path) -> None:
    instance.table("letters").ingest(path).wait()


def compact(instance: Instance, path: Path) -> None:
    instance.compact("letters", everything=True)
    instance.table("letters").wait()


def compact_all(instance: Instance, path: Path) -> None:
    instance.compact("letters", everything=True)
    instance.wait()


def export(instance: Instance, path: Path) -> None:
    instance.table("letters").export().wait()


def purge(instance: Instance, path: Path) -> None:
    instance.table("letters").purge("letter = 'a'").wait()


def query(instance: Instance, path: Path) -> None:
    asked = AnswerQuery(query_id="q" * 16, sql="SELECT 1 AS a")
    ask(instance.services, instance.queues, instance.polling, asked, WAIT_SECONDS).wait()


@pytest.mark.parametrize(
    ("queue", "wait"),
    [
        ("ingest-jobs", ingest),
        ("compaction-jobs", compact),
        ("compaction-jobs", compact_all),
        ("exports", export),
        ("purges", purge),
        ("queries", query),
    ],
    ids=["ingest", "compact", "compact-all", "export", "purge", "query"],
)
def test_a_wait_for_what_is_a_dead_letter_ends_and_says_what_to_do(
    memory: InMemory,
    handle: TableHandle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    queue: str,
    wait: Callable[[Instance, Path], None],
) -> None:
    path = tmp_path / "c.parquet"
    path.write_bytes(letters_file(letters("c")))
    let_fail(memory, monkeypatch, queue)
    with pytest.raises(DeadLetterError, match=f"of queue {queue}: the disk broke") as caught:
        wait(memory.instance, path)
    (letter, *_) = memory.world.dead_letters.letters[queue]
    assert f"letter {letter.id} " in str(caught.value)
    assert f"dormouse dlq redrive {queue} --id {letter.id}" in caught.value.hint
    assert memory.sleeper.sleeps < 2 * STALLED_LOOKS


def test_a_notification_of_s3_that_is_a_dead_letter_is_known_by_its_encoded_key(
    memory: InMemory, handle: TableHandle, tmp_path: Path
) -> None:
    path = tmp_path / "c d+é.parquet"
    path.write_bytes(letters_file(letters("c")))
    ingested = handle.ingest(path)
    (source,) = ingested.sources
    memory.bucket.dropped.clear()
    s3 = {"object": {"key": quote_plus(source.key, safe="/"), "eTag": source.etag}}
    memory.world.dead_letters.add("files", json.dumps({"Records": [{"s3": s3}]}))
    with pytest.raises(DeadLetterError, match="of queue files"):
        ingested.wait()


def test_a_dead_letter_of_an_earlier_attempt_does_not_end_a_wait_while_another_is_under_way(
    memory: InMemory, handle: TableHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.parquet"
    path.write_bytes(letters_file(letters("c")))
    with monkeypatch.context() as failing:
        let_fail(memory, failing, "ingest-jobs")
        with pytest.raises(DeadLetterError):
            handle.ingest(path).wait()
    again = handle.ingest(path)
    memory.world.notify(*again.sources)
    memory.bucket.dropped.clear()
    memory.sleeper.asleep = True  # the other attempt waits in its queue
    with pytest.raises(TimedOutError):
        again.wait(WAIT_SECONDS)
    memory.sleeper.asleep = False
    again.wait()
    assert handle.status().rows == 3


def test_dead_letters_of_others_end_no_wait(memory: InMemory, handle: TableHandle) -> None:
    export = handle.export()
    memory.world.queue.clear()
    for body in ("{no json", '"text"', '{"table_id": "t", "export_id": "another", "task": 0}'):
        memory.world.dead_letters.add("exports", body)
    with pytest.raises(TimedOutError):
        export.wait(WAIT_SECONDS)


def test_who_may_not_see_dead_letters_waits_all_the_same(
    memory: InMemory, handle: TableHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(queue: str, most: int) -> None:
        raise UnavailableError("access to the queue is denied")

    monkeypatch.setattr(memory.world.dead_letters, "receive", forbidden)
    export = handle.export()
    memory.world.queue.clear()
    with pytest.raises(TimedOutError):
        export.wait(WAIT_SECONDS)
