"""Pages for the contract tests: in memory, and in a DynamoDB that moto plays in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import boto3
import pytest

from dormouse.aws.items import DynamoItems
from dormouse.items.pages import ItemPages
from dormouse.system import RETRIES, RetryPolicy
from tests.contract.mocked_aws import mocked_aws

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class DynamoPages(ItemPages):
    """Pages in a DynamoDB table, and its client."""

    def __init__(
        self, client: DynamoDBClient, table_name: str, retry_policy: RetryPolicy = RETRIES
    ) -> None:
        super().__init__(DynamoItems(client, {"state": table_name}, retry_policy))
        self._client = client


@contextmanager
def dynamodb_pages(monkeypatch: pytest.MonkeyPatch) -> Iterator[DynamoPages]:
    """Return pages in a new DynamoDB table, made as the template makes it."""
    with mocked_aws(monkeypatch):
        client = boto3.client("dynamodb", region_name="eu-west-2")
        client.create_table(
            TableName="state",
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[
                {"AttributeName": "t", "AttributeType": "S"},
                {"AttributeName": "g", "AttributeType": "S"},
            ],
            KeySchema=[
                {"AttributeName": "t", "KeyType": "HASH"},
                {"AttributeName": "g", "KeyType": "RANGE"},
            ],
        )
        yield DynamoPages(client, "state")
