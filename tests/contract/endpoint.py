"""Stores over whatever answers at the endpoints of the environment: `make test-endpoint`.

AWS_ENDPOINT_URL_DYNAMODB (or AWS_ENDPOINT_URL) says where DynamoDB is, be it the local stack's,
AWS's own DynamoDB Local or the real one; AWS_ENDPOINT_URL_S3 (or AWS_ENDPOINT_URL) where S3 is.
Without the latter, objects are kept in memory. Tables and the bucket are new, and deleted after.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import boto3

from dormouse.aws.items import DynamoItems
from dormouse.aws.storage import S3Storage
from dormouse.ports import Storage
from tests.contract.state_items import blob_items
from tests.contract.state_pages import DynamoPages
from tests.support.memory_storage import MemoryStorage

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

ANYWHERE = os.environ.get("AWS_ENDPOINT_URL")
DYNAMODB = os.environ.get("AWS_ENDPOINT_URL_DYNAMODB") or ANYWHERE
S3 = os.environ.get("AWS_ENDPOINT_URL_S3") or ANYWHERE


@dataclass(frozen=True)
class Endpoint:
    """What a store is made of, on the endpoints."""

    pages: DynamoPages
    items: DynamoItems
    storage: Storage


@contextmanager
def endpoint() -> Iterator[Endpoint]:
    """Make new tables and a new bucket, and delete them at the end."""
    unique = uuid.uuid4().hex[:12]
    client = boto3.client("dynamodb", endpoint_url=DYNAMODB)
    state = f"dormouse-test-{unique}-state"
    deltas, snapshots = (f"dormouse-test-{unique}-{kind}" for kind in ("deltas", "snapshots"))
    _make_table(client, state, "t", "g")
    for name in (deltas, snapshots):
        _make_table(client, name, "k", "i")
    pages = DynamoPages(client, state)
    try:
        with _bucket(f"dormouse-test-{unique}") as storage:
            yield Endpoint(pages, blob_items(client, deltas, snapshots), storage)
    finally:
        for name in (state, deltas, snapshots):
            client.delete_table(TableName=name)


def _make_table(client: DynamoDBClient, name: str, hash_key: str, range_key: str) -> None:
    client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[
            {"AttributeName": hash_key, "AttributeType": "S"},
            {"AttributeName": range_key, "AttributeType": "S"},
        ],
        KeySchema=[
            {"AttributeName": hash_key, "KeyType": "HASH"},
            {"AttributeName": range_key, "KeyType": "RANGE"},
        ],
    )
    client.get_waiter("table_exists").wait(TableName=name)


@contextmanager
def _bucket(name: str) -> Iterator[Storage]:
    if S3 is None:
        yield MemoryStorage()
        return
    client = boto3.client("s3", endpoint_url=S3)
    region = client.meta.region_name
    client.create_bucket(
        Bucket=name, CreateBucketConfiguration={"LocationConstraint": region or "eu-west-2"}
    )
    storage = S3Storage(client, name)
    try:
        yield storage
    finally:
        storage.delete([stored.path for stored in storage.list("")])
        client.delete_bucket(Bucket=name)
