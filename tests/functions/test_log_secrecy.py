"""No log line, metric or record of a job has a value of a row in it, whatever goes wrong."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from dormouse.errors import UnavailableError
from dormouse.messages.requests import CreateTable, ExportRows, PurgeRows
from dormouse.messages.stages import CompactionJob, SelectionMessage, encode
from dormouse.state.state import AssignJob
from dormouse.stored.paths import make_shard_id, shard_path
from tests.functions.conftest import TABLE_ID, Functions
from tests.functions.disclosure import SECRET, disclosed, ingest, rows, values_in
from tests.support.world import LETTERS


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("bad.csv", f"letter,at,note\nx,{SECRET},\n"),
        ("long.csv", f"letter,at,note\nx,1,{SECRET},{SECRET}\n"),
        ("headless.csv", f"{SECRET},1,{SECRET}\n"),
        ("bad.json", json.dumps({"letter": SECRET, "at": SECRET})),
        ("unknown.json", json.dumps({"letter": "x", "at": 1, SECRET: 1})),
        ("broken.json", f'{{"letter": "{SECRET}'),
        ("bad.parquet", f"PAR1{SECRET}PAR1"),
    ],
)
def test_a_file_that_is_refused(
    functions: Functions, log: io.StringIO, capsys: pytest.CaptureFixture[str], name: str, body: str
) -> None:
    source = functions.world.sources.drop(f"letters/{name}", body.encode())
    assert ingest(functions, source) == []
    (refused,) = (r for r in functions.world.tracker.records(TABLE_ID) if r.state == "refused")
    assert refused.reason
    assert not values_in(disclosed(functions, log, capsys))


def test_an_ingest_whose_shards_cannot_be_stored(
    functions: Functions,
    log: io.StringIO,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def down(path: str, local: Path) -> bool:
        raise UnavailableError("S3 is down")

    monkeypatch.setattr(functions.world.services.storage, "upload", down)
    source = functions.world.sources.drop("letters/good.parquet", rows(SECRET))
    assert ingest(functions, source) == ["0"]
    assert "S3 is down" in log.getvalue()
    assert not values_in(disclosed(functions, log, capsys))


def test_a_compaction_that_finds_other_rows_under_its_name(
    functions: Functions, log: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    services = functions.world.services
    for number in (1, 2):
        key = f"letters/{number}.parquet"
        assert ingest(functions, functions.world.sources.drop(key, rows(f"{number}{SECRET}"))) == []
    store = services.store(functions.table)
    first, second = sorted(store.current().shards)
    leaf = next(store.current().partitions.leaves()).id
    store.commit(AssignJob("job", leaf, (first, second)), generation=0)
    other = services.storage.get(shard_path(TABLE_ID, first))
    services.storage.put(shard_path(TABLE_ID, make_shard_id("job", 0)), other)
    assert functions.deliver("compact", encode(CompactionJob(TABLE_ID, 0, "job"))) == []
    failed = services.tracker.get(TABLE_ID, "job")
    assert failed is not None and "it has 1 rows" in failed.reason
    assert not values_in(disclosed(functions, log, capsys))


@pytest.mark.parametrize(
    "request_",
    [
        PurgeRows("r", "letters", SelectionMessage(where=f"at = '{SECRET}'")),
        ExportRows("r", "letters", selection=SelectionMessage(where=f"at = '{SECRET}'")),
        CreateTable("r", "other", LETTERS.to_json(), split_points=((SECRET,), (SECRET,))),
    ],
)
def test_a_request_that_is_refused(
    functions: Functions,
    log: io.StringIO,
    capsys: pytest.CaptureFixture[str],
    request_: PurgeRows | ExportRows | CreateTable,
) -> None:
    """Its reason is for the requester, in the reply and in the record of the request."""
    assert functions.deliver("administer", encode(request_)) == []
    (line,) = (line for line in map(json.loads, log.getvalue().splitlines()))
    assert (line["message"], line["request_id"]) == ("refused", "r")
    assert not values_in(disclosed(functions, log, capsys))
