"""Each function may do what it does, and nothing else; so may Spark jobs, and who reads one table.

The flow runs through the real handlers, and the code of Spark jobs, against an embedded AWS, which
forbids nothing; every request is held against the role that the template
gives its caller, and against the policies of buckets and queues.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import pytest

from dormouse.stored.paths import SPARK_CODE, data_prefix, state_prefix
from dormouse_cli.local.resources import SENDER_ID
from tests.support.spark_package import package_in
from tests.template.conftest import NAMES, REGION, ROLES, ROOT, Template
from tests.template.flow import Flow, deployed
from tests.template.grants import (
    RECEIVING,
    Requests,
    done_for,
    grants,
    has_test,
    needless,
    never_asked,
)
from tests.template.iam import Need, is_granted, statements
from tests.template.life import READER, live
from tests.template.network import called, out_of_reach, services
from tests.template.rare import RARE, Rare
from tests.template.spark_jobs import APPLICATION, SPARK_JOB
from tests.template.test_template import arn_of

GUIDE = (ROOT / "docs" / "security.md").read_text()
LOGS = f"arn:aws:logs:{REGION}:{NAMES.account}:log-group"
TABLE = f"arn:aws:dynamodb:{REGION}:{NAMES.account}:table/dormouse-{NAMES.instance}"
TABLES = ("letters", "items")
"""A table whose state is kept on S3, and one whose state is kept in DynamoDB."""


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
        if action in ("logs:DescribeLogGroups", "cloudwatch:GetMetricData"):  # of an account
            continue
        assert resource.startswith(f"arn:aws:{service}:"), f"{action} on {resource}"
        if service in ("dynamodb", "sqs", "iam"):
            assert "*" not in resource, f"{action} on {resource}"
        if resource.startswith(f"arn:aws:s3:::{NAMES.data_bucket}/"):
            assert re.search(r"/(\?{16}/[a-z-]+|spark-job-packages)/\*$", resource), (
                f"{action} on {resource}"
            )


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
    assert needless(template, role, requests) == set()


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_do_all_that_lambda_and_emr_do_in_its_name(
    template: Template, role: str
) -> None:
    assert done_for(template, role) <= {*grants(template, role)}


@pytest.mark.parametrize("rare", RARE, ids=lambda rare: rare.test.rpartition("::")[2])
def test_a_grant_for_a_rare_case_is_one_that_a_test_has_and_the_flow_has_not(
    requests: Requests, template: Template, rare: Rare
) -> None:
    assert has_test(rare.test)
    for role in rare.roles:
        unseen = never_asked(template, role, requests) - done_for(template, role)
        found = {grant for grant in unseen if rare.needs(role, *grant)}
        assert {action for action, _ in found} == {*rare.actions}, role
        assert all(any(r.endswith(ending) for _, r in found) for ending in rare.endings), role


@pytest.mark.parametrize(
    ("role", "action", "resource"),
    [
        *(("ingest", action, arn_of("admin")) for action in RECEIVING),
        ("ingest", "sqs:ReceiveMessage", arn_of("ingest-jobs-dead")),
        ("administer", "sqs:DeleteMessage", arn_of("files")),
        ("administer", "sqs:ReceiveMessage", arn_of("replies")),
        ("sweep", "sqs:ReceiveMessage", arn_of("compaction-jobs")),
        ("measure", "sqs:GetQueueAttributes", arn_of("admin")),
        ("measure", "cloudwatch:GetMetricData", "*"),
        (SPARK_JOB, "sqs:ChangeMessageVisibility", arn_of("spark-jobs")),
        ("batch_files", "s3:ListBucket", f"arn:aws:s3:::{NAMES.ingest_bucket}"),
        ("ingest", "s3:ListBucket", f"arn:aws:s3:::{NAMES.results_bucket}"),
        ("compact", "logs:PutLogEvents", f"{LOGS}:/aws/lambda/dormouse-test-ingest:*"),
        ("compact", "logs:CreateLogStream", f"{LOGS}:*"),
        ("compact", "logs:DescribeLogGroups", f"{LOGS}:*"),
        (SPARK_JOB, "logs:PutLogEvents", f"{LOGS}:/aws/lambda/dormouse-test-ingest:*"),
        (SPARK_JOB, "s3:PutObject", f"arn:aws:s3:::{NAMES.data_bucket}/spark-job-packages/*"),
        ("ingest", "dynamodb:PutItem", f"{TABLE}-tables"),
    ],
)
def test_a_grant_that_nobody_needs_is_found(
    requests: Requests, template: Template, role: str, action: str, resource: str
) -> None:
    damaged = template.allowing(role, action, resource)
    assert needless(damaged, role, requests) == {(action, resource)}


def test_the_roles_that_merge_read_shards(requests: Requests) -> None:
    """Else the other tests would know nothing of these requests."""
    shards = f"arn:aws:s3:::{NAMES.data_bucket}/*/data/*"
    for role in ("compact", SPARK_JOB):
        reads = [need.resource for need in requests[role] if need.action == "s3:GetObject"]
        assert any(fnmatchcase(resource, shards) for resource in reads), role


@pytest.mark.parametrize("role", ROLES)
def test_a_role_calls_only_what_its_network_reaches(
    requests: Requests, template: Template, role: str
) -> None:
    assert out_of_reach(role, called(requests[role])) == set()
    assert out_of_reach(role, services(action for action, _ in grants(template, role))) == set()


def test_nothing_lies_in_a_network_of_its_own_that_reaches_less(template: Template) -> None:
    """Else what is taken to be reached were wrong."""
    assert "NetworkConfiguration" not in template.properties("SparkApplication")
    functions = template.of_type("AWS::Lambda::Function")
    assert functions and not [name for name, each in functions.items() if "VpcConfig" in each]


def test_a_job_of_spark_that_sends_is_out_of_reach(requests: Requests) -> None:
    assert out_of_reach(SPARK_JOB, called(requests["track_spark"])) == {"sqs", "emr-serverless"}


def test_jobs_of_spark_call_the_services_that_the_security_page_names(requests: Requests) -> None:
    assert called(requests[SPARK_JOB]) == {"dynamodb", "s3"}


def reader_policy(table_name: str, table_id: str) -> dict[str, Any]:
    """Return the policy of docs/security.md for somebody who may read one table."""
    return policy_below("### Read one table", table_name, table_id)


def policy_below(heading: str, table_name: str, table_id: str) -> dict[str, Any]:
    """Return the policy below a heading of docs/security.md, for one table."""
    section = GUIDE.partition(f"{heading}\n")[2].partition("\n###")[0]
    (body,) = re.findall(r"```json\n(\{.*?\n\})\n```", section, flags=re.DOTALL)
    for name, value in {
        "<region>": REGION,
        "<account>": NAMES.account,
        "<instance>": NAMES.instance,
        "<table>": table_name,
        "<table id>": table_id,
        "<api>": "local-HttpApi",
    }.items():
        body = body.replace(name, value)
    policy: dict[str, Any] = json.loads(body)
    return policy


def table_read_by(needs: set[Need]) -> str:
    """Return the id of the one table of which shards are read."""
    shard = re.compile(rf"arn:aws:s3:::{NAMES.data_bucket}/(\w+)/data/.+")
    (table_id,) = {found[1] for need in needs if (found := shard.fullmatch(need.resource))}
    return table_id


@pytest.mark.parametrize("name", TABLES)
def test_the_policy_for_a_reader_of_one_table_lets_it_be_queried(
    requests: Requests, template: Template, name: str
) -> None:
    needs = requests[READER + name]
    assert_granted(needs, template, reader_policy(name, table_read_by(needs)))


def test_the_policy_for_an_engine_lets_it_ask_the_catalog_and_read_one_table(
    requests: Requests, template: Template
) -> None:
    mine, other = (table_read_by(requests[READER + name]) for name in TABLES)
    document = policy_below("### Read published tables with an engine", TABLES[0], mine)
    policy = list(statements(document))
    api = "HttpApi"
    arn = f"arn:aws:execute-api:{REGION}:{NAMES.account}:{template.names.name(api)}/$default"
    for method in ("GET", "HEAD", "POST"):
        invoked = f"{arn}/{method}/iceberg/v1/namespaces/dormouse/tables/{TABLES[0]}"
        assert is_granted(Need("execute-api:Invoke", invoked), policy)
        assert not is_granted(Need("execute-api:Invoke", f"{arn}/{method}/elsewhere"), policy)
    bucket = f"arn:aws:s3:::{NAMES.data_bucket}"
    for folder in ("data", "iceberg/metadata"):
        assert is_granted(Need("s3:GetObject", f"{bucket}/{mine}/{folder}/x"), policy)
        assert not is_granted(Need("s3:GetObject", f"{bucket}/{other}/{folder}/x"), policy)
        assert not is_granted(Need("s3:PutObject", f"{bucket}/{mine}/{folder}/x"), policy)
    assert not is_granted(Need("s3:GetObject", f"{bucket}/{mine}/state/x"), policy)


def test_a_reader_of_one_table_may_not_read_another_nor_change_its_own(requests: Requests) -> None:
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
        "dynamodb:BatchGetItem",
        "dynamodb:Query",
    }
    assert not [need for need in of_other if is_granted(need, policy)]
    for narrowed in (statement for statement in policy if statement.conditions):
        wide = replace(narrowed, conditions=())
        assert [need for need in of_other if is_granted(need, [wide])], narrowed
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
    paths = [need.resource.split("/")[1:] for need in puts if NAMES.data_bucket in need.resource]
    folders = {path[0] if path[0] == SPARK_CODE else path[1] for path in paths}
    assert folders == {
        "data",
        "state",
        "run-markers",
        "purges",
        "deletions",
        "exports",
        "requests",
        "jobs",
        "spark",
        "iceberg",
        "rejected",
        SPARK_CODE,
    }
    for need in puts:
        assert is_granted(need, [*everyone, *denied])
        if NAMES.ingest_bucket in need.resource:  # it keeps each version of a file
            continue
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
    """Run a table's whole life; return what each function asked of AWS."""
    variables = {
        "DORMOUSE_HTTP_ROLE_ID": SENDER_ID,
        "DORMOUSE_QUERY_ROLE_IDS": SENDER_ID,
        "DORMOUSE_SPARK": "yes",
        "DORMOUSE_SPARK_APPLICATION": APPLICATION,
        "DORMOUSE_SPARK_ROLE": f"arn:aws:iam::{NAMES.account}:role/local-SparkJobRole",
        "DORMOUSE_SPARK_PACKAGE": str(package_in(tmp_path_factory.mktemp("package"))),
        "TMPDIR": str(tmp_path_factory.mktemp("scratch")),
    }
    with deployed(Flow, **variables) as flow:
        for name, state_store in zip(TABLES, ("s3", "dynamodb"), strict=True):
            live(flow, name, state_store)
    yield flow.requests
