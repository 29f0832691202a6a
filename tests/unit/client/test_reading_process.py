"""The process that reads files for one that must not end with it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dormouse import lifeline
from dormouse.client.reader import MOST_PAUSE_MS, ReadingProcess
from tests.support.adapters import FakeClock


class Begun:
    """A process, as far as it is looked at."""

    def __init__(self) -> None:
        self.returncode: int | None = None
        self.was_asked = False

    def poll(self) -> int | None:
        return self.returncode

    def terminate(self) -> None:
        self.was_asked = True

    def wait(self, seconds: float) -> int:
        raise subprocess.TimeoutExpired("it hangs", seconds)


def test_after_deaths_another_follows_later_and_later_and_none_after_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Begun] = []
    killed: list[object] = []
    monkeypatch.setattr(lifeline, "start", lambda *_, **__: begun.append(Begun()) or begun[-1])
    monkeypatch.setattr(lifeline, "kill", killed.append)
    clock = FakeClock()
    reader = ReadingProcess(tmp_path, {}, clock)
    reader.keep(lambda: False)
    assert not begun, "nothing is to be read"
    for number, pause in enumerate((0, 1, 3, 7, 15, 31, 60, 60)):
        if pause:
            clock.advance(seconds=pause - 1)
            reader.keep(lambda: True)
            assert len(begun) == number, "it would die at once again"
            clock.advance(seconds=1)
        for _ in range(2):
            reader.keep(lambda: True)
        assert len(begun) == number + 1
        begun[-1].returncode = -9
        reader.keep(lambda: True)
        assert killed[-1] is begun[-1], "and what it has left"
    clock.advance(seconds=MOST_PAUSE_MS // 1000)
    reader.keep(lambda: True)
    last = begun[-1]
    clock.advance(seconds=1000)
    last.returncode = 1
    reader.keep(lambda: True)
    assert begun[-1] is not last, "a long life is followed by another at once"
    reader.end()
    assert begun[-1].was_asked and killed[-1] is begun[-1], "also if it hangs"
    reader.keep(lambda: True)
    assert killed[-1] is begun[-1]
