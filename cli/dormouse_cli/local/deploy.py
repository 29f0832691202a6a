"""Creates what a deployment stores and announces by AWS's own API; called by `stack`.

Conditions of writes are tried before anything relies on them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from boto3 import Session
from botocore.exceptions import BotoCoreError, ClientError

import dormouse
from dormouse.aws.conditions import Conditions
from dormouse.stored.paths import InstanceNames
from dormouse.system import TimeOrderedIds
from dormouse_cli.local.errors import StartError, TemplateError
from dormouse_cli.local.plan import Deployment, EventRule, PlannedQueue, Stored
from dormouse_cli.local.resources import ACCOUNT, REGION
from dormouse_cli.local.template import announced

_OF_TABLES = ("AttributeDefinitions", "BillingMode", "GlobalSecondaryIndexes", "KeySchema")
_DAYS = {
    "NoncurrentVersionExpiration": "NoncurrentDays",
    "AbortIncompleteMultipartUpload": "DaysAfterInitiation",
}


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
                name=application.name,
                releaseLabel=application.properties["ReleaseLabel"],
                type="SPARK",
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


def _create_queues(sqs: Any, queues: tuple[PlannedQueue, ...]) -> None:
    # A dead-letter queue must exist before the queue that names it, whatever the template's order.
    for queue in sorted(queues, key=lambda queue: queue.redrive is not None):
        attributes = {
            "VisibilityTimeout": str(queue.visibility_timeout_seconds),
            "DelaySeconds": str(queue.delay_seconds),
            "MessageRetentionPeriod": str(queue.retention_seconds),
        }
        url = sqs.create_queue(QueueName=queue.name, Attributes=attributes)["QueueUrl"]
        if queue.redrive is not None:
            policy = json.dumps(
                {
                    "deadLetterTargetArn": queue.redrive.dead_letter_arn,
                    "maxReceiveCount": queue.redrive.max_receive_count,
                }
            )
            sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy})


def _create_table(dynamodb: Any, table: Stored) -> None:
    given = {name: table.properties[name] for name in _OF_TABLES if name in table.properties}
    dynamodb.create_table(TableName=table.name, **given)
    if lifetime := table.properties.get("TimeToLiveSpecification"):
        dynamodb.update_time_to_live(TableName=table.name, TimeToLiveSpecification=lifetime)


def _create_bucket(s3: Any, bucket: Stored) -> None:
    name, given = bucket.name, bucket.properties
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
    if versioning := given.get("VersioningConfiguration"):
        s3.put_bucket_versioning(Bucket=name, VersioningConfiguration=versioning)
    if lifecycle := given.get("LifecycleConfiguration"):
        rules = [_lifecycle_rule(rule) for rule in lifecycle["Rules"]]
        s3.put_bucket_lifecycle_configuration(Bucket=name, LifecycleConfiguration={"Rules": rules})
    if configurations := [_queue_configuration(each) for each in announced(bucket)]:
        s3.put_bucket_notification_configuration(
            Bucket=name, NotificationConfiguration={"QueueConfigurations": configurations}
        )


def _create_rule(events: Any, rule: EventRule) -> None:
    events.put_rule(Name=rule.name, EventPattern=json.dumps(rule.pattern))
    targets = [{"Id": str(number), "Arn": arn} for number, arn in enumerate(rule.queue_arns)]
    events.put_targets(Rule=rule.name, Targets=targets)


def _queue_configuration(announced: dict[str, Any]) -> dict[str, object]:
    """CloudFormation's form of a notification, as S3's API wants it."""
    rules = announced.get("Filter", {}).get("S3Key", {}).get("Rules", [])
    filters = {"Filter": {"Key": {"FilterRules": rules}}} if rules else {}
    return {"QueueArn": announced["Queue"], "Events": [announced["Event"]], **filters}


def _lifecycle_rule(rule: dict[str, Any]) -> dict[str, object]:
    """CloudFormation's form of a rule, as S3's API wants it."""
    known = {"Status": rule["Status"], "Filter": _filter(rule)}
    if "Id" in rule:
        known["ID"] = rule["Id"]
    if "ExpirationInDays" in rule:
        known["Expiration"] = {"Days": int(rule["ExpirationInDays"])}
    for name, days in _DAYS.items():
        if name in rule:
            known[name] = {days: int(rule[name][days])}
    if "Transitions" in rule:
        moves = [(each["StorageClass"], each["TransitionInDays"]) for each in rule["Transitions"]]
        known["Transitions"] = [{"StorageClass": to, "Days": int(days)} for to, days in moves]
    return known


def _filter(rule: dict[str, Any]) -> dict[str, object]:
    prefix = {"Prefix": rule.get("Prefix", "")}
    if "TagFilters" not in rule:
        return prefix
    least_bytes = int(rule["ObjectSizeGreaterThan"])
    return {"And": {**prefix, "Tags": rule["TagFilters"], "ObjectSizeGreaterThan": least_bytes}}


# The package of Spark jobs that `sam build` makes, for functions that are to bring it. It has the
# library, but none of what that needs: runs take it from this environment.


PACKAGE_VARIABLE = "DORMOUSE_SPARK_PACKAGE"
"""The environment variable with the folder of the package; on AWS that is in a layer."""


def with_package(deployment: Deployment, project: Path, folder: Path) -> Deployment:
    """Return the deployment with a package, made in `folder`, for each function that names one.

    Raises:
        StartError: the package cannot be made from the project.
    """
    if not any(PACKAGE_VARIABLE in function.environment for function in deployment.functions):
        return deployment
    _make_package(project, folder)
    functions = tuple(
        replace(function, environment={**function.environment, PACKAGE_VARIABLE: str(folder)})
        if PACKAGE_VARIABLE in function.environment
        else function
        for function in deployment.functions
    )
    return replace(deployment, functions=functions)


def _make_package(project: Path, folder: Path) -> None:
    shared, environment = project / "shared", folder.with_name(f"{folder.name}-environment")
    for made in (folder, environment):
        shutil.rmtree(made, ignore_errors=True)
    library = Path(dormouse.__file__).parent
    shutil.copytree(library, environment / library.name)
    ended = subprocess.run(
        [sys.executable, shared / "pack_spark.py", environment, project / "spark", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    shutil.rmtree(environment)
    if ended.returncode:
        raise StartError(f"the package of Spark jobs cannot be made: {ended.stderr.strip()}")
