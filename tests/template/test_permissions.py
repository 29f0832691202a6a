"""Each function may do what it does, and nothing else; so may Spark jobs, and who reads one table.

The flow runs through the real handlers, and the code of Spark jobs, against an embedded AWS, which
forbids nothing; every request, those of DataFusion too, is held against the role that the template
gives whoever made it, and against the policies of buckets and queues.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import boto3
import pytest
from moto import server as moto_http
from moto.server import ThreadedMotoServer
from werkzeug.serving import WSGIRequestHandler

from dormouse.aws import handling
from dormouse.model.names import data_prefix, state_prefix
from dormouse_cli.local import moto_server
from dormouse_cli.local.deploy import deploy
from dormouse_cli.local.template import read
from tests.template.conftest import NAMES, REGION, ROLES, ROOT, TEMPLATE, Template
from tests.template.flow import Flow
from tests.template.iam import Need, is_granted, statements
from tests.template.life import READER, live
from tests.template.spark_jobs import APPLICATION, SPARK_JOB

NO_REQUEST_SHOWS = {
    "logs:CreateLogStream",
    "logs:PutLogEvents",
    "sqs:ReceiveMessage",
    "sqs:DeleteMessage",
    "sqs:GetQueueAttributes",
    "sqs:ChangeMessageVisibility",
    "s3:ListBucket",
    "logs:DescribeLogGroups",
    "logs:DescribeLogStreams",
}
"""What Lambda and EMR do in the name of what they run; and without ListBucket, S3 calls a missing
object a forbidden one."""
COMMITS = (
    "ingest",
    "plan_table",
    "split_partition",
    "compact",
    "collect_garbage",
    "administer",
    "purge_rows",
    SPARK_JOB,
)
GUIDE = (ROOT / "docs" / "security.md").read_text()
TABLES = ("letters", "items")
"""A table whose state is kept on S3, and one whose state is kept in DynamoDB."""
RARE = {
    **{(s, "dynamodb:PutItem", "-state"): "the next page, if the log's is full" for s in COMMITS},
    ("ingest", "s3:DeleteObject", "/data/"): "its own shards, after a rejected commit",
    ("ingest", "s3:GetObject", "/data/"): "its own shard, if an upload was not answered",
    (SPARK_JOB, "s3:GetObject", "/purges/"): "what a heavy job of a purge is to remove",
    (SPARK_JOB, "s3:GetObject", "-results-"): "what another run of the task put before",
    (SPARK_JOB, "s3:GetObject", "/spark-code/"): "EMR itself, before the job begins",
    ("plan_table", "s3:DeleteObject", "/state/"): "what no version needs, when a round is due",
    ("plan_table", "dynamodb:BatchWriteItem", "-state"): "pages that no version needs",
    **{
        (stage, f"dynamodb:{action}", table): reason
        for table in ("-references", "-shards", "-partitions")
        for stage, action, reason in (
            ("plan_table", "BatchWriteItem", "what no version needs after a while"),
            ("sweep", "BatchWriteItem", "a table that lived long before it was half deleted"),
            ("split_partition", "Query", "a table that lived long, by a new process"),
        )
    },
    **{
        ("dispatch_spark", f"sqs:{action}", queue): "in an instance that has no Spark"
        for action in ("SendMessage", "GetQueueUrl")
        for queue in ("-ingest-jobs", "-compaction-jobs", "-exports")
    },
    **{
        (stage, f"sqs:{action}", "-spark-jobs"): reason
        for action in ("SendMessage", "GetQueueUrl")
        for stage, reason in (
            ("dispatch_spark", "itself, when EMR is throttled"),
            ("batch_files", "a job that is too heavy for a function"),
            ("plan_table", "the same"),
            ("purge_rows", "the same"),
        )
    },
    ("administer", "s3:GetObject", "/state/"): "a table half made by a run that died",
    ("sweep", "s3:GetObject", "/purges/"): "what the purge of a job sent again asks of Spark",
    ("sweep", "s3:GetObject", "/endings/"): "the note of a compaction that left no rows",
    ("sweep", "s3:DeleteObject", "/endings/"): "such a note, when it has had its time",
    ("administer", "s3:GetObject", "-results-"): "a manifest, if the request comes late again",
    ("export_rows", "s3:GetObject", "-results-"): "what another run of the task put before",
    ("ingest", "sqs:SendMessage", "-ingest-jobs"): "the files of a job that no run survived",
    ("ingest", "sqs:GetQueueUrl", "-ingest-jobs"): "the same",
    ("ingest", "dynamodb:GetItem", "-jobs"): "how runs of a job of several files ended",
    ("export_rows", "sqs:SendMessage", "-exports"): "itself, when it has had no time for all",
    ("export_rows", "sqs:GetQueueUrl", "-exports"): "the same",
    **{
        ("batch_files", f"sqs:{action}", "-files"): "files of a table that waits for more"
        for action in ("SendMessage", "GetQueueUrl")
    },
    ("sweep", "dynamodb:UpdateItem", "-jobs"): "a file refused that nobody was told of",
}
"""What only a race or a loss makes a function do: stage, action, and a part of the resource."""


Requests = Mapping[str, set[Need]]


def grants(template: Template, role: str) -> Iterator[tuple[str, str]]:
    """Give the pairs of action and resource that a role allows."""
    for document in template.policies(role):
        for statement in statements(document):
            if statement.effect == "Allow":
                yield from ((a, r) for a in statement.actions for r in statement.resources)


def assert_granted(needs: set[Need], template: Template, *documents: dict[str, Any]) -> None:
    granted = [statement for document in documents for statement in statements(document)]
    denied = [s for guard in template.guards() for s in statements(guard) if s.effect == "Deny"]
    for need in sorted(needs):
        assert is_granted(need, [*granted, *denied]), f"{need.action} on {need.resource}"


@pytest.mark.parametrize("role", ROLES)
def test_nothing_is_granted_for_all_resources_or_all_actions(template: Template, role: str) -> None:
    for action, resource in grants(template, role):
        service, _, operation = action.partition(":")
        assert "*" not in action and operation, action
        if action == "logs:DescribeLogGroups":  # has no other resource than all of an account
            continue
        assert resource.startswith(f"arn:aws:{service}:"), f"{action} on {resource}"
        if service in ("dynamodb", "sqs", "iam"):
            assert "*" not in resource, f"{action} on {resource}"
        if resource.startswith(f"arn:aws:s3:::{NAMES.data_bucket}/"):
            assert re.search(r"/(\*/[a-z]+|spark-code)/\*$", resource), f"{action} on {resource}"


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_do_all_that_is_done_in_it(
    requests: Requests, template: Template, role: str
) -> None:
    assert requests[role], "the flow never ran it"
    assert_granted(requests[role], template, *template.policies(role))


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_do_nothing_that_is_never_done_in_it(
    requests: Requests, template: Template, role: str
) -> None:
    never = {
        f"{action} on {resource}"
        for action, resource in grants(template, role)
        if action not in NO_REQUEST_SHOWS
        and not any(
            action == n.action and fnmatchcase(n.resource, resource) for n in requests[role]
        )
        and not any((role, action) == rare[:2] and rare[2] in resource for rare in RARE)
    }
    assert not never, "\n".join(sorted(never))


def test_the_engine_reads_shards_by_itself_in_the_functions_that_merge(requests: Requests) -> None:
    """Else the other tests would know nothing of its requests."""
    shards = f"arn:aws:s3:::{NAMES.data_bucket}/*/data/*"
    for role in ("compact", SPARK_JOB):
        reads = [need.resource for need in requests[role] if need.action == "s3:GetObject"]
        assert any(fnmatchcase(resource, shards) for resource in reads), role


def reader_policy(table_name: str, table_id: str) -> dict[str, Any]:
    """Give the policy of docs/security.md for somebody who may read one table."""
    (body,) = re.findall(r"```json\n(\{.*?\n\})\n```", GUIDE, flags=re.DOTALL)
    for name, value in {
        "<region>": REGION,
        "<account>": NAMES.account,
        "<instance>": NAMES.instance,
        "<table>": table_name,
        "<table id>": table_id,
    }.items():
        body = body.replace(name, value)
    policy: dict[str, Any] = json.loads(body)
    return policy


def table_read_by(needs: set[Need]) -> str:
    """Give the id of the one table of which shards are read."""
    shard = re.compile(rf"arn:aws:s3:::{NAMES.data_bucket}/(\w+)/data/.+")
    (table_id,) = {found[1] for need in needs if (found := shard.fullmatch(need.resource))}
    return table_id


@pytest.mark.parametrize("name", TABLES)
def test_the_policy_for_a_reader_of_one_table_lets_it_be_queried(
    requests: Requests, template: Template, name: str
) -> None:
    needs = requests[READER + name]
    assert_granted(needs, template, reader_policy(name, table_read_by(needs)))


def test_a_reader_of_one_table_may_not_read_another_nor_change_its_own(
    requests: Requests,
) -> None:
    ids = {name: table_read_by(requests[READER + name]) for name in TABLES}
    mine, other = TABLES
    policy = list(statements(reader_policy(mine, ids[mine])))
    of_other = {
        need
        for need in requests[READER + other]
        if ids[other] in need.resource or any(ids[other] in v for _, vs in need.context for v in vs)
    }
    assert {need.action for need in of_other} == {
        "s3:GetObject",
        "dynamodb:GetItem",
        "dynamodb:Query",
    }
    assert not [need for need in of_other if is_granted(need, policy)]
    changes = {"Put", "Update", "Delete", "Write", "Send", "Start", "Pass"}
    for need in {need for role in ROLES for need in requests[role]}:
        if any(word in need.action for word in changes):
            assert not is_granted(need, policy), need
    shard = f"arn:aws:s3:::{NAMES.data_bucket}/{data_prefix(ids[mine])}x"
    state = f"arn:aws:s3:::{NAMES.data_bucket}/{state_prefix(ids[mine])}x"
    for resource in (shard, state):
        assert is_granted(Need("s3:GetObject", resource), policy)
        assert not is_granted(Need("s3:PutObject", resource), policy)


def test_no_object_of_a_table_or_an_export_can_be_overwritten_by_any_role(
    requests: Requests, template: Template
) -> None:
    everyone = [s for role in ROLES for d in template.policies(role) for s in statements(d)]
    denied = [s for guard in template.guards() for s in statements(guard) if s.effect == "Deny"]
    puts = {n for role in ROLES for n in requests[role] if n.action == "s3:PutObject"}
    folders = {need.resource.split("/")[2] for need in puts if NAMES.data_bucket in need.resource}
    assert folders == {"data", "state", "endings", "purges", "exports", "spark"}
    for need in puts:
        assert is_granted(need, [*everyone, *denied])
        overwriting = Need(need.action, need.resource)
        assert is_granted(overwriting, everyone)
        assert not is_granted(overwriting, [*everyone, *denied]), need.resource


def test_what_does_not_come_by_tls_is_refused(requests: Requests, template: Template) -> None:
    everyone = [s for role in ROLES for d in template.policies(role) for s in statements(d)]
    denied = [s for guard in template.guards() for s in statements(guard) if s.effect == "Deny"]
    for need in {n for role in ROLES for n in requests[role] if n.action[:3] in ("s3:", "sqs")}:
        in_clear = need.but("aws:SecureTransport", "false")
        assert not is_granted(in_clear, [*everyone, *denied]), need


@pytest.mark.parametrize("role", ROLES)
def test_a_bucket_that_somebody_else_has_under_a_name_of_ours_is_left_alone(
    requests: Requests, template: Template, role: str
) -> None:
    policies = [s for document in template.policies(role) for s in statements(document)]
    for need in (need for need in requests[role] if need.action.startswith("s3:")):
        assert is_granted(need, policies)
        assert not is_granted(need.but("aws:ResourceAccount", "999999999999"), policies)


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, set[Need]]]:
    """Run a table's whole life; give what each function asked of AWS."""
    moto_server.make_atomic()
    with pytest.MonkeyPatch.context() as patch:
        heard: list[Flow] = []
        patch.setattr(moto_http, "DomainDispatcherApplication", listened_to(heard))
        server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        patch.setattr(WSGIRequestHandler, "disable_nagle_algorithm", True)  # it delays answers
        for name, value in {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": REGION,
            "DORMOUSE_INSTANCE": NAMES.instance,
            "DORMOUSE_ACCOUNT": NAMES.account,
            "DORMOUSE_SPARK_APPLICATION": APPLICATION,
            "DORMOUSE_SPARK_ROLE": f"arn:aws:iam::{NAMES.account}:role/local-SparkJobRole",
            "TMPDIR": str(tmp_path_factory.mktemp("scratch")),
        }.items():
            patch.setenv(name, value)
        session = boto3.Session()
        patch.setattr(boto3, "DEFAULT_SESSION", session)
        deployment = read(TEMPLATE, {"Instance": NAMES.instance}, endpoint, REGION)
        deploy(deployment, boto3.Session(), endpoint)
        flow = Flow(boto3.Session().client("sqs"), boto3.Session().client("s3"))
        session.events.register("before-parameter-build", flow.see)
        heard.append(flow)
        patch.setattr(handling, "wiring", flow.wiring)
        try:
            for name, state_store in zip(TABLES, ("s3", "dynamodb"), strict=True):
                live(flow, name, state_store)
        finally:
            server.stop()
    yield flow.requests


def listened_to(heard: list[Flow]) -> type[Any]:
    """Give the server's application, made to tell flows of each request."""

    class Listened(moto_http.DomainDispatcherApplication):
        def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
            for flow in heard:
                flow.see_http(environ)
            return super().__call__(environ, start_response)

    return Listened
