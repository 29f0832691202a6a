"""Every dead letter is accounted for, and none is sent twice, whatever fails in between."""

from __future__ import annotations

import pytest

from dormouse.errors import NotFoundError, UnavailableError
from dormouse.features.administration import administer
from dormouse.features.dead_letters import Redriven, discard, list_letters, redrive, resolve_queue
from dormouse.jobs import record
from dormouse.messages.requests import Redrive
from dormouse.messages.stages import ExportTask, IngestJob, PartitionSplits, PurgeStep, encode
from dormouse.ports import NO_TABLE, DeadLetter
from dormouse.state.jobs import Failed, Started, TrackedJob
from tests.support.adapters import MemoryDeadLetters
from tests.support.world import Crash, World

QUEUE = "ingest-jobs"


@pytest.fixture
def dead(world: World) -> MemoryDeadLetters:
    return world.dead_letters


def letters(dead: MemoryDeadLetters, count: int) -> list[DeadLetter]:
    return [dead.add(QUEUE, f"body {number}") for number in range(count)]


def bodies(dead: MemoryDeadLetters) -> list[str]:
    assert all(queue == QUEUE for queue, _ in dead.sent)
    return sorted(body for _, body in dead.sent)


def test_all_dead_letters_are_redriven_once_and_deleted(
    world: World, dead: MemoryDeadLetters
) -> None:
    sent = letters(dead, 25)
    done = redrive(world.services, QUEUE)
    assert sorted(done.sent) == sorted(letter.id for letter in sent)
    assert bodies(dead) == sorted(letter.body for letter in sent)
    assert redrive(world.services, QUEUE) == Redriven()
    assert len(dead.sent) == 25


def test_only_the_dead_letters_with_given_ids_are_redriven_and_the_others_released(
    world: World, dead: MemoryDeadLetters
) -> None:
    first, second, third = letters(dead, 3)
    assert redrive(world.services, QUEUE, [second.id]).sent == (second.id,)
    assert [each.id for each in list_letters(world.services, QUEUE)] == [first.id, third.id]


def test_an_id_that_is_not_there_sends_nothing(world: World, dead: MemoryDeadLetters) -> None:
    (letter,) = letters(dead, 1)
    for act in (redrive, discard):
        with pytest.raises(NotFoundError, match="letter-9"):
            act(world.services, QUEUE, [letter.id, "letter-9"])
    assert dead.sent == []
    assert len(list_letters(world.services, QUEUE)) == 1


def test_dead_letters_that_cannot_be_sent_stay_and_are_sent_by_the_next_run(
    world: World, dead: MemoryDeadLetters
) -> None:
    first, second = letters(dead, 2)
    dead.refused = {first.id}
    assert redrive(world.services, QUEUE) == Redriven(sent=(second.id,), unsent=(first.id,))
    dead.refused.clear()
    assert redrive(world.services, QUEUE) == Redriven(sent=(first.id,))
    assert bodies(dead) == ["body 0", "body 1"]


def test_a_dead_letter_that_was_sent_but_not_deleted_is_not_sent_again(
    world: World, dead: MemoryDeadLetters
) -> None:
    first, second = letters(dead, 2)
    dead.stuck = {first.id}
    for _ in range(2):
        assert redrive(world.services, QUEUE).undeleted == (first.id,)
    dead.stuck.clear()
    assert redrive(world.services, QUEUE) == Redriven(sent=(first.id,))
    assert bodies(dead) == ["body 0", "body 1"]
    assert second.id not in {each.id for each in list_letters(world.services, QUEUE)}


@pytest.mark.parametrize("failure", [UnavailableError("no answer"), Crash()])
def test_what_was_sent_before_a_failure_is_not_sent_again_after_it(
    world: World, dead: MemoryDeadLetters, failure: Exception
) -> None:
    def fail() -> None:
        raise failure

    letters(dead, 25)
    dead.before_delete = [lambda: None, fail]
    with pytest.raises(type(failure)):
        redrive(world.services, QUEUE)
    assert len(redrive(world.services, QUEUE).sent) == 15
    assert bodies(dead) == sorted(f"body {number}" for number in range(25))


def test_discarded_dead_letters_are_gone_and_were_sent_nowhere(
    world: World, dead: MemoryDeadLetters
) -> None:
    first, second, third = letters(dead, 3)
    dead.stuck = {second.id}
    done = discard(world.services, QUEUE, [first.id, second.id])
    assert done == Redriven(sent=(first.id,), unsent=(second.id,))
    assert [each.id for each in list_letters(world.services, QUEUE)] == [second.id, third.id]
    assert dead.sent == []


def test_the_reason_of_a_dead_letter_is_its_own_or_that_of_its_job(
    world: World, dead: MemoryDeadLetters
) -> None:
    services = world.services
    dead.add(QUEUE, "{", "not a message")
    for job, event in (("a", Failed("no disk")), ("b", Started()), ("c", None)):
        dead.add(QUEUE, encode(IngestJob("t", 0, job, ())))
        if event is not None:
            record(services, TrackedJob("t", job, "ingest"), event)
    dead.add(QUEUE, encode(PartitionSplits("t", 0, ("01",))))
    record(services, TrackedJob("t", "split-01", "split"), Failed("no footer"))
    for step in (PurgeStep("t", "purge"), ExportTask("t", "export", 0)):
        dead.add(QUEUE, encode(step))
    record(services, TrackedJob("t", "purge", "purge"), Failed("no such column"))
    record(services, TrackedJob("t", "export", "export"), Failed("no space"))
    dead.add(QUEUE, encode(Redrive("request", "files")))
    record(services, TrackedJob(NO_TABLE, "request", "redrive"), Failed("no answer"))
    dead.add(QUEUE, "[1]")
    dead.add(QUEUE, "[" * 100_000 + "]" * 100_000)
    own, failed, silent, unknown, split, purge, export, request, list_, deep = (
        letter.reason for letter in list_letters(services, QUEUE)
    )
    assert (own, failed) == ("not a message", "no disk")
    assert (split, request) == ("no footer", "no answer")
    assert (purge, export) == ("no such column", "no space")
    assert "out of time or memory" in silent
    assert "or its process died" in unknown == list_ == deep


def test_queues_are_known_by_their_own_names_and_those_of_their_dead_letters() -> None:
    assert resolve_queue("files") == resolve_queue("files-dead") == "files"
    with pytest.raises(NotFoundError, match="'fils'") as caught:
        resolve_queue("fils")
    assert caught.value.hint == "did you mean files?"


def test_an_administrator_can_ask_for_it_by_message(world: World, dead: MemoryDeadLetters) -> None:
    letters(dead, 2)
    request = Redrive("r1", QUEUE)
    dead.refused = {"letter-1"}
    with pytest.raises(UnavailableError, match="1 dead letters"):
        administer(world.services, request)
    dead.refused.clear()
    for _ in range(2):
        assert administer(world.services, request) == []
    assert bodies(dead) == ["body 0", "body 1"]
    kept = world.tracker.get(NO_TABLE, "r1")
    assert kept is not None
    assert (kept.state, kept.subject, kept.kind) == ("finished", QUEUE, "redrive")
    with pytest.raises(NotFoundError):
        administer(world.services, Redrive("r2", "nowhere"))
