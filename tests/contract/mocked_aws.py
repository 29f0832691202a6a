"""AWS for the contract tests: moto in this process, made as atomic as AWS is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Literal

import boto3
import pytest
from moto import mock_aws

from dormouse_cli.local import moto_services

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

REGION = "us-east-1"


@contextmanager
def mocked_aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let every client made inside talk to moto, whatever the environment says."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    moto_services.apply()
    with mock_aws():
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", _session())
        yield


@cache
def _session() -> boto3.Session:
    """Make the session of all tests: what the SDK says of AWS's services is read only once.

    moto hides the session that there is, so that each test would read it again.
    """
    return boto3.Session("test", "test")


def s3_bucket(name: str, *, versioned: bool = False) -> S3Client:
    """Make a bucket, and return a client."""
    client = boto3.client("s3", region_name=REGION)
    client.create_bucket(Bucket=name)
    if versioned:
        client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    return client


def dynamodb_table(name: str, hash_key: str, range_key: str | None = None) -> DynamoDBClient:
    """Make a table whose keys are strings, and return a client."""
    client = boto3.client("dynamodb", region_name=REGION)
    keys = [hash_key, range_key] if range_key else [hash_key]
    kinds: tuple[Literal["HASH", "RANGE"], ...] = ("HASH", "RANGE")
    client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
        KeySchema=[
            {"AttributeName": key, "KeyType": kind} for key, kind in zip(keys, kinds, strict=False)
        ],
    )
    return client


def sqs_queues(*names: str) -> SQSClient:
    """Make queues, and return a client."""
    client = boto3.client("sqs", region_name=REGION)
    for name in names:
        client.create_queue(QueueName=name)
    return client
