"""What the template grants roles: the part that the flow cannot show, and what nobody needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from dormouse.stored.paths import SPARK_CODE
from tests.template.conftest import NAMES, QUEUE_OF, REGION, ROOT, Template
from tests.template.iam import Need
from tests.template.rare import RARE
from tests.template.spark_jobs import SPARK_JOB
from tests.template.test_template import arn_of
from tools.generated.granted import Grant, grants_in

Requests = Mapping[str, set[Need]]
"""What was asked of AWS in each role."""

RECEIVING = (
    "sqs:ReceiveMessage",
    "sqs:DeleteMessage",
    "sqs:ChangeMessageVisibility",
    "sqs:GetQueueAttributes",
)


def grants(template: Template, role: str) -> Iterator[Grant]:
    """Return what a role is granted: the grants of which docs/roles.md is made."""
    for document in template.policies(role):
        yield from grants_in(document)


def done_for(template: Template, role: str) -> set[Grant]:
    """Return what Lambda and EMR do in the name of what they run: they need just this to run it."""
    logs = f"arn:aws:logs:{REGION}:{NAMES.account}:log-group:{log_group(template, role)}:*"
    writing = {Grant("logs:CreateLogStream", logs), Grant("logs:PutLogEvents", logs)}
    if role == SPARK_JOB:
        code = f"arn:aws:s3:::{NAMES.data_bucket}/{SPARK_CODE}/"
        groups = f"arn:aws:logs:{REGION}:{NAMES.account}:log-group:*"
        finding = {Grant("logs:DescribeLogStreams", logs), Grant("logs:DescribeLogGroups", groups)}
        return {*writing, *finding, Grant("s3:GetObject", f"{code}*")}
    queues = [arn_of(QUEUE_OF[role])] if role in QUEUE_OF else []
    return writing | {Grant(action, queue) for action in RECEIVING for queue in queues}


def log_group(template: Template, role: str) -> str:
    """Return the log group of a function, or that of the Spark jobs."""
    if role == SPARK_JOB:
        monitoring = template.properties("SparkApplication")["MonitoringConfiguration"]
        return str(monitoring["CloudWatchLoggingConfiguration"]["LogGroupName"])
    return f"/aws/lambda/{template.function(role)['FunctionName']}"


def listed_to_know(template: Template, role: str) -> set[Grant]:
    """Return the right to list each bucket whose objects a role gets or deletes: without it, S3
    calls
    a missing object a forbidden one.
    """
    return {
        Grant("s3:ListBucket", resource.partition("/")[0])
        for action, resource in grants(template, role)
        if action in ("s3:GetObject", "s3:DeleteObject")
    }


def needless(template: Template, role: str, requests: Requests) -> set[Grant]:
    """Return what a role may do that is never done in it, not even in a rare case."""
    unseen = done_for(template, role) | listed_to_know(template, role)
    return {
        grant
        for grant in never_asked(template, role, requests) - unseen
        if not any(rare.needs(role, *grant) for rare in RARE)
    }


def never_asked(template: Template, role: str, requests: Requests) -> set[Grant]:
    """Return what a role may do that nobody was seen to do in it."""
    return {
        Grant(action, resource)
        for action, resource in grants(template, role)
        if not any(
            action == need.action and fnmatchcase(need.resource, resource)
            for need in requests[role]
        )
    }


def has_test(test: str) -> bool:
    """Return whether there is such a test, given as ``path::name``."""
    path, _, name = test.partition("::")
    return (ROOT / path).is_file() and f"def {name}(" in (ROOT / path).read_text()
