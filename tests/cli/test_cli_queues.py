from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from dormouse.errors import UnavailableError
from dormouse.messages.stages import QUEUES
from tests.cli.conftest import Dormouse
from tests.support.adapters import MemoryDeadLetters
from tests.support.instances import InMemory


@pytest.fixture
def dead(memory: InMemory) -> MemoryDeadLetters:
    letters = memory.world.dead_letters
    letters.add("admin", "{", "not a message")
    letters.add("admin", "[bold]", "not a message")
    letters.add("files", "\x1b[31m", "odd")
    return letters


def listed(dormouse: Dormouse, *arguments: str) -> list[dict[str, Any]]:
    shown = dormouse(*arguments, "--format", "json")
    assert shown.exit_code == 0, shown.output
    return [json.loads(line) for line in shown.stdout.splitlines()]


def ages(queues: Sequence[str], now_ms: int) -> dict[str, float]:
    return {"files": 12.0}


def no_ages(queues: Sequence[str], now_ms: int) -> dict[str, float]:
    raise UnavailableError("CloudWatch may not be asked")


def test_every_queue_is_shown_with_its_waiting_messages_and_dead_letters(
    dormouse: Dormouse, dead: MemoryDeadLetters, memory: InMemory
) -> None:
    memory.instance = replace(memory.instance, ages=ages)
    memory.world.create()
    memory.world.drop("letters/1.csv", b"letter,at,note\na,1,x\n")
    found = {each["queue"]: each for each in listed(dormouse, "queues")}
    assert list(found) == list(QUEUES)
    assert found["ingest-jobs"]["waiting"] == 1
    assert found["admin"]["dead"] == 2
    assert (found["files"]["oldest_seconds"], found["admin"]["oldest_seconds"]) == (12, None)
    assert "oldest_seconds" in dormouse("queues").stdout


def test_queues_are_counted_even_if_their_ages_are_unavailable(
    dormouse: Dormouse, memory: InMemory
) -> None:
    memory.instance = replace(memory.instance, ages=no_ages)
    shown = dormouse("queues")
    assert shown.exit_code == 0
    assert "CloudWatch may not be asked" in shown.stderr
    assert "gc-candidates" in shown.stdout


def test_dead_letters_are_summed_up_by_queue_with_the_commonest_reason_first(
    dormouse: Dormouse, dead: MemoryDeadLetters
) -> None:
    dead.add("admin", "x", "another")
    found = {each["queue"]: each for each in listed(dormouse, "dlq", "list")}
    assert found["admin"]["dead"] == 3
    assert found["admin"]["reasons"] == "not a message; another"
    assert found["admin"]["oldest"] == "2023-11-14T22:13:20.000Z"
    assert (found["gc-candidates"]["dead"], found["gc-candidates"]["oldest"]) == (0, None)


def test_dead_letters_are_shown_unchanged_and_stay(
    dormouse: Dormouse, dead: MemoryDeadLetters
) -> None:
    assert [each["body"] for each in listed(dormouse, "dlq", "show", "admin")] == ["{", "[bold]"]
    shown = dormouse("dlq", "show", "files-dead").stdout
    assert "\x1b" not in shown
    assert "x1b[31m" in shown
    assert len(listed(dormouse, "dlq", "show", "admin")) == 2
    unknown = dormouse("dlq", "show", "nowhere")
    assert unknown.exit_code == 3
    assert "gc-candidates" in unknown.stderr


def test_a_redrive_requires_ids_or_all(dormouse: Dormouse, dead: MemoryDeadLetters) -> None:
    for arguments in ([], ["--all", "--id", "letter-1"]):
        assert dormouse("dlq", "redrive", "admin", *arguments).exit_code == 4
    assert dead.sent == []


def test_dead_letters_are_redriven_by_id_or_all(
    dormouse: Dormouse, dead: MemoryDeadLetters
) -> None:
    one = dormouse("dlq", "redrive", "admin", "--id", "letter-1")
    assert one.exit_code == 0
    assert "1 message sent back" in one.stderr
    rest = listed(dormouse, "dlq", "redrive", "admin", "--all")
    assert rest == [{"id": "letter-0", "outcome": "sent back"}]
    assert dead.sent == [("admin", "[bold]"), ("admin", "{")]
    assert "0 messages sent back" in dormouse("dlq", "redrive", "admin", "--all").stderr


def test_dead_letters_left_are_reported_with_an_exit_code_of_their_own(
    dormouse: Dormouse, dead: MemoryDeadLetters
) -> None:
    dead.stuck = {"letter-1"}
    result = dormouse("dlq", "redrive", "admin", "--all")
    assert result.exit_code == 6
    assert "still among the dead letters: 1 message, 1 of them sent" in result.stderr
    assert "run it again" in result.stderr


def test_discarding_asks_first_and_says_what_will_be_lost(
    dormouse: Dormouse, dead: MemoryDeadLetters
) -> None:
    refused = dormouse("dlq", "discard", "admin", input="\n")
    assert refused.exit_code == 1
    assert "[bold]" in refused.stdout
    assert "Discard 2 messages of admin? What they ask for is lost. [y/N]" in refused.stderr
    assert len(dead.letters["admin"]) == 2
    assert dormouse("dlq", "discard", "admin", "--id", "letter-0", input="y\n").exit_code == 0
    assert [letter.id for letter in dead.letters["admin"]] == ["letter-1"]
    assert dormouse("dlq", "discard", "admin", "--force").exit_code == 0
    assert "has no dead letters" in dormouse("dlq", "discard", "admin").stderr
    assert dormouse("dlq", "discard", "admin", "--id", "letter-0").exit_code == 3
    assert dead.sent == []


def test_a_dead_letter_that_arrives_during_the_prompt_is_not_discarded_unseen(
    dormouse: Dormouse, dead: MemoryDeadLetters, monkeypatch: pytest.MonkeyPatch
) -> None:
    def agreed(question: str) -> None:
        assert "Discard 2 messages" in question
        dead.add("admin", "later", "not shown")

    monkeypatch.setattr("dormouse_cli.commands.instance.confirm", agreed)
    assert dormouse("dlq", "discard", "admin").exit_code == 0
    assert [letter.body for letter in dead.letters["admin"]] == ["later"]
