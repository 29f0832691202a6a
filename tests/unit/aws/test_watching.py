"""A person is called when queues have dead letters, or when messages wait too long in one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from dormouse.aws.logs import DEAD_LETTERS, LATE_QUEUES, watch_queues
from dormouse.errors import UnavailableError
from dormouse.messages.stages import QUEUES, STAGE_OF
from dormouse.ports import QueueCounts
from dormouse.stored.paths import InstanceNames, dead_letter_queue

NAMES = InstanceNames("dev", "123456789012")
NONE = QueueCounts(0, 0, 0)


@dataclass
class Queues:
    """The queues of an instance: those that hold messages, and how long these have waited."""

    held: dict[str, QueueCounts] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    is_down: bool = False

    def depths(self, queues: Sequence[str]) -> dict[str, int]:
        counts = {queue: self.held.get(queue, NONE) for queue in queues}
        return {queue: count.waiting + count.in_flight for queue, count in counts.items()}

    def ages(self, queues: Sequence[str], now_ms: int) -> dict[str, float]:
        if self.is_down:
            raise UnavailableError("CloudWatch does not answer")
        self.asked += queues
        return {queue: self.seconds[queue] for queue in queues if queue in self.seconds}

    def watch(self) -> None:
        watch_queues(self, NAMES, 0, lambda _, *asked: self.ages(*asked))  # type: ignore[arg-type]  # a fake


def published(capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
    """Return the metrics that were published since the last look."""
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {
        name: line[name][0]
        for line in lines
        for name in (DEAD_LETTERS, LATE_QUEUES)
        if name in line
    }


@pytest.mark.parametrize("queue", QUEUES)
def test_dead_letters_of_any_queue_are_published_received_or_not(
    capsys: pytest.CaptureFixture[str], queue: str
) -> None:
    for counts in (QueueCounts(1, 0, 0), QueueCounts(0, 1, 0)):
        Queues({dead_letter_queue(queue): counts}).watch()
        assert published(capsys) == {DEAD_LETTERS: 1.0}


@pytest.mark.parametrize("queue", QUEUES)
def test_a_message_that_waits_for_longer_than_its_stage_may_let_it_is_published(
    capsys: pytest.CaptureFixture[str], queue: str
) -> None:
    late = STAGE_OF[queue].late_seconds
    for counts in (QueueCounts(3, 0, 0), QueueCounts(0, 1, 0)):
        Queues({queue: counts}, {queue: late + 1.0}).watch()
        assert published(capsys) == {LATE_QUEUES: 1.0}
        Queues({queue: counts}, {queue: float(late)}).watch()
        assert published(capsys) == {}


def test_of_quiet_queues_nothing_is_published_and_cloudwatch_is_not_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    quiet = Queues({"files": QueueCounts(0, 0, 5)}, {"files": 1e6})
    quiet.watch()
    assert (quiet.asked, published(capsys)) == ([], {})
    busy = Queues({"files": QueueCounts(1, 0, 0)}, {"files": 1.0, "admin": 1e6})
    busy.watch()
    assert (busy.asked, published(capsys)) == (["files"], {})


def test_dead_letters_are_published_though_cloudwatch_does_not_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    held = {"files": QueueCounts(1, 0, 0), dead_letter_queue("admin"): QueueCounts(1, 0, 0)}
    with pytest.raises(UnavailableError):
        Queues(held, is_down=True).watch()
    assert published(capsys) == {DEAD_LETTERS: 1.0}
