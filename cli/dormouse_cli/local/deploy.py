"""Creates what a deployment stores and announces by AWS's own API; called by `stack`.

Conditions of writes are tried before anything relies on them.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from boto3 import Session
from botocore.exceptions import BotoCoreError, ClientError

from dormouse.aws.conditions import Conditions
from dormouse.stored.paths import InstanceNames
from dormouse.system import TimeOrderedIds
from dormouse_cli.local.errors import TemplateError
from dormouse_cli.local.plan import Bucket, Deployment, Json, Notification, Queue, Rule, Table
from dormouse_cli.local.resources import ACCOUNT, REGION


def deploy(deployment: Deployment, session: Session, endpoint_url: str) -> None:
    """Create everything the deployment names, on an empty account.

    Raises `TemplateError` for a resource that AWS's API refuses, and ServiceRefusedError if
    conditions of writes are ignored.
    """
    sqs: Any = session.client("sqs", endpoint_url=endpoint_url)
    s3: Any = session.client("s3", endpoint_url=endpoint_url)
    dynamodb: Any = session.client("dynamodb", endpoint_url=endpoint_url)
    with _refusals_of("the queues"):
        _create_queues(sqs, deployment.queues)
    for table in deployment.tables:
        with _refusals_of(f"table {table.name}"):
            _create_table(dynamodb, table)
    for bucket in deployment.buckets:
        with _refusals_of(f"bucket {bucket.name}"):
            _create_bucket(s3, bucket)
    names = InstanceNames(deployment.parameters.get("Instance", ""), ACCOUNT)
    if names.state_table in {table.name for table in deployment.tables}:
        Conditions(s3, dynamodb, names, TimeOrderedIds().new).check()
    emr: Any = session.client("emr-serverless", endpoint_url=endpoint_url)
    for application in deployment.spark_applications:
        with _refusals_of(f"application {application.name}"):
            emr.create_application(
                name=application.name, releaseLabel=application.release_label, type="SPARK"
            )
    events: Any = session.client("events", endpoint_url=endpoint_url)
    for rule in deployment.rules:
        with _refusals_of(f"rule {rule.name}"):
            _create_rule(events, rule)


@contextmanager
def _refusals_of(what: str) -> Iterator[None]:
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise TemplateError(f"AWS refuses {what}: {error}") from error


def _create_queues(sqs: Any, queues: tuple[Queue, ...]) -> None:
    # A dead-letter queue must exist before the queue that names it, whatever the template's order.
    for queue in sorted(queues, key=lambda queue: queue.redrive is not None):
        attributes = {
            "VisibilityTimeout": str(queue.visibility_timeout_seconds),
            "DelaySeconds": str(queue.delay_seconds),
            "MessageRetentionPeriod": str(queue.retention_seconds),
        }
        url = sqs.create_queue(QueueName=queue.name, Attributes=attributes)["QueueUrl"]
        if queue.redrive is not None:
            policy = (
                f'{{"deadLetterTargetArn": "{queue.redrive.dead_letter_arn}", '
                f'"maxReceiveCount": {queue.redrive.max_receive_count}}}'
            )
            sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy})


def _create_table(dynamodb: Any, table: Table) -> None:
    dynamodb.create_table(TableName=table.name, **table.definition)
    if table.ttl_attribute is not None:
        dynamodb.update_time_to_live(
            TableName=table.name,
            TimeToLiveSpecification={"Enabled": True, "AttributeName": table.ttl_attribute},
        )


def _create_bucket(s3: Any, bucket: Bucket) -> None:
    s3.create_bucket(Bucket=bucket.name, CreateBucketConfiguration={"LocationConstraint": REGION})
    if bucket.versioned:
        s3.put_bucket_versioning(Bucket=bucket.name, VersioningConfiguration={"Status": "Enabled"})
    if bucket.lifecycle:
        rules = [_lifecycle_rule(rule) for rule in bucket.lifecycle]
        s3.put_bucket_lifecycle_configuration(
            Bucket=bucket.name, LifecycleConfiguration={"Rules": rules}
        )
    if bucket.notifications:
        configurations = [_queue_configuration(one) for one in bucket.notifications]
        s3.put_bucket_notification_configuration(
            Bucket=bucket.name,
            NotificationConfiguration={"QueueConfigurations": configurations},
        )


def _create_rule(events: Any, rule: Rule) -> None:
    events.put_rule(Name=rule.name, EventPattern=json.dumps(rule.pattern))
    targets = [{"Id": str(number), "Arn": arn} for number, arn in enumerate(rule.queue_arns)]
    events.put_targets(Rule=rule.name, Targets=targets)


def _queue_configuration(notification: Notification) -> dict[str, object]:
    named = {"prefix": notification.prefix, "suffix": notification.suffix}
    rules = [{"Name": name, "Value": value} for name, value in named.items() if value]
    filters = {"Filter": {"Key": {"FilterRules": rules}}} if rules else {}
    return {"QueueArn": notification.queue_arn, "Events": [notification.event], **filters}


def _lifecycle_rule(rule: dict[str, Json]) -> dict[str, Json]:
    """CloudFormation's form of a rule, as S3's API wants it."""
    known: dict[str, Json] = {
        "Status": rule["Status"],
        "Filter": {"Prefix": cast(str, rule.get("Prefix", ""))},
    }
    if "Id" in rule:
        known["ID"] = rule["Id"]
    if "ExpirationInDays" in rule:
        known["Expiration"] = {"Days": int(cast(str, rule["ExpirationInDays"]))}
    noncurrent = rule.get("NoncurrentVersionExpiration")
    if isinstance(noncurrent, dict):
        known["NoncurrentVersionExpiration"] = {
            "NoncurrentDays": int(cast(str, noncurrent["NoncurrentDays"]))
        }
    abort = rule.get("AbortIncompleteMultipartUpload")
    if isinstance(abort, dict):
        known["AbortIncompleteMultipartUpload"] = {
            "DaysAfterInitiation": int(cast(str, abort["DaysAfterInitiation"]))
        }
    return known
