"""What readers of Iceberg get: where S3 is, and credentials for one table and for nothing else."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from dormouse.aws.keys import LENT_SECONDS, S3ReaderAccess
from dormouse.errors import UnavailableError

ACCOUNT, BUCKET, TABLE = "123456789012", "dormouse-dev-data-123456789012", "0123456789abcdef"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/readers"


def client(service: Any, **options: Any) -> Any:
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    return boto3.client(service, region_name="eu-west-2", **keys, **options)


def asked(sts: Any) -> list[dict[str, Any]]:
    """Return the requests to lend credentials, as they are made."""
    found: list[dict[str, Any]] = []
    event = "provide-client-params.sts.AssumeRole"
    sts.meta.events.register(event, lambda params, **_: found.append(params))
    return found


def access(sts: Any, role: str = ROLE, **options: Any) -> S3ReaderAccess:
    return S3ReaderAccess(client("s3", **options), sts, BUCKET, role)


@mock_aws
def test_credentials_are_lent_for_a_table_and_an_hour() -> None:
    sts = client("sts")
    requests = asked(sts)
    lent = access(sts).credentials(TABLE)
    (request,) = requests
    assert (request["RoleArn"], request["DurationSeconds"]) == (ROLE, LENT_SECONDS)
    assert {*lent} == {
        "s3.access-key-id",
        "s3.secret-access-key",
        "s3.session-token",
        "s3.session-token-expires-at-ms",
    }
    assert all(lent.values()) and int(lent["s3.session-token-expires-at-ms"]) > 1e12
    borrowed = boto3.client(
        "sts",
        region_name="eu-west-2",
        aws_access_key_id=lent["s3.access-key-id"],
        aws_secret_access_key=lent["s3.secret-access-key"],
        aws_session_token=lent["s3.session-token"],
    )
    assert borrowed.get_caller_identity()["Arn"].endswith(f"readers/table-{TABLE}")


@pytest.mark.parametrize("partition", ["aws", "aws-cn"])
@mock_aws
def test_lent_credentials_read_what_readers_open_of_that_table_alone(partition: str) -> None:
    sts = client("sts")
    requests = asked(sts)
    role = ROLE.replace("arn:aws:", f"arn:{partition}:")
    access(sts, role).credentials(TABLE)
    policy = json.loads(requests[0]["Policy"])
    (statement,) = policy["Statement"]
    assert statement["Effect"] == "Allow"
    assert statement["Action"] == "s3:GetObject"

    def may_read(path: str) -> bool:
        arn = f"arn:{partition}:s3:::{BUCKET}/{path}"
        return any(fnmatchcase(arn, resource) for resource in statement["Resource"])

    assert may_read(f"{TABLE}/data/a-0.parquet")
    assert may_read(f"{TABLE}/iceberg/metadata/00001-x.metadata.json")
    for path in ("state/x", "purges/x", "exports/x", "requests/x", "spark/x", "x"):
        assert not may_read(f"{TABLE}/{path}"), path
    assert not may_read("fedcba9876543210/data/a-0.parquet")
    assert not may_read(f"elsewhere/{TABLE}/data/a-0.parquet")


def test_an_instance_that_lends_nothing_asks_nobody() -> None:
    sts = client("sts")
    requests = asked(sts)
    assert access(sts, role="").credentials(TABLE) == {}
    assert requests == []


def test_credentials_that_are_refused_are_not_there_now() -> None:
    sts = client("sts")

    def refuse(**_: object) -> None:
        error: Any = {
            "Error": {"Code": "AccessDenied"},
            "ResponseMetadata": {"HTTPStatusCode": 403},
        }
        raise ClientError(error, "AssumeRole")

    sts.meta.events.register("provide-client-params.sts.AssumeRole", refuse)
    with pytest.raises(UnavailableError, match="STS"):
        access(sts).credentials(TABLE)


def test_readers_learn_the_region_and_an_endpoint_that_is_not_that_of_aws() -> None:
    sts = client("sts")
    region = {"client.region": "eu-west-2", "s3.region": "eu-west-2"}
    assert access(sts).settings() == region
    local = "http://127.0.0.1:5000"
    found = access(sts, endpoint_url=local).settings()
    assert found == {**region, "s3.endpoint": local, "s3.path-style-access": "true"}
