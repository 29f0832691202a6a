"""Reads buckets, queues, tables and Spark applications of a template; called by `template`."""

from collections.abc import Iterator
from typing import cast

from dormouse_cli.local.errors import TemplateError
from dormouse_cli.local.intrinsics import Document
from dormouse_cli.local.plan import Bucket, Notification, Queue, Redrive, SparkApplication, Table
from dormouse_cli.local.resources import Resources

_TABLE_ARGUMENTS = (
    "AttributeDefinitions",
    "BillingMode",
    "GlobalSecondaryIndexes",
    "KeySchema",
    "LocalSecondaryIndexes",
    "ProvisionedThroughput",
)


def bucket(resources: Resources, logical_id: str) -> Bucket:
    """An AWS::S3::Bucket; its events may go to queues only."""
    versioning = cast(Document, resources.get(logical_id, "VersioningConfiguration", {}))
    lifecycle = cast(Document, resources.get(logical_id, "LifecycleConfiguration", {}))
    return Bucket(
        name=resources.name(logical_id),
        versioned=versioning.get("Status") == "Enabled",
        notifications=tuple(_notifications(resources, logical_id)),
        lifecycle=tuple(cast(list[Document], lifecycle.get("Rules", []))),
    )


def _notifications(resources: Resources, logical_id: str) -> Iterator[Notification]:
    configured = cast(Document, resources.get(logical_id, "NotificationConfiguration", {}))
    for kind in configured:
        if kind != "QueueConfigurations":
            raise TemplateError(
                f"{logical_id}.NotificationConfiguration.{kind}: the local stack sends a "
                "bucket's events to queues only"
            )
    for entry in cast(list[Document], configured.get("QueueConfigurations", [])):
        filters = cast(dict[str, dict[str, list[dict[str, str]]]], entry.get("Filter", {}))
        rules = {
            rule["Name"].lower(): rule["Value"]
            for rule in filters.get("S3Key", {}).get("Rules", [])
        }
        yield Notification(
            queue_arn=cast(str, entry["Queue"]),
            event=cast(str, entry["Event"]),
            prefix=rules.get("prefix", ""),
            suffix=rules.get("suffix", ""),
        )


def queue(resources: Resources, logical_id: str) -> Queue:
    """An AWS::SQS::Queue; FIFO queues are refused."""
    if resources.get(logical_id, "FifoQueue"):
        raise TemplateError(f"{logical_id}.FifoQueue: the local stack has standard queues only")
    redrive = cast(dict[str, str] | None, resources.get(logical_id, "RedrivePolicy"))
    return Queue(
        name=resources.name(logical_id),
        arn=resources.arn(logical_id),
        visibility_timeout_seconds=resources.number(logical_id, "VisibilityTimeout", 30),
        delay_seconds=resources.number(logical_id, "DelaySeconds", 0),
        retention_seconds=resources.number(logical_id, "MessageRetentionPeriod", 345_600),
        redrive=None
        if redrive is None
        else Redrive(redrive["deadLetterTargetArn"], int(redrive["maxReceiveCount"])),
    )


def table(resources: Resources, logical_id: str) -> Table:
    """An AWS::DynamoDB::Table."""
    arguments = {key: resources.get(logical_id, key) for key in _TABLE_ARGUMENTS}
    ttl = cast(Document, resources.get(logical_id, "TimeToLiveSpecification", {}))
    return Table(
        name=resources.name(logical_id),
        definition={key: value for key, value in arguments.items() if value is not None},
        ttl_attribute=cast(str, ttl["AttributeName"]) if ttl.get("Enabled") else None,
    )


def spark_application(resources: Resources, logical_id: str) -> SparkApplication:
    """An AWS::EMRServerless::Application."""
    return SparkApplication(
        name=resources.name(logical_id),
        release_label=cast(str, resources.get(logical_id, "ReleaseLabel")),
    )
