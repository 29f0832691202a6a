from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Dormouse
from tests.support.instances import InMemory


def test_status_has_exactly_the_agreed_keys(flights: Dormouse) -> None:
    flights("wait")
    status = json.loads(flights("status", "flights", "--format", "json").stdout)
    assert status == {
        "rows": 5,
        "size_bytes": status["size_bytes"],
        "shards": 1,
        "references": 1,
        "partitions": 1,
        "leaf_partitions": 1,
        "version": status["version"],
        "files_waiting": 0,
        "pending": 0,
    }
    assert "leaf_partitions" in flights("status", "flights").stdout
    (listed,) = flights("table", "list", "--sizes", "--format", "json").stdout.splitlines()
    shard = json.loads(flights("shards", "flights", "--format", "json").stdout)
    assert json.loads(listed)["rows"] == 5
    assert json.loads(listed)["size_bytes"] == status["size_bytes"] == shard["size_bytes"] > 0


def test_a_refused_file_fails_the_wait_with_its_reason_and_stays_listed(flights: Dormouse) -> None:
    Path("bad.csv").write_text("carrier,flight\nAA,1\n")
    Path("good.csv").write_text("carrier,flight,at,delay\nZZ,1,2013-01-01T00:00:00Z,1\n")
    result = flights("ingest", "flights", "bad.csv", "good.csv", "--wait")
    assert result.exit_code == 4
    assert "flights/bad.csv was refused" in result.stderr
    assert flights("query", "flights", "--count").stdout == "6\n"
    (line,) = flights("jobs", "flights", "--refused", "--format", "json").stdout.splitlines()
    job = json.loads(line)
    assert (job["kind"], job["state"], job["subject"]) == ("ingest", "refused", "flights/bad.csv")
    assert "at" in job["reason"]
    assert "flights/bad.csv" in flights("jobs", "flights").stdout


def test_what_may_not_be_read_is_named_and_no_folder_is_ingested_without_it(
    flights: Dormouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("all/2025/a.csv", "all/2026/b.csv"):
        Path(name).parent.mkdir(parents=True)
        Path(name).write_text("carrier,flight,at,delay\nZZ,1,2013-01-01T00:00:00Z,1\n")

    def closed(call: Callable[..., Any]) -> Callable[..., Any]:
        def answer(path: Any = ".", *others: Any) -> Any:
            if "2026" in str(path):
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return call(path, *others)

        return answer

    monkeypatch.setattr(os, "scandir", closed(os.scandir))
    result = flights("ingest", "flights", "all", "--wait")
    assert (result.exit_code, result.stderr) == (4, "error: 'all/2026': Permission denied\n")
    assert flights("query", "flights", "--count").stdout == "5\n"


def test_a_full_disk_ends_with_what_to_do(
    flights: Dormouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("a.csv").write_text("carrier,flight,at,delay\nZZ,1,2013-01-01T00:00:00Z,1\n")

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    result = flights("ingest", "flights", "a.csv", "--wait")
    assert (result.exit_code, result.stderr.splitlines()[0]) == (6, "error: a disk is full")


def test_files_for_no_table_are_found_without_a_name(flights: Dormouse, memory: InMemory) -> None:
    memory.world.notify(memory.world.sources.drop("fligths/rows.csv", b""))
    assert "fligths/rows.csv" in flights("jobs", "--refused").stdout


def test_a_wait_that_takes_too_long_has_its_own_exit_code(
    flights: Dormouse, memory: InMemory
) -> None:
    memory.sleeper.asleep = True
    Path("again.csv").write_text(Path("rows.csv").read_text())
    result = flights("ingest", "flights", "again.csv", "--wait", "--timeout", "2")
    assert result.exit_code == 5
    assert "not done after 2 seconds" in result.stderr
    assert flights("wait", "flights", "--timeout", "1").exit_code == 5
    memory.sleeper.asleep = False
    assert flights("wait").exit_code == 0
    assert flights("query", "flights", "--count").stdout == "10\n"


def test_ingesting_a_missing_file_uploads_nothing(flights: Dormouse, memory: InMemory) -> None:
    before = dict(memory.world.sources.objects)
    assert flights("ingest", "flights", "rows.csv", "missing.csv").exit_code == 3
    assert flights("ingest", "nothing", "rows.csv").exit_code == 3
    assert memory.world.sources.objects == before


def test_a_file_that_nobody_reads_is_refused_before_the_upload(flights: Dormouse) -> None:
    Path("rows.xlsx").write_bytes(b"PK")
    result = flights("ingest", "flights", "rows.xlsx", "--wait")
    assert result.exit_code == 4
    assert "'rows.xlsx' is of no known format" in result.stderr
    assert (
        ".parquet, .arrow, .arrows, .feather, .csv, .tsv, .txt, .json, .jsonl or .ndjson"
        in result.stderr
    )
    assert "rows.xlsx" not in flights("jobs", "flights").stdout


def test_help_lists_the_exit_codes_and_every_verb(dormouse: Dormouse) -> None:
    shown = dormouse("--help").stdout
    for word in ("Exit codes", "table", "ingest", "wait", "query", "status", "jobs", "local"):
        assert word in shown


def test_what_lies_in_the_ingest_bucket_is_ingested_by_its_prefix(
    flights: Dormouse, memory: InMemory
) -> None:
    row = b"carrier,flight,at,delay\nZZ,1,2013-01-01T00:00:00Z,1\n"
    for number in range(2):
        memory.world.sources.drop(f"archive/{number}.csv", row)
    result = flights("ingest", "flights", "--prefix", "s3://ingest/archive", "--wait")
    assert (result.exit_code, "2 files ingested" in result.stderr) == (0, True)
    assert flights("query", "flights", "--count").stdout == "7\n"
    again = flights("ingest", "flights", "--prefix", "archive")
    assert "already ingested" in again.stderr


def test_a_second_drop_says_that_it_adds_nothing_and_again_adds_the_rows(flights: Dormouse) -> None:
    second = flights("ingest", "flights", "rows.csv", "--wait")
    assert second.exit_code == 0
    assert "1 file already ingested" in second.stderr
    assert "1 file ingested" not in second.stderr
    assert flights("wait", "flights").exit_code == 0
    assert flights("query", "flights", "--count").stdout == "5\n"
    lines = flights("jobs", "flights", "--kind", "ingest", "--format", "json").stdout.splitlines()
    found = [(job["rows"], job["reason"][:16]) for job in map(json.loads, lines)]
    assert sorted(found) == [(0, "already ingested"), (5, "")]
    again = flights("ingest", "flights", "rows.csv", "--again", "--wait")
    assert "1 file ingested" in again.stderr
    assert flights("query", "flights", "--count").stdout == "10\n"
    assert "again-" in flights("jobs", "flights").stdout
    by_key = flights("ingest", "flights", "--prefix", "flights/rows.csv", "--again", "--wait")
    assert by_key.exit_code == 0
    assert flights("query", "flights", "--count").stdout == "15\n"


def test_a_prefix_must_be_there_in_the_ingest_bucket_and_stand_alone(flights: Dormouse) -> None:
    missing = flights("ingest", "flights", "--prefix", "archive/2025")
    assert missing.exit_code != 0 and "no 'archive/2025'" in missing.stderr
    elsewhere = flights("ingest", "flights", "--prefix", "s3://other/archive")
    assert elsewhere.exit_code != 0 and "not in the ingest bucket 'ingest'" in elsewhere.stderr
    both = flights("ingest", "flights", "rows.csv", "--prefix", "archive")
    assert both.exit_code != 0 and "either files from here" in both.stderr
    assert flights("ingest", "flights").exit_code != 0


def test_bad_rows_are_skipped_if_asked_and_the_others_ingested(flights: Dormouse) -> None:
    Path("more.csv").write_text(
        "carrier,flight,at,delay\nZZ,1,2013-01-01T00:00:00Z,1\nZZ,2,soon,1\nZZ,3\n"
    )
    assert flights("ingest", "flights", "more.csv", "--wait").exit_code == 4
    skipped = flights("ingest", "flights", "more.csv", "--wait", "--on-error", "skip")
    assert "3 rows read, 1 ingested, 2 rejected: see " in skipped.stderr
    assert flights("query", "flights", "--count").stdout == "6\n"
    again = flights("ingest", "flights", "more.csv", "--wait", "--on-error", "skip")
    assert "1 file already ingested" in again.stderr
    made = ("--create", "--row-keys", "flight", "--on-error", "skip", "--wait")
    assert "1 rejected" in flights("ingest", "others", "more.csv", *made).stderr
    for refused in (("--prefix", "x"), ("rows.parquet",)):
        Path("rows.parquet").touch()
        assert flights("ingest", "flights", *refused, "--on-error", "skip").exit_code == 4
