"""Tables for the blobs of states, in a DynamoDB that moto plays in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import boto3
import pytest

from dormouse.aws.blobs import BlobTables
from tests.contract.state_pages import DynamoPages, dynamodb_pages

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

DELTAS, SNAPSHOTS = "dormouse-deltas", "dormouse-snapshots"


@contextmanager
def dynamodb_tables(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[BlobTables, DynamoPages]]:
    """Return new DynamoDB tables, made as the template makes them, and pages."""
    with dynamodb_pages(monkeypatch) as pages:
        client = boto3.client("dynamodb", region_name="eu-west-2")
        for name in (DELTAS, SNAPSHOTS):
            client.create_table(
                TableName=name,
                BillingMode="PAY_PER_REQUEST",
                AttributeDefinitions=[
                    {"AttributeName": "k", "AttributeType": "S"},
                    {"AttributeName": "i", "AttributeType": "S"},
                ],
                KeySchema=[
                    {"AttributeName": "k", "KeyType": "HASH"},
                    {"AttributeName": "i", "KeyType": "RANGE"},
                ],
            )
        yield BlobTables(client, DELTAS, SNAPSHOTS), pages


def blob_names(client: DynamoDBClient, *tables: str) -> list[str]:
    """Return the hash key and the range key, as one, of every item in the tables."""
    return [
        f"{item['k']['S']}/{item['i']['S']}"
        for name in tables
        for page in client.get_paginator("scan").paginate(TableName=name)
        for item in page["Items"]
    ]
