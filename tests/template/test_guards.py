"""Buckets, queues and roles are closed to all but those whom they are for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dormouse.messages.stages import QUEUES
from dormouse.stored.paths import REPLIES, dead_letter_queue
from tests.template.conftest import NAMES, REGION, ROLES, STAGES, Template
from tests.template.test_template import arn_of

ALL_QUEUES = sorted({*QUEUES, *map(dead_letter_queue, QUEUES), REPLIES})
IN_CLEAR = {"Bool": {"aws:SecureTransport": "false"}}


def allowed(statements: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [statement for statement in statements if statement["Effect"] == "Allow"]


def queue_statements(template: Template, queue: str) -> list[dict[str, Any]]:
    """Return the statements of the one policy that a queue has; SQS keeps no second."""
    (policy,) = (
        policy
        for policy in template.of_type("AWS::SQS::QueuePolicy").values()
        if any(url.endswith(f"/{NAMES.queue(queue)}") for url in policy["Queues"])
    )
    statements: list[dict[str, Any]] = policy["PolicyDocument"]["Statement"]
    return statements


def trusts(template: Template) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return what each role's trust says, by the role."""
    for role, properties in template.of_type("AWS::IAM::Role").items():
        (statement,) = properties["AssumeRolePolicyDocument"]["Statement"]
        yield role, statement


def test_buckets_are_private_and_encrypted_and_have_no_lists_of_grants(template: Template) -> None:
    buckets = template.of_type("AWS::S3::Bucket")
    assert len(buckets) == 3
    for bucket in buckets.values():
        block = bucket["PublicAccessBlockConfiguration"]
        assert len(block) == 4 and all(block.values())
        (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        assert rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
        (ownership,) = bucket["OwnershipControls"]["Rules"]
        assert ownership["ObjectOwnership"] == "BucketOwnerEnforced"


def test_bucket_policies_allow_nothing_and_refuse_unencrypted_requests(template: Template) -> None:
    policies = {p["Bucket"]: p for p in template.of_type("AWS::S3::BucketPolicy").values()}
    assert {*policies} == {b["BucketName"] for b in template.of_type("AWS::S3::Bucket").values()}
    for bucket, policy in policies.items():
        statements = policy["PolicyDocument"]["Statement"]
        assert not allowed(statements)
        (in_clear,) = (s for s in statements if s["Condition"] == IN_CLEAR)
        assert in_clear["Principal"] == "*" and in_clear["Action"] == "s3:*"
        arn = f"arn:aws:s3:::{bucket}"
        assert in_clear["Resource"] == [arn, f"{arn}/*"]


@pytest.mark.parametrize("queue", ALL_QUEUES)
def test_a_queue_is_encrypted_and_refuses_unencrypted_requests(
    template: Template, queue: str
) -> None:
    assert template.queue(queue)["SqsManagedSseEnabled"] is True
    (denial,) = (s for s in queue_statements(template, queue) if s["Effect"] == "Deny")
    assert denial["Condition"] == IN_CLEAR
    assert (denial["Principal"], denial["Action"]) == ("*", "sqs:*")


@pytest.mark.parametrize("queue", ALL_QUEUES)
def test_a_dead_letter_queue_accepts_messages_from_its_own_queue_alone(
    template: Template, queue: str
) -> None:
    """Who may set attributes of another queue must not have its messages sent here."""
    sources = {dead_letter_queue(source): source for source in QUEUES}
    expected = (
        {"redrivePermission": "byQueue", "sourceQueueArns": [arn_of(sources[queue])]}
        if queue in sources
        else None
    )
    assert template.queue(queue).get("RedriveAllowPolicy") == expected


@pytest.mark.parametrize("queue", ALL_QUEUES)
def test_only_the_source_of_a_queue_is_let_in_by_the_queue_itself(
    template: Template, queue: str
) -> None:
    """Functions and people are let in by their own policies; services by that of the queue."""
    rule = template.properties("SparkRunsRule")["Name"]
    from_the_rule = {
        "ArnEquals": {"aws:SourceArn": f"arn:aws:events:{REGION}:{NAMES.account}:rule/{rule}"}
    }
    from_the_bucket = {
        "ArnEquals": {"aws:SourceArn": f"arn:aws:s3:::{NAMES.ingest_bucket}"},
        "StringEquals": {"aws:SourceAccount": NAMES.account},
    }
    sources = {
        "files": ("s3.amazonaws.com", from_the_bucket),
        "spark-runs": ("events.amazonaws.com", from_the_rule),
        "spark-runs-dead": ("events.amazonaws.com", from_the_rule),
    }
    found = [
        (s["Principal"], s["Action"], s["Resource"], s["Condition"])
        for s in allowed(queue_statements(template, queue))
    ]
    expected = (
        [
            ({"Service": service}, "sqs:SendMessage", arn_of(queue), condition)
            for service, condition in [sources[queue]]
        ]
        if queue in sources
        else []
    )
    assert found == expected


def test_notifications_of_dropped_files_go_to_the_queue_that_accepts_them(
    template: Template,
) -> None:
    configuration = template.properties("IngestBucket")["NotificationConfiguration"]
    (notification,) = configuration["QueueConfigurations"]
    assert notification["Queue"] == arn_of("files")


def test_events_by_topic_or_rule_reach_the_queue_which_takes_them_from_nobody_else() -> None:
    """S3 publishes to the topic of the ingest bucket alone, and others subscribe to it."""
    named = f"dormouse-{NAMES.instance}-ingest"
    topic = f"arn:aws:sns:{REGION}:{NAMES.account}:{named}"
    by_topic, by_bridge = (Template.read(IngestEvents=each) for each in ("sns", "eventbridge"))
    assert by_topic.properties("IngestBucket")["NotificationConfiguration"] == {
        "TopicConfigurations": [{"Event": "s3:ObjectCreated:*", "Topic": topic}]
    }
    assert by_topic.properties("IngestSubscription") == {
        "TopicArn": topic,
        "Protocol": "sqs",
        "Endpoint": arn_of("files"),
        "RawMessageDelivery": True,
    }
    (_, publish) = by_topic.properties("IngestTopicPolicy")["PolicyDocument"]["Statement"]
    assert (publish["Principal"], publish["Action"]) == (
        {"Service": "s3.amazonaws.com"},
        "sns:Publish",
    )
    assert publish["Condition"] == {
        "ArnEquals": {"aws:SourceArn": f"arn:aws:s3:::{NAMES.ingest_bucket}"},
        "StringEquals": {"aws:SourceAccount": NAMES.account},
    }
    assert by_bridge.properties("IngestBucket")["NotificationConfiguration"] == {
        "EventBridgeConfiguration": {"EventBridgeEnabled": True}
    }
    rule = by_bridge.properties("IngestRule")
    assert rule["EventPattern"]["detail"] == {"bucket": {"name": [NAMES.ingest_bucket]}}
    assert [target["Arn"] for target in rule["Targets"]] == [arn_of("files")]
    rule_arn = f"arn:aws:events:{REGION}:{NAMES.account}:rule/{named}"
    for template, sender, source in ((by_topic, "sns", topic), (by_bridge, "events", rule_arn)):
        (statement,) = allowed(queue_statements(template, "files"))
        assert statement["Principal"] == {"Service": f"{sender}.amazonaws.com"}
        assert statement["Condition"] == {"ArnEquals": {"aws:SourceArn": source}}


def test_a_role_is_taken_only_by_the_service_that_runs_what_it_is_for(template: Template) -> None:
    found = dict(trusts(template))
    del found["ReadersRole"]
    assert {*found} == {*ROLES.values()}
    for role, trust in found.items():
        assert (trust["Effect"], trust["Action"]) == ("Allow", "sts:AssumeRole")
        service = "emr-serverless" if role == "SparkJobRole" else "lambda"
        assert trust["Principal"] == {"Service": f"{service}.amazonaws.com"}
    application = template.properties("SparkApplication")["Name"]
    arn = f"arn:aws:emr-serverless:{REGION}:{NAMES.account}:/applications/{application}"
    assert found["SparkJobRole"]["Condition"] == {
        "StringEquals": {"aws:SourceAccount": NAMES.account},
        "ArnEquals": {"aws:SourceArn": arn},
    }


@pytest.mark.parametrize("is_lent", ["yes", "no"])
def test_only_the_catalog_lends_a_role_that_reads_what_readers_open(is_lent: str) -> None:
    template = Template.read(LendCredentials=is_lent)
    variables = template.function("serve_catalog")["Environment"]["Variables"]
    lent = template.names.arn("ReadersRole") if is_lent == "yes" else ""
    assert variables["DORMOUSE_READERS_ROLE"] == lent
    assert template.translated.resources["ReadersRole"]["Condition"] == "LendsCredentials"
    assert template.resolver.holds("LendsCredentials", "") == (is_lent == "yes")
    trust = dict(trusts(template))["ReadersRole"]
    assert trust == {
        "Effect": "Allow",
        "Action": "sts:AssumeRole",
        "Principal": {"AWS": template.names.arn("ServeCatalogRole")},
    }
    properties = template.properties("ReadersRole")
    assert "ManagedPolicyArns" not in properties
    ((statement,),) = (p["PolicyDocument"]["Statement"] for p in properties["Policies"])
    objects = f"arn:aws:s3:::{NAMES.data_bucket}/{'?' * 16}"
    assert statement["Action"] == "s3:GetObject"
    assert statement["Resource"] == [f"{objects}/data/*", f"{objects}/iceberg/*"]
    assert statement["Condition"] == {"StringEquals": {"aws:ResourceAccount": NAMES.account}}


def test_only_emr_can_be_given_the_role_of_spark_jobs(template: Template) -> None:
    passing = [
        (role, statement["Resource"], statement["Condition"])
        for role in ROLES
        for document in template.policies(role)
        for statement in document["Statement"]
        if "iam:PassRole" in statement["Action"]
    ]
    (given,) = passing
    role, resources, condition = given
    assert role == "dispatch_spark"
    assert [arn.rpartition("-")[2] for arn in resources] == ["SparkJobRole"]
    assert condition == {"StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}}


def test_functions_are_invoked_from_outside_by_their_schedules_and_routes_alone(
    template: Template,
) -> None:
    permissions = list(template.of_type("AWS::Lambda::Permission").values())
    permissions.remove(template.properties("TokenPermission"))  # it is for `test_http_policies`
    served = [p for p in permissions if p["Principal"] == "apigateway.amazonaws.com"]
    api = f"arn:aws:execute-api:{REGION}:{NAMES.account}:local-HttpApi"
    assert {p["FunctionName"]: p["SourceArn"] for p in served} == {
        template.function("serve_catalog")["FunctionName"]: f"{api}/*/*/iceberg/*",
        template.function("serve_http")["FunctionName"]: f"{api}/*/*/*",
    }
    permissions = [p for p in permissions if p not in served]
    assert {p["Principal"] for p in permissions} == {"events.amazonaws.com"}
    arns = {p["SourceArn"] for p in permissions}
    schedules = [
        r for r in template.of_type("AWS::Events::Rule").values() if "ScheduleExpression" in r
    ]
    assert len(arns) == len(schedules) == 3
    assert all(arn.startswith(f"arn:aws:events:{REGION}:{NAMES.account}:rule/") for arn in arns)


@pytest.mark.parametrize("stage", ["ingest", "compact", "purge_rows", "export_rows", "serve_http"])
def test_a_function_that_holds_many_rows_takes_memory_as_it_uses_it(
    template: Template, stage: str
) -> None:
    given = template.function(stage)["Environment"]["Variables"]
    assert given["MIMALLOC_ARENA_EAGER_COMMIT"] == "0"
    # pieces of rows that are sorted follow each other, while a merge is to stay small
    assert ("MIMALLOC_PURGE_DELAY" in given) == (stage == "ingest")


@pytest.mark.parametrize("stage", STAGES)
def test_a_function_has_no_secrets_in_its_environment_and_no_debug_logging(
    template: Template, stage: str
) -> None:
    found = template.function(stage)["Environment"]["Variables"].keys()
    assert {name for name in found if not name.startswith("DORMOUSE_")} <= {
        "POWERTOOLS_SERVICE_NAME",
        "MIMALLOC_ARENA_EAGER_COMMIT",
        "MIMALLOC_PURGE_DELAY",
    }
    assert {name for name in found if name.startswith("DORMOUSE_")} <= {
        "DORMOUSE_INSTANCE",
        "DORMOUSE_ACCOUNT",
        "DORMOUSE_MEMORY_BYTES",
        "DORMOUSE_HTTP_ROLE_ID",
        "DORMOUSE_QUERY_ROLE_IDS",
        "DORMOUSE_READERS_ROLE",
        "DORMOUSE_RESULT_QUEUES",
        "DORMOUSE_SPARK",
        "DORMOUSE_SPARK_APPLICATION",
        "DORMOUSE_SPARK_PACKAGE",
        "DORMOUSE_GLUE_DATABASE",
        "DORMOUSE_SPARK_ROLE",
    }


def test_no_function_can_be_reached_by_a_url_without_a_signature(template: Template) -> None:
    """But at the address for tokens, which `test_http_policies` looks at."""
    resources = template.translated.resources.values()
    assert not {each["Type"] for each in resources} & {
        "AWS::Lambda::Url",
        "AWS::ApiGateway::RestApi",
    }
    others = ("AWS::ApiGatewayV2::Route", "AWS::ApiGatewayV2::Integration")
    own = {each.get("Condition") for each in resources if each["Type"] in others}
    assert own == {"HasJwt"}
    api = template.properties("HttpApi")
    (scheme,) = api["Body"]["components"]["securitySchemes"].values()
    assert scheme["x-amazon-apigateway-authtype"] == "awsSigv4"
    routes = [route for path in api["Body"]["paths"].values() for route in path.values()]
    assert routes
    assert all(route["security"] == [{"AWS_IAM": []}] for route in routes)


def test_without_spark_nobody_else_is_let_into_its_queues() -> None:
    template = Template.read(Spark="no")
    for queue in ("spark-runs", "spark-runs-dead"):
        assert allowed(queue_statements(template, queue)) == []
