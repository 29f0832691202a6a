"""What every line of a function's log says of the work it is about."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pytest

from dormouse.aws.logs import about, about_ids, logger, note_commit
from dormouse.messages.requests import SetOnline
from dormouse.messages.stages import CompactionJob
from dormouse.state.rules import CommitReport


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    stream = io.StringIO()
    monkeypatch.setattr(logger.registered_handler, "stream", stream)
    yield stream


def lines(log: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in log.getvalue().splitlines()]


def commit(version: int) -> None:
    note_commit("dev", "t1", CommitReport(version, 1, 1, 1, 1, 0))


def test_lines_name_table_and_job_and_after_a_commit_its_version(log: io.StringIO) -> None:
    with about(CompactionJob("t1", 0, "j1")):
        logger.info("begun")
        commit(7)
        commit(8)
        logger.info("done")
    begun, done = lines(log)
    assert (begun["table_id"], begun["job_id"]) == ("t1", "j1")
    assert "state_version" not in begun
    assert (done["table_id"], done["job_id"], done["state_version"]) == ("t1", "j1", 8)


def test_nothing_of_one_message_is_said_of_the_next_even_if_it_failed(log: io.StringIO) -> None:
    with pytest.raises(ValueError, match="broken"), about(CompactionJob("t1", 0, "j1")):
        commit(7)
        raise ValueError("broken")
    with about(SetOnline(request_id="r1", name="letters", online=True)):
        logger.info("next")
    (line,) = lines(log)
    assert not {"table_id", "job_id", "state_version"} & line.keys()
    assert (line["request_id"], line["table"]) == ("r1", "letters")


def test_log_lines_of_tables_swept_in_turn_name_their_table(log: io.StringIO) -> None:
    for table_id, version in (("t1", 5), ("t2", None)):
        with about_ids({"table_id": table_id}):
            if version:
                commit(version)
            logger.info("swept")
    first, second = lines(log)
    assert (first["table_id"], first["state_version"]) == ("t1", 5)
    assert second["table_id"] == "t2"
    assert "state_version" not in second
