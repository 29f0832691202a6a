"""What the template grants roles: the part that the flow cannot show, and what nobody needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from tests.template.conftest import NAMES, QUEUE_OF, REGION, ROOT, Template
from tests.template.iam import Need, statements
from tests.template.rare import RARE
from tests.template.spark_jobs import SPARK_JOB
from tests.template.test_template import arn_of

Grant = tuple[str, str]
"""An action, and the resource on which it is allowed; either may be a pattern."""
Requests = Mapping[str, set[Need]]
"""What was asked of AWS in each role."""

RECEIVING = (
    "sqs:ReceiveMessage",
    "sqs:DeleteMessage",
    "sqs:ChangeMessageVisibility",
    "sqs:GetQueueAttributes",
)


def grants(template: Template, role: str) -> Iterator[Grant]:
    """Give the pairs of action and resource that a role allows."""
    for document in template.policies(role):
        for statement in statements(document):
            if statement.effect == "Allow":
                yield from ((a, r) for a in statement.actions for r in statement.resources)


def done_for(template: Template, role: str) -> set[Grant]:
    """Give what Lambda and EMR do in the name of what they run: they need just this to run it."""
    logs = f"arn:aws:logs:{REGION}:{NAMES.account}:log-group:{log_group(template, role)}:*"
    writing: set[Grant] = {("logs:CreateLogStream", logs), ("logs:PutLogEvents", logs)}
    if role == SPARK_JOB:
        code = NAMES.spark_code_uri.replace("s3://", "arn:aws:s3:::")
        groups = f"arn:aws:logs:{REGION}:{NAMES.account}:log-group:*"
        finding = {("logs:DescribeLogStreams", logs), ("logs:DescribeLogGroups", groups)}
        return {*writing, *finding, ("s3:GetObject", f"{code}*")}
    queues = [arn_of(QUEUE_OF[role])] if role in QUEUE_OF else []
    return writing | {(action, queue) for action in RECEIVING for queue in queues}


def log_group(template: Template, role: str) -> str:
    """Give the log group of a function, or that of the Spark jobs."""
    if role == SPARK_JOB:
        monitoring = template.properties("SparkApplication")["MonitoringConfiguration"]
        return str(monitoring["CloudWatchLoggingConfiguration"]["LogGroupName"])
    return f"/aws/lambda/{template.function(role)['FunctionName']}"


def listed_to_know(template: Template, role: str) -> set[Grant]:
    """Give the right to list each bucket whose objects a role gets or deletes: without it, S3 calls
    a missing object a forbidden one.
    """
    return {
        ("s3:ListBucket", resource.partition("/")[0])
        for action, resource in grants(template, role)
        if action in ("s3:GetObject", "s3:DeleteObject")
    }


def needless(template: Template, role: str, requests: Requests) -> set[Grant]:
    """Give what a role may do that is never done in it, not even in a rare case."""
    unseen = done_for(template, role) | listed_to_know(template, role)
    return {
        grant
        for grant in never_asked(template, role, requests) - unseen
        if not any(rare.needs(role, *grant) for rare in RARE)
    }


def never_asked(template: Template, role: str, requests: Requests) -> set[Grant]:
    """Give what a role may do that nobody was seen to do in it."""
    return {
        (action, resource)
        for action, resource in grants(template, role)
        if not any(
            action == need.action and fnmatchcase(need.resource, resource)
            for need in requests[role]
        )
    }


def has_test(test: str) -> bool:
    """Tell whether there is such a test, given as ``path::name``."""
    path, _, name = test.partition("::")
    return (ROOT / path).is_file() and f"def {name}(" in (ROOT / path).read_text()
