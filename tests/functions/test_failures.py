"""What fails comes again: soon at first, then late, and without harm to what did not fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dormouse.aws.wiring import SCRATCH, wiring
from tests.functions.conftest import EVENTS, Functions

ROWS = b"letter,at,note\na,1,x\n"


def message_ids(stage: str, event: str) -> list[str]:
    records = json.loads((EVENTS / stage / f"{event}.json").read_text())["Records"]
    return [record["messageId"] for record in records]


def test_a_first_failure_is_redelivered_soon_and_a_second_later(functions: Functions) -> None:
    source = functions.world.sources.drop("letters/1.csv", ROWS)
    for _ in range(2):
        functions.world.before_next_commit(functions.world.crash)
    failed = functions.invoke("ingest", "duplicate", ETAG_1=source.etag)
    assert failed == message_ids("ingest", "duplicate")
    assert functions.outbox.soon == [("ingest-jobs", 30)]  # the other was received before


def test_a_panic_of_a_library_is_the_failure_of_its_message_alone(functions: Functions) -> None:
    class PanicException(BaseException):
        """What PyO3 raises where Rust panics."""

    def panic() -> None:
        raise PanicException("index out of bounds")

    source = functions.world.sources.drop("letters/1.csv", ROWS)
    functions.world.before_next_commit(panic)
    failed = functions.invoke("ingest", "duplicate", ETAG_1=source.etag)
    assert failed == message_ids("ingest", "duplicate")[:1]
    assert len(functions.world.rows(functions.table)) == 1


def test_a_failure_whose_visibility_cannot_be_changed_is_still_redelivered(
    functions: Functions,
) -> None:
    source = functions.world.sources.drop("letters/1.csv", ROWS)
    functions.outbox.down = True
    failed = functions.invoke("ingest", "good", ETAG_1=source.etag)
    assert failed == message_ids("ingest", "good")
    functions.outbox.down = False
    assert functions.invoke("ingest", "good", ETAG_1=source.etag) == []
    assert len(functions.world.rows(functions.table)) == 1


def test_files_whose_job_was_not_sent_are_redelivered_and_dead_letters_are_not(
    functions: Functions,
) -> None:
    test_event, malformed, first, stray, removal, second = message_ids("batch_files", "mixed")
    functions.outbox.down = True
    assert functions.invoke("batch_files", "mixed") == [first, stray, second]
    assert len(functions.outbox.dead) == 1
    functions.outbox.down = False
    assert functions.invoke("batch_files", "good") == []
    assert len(functions.sent()) == 1


def test_a_function_begins_without_the_files_of_a_run_that_was_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / SCRATCH / "tmp1234" / "spool-0.arrow"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"left over")
    others = tmp_path / "others"
    others.touch()
    for name, value in {
        "AWS_DEFAULT_REGION": "eu-west-2",
        "DORMOUSE_ACCOUNT": "123456789012",
        "DORMOUSE_INSTANCE": "local",
        "TMPDIR": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)
    services = wiring.__wrapped__().services
    assert list(services.scratch.iterdir()) == []
    assert others.exists()
