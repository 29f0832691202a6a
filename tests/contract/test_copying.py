"""A table is copied from a folder to a deployment and back: rows, rules, and what was ingested."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import boto3
import pyarrow as pa
import pytest

from dormouse.client.deployment import connect_deployment
from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.errors import AlreadyExistsError
from dormouse.features.administration import administer
from dormouse.features.batch_files import batch_files
from dormouse.features.checking import check
from dormouse.features.ingest import ingest
from dormouse.messages.requests import AlterSchema
from dormouse.messages.stages import QUEUES, IngestJob
from dormouse.schema.schema import parse_schema
from dormouse.settings import Settings
from dormouse.stored.paths import InstanceNames, dead_letter_queue
from tests.contract.mocked_aws import REGION, dynamodb_table, s3_bucket, sqs_queues
from tests.support.depth import in_turn
from tests.support.world import LETTERS, letters, letters_file


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Instance]:
    with Instance.open(tmp_path / "mice", background=False) as instance:
        yield instance


@pytest.fixture(params=in_turn(["s3", "dynamodb"], parts=2))
def deployment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Instance]:
    """Return a deployment whose tables keep their state in S3 or in DynamoDB, over HTTP."""
    from moto.server import ThreadedMotoServer  # with Flask, which all processes would load

    from dormouse_cli.local.moto_server import make_atomic

    names = InstanceNames(f"in-{request.param}", "123456789012")  # the account is that of moto
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    make_atomic()
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(key, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    for bucket in (names.ingest_bucket, names.data_bucket, names.results_bucket):
        s3_bucket(bucket, versioned=True)
    dynamodb_table(names.table("tables"), "pk")
    dynamodb_table(names.table("jobs"), "table_id", "job_id")
    dynamodb_table(names.table("state"), "t", "g")
    for space in ("deltas", "snapshots"):
        dynamodb_table(names.table(space), "k", "i")
    queues = [names.queue(queue) for queue in QUEUES]
    sqs_queues(*queues, *map(dead_letter_queue, queues))
    instance = connect_deployment(Settings(names.instance, names.account, tmp_path))
    instance.set_defaults({"state_store": request.param})
    yield instance
    urlopen(Request(f"http://{host}:{port}/moto-api/reset", method="POST")).close()
    server.stop()


@pytest.fixture
def table(folder: Instance, tmp_path: Path) -> TableHandle:
    made = folder.create_table(
        "letters", LETTERS, {"filters": "ageOff(at,100000000)"}, split_points=["h"]
    )
    for number, text in enumerate(("abcxyz", "hij", "dog")):
        file = tmp_path / f"{number}.parquet"
        file.write_bytes(letters_file(letters(text, at=2_000_000_000_000 + 10 * number)))
        made.ingest(file).wait()
    folder.wait()
    return made


def rows(table: TableHandle) -> pa.Table:
    return table.query().read_all()


def test_a_table_is_copied_to_a_deployment_and_back(
    folder: Instance, table: TableHandle, deployment: Instance, tmp_path: Path
) -> None:
    deployed = deployment.table(deployment.copy_table(table, "words").table.name)
    assert deployed.table.properties.state_store == deployment.defaults()["state_store"]
    assert rows(deployed).equals(rows(table))
    assert deployed.schema == table.schema
    assert deployed.table.properties.filters == table.table.properties.filters
    assert check(deployment.services, deployed.current()).findings == ()

    again = deployed.ingest(tmp_path / "1.parquet")
    assert again.known == {source.id for source in again.sources}
    for sent in batch_files(deployment.services, again.sources):
        assert isinstance(sent.message, IngestJob)
        ingest(deployment.services, sent.message)
    assert rows(deployed).equals(rows(table))

    back = folder.table(folder.copy_table(deployed, "back").table.name)
    assert rows(back).equals(rows(table))
    assert back.schema == table.schema
    assert check(folder.services, back.current()).findings == ()
    known = back.ingest([tmp_path / f"{number}.parquet" for number in range(3)])
    known.wait()
    assert len(known.known) == 3
    assert rows(back).equals(rows(table))
    with pytest.raises(AlreadyExistsError, match="'letters' is there already"):
        folder.copy_table(deployed, "letters")


def test_a_table_whose_types_widened_is_copied_and_widens_on(
    folder: Instance, table: TableHandle, deployment: Instance, tmp_path: Path
) -> None:
    nested = parse_schema("k:int, n:int, p:struct<a:int?,b:string?>?", ["k"])
    made = folder.create_table("nested", nested)
    made.ingest(pa.table({"k": [1], "n": [1], "p": [{"a": 1, "b": "x"}]}))
    folder.wait()
    made = made.alter(types={"n": "long"}, rename={"p.b": "c"})
    made.ingest(pa.table({"k": [2], "n": [2**40], "p": [{"a": 2, "c": "y"}]}))
    folder.wait()
    deployed = deployment.table(deployment.copy_table(made).table.name)
    expected = [
        {"k": 1, "n": 1, "p": {"a": 1, "c": "x"}},
        {"k": 2, "n": 2**40, "p": {"a": 2, "c": "y"}},
    ]
    assert rows(deployed).to_pylist() == expected
    request = AlterSchema("widen", "nested", drop=("p.c",), types={"k": "long", "p.a": "long"})
    administer(deployment.services, request)
    deployed = deployed.latest()
    assert deployed.query(where="p['a'] = 1 AND k < 3000000000").read_all().num_rows == 1
    back = folder.table(folder.copy_table(deployed, "back").table.name)
    back.ingest(pa.table({"k": [2**33], "n": [0], "p": [{"a": 2**33}]}))
    folder.wait()
    folder.compact("back", everything=True)
    folder.wait()
    assert [row["p"] for row in rows(back).to_pylist()] == [{"a": 1}, {"a": 2}, {"a": 2**33}]
    assert check(folder.services, back.current()).findings == ()


def test_a_table_is_copied_from_folder_to_folder_and_within_one(
    folder: Instance, table: TableHandle, tmp_path: Path
) -> None:
    with Instance.open(tmp_path / "rats", background=False) as other:
        copied = other.copy_table(table)
        copy = other.table("letters")
        assert (copied.table.name, copied.rows, copied.was_complete) == ("letters", 12, False)
        assert rows(copy).equals(rows(table))
        beside = other.table(other.copy_table(copy, "beside").table.name)
        other.delete_table("letters")
        other.wait()
        assert rows(beside).equals(rows(table))
    assert check(folder.services, table.current()).findings == ()


def test_a_folder_can_be_moved(folder: Instance, table: TableHandle, tmp_path: Path) -> None:
    before = rows(table)
    folder.close()
    old, new = tmp_path / "mice", tmp_path / "elsewhere" / "voles"
    for file in old.rglob("*"):
        assert not file.is_file() or str(old).encode() not in file.read_bytes(), file
    new.parent.mkdir()
    old.rename(new)
    with Instance.open(new, background=False) as moved:
        there = moved.table("letters")
        assert rows(there).equals(before)
        known = there.ingest([tmp_path / f"{number}.parquet" for number in range(3)])
        known.wait()
        assert len(known.known) == 3
        there.ingest(pa.table({"letter": ["q"], "at": [2_000_000_000_999], "note": [None]})).wait()
        moved.compact("letters", everything=True)
        moved.wait()
        assert there.count() == before.num_rows + 1
        assert check(moved.services, there.current()).findings == ()
    assert not old.exists()
