"""Tables for the blobs of states, in a DynamoDB that moto plays in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import boto3
import pytest

from dormouse.aws.items import DynamoItems
from dormouse.items.store import ItemStore
from tests.contract.state_pages import DynamoPages, dynamodb_pages
from tests.support.retries import WITHOUT_PAUSES

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

DELTAS, SNAPSHOTS = "dormouse-deltas", "dormouse-snapshots"


@contextmanager
def dynamodb_tables(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[DynamoItems, DynamoPages]]:
    """Return items in new DynamoDB tables, made as the template makes them, and pages."""
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
        yield blob_items(client, DELTAS, SNAPSHOTS), pages


def blob_items(client: DynamoDBClient, deltas: str, snapshots: str) -> DynamoItems:
    """Return the items of two tables that hold the blobs of states."""
    return DynamoItems(client, {"deltas": deltas, "snapshots": snapshots}, WITHOUT_PAUSES)


def blob_names(items: ItemStore) -> list[str]:
    """Return owner and name, as one, of every item of a blob."""
    found = [item.key for item in (*items.scan("deltas", "t"), *items.scan("snapshots", "t"))]
    return [f"{key.owner}/{key.name}" for key in found]
