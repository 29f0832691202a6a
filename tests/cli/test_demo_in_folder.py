"""The demo's story in a folder: a year of flights comes in, is sorted, split, looked up, purged."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from dormouse.client.instance import Instance
from dormouse.errors import RefusedSourceError
from tests.support.waiting import LIMIT_SECONDS
from tools.demo import acts, flights


def test_every_flight_is_there_exactly_once_in_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    months = flights.write_months(flights.load(), tmp_path)
    stored = flights.as_stored(flights.load())
    broken = flights.write_broken(months[0])
    with Instance.open(tmp_path / "mice") as instance:
        stage = acts.Scene(Console(width=120), instance, files_queue="")
        handle = acts.open_table(stage)
        with pytest.raises(RefusedSourceError):
            handle.ingest([*months, broken]).wait(LIMIT_SECONDS)
        handle.ingest(months[:1]).wait(LIMIT_SECONDS)  # a file that comes twice adds nothing
        acts.show_refused(stage, handle, broken)
        before = acts.show_table(stage, handle)
        acts.let_it_work(stage, handle)
        acts.compare(stage, before, acts.show_table(stage, handle))
        acts.look_up(stage, handle, stored)
        acts.check(stage, handle, stored)
        acts.remove(stage, handle, stored)
        acts.write_report(stage.instance, tmp_path / "flights.html")
    printed = capsys.readouterr().out
    assert "336,776 rows read back" in printed
    assert "342 rows of carrier HA removed" in printed
    assert "<h1>flights</h1>" in (tmp_path / "flights.html").read_text()
