"""What fails for good ends among the dead letters with its reason, not without a word."""

from __future__ import annotations

import pytest

from dormouse.errors import UnavailableError
from dormouse.jobs import MAX_RECEIVES
from dormouse.messages.stages import PartitionSplits, PurgeStep, TableChanged, encode
from dormouse.stored.paths import PURGES, shard_path
from tests.functions.conftest import TABLE_ID, Functions
from tests.functions.test_many_tables import notification
from tests.support.world import letters

STEP = encode(PurgeStep(TABLE_ID, "p"))
PATH = PURGES.path(TABLE_ID, "p")


@pytest.fixture
def damaged(functions: Functions) -> Functions:
    """An instance in which the request of a purge is damaged."""
    functions.world.storage.put(PATH, b"damaged")
    return functions


def test_a_permanent_failure_is_a_dead_letter_with_its_reason_on_the_last_delivery(
    damaged: Functions,
) -> None:
    for receives in range(1, MAX_RECEIVES):
        assert damaged.deliver("purge_rows", STEP, receives=receives) == ["0"]
    assert damaged.outbox.dead == []
    assert damaged.deliver("purge_rows", STEP, receives=MAX_RECEIVES) == []
    ((queue, body, reason),) = damaged.outbox.dead
    assert (queue, body) == ("purges", STEP)
    assert PATH in reason


def test_sqs_moves_what_cannot_be_sent_to_the_dead_letters(damaged: Functions) -> None:
    damaged.outbox.deaf = True
    assert damaged.deliver("purge_rows", STEP, receives=MAX_RECEIVES) == ["0"]
    assert damaged.outbox.dead == []


def test_a_service_that_does_not_answer_makes_no_message_hopeless(
    functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(path: str) -> bytes:
        raise UnavailableError("S3 is down")

    monkeypatch.setattr(functions.world.storage, "get", down)
    assert functions.deliver("purge_rows", STEP, receives=MAX_RECEIVES) == ["0"]
    assert functions.outbox.dead == []


def test_an_unexpected_error_records_no_reason_because_it_may_quote_rows(
    functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: str) -> bytes:
        raise ValueError("hazel@example.com")

    monkeypatch.setattr(functions.world.storage, "get", broken)
    assert functions.deliver("purge_rows", STEP, receives=MAX_RECEIVES) == ["0"]
    assert functions.outbox.dead == []


def test_leaves_that_cannot_be_split_are_reported_together(functions: Functions) -> None:
    world = functions.world
    table = world.create("small", split_threshold_rows=2, splits=[("m",)])
    world.drop("small/1.parquet", letters("abcxyz"))
    world.deliver(world.queue.popleft())
    for shard in world.shard_objects(table):
        assert shard is not None
        file = world.folder / "data" / shard_path(table.id, shard)
        file.chmod(0o644)
        file.write_bytes(b"damaged")
    leaves = tuple(leaf.id for leaf in world.state(table).partitions.leaves())
    body = encode(PartitionSplits(table.id, 0, leaves))
    assert functions.deliver("split_partition", body, receives=MAX_RECEIVES) == []
    ((queue, _, reason),) = functions.outbox.dead
    assert queue == "partition-splits"
    assert reason.count("is not a Parquet file") == len(leaves)


def test_files_of_a_damaged_table_are_dead_letters_and_other_files_are_ingested(
    functions: Functions,
) -> None:
    world = functions.world
    broken = world.create("broken")
    world.tables.damaged.add(broken.id)
    names = ("broken", "letters", "letters")
    bodies = [
        notification(world.sources.drop(f"{name}/{number}.csv", b"letter,at\na,1\n"))
        for number, name in enumerate(names)
    ]
    assert functions.deliver("batch_files", *bodies, receives=1) == ["0"]
    assert functions.outbox.dead == []
    assert functions.deliver("batch_files", *bodies, receives=MAX_RECEIVES) == []
    ((queue, body, reason),) = functions.outbox.dead
    assert (queue, body) == ("files", bodies[0])
    assert broken.id in reason


def test_a_table_without_a_state_fails_only_its_own_planning(functions: Functions) -> None:
    world = functions.world
    world.tables.damaged.add(TABLE_ID)
    other = world.create("other", split_threshold_rows=2)
    world.drop("other/1.parquet", letters("abc"))
    world.deliver(world.queue.popleft())
    mine, others = encode(TableChanged(TABLE_ID)), encode(TableChanged(other.id))
    assert functions.deliver("plan_table", mine, others, mine, receives=MAX_RECEIVES) == []
    assert [body for _, body, _ in functions.outbox.dead] == [mine, mine]
    assert [o.queue for o in functions.sent()] == ["partition-splits"]
