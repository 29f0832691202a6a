"""Names, reasons and rows cannot send control sequences to a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dormouse.errors import NotFoundError
from dormouse.ports import NO_TABLE
from dormouse.state.jobs import Refused, TrackedJob
from tests.cli.conftest import Dormouse
from tests.support.instances import InMemory

CLEAR_SCREEN, CSI, RIGHT_TO_LEFT = "\x1b[2J", "\x9b2J", "\u202e"
EVIL = f"a{CLEAR_SCREEN}b{CSI}c{RIGHT_TO_LEFT}d"


def acted_upon(text: str) -> str:
    return "".join(c for c in text if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160))


@pytest.fixture
def evil(dormouse: Dormouse, memory: InMemory) -> Dormouse:
    refused = Refused(f"no table {EVIL}", subject=EVIL)
    memory.world.tracker.record(TrackedJob(NO_TABLE, EVIL, "ingest"), refused, 1)
    return dormouse


def test_a_key_and_a_reason_of_a_refused_file_do_not_reach_the_terminal_as_they_are(
    evil: Dormouse,
) -> None:
    shown = evil("jobs").stdout
    assert acted_upon(shown) == ""
    assert RIGHT_TO_LEFT not in shown
    assert "\\x1b[2J" in shown


def test_json_on_a_terminal_is_as_harmless_and_means_the_same(evil: Dormouse) -> None:
    shown = evil("jobs", "--format", "json").stdout
    assert acted_upon(shown) == ""
    assert json.loads(shown)["subject"] == EVIL


def test_rows_in_json_are_as_harmless_and_mean_the_same(dormouse: Dormouse, tmp_path: Path) -> None:
    schema = {
        "rowKeyFields": [{"name": "k", "type": "StringType"}],
        "sortKeyFields": [],
        "valueFields": [],
    }
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    (tmp_path / "rows.json").write_text(json.dumps({"k": f"{EVIL}\x7fé"}))
    assert dormouse("table", "add", "evil", "--schema", "schema.json").exit_code == 0
    assert dormouse("ingest", "evil", "rows.json", "--wait").exit_code == 0
    shown = dormouse("query", "evil", "--format", "json").stdout
    assert acted_upon(shown) == ""
    assert json.loads(shown)["k"] == f"{EVIL}\x7fé"


def test_an_error_that_quotes_somebody_is_written_out(
    dormouse: Dormouse, memory: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_: str) -> None:
        raise NotFoundError(f"there is no object {EVIL}", hint=f"look at {EVIL}")

    monkeypatch.setattr(memory.world.tables, "named", lost)
    shown = dormouse("table", "show", "letters")
    assert shown.exit_code == 3
    assert "\\x1b[2J" in shown.stderr
    assert acted_upon(shown.stderr) == ""
    assert shown.stderr.count("\n") == 2
