"""A little of the chaos with processes of one folder; more of it by ``make chaos``."""

from __future__ import annotations

from pathlib import Path

import pytest

from dormouse.folder.queues import SqliteQueues
from tests.chaos.folder import Chaos, problems


def test_processes_of_a_folder_that_are_killed_lose_and_double_nothing(tmp_path: Path) -> None:
    chaos = Chaos(tmp_path / "mice", seed=1, files=8, processes=2, kills=4)
    chaos.run()
    assert list(problems(chaos)) == []
    assert chaos.killed == 4


def test_messages_that_stay_with_the_dead_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chaos = Chaos(tmp_path / "mice", seed=1, files=1, processes=1, kills=0)
    chaos.run()
    monkeypatch.setattr(SqliteQueues, "release_unheld", lambda self: 0)
    monkeypatch.setattr(SqliteQueues, "leave", lambda self: None)  # as who is killed
    from dormouse.client.instance import Instance

    with Instance.open(chaos.root, background=False) as instance:
        folder = instance.folder
        assert folder is not None
        folder.queues.send_body("gc-candidates", "{}")
        folder.queues.receive("gc-candidates", 1)
    assert any("hidden by processes" in problem for problem in problems(chaos))
