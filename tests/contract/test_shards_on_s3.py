"""Shards in a bucket: merges and look-ups read them with as few requests as possible."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from dormouse.aws.storage import S3Storage
from dormouse.errors import CorruptDataError, NotFoundError
from dormouse.keys import KeyRange
from dormouse.ports import Cache
from dormouse.schema.schema import Schema
from dormouse.stored.paths import shard_path
from tests.support.tables import ShardTable

SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "k", "type": "LongType"}],
        "valueFields": [{"name": "v", "type": "StringType"}],
    }
)


class Bucket(S3Storage):
    """A bucket of a local S3 whose requests from this process are kept in `requests`."""

    def __init__(self, endpoint: str) -> None:
        client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name="eu-west-2",
            aws_access_key_id="nobody",
            aws_secret_access_key="secret",
        )
        super().__init__(client, "data")
        self.requests: list[str] = []
        client.meta.events.register("before-call.s3", self._seen)
        client.create_bucket(
            Bucket="data", CreateBucketConfiguration={"LocationConstraint": "eu-west-2"}
        )

    def _seen(self, model: Any, **_: object) -> None:
        self.requests.append(model.name)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    from moto.server import ThreadedMotoServer  # with Flask, which all processes would load

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="module")
def one_bucket(endpoint: str) -> Bucket:
    return Bucket(endpoint)


@pytest.fixture
def bucket(one_bucket: Bucket) -> Iterator[Bucket]:
    yield one_bucket
    one_bucket.delete([stored.path for stored in one_bucket.list("")])


@pytest.fixture
def table(bucket: Bucket, tmp_path: Path) -> ShardTable:
    table = ShardTable(bucket, SCHEMA, tmp_path)
    for start in range(3):
        table.add([{"k": k, "v": f"v{k}"} for k in range(start, 3000, 3)])
    return table


@pytest.mark.parametrize("look_up_bytes", [0, 10**9])
def test_shards_in_a_bucket_are_merged_and_looked_up(table: ShardTable, look_up_bytes: int) -> None:
    assert [row["k"] for row in table.rows(look_up_bytes=look_up_bytes)] == list(range(3000))
    some = table.rows(KeyRange((5,), (9,)), look_up_bytes=look_up_bytes)
    assert [row["v"] for row in some] == ["v5", "v6", "v7", "v8"]


def test_a_look_up_asks_twice_a_shard_then_not_and_never_for_its_size(
    table: ShardTable, bucket: Bucket
) -> None:
    cache = Cache()
    for requests in (2 * 3, 0):  # indexes and blocks are kept
        bucket.requests.clear()
        assert len(table.rows(KeyRange.exactly((1500,)), cache=cache)) == 1
        assert bucket.requests == ["GetObject"] * requests


def test_many_keys_near_each_other_are_found_by_the_reads_of_one(
    table: ShardTable, bucket: Bucket
) -> None:
    bucket.requests.clear()
    keys = [KeyRange.exactly((k,)) for k in range(1000, 1200, 2)]
    assert [row["k"] for row in table.rows(*keys)] == list(range(1000, 1200, 2))
    assert bucket.requests == ["GetObject"] * 2 * 3


@pytest.mark.parametrize("look_up_bytes", [0, 10**9])
def test_a_shard_missing_from_the_bucket_is_not_found(
    table: ShardTable, bucket: Bucket, look_up_bytes: int
) -> None:
    shard = min(table.state.shards)
    bucket.delete([shard_path("table", shard)])
    with pytest.raises(NotFoundError, match=shard):
        table.rows(look_up_bytes=look_up_bytes)


def test_an_object_of_another_size_is_corrupt(table: ShardTable, bucket: Bucket) -> None:
    path = shard_path("table", min(table.state.shards))
    body = bucket.get(path)
    bucket.delete([path])
    bucket.put(path, body + body)
    with pytest.raises(CorruptDataError):
        table.rows()
