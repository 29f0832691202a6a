"""What a folder does from time to time: the sweep, in one process, and what comes with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dormouse.client.instance import Instance
from dormouse.errors import UnavailableError
from dormouse.folder.queues import sweep_soon
from dormouse.folder.sqlite import Database
from dormouse.folder.wiring import OpenFolder, open_folder
from dormouse.messages.stages import OutboundMessage, TableChanged
from tests.support.world import LETTERS


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenFolder]:
    opened = open_folder(tmp_path / "mice", background=False)
    yield opened
    opened.close()


def test_of_all_processes_one_sweeps_when_it_is_time(
    opened: OpenFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dormouse.folder import worker

    runs: list[bool] = []
    monkeypatch.setattr(
        worker, "_each_table", lambda services, queues, database, *, audit: runs.append(audit)
    )

    def pass_time(name: str, done_ms: int = 0) -> None:
        with opened.database.writing() as connection:
            update = "UPDATE settings SET value = ? WHERE name = ?"
            connection.execute(update, (str(done_ms), name))

    def both() -> None:
        for _ in range(2):
            opened.worker.schedule.run_due(opened.worker.services, opened.queues)

    both()
    assert runs == [], "a new folder needs no repair"
    pass_time("swept_ms")
    both()
    assert runs == [False]
    pass_time("audited_ms")
    both()
    assert runs == [False, True]
    pass_time("swept_ms", opened.services.clock.now_ms() + 10**9)  # then the clock was set back
    both()
    assert runs == [False, True, False]


def test_a_folder_without_work_is_made_smaller_with_a_sweep(
    opened: OpenFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrunk: list[int] = []
    monkeypatch.setattr(Database, "shrink", lambda self: shrunk.append(1))
    run = opened.worker.schedule.run_due
    run(opened.services, opened.queues)

    def sweep() -> None:
        with opened.database.writing() as connection:
            sweep_soon(connection)
        run(opened.services, opened.queues)

    sweep()
    assert len(shrunk) == 1
    opened.queues.send([OutboundMessage("table-changes", TableChanged("t"))])
    sweep()
    assert len(shrunk) == 1


def test_a_sweep_that_fails_for_a_table_is_run_for_the_others(
    opened: OpenFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from dormouse.features import sweep as module
    from dormouse.folder import worker

    instance = Instance.open(opened.layout.root, background=False)
    for name in ("one", "two"):
        instance.create_table(name, LETTERS)
    swept: list[str] = []

    def sweep(
        services: object, table: Any, *, audit: bool, is_lost: object
    ) -> list[OutboundMessage]:
        swept.append(table.name)
        if table.name == "one":
            raise UnavailableError("not now")
        return []

    monkeypatch.setattr(module, "sweep", sweep)
    worker._each_table(opened.services, opened.queues, opened.database, audit=True)
    instance.close()
    assert swept == ["one", "two"]
    assert "the sweep of table one failed: not now" in caplog.text
