"""What a role must allow for a request of boto3 to be granted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.template.conftest import NAMES, REGION


def needs(service: str, operation: str, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Give the pairs of IAM action and resource that a request needs."""
    match service:
        case "sqs":
            name = params.get("QueueName") or params["QueueUrl"].rpartition("/")[2]
            yield (
                f"sqs:{operation.removesuffix('Batch')}",
                f"arn:aws:sqs:{REGION}:{NAMES.account}:{name}",
            )
        case "dynamodb":
            yield from _dynamodb_needs(operation, params)
        case "s3":
            yield from _s3_needs(operation, params)
        case "emr-serverless":
            yield from _emr_needs(operation, params)


def _emr_needs(operation: str, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    application = f"arn:aws:emr-serverless:{REGION}:{NAMES.account}:/applications/"
    application += params["applicationId"]
    if operation == "StartJobRun":
        yield "emr-serverless:StartJobRun", application
        yield "iam:PassRole", params["executionRoleArn"]
    else:
        yield f"emr-serverless:{operation}", f"{application}/jobruns/{params['jobRunId']}"


def _dynamodb_needs(operation: str, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    arn = f"arn:aws:dynamodb:{REGION}:{NAMES.account}:table/"
    if operation == "TransactWriteItems":
        for item in params["TransactItems"]:
            for kind, request in item.items():
                yield f"dynamodb:{kind}Item", arn + request["TableName"]
    elif operation == "BatchWriteItem":
        for table in params["RequestItems"]:
            yield "dynamodb:BatchWriteItem", arn + table
    else:
        yield f"dynamodb:{operation}", arn + params["TableName"]


def _s3_needs(operation: str, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    bucket = f"arn:aws:s3:::{params['Bucket']}"
    match operation:
        case "ListObjectsV2":
            yield "s3:ListBucket", bucket
        case "ListObjectVersions":
            yield "s3:ListBucketVersions", bucket
        case "DeleteObjects":
            for found in params["Delete"]["Objects"]:
                yield "s3:DeleteObject", f"{bucket}/{found['Key']}"
        case "GetObject" | "HeadObject":
            action = "GetObjectVersion" if params.get("VersionId") else "GetObject"
            yield f"s3:{action}", f"{bucket}/{params['Key']}"
        case _:
            yield f"s3:{operation}", f"{bucket}/{params['Key']}"
