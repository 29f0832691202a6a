"""Engines read a table of the local stack by its HTTP API, with credentials that it lends: they
learn from the catalog where S3 is, and have no credentials of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from dormouse.client.instance import Instance
from dormouse.features.ingest import ingest
from dormouse.features.publish_iceberg import publish_iceberg
from dormouse.iceberg.rest import BASE
from dormouse.messages.stages import IngestJob, TableChanged
from dormouse_cli.local.commands import LOCAL_PARAMETERS, find_template
from dormouse_cli.local.stack import LocalStack
from tests.engines.environment import run
from tests.support.waiting import LIMIT_SECONDS

READER = Path(__file__).parent / "catalog_reader.py"
TABLE = "/v1/namespaces/dormouse/tables/plain"
ROWS = [{"k": n, "s": f"text {n} 🐭"} for n in range(500)]


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The catalog of a stack with a published table; its processes know the stack, nobody else."""
    folder = tmp_path_factory.mktemp("stack")
    lending = {**LOCAL_PARAMETERS, "LendCredentials": "yes"}
    with LocalStack(find_template(), lending, folder, triggers=False) as stack:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in stack.environment.items():
                patch.setenv(name, value)
            publish_rows(Instance.connect("local"), folder / "rows.parquet")
        yield stack.environment["DORMOUSE_HTTP_API"] + BASE


def publish_rows(instance: Instance, local: Path) -> None:
    """Let the stages do in this process what queues would have functions do."""
    instance.create_table("plain", "k:long, s:string?", {"iceberg": "on"}, row_keys=["k"])
    table = instance.table("plain").table
    pq.write_table(pa.Table.from_pylist(ROWS), local)
    source = instance.bucket.drop("plain/rows.parquet", local)
    ingest(instance.services, IngestJob(table.id, 0, "0" * 32, (source,)))
    publish_iceberg(instance.services, TableChanged(table.id))


@pytest.mark.parametrize("engine", ["pyiceberg", "duckdb"])
def test_a_table_is_read_by_what_the_catalog_says(uri: str, engine: str, tmp_path: Path) -> None:
    run(engine, {"uri": uri, "tables": ["plain"]}, tmp_path, READER)
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["names"] == ["plain"]
    assert {"insert", "drop", "create"} <= {*found["refused"]}
    rows = feather.read_table(tmp_path / "plain.arrow").to_pylist()
    assert sorted(rows, key=lambda row: row["k"]) == ROWS


def test_credentials_come_only_if_they_are_asked_for(uri: str) -> None:
    for headers in ({}, {"X-Iceberg-Access-Delegation": "vended-credentials"}):
        request = Request(uri + TABLE, headers=headers)
        with urlopen(request, timeout=LIMIT_SECONDS) as response:
            config = json.load(response)["config"]
        assert config["s3.endpoint"].startswith("http://127.0.0.1:")
        assert ("s3.session-token" in config) == bool(headers)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("HEAD", TABLE, 204), ("POST", TABLE, 405), ("GET", TABLE + "x", 404), ("GET", "/..", 404)],
)
def test_the_api_answers_as_the_catalog_does(uri: str, method: str, path: str, status: int) -> None:
    request = Request(uri + path, method=method, data=b"{}" if method == "POST" else None)
    try:
        with urlopen(request, timeout=LIMIT_SECONDS) as response:
            assert response.status == status
    except HTTPError as error:
        assert error.code == status
        assert json.load(error)["error"]["code"] == status
