"""What requests to AWS need, and whether policies grant it: as IAM decides of what is used here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from tests.template.conftest import NAMES, REGION, many

Context = tuple[tuple[str, tuple[str, ...]], ...]
_HASH_KEYS = ("pk", "t", "k", "table_id")
_TOLD: Context = (("aws:SecureTransport", ("true",)), ("aws:ResourceAccount", (NAMES.account,)))


class Need(NamedTuple):
    """An action on a resource, and the condition keys of the request."""

    action: str
    resource: str
    context: Context = _TOLD

    def but(self, key: str, value: str) -> Need:
        """Return the need of a request that differs in one condition key."""
        return self._replace(
            context=tuple((k, (value,) if k == key else v) for k, v in self.context)
        )

    def with_key(self, key: str, *values: str) -> Need:
        """Return the need with one more condition key."""
        return self._replace(context=(*self.context, (key, values)))


@dataclass(frozen=True)
class Statement:
    """A statement of a policy."""

    effect: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: tuple[tuple[str, str, tuple[str, ...]], ...]

    def applies(self, need: Need) -> bool:
        """Return whether the statement is about what is needed."""
        return (
            any(fnmatchcase(need.action, action) for action in self.actions)
            and any(fnmatchcase(need.resource, resource) for resource in self.resources)
            and all(_holds(*condition, dict(need.context)) for condition in self.conditions)
        )


def statements(document: Mapping[str, Any]) -> Iterator[Statement]:
    """Return the statements of a policy's document."""
    for raw in document["Statement"]:
        assert raw.keys() <= {"Sid", "Effect", "Action", "Resource", "Condition", "Principal"}
        conditions = (
            (operator, key, tuple(many(values)))
            for operator, keys in raw.get("Condition", {}).items()
            for key, values in keys.items()
        )
        resources = tuple(many(raw["Resource"]))
        yield Statement(raw["Effect"], tuple(many(raw["Action"])), resources, tuple(conditions))


def is_granted(need: Need, policies: Iterable[Statement]) -> bool:
    """Return whether a statement allows what is needed, and none denies it."""
    effects = {statement.effect for statement in policies if statement.applies(need)}
    return effects == {"Allow"}


def _holds(operator: str, key: str, wanted: tuple[str, ...], context: dict[str, Any]) -> bool:
    given = context.get(key)
    if operator == "Null":
        return wanted == (str(given is None).lower(),)
    if operator == "StringNotEqualsIfExists":
        return given is None or not any(value in wanted for value in given)
    if operator == "BoolIfExists":
        return given is None or any(value in wanted for value in given)
    if operator.startswith("ForAllValues:"):
        return all(_matches(operator[13:], value, wanted) for value in given or ())
    return given is not None and any(_matches(operator, value, wanted) for value in given)


def _matches(operator: str, value: str, wanted: tuple[str, ...]) -> bool:
    match operator:
        case "StringEquals" | "ArnEquals" | "Bool":
            return value in wanted
        case "StringLike" | "ArnLike":
            return any(fnmatchcase(value, pattern) for pattern in wanted)
    raise AssertionError(f"{operator} is an operator this does not know")


def needs(service: str, operation: str, params: Mapping[str, Any]) -> Iterator[Need]:
    """Return what a request of boto3 needs."""
    match service:
        case "sqs":
            name = params.get("QueueName") or params["QueueUrl"].rpartition("/")[2]
            arn = f"arn:aws:sqs:{REGION}:{NAMES.account}:{name}"
            yield Need(f"sqs:{operation.removesuffix('Batch')}", arn)
        case "cloudwatch":  # a metric is no resource
            yield Need(f"cloudwatch:{operation}", "*")
        case "dynamodb":
            yield from _dynamodb_needs(operation, params)
        case "s3":
            yield from _s3_needs(operation, params)
        case "kms":
            key = f"arn:aws:kms:{REGION}:{NAMES.account}:key/{params['KeyId']}"
            yield Need(f"kms:{operation}", key).with_key("kms:ResourceAliases", params["KeyId"])
        case "emr-serverless":
            yield from _emr_needs(operation, params)


def _emr_needs(operation: str, params: Mapping[str, Any]) -> Iterator[Need]:
    application = f"arn:aws:emr-serverless:{REGION}:{NAMES.account}:/applications/"
    application += params["applicationId"]
    if operation == "StartJobRun":
        yield Need("emr-serverless:StartJobRun", application)
        role = Need("iam:PassRole", params["executionRoleArn"])
        yield role.with_key("iam:PassedToService", "emr-serverless.amazonaws.com")
    else:
        yield Need(f"emr-serverless:{operation}", f"{application}/jobruns/{params['jobRunId']}")


def _dynamodb_needs(operation: str, params: Mapping[str, Any]) -> Iterator[Need]:
    if operation == "TransactWriteItems":
        for item in params["TransactItems"]:
            for kind, request in item.items():
                yield _of_items(f"{kind}Item", request["TableName"], [request])
    elif operation == "BatchWriteItem":
        for table, requests in params["RequestItems"].items():
            yield _of_items(operation, table, [part for r in requests for part in r.values()])
    elif operation == "BatchGetItem":
        for table, asked in params["RequestItems"].items():
            yield _of_items(operation, table, [{"Key": key} for key in asked["Keys"]])
    else:
        yield _of_items(operation, params["TableName"], [params])


def _of_items(action: str, table: str, requests: Iterable[Mapping[str, Any]]) -> Need:
    need = Need(f"dynamodb:{action}", f"arn:aws:dynamodb:{REGION}:{NAMES.account}:table/{table}")
    leading = sorted({key for request in requests for key in _leading_keys(request)})
    return need.with_key("dynamodb:LeadingKeys", *leading) if leading else need


def _leading_keys(request: Mapping[str, Any]) -> Iterator[str]:
    """Return the hash key of what a request is about; a scan has none."""
    key = request.get("Key") or request.get("Item") or {}
    yield from (key[name]["S"] for name in _HASH_KEYS if name in key)
    if condition := request.get("KeyConditionExpression"):
        found = re.match(r"(?:k|t|table_id) = (:\w+)", condition)
        assert found, condition
        yield request["ExpressionAttributeValues"][found[1]]["S"]


def creating(resource: str) -> Need:
    """Return what a request needs that creates an object: a put, or the completion of an upload."""
    return Need("s3:PutObject", resource).with_key("s3:ObjectCreationOperation", "true")


def sending_parts(resource: str) -> Need:
    """Return what it needs to begin an upload in parts, or to send one: that creates no object."""
    return Need("s3:PutObject", resource).with_key("s3:ObjectCreationOperation", "false")


def _s3_needs(operation: str, params: Mapping[str, Any]) -> Iterator[Need]:
    bucket = f"arn:aws:s3:::{params['Bucket']}"
    match operation:
        case "ListObjectsV2":
            yield Need("s3:ListBucket", bucket).with_key("s3:prefix", params["Prefix"])
        case "ListObjectVersions":
            yield Need("s3:ListBucketVersions", bucket)
        case "DeleteObjects":
            for found in params["Delete"]["Objects"]:
                yield Need("s3:DeleteObject", f"{bucket}/{found['Key']}")
        case "GetObject" | "HeadObject":
            action = "GetObjectVersion" if params.get("VersionId") else "GetObject"
            yield Need(f"s3:{action}", f"{bucket}/{params['Key']}")
        case "PutObject" | "CompleteMultipartUpload":
            put = creating(f"{bucket}/{params['Key']}")
            once = params.get("IfNoneMatch")
            yield put.with_key("s3:if-none-match", once) if once else put
        case "CreateMultipartUpload" | "UploadPart":
            yield sending_parts(f"{bucket}/{params['Key']}")
        case "DeleteObject" if params.get("VersionId"):
            yield Need("s3:DeleteObjectVersion", f"{bucket}/{params['Key']}")
        case "ListMultipartUploads":
            yield Need("s3:ListBucketMultipartUploads", bucket)
        case _:
            yield Need(f"s3:{operation}", f"{bucket}/{params['Key']}")
