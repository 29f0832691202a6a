"""Items for the contract tests: in memory, and in a DynamoDB that moto plays in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import boto3
import pytest
from mypy_boto3_dynamodb import DynamoDBClient

from dormouse.statestore.dynamodb_items import DynamoItems
from dormouse.statestore.dynamodb_pages import DynamoPages
from dormouse.statestore.items import ItemTable
from tests.contract.state_pages import dynamodb_pages

TABLES: dict[ItemTable, str] = {
    "references": "dormouse-references",
    "shards": "dormouse-shards",
    "partitions": "dormouse-partitions",
}


@contextmanager
def dynamodb_items(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[DynamoItems, DynamoPages, DynamoDBClient]]:
    """Return items and pages in new DynamoDB tables, made as the template makes them."""
    with dynamodb_pages(monkeypatch) as pages:
        client = boto3.client("dynamodb", region_name="eu-west-2")
        for name in TABLES.values():
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
        yield DynamoItems(client, TABLES, pages), pages, client


def hash_keys(client: DynamoDBClient, tables: Iterable[str] = tuple(TABLES.values())) -> list[str]:
    """Return the hash key of every item in the three tables."""
    return [
        item["k"]["S"]
        for name in tables
        for page in client.get_paginator("scan").paginate(TableName=name)
        for item in page["Items"]
    ]
