"""PyIceberg finds published tables in Glue, as moto plays it, and reads their rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from dormouse.aws.keys import GlueMirror
from dormouse.messages.requests import SetProperties
from tests.engines.environment import run
from tests.support.world import World, letters

READER = Path(__file__).parent / "glue_reader.py"
REGION = "eu-west-2"


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def test_pyiceberg_reads_the_newest_version_by_the_entry_in_glue(
    endpoint: str, tmp_path: Path
) -> None:
    client = boto3.client(
        "glue",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id="none",
        aws_secret_access_key="none",
    )
    client.create_database(DatabaseInput={"Name": "lake"})
    world = World(tmp_path / "world")
    world.services = replace(world.services, mirror=GlueMirror(client, "lake"))
    for name in ("Letters", "withdrawn"):
        world.create(name, iceberg="on", iceberg_glue="on")
        for at in range(3):
            world.drop(f"{name}/{at}.parquet", letters("ab", at=2 * at))
            world.settle()
    world.administer(SetProperties("off", "withdrawn", {"iceberg_glue": "off"}))
    world.settle()
    task = {"endpoint": endpoint, "region": REGION, "database": "lake"}
    run("pyiceberg", task, tmp_path, READER)
    found = json.loads((tmp_path / "found.json").read_text())
    table = world.tables.named("Letters")
    assert table is not None
    assert list(found) == ["letters"]
    rows = sorted(found["letters"], key=lambda row: (row["letter"], row["at"]))
    assert rows == world.rows(table)
