"""Pages for the contract tests: in memory, and in a DynamoDB that moto plays in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import boto3
import pytest
from moto import mock_aws

from dormouse.statestore.dynamodb_pages import DynamoPages
from dormouse_cli.local import moto_dynamodb


@contextmanager
def dynamodb_pages(monkeypatch: pytest.MonkeyPatch) -> Iterator[DynamoPages]:
    """Give pages in a new DynamoDB table, made as the template makes it."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    moto_dynamodb.apply()
    with mock_aws():
        client = boto3.client("dynamodb", region_name="eu-west-2")
        client.create_table(
            TableName="state",
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[
                {"AttributeName": "t", "AttributeType": "S"},
                {"AttributeName": "g", "AttributeType": "N"},
            ],
            KeySchema=[
                {"AttributeName": "t", "KeyType": "HASH"},
                {"AttributeName": "g", "KeyType": "RANGE"},
            ],
        )
        yield DynamoPages(client, "state")
