"""What must be true of the deployment, whatever else changes in the template."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from typing import get_args

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from dormouse.aws.items import KEYS
from dormouse.features.garbage import INFREQUENT, INFREQUENT_DAYS, LEAST_BYTES, MOVES_FROM
from dormouse.jobs import MAX_RECEIVES, SWEEP_SECONDS
from dormouse.messages import stages
from dormouse.messages.requests import AdminRequest
from dormouse.messages.stages import QUEUES
from dormouse.stored.paths import REPLIES, dead_letter_queue
from tests.architecture.sources import LIBRARY, sources
from tests.support.pins import SHIPPED, pins_in
from tests.template.conftest import (
    LONGEST_WINDOW_SECONDS,
    NAMES,
    QUEUE_OF,
    ROOT,
    SCHEDULED,
    SERVED,
    STAGES,
    Template,
    logical_id_of,
)
from tools.generated.granted import grants_in

FOURTEEN_DAYS = 14 * 24 * 60 * 60
NEVER_LOADED = {"cloudpickle", "pycparser"}
"""What a package of a layer needs only for functions written in Python that its plans call, or to
be built.
"""
KEPT = ("AWS::S3::Bucket", "AWS::DynamoDB::Table")


def arn_of(queue: str) -> str:
    return f"arn:aws:sqs:eu-west-2:{NAMES.account}:{NAMES.queue(queue)}"


def test_the_template_and_the_code_agree_on_every_name(template: Template) -> None:
    def named(kind: str, key: str) -> set[str]:
        return {properties[key] for properties in template.of_type(kind).values()}

    assert named("AWS::S3::Bucket", "BucketName") == {
        NAMES.ingest_bucket,
        NAMES.data_bucket,
        NAMES.results_bucket,
    }
    assert named("AWS::DynamoDB::Table", "TableName") == {NAMES.table(space) for space in KEYS}
    queues = {*QUEUES, *map(dead_letter_queue, QUEUES), REPLIES}
    assert named("AWS::SQS::Queue", "QueueName") == {NAMES.queue(queue) for queue in queues}


def test_every_stage_has_a_function_and_sample_events_and_nothing_else_has(
    template: Template,
) -> None:
    assert set(template.of_type("AWS::Lambda::Function")) == set(map(logical_id_of, STAGES))
    assert sorted(path.name for path in (ROOT / "events").iterdir()) == STAGES
    assert sorted([*QUEUE_OF, *SCHEDULED, *SERVED]) == STAGES


@pytest.mark.parametrize("stage", STAGES)
def test_a_function_knows_its_instance_and_its_log_has_a_retention(
    template: Template, stage: str
) -> None:
    function = template.function(stage)
    assert function["Handler"] == "handler.handle"
    assert template.translated.code[logical_id_of(stage)] == ROOT / "functions" / stage
    variables = function["Environment"]["Variables"]
    assert variables["DORMOUSE_INSTANCE"] == NAMES.instance
    assert variables["DORMOUSE_ACCOUNT"] == NAMES.account
    logs = {g["LogGroupName"]: g for g in template.of_type("AWS::Logs::LogGroup").values()}
    assert logs[f"/aws/lambda/{function['FunctionName']}"]["RetentionInDays"] <= 90


@pytest.mark.parametrize("stage", QUEUE_OF)
def test_a_queue_feeds_its_function_and_only_failed_messages_come_again(
    template: Template, stage: str
) -> None:
    mappings = template.of_type("AWS::Lambda::EventSourceMapping").values()
    (mapping,) = (m for m in mappings if m["EventSourceArn"] == arn_of(QUEUE_OF[stage]))
    assert mapping["FunctionName"] == template.function(stage)["FunctionName"]
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    if stage != "track_spark":  # MaxConcurrentRuns limits it
        assert mapping["ScalingConfig"]["MaximumConcurrency"] >= 2


@pytest.mark.parametrize("stage", QUEUE_OF)
def test_a_message_stays_invisible_while_its_function_is_retried(
    template: Template, stage: str
) -> None:
    window = LONGEST_WINDOW_SECONDS if stage == "batch_files" else 0
    least = 6 * template.function(stage)["Timeout"] + window
    assert template.queue(QUEUE_OF[stage])["VisibilityTimeout"] >= least


@pytest.mark.parametrize("queue", QUEUES)
def test_a_message_that_keeps_failing_becomes_a_dead_letter(template: Template, queue: str) -> None:
    dead = template.queue(dead_letter_queue(queue))
    assert dead["MessageRetentionPeriod"] == FOURTEEN_DAYS
    assert template.queue(queue)["RedrivePolicy"] == {
        "deadLetterTargetArn": arn_of(dead_letter_queue(queue)),
        "maxReceiveCount": MAX_RECEIVES,
    }


def test_alarms_can_reach_their_topic(template: Template) -> None:
    for topic in template.of_type("AWS::SNS::Topic").values():
        assert "KmsMasterKeyId" not in topic, "no service may use the key that AWS manages"


def test_an_overwritten_file_can_still_be_ingested(template: Template) -> None:
    assert template.properties("IngestBucket")["VersioningConfiguration"]["Status"] == "Enabled"


def test_data_outlives_the_stack_and_can_be_restored(template: Template) -> None:
    for resource in template.translated.resources.values():
        if resource["Type"] in KEPT:
            assert (resource["DeletionPolicy"], resource["UpdateReplacePolicy"]) == ("Retain",) * 2
    for table in template.of_type("AWS::DynamoDB::Table").values():
        assert table["BillingMode"] == "PAY_PER_REQUEST"
        is_kept = (
            "PointInTimeRecoverySpecification" in table
        )  # what is forgotten does not come back
        assert is_kept == (table["TableName"] != NAMES.table("subjects"))
        assert (
            not is_kept or table["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"]
        )
        assert table["DeletionProtectionEnabled"] is True
    expiry = template.properties("JobsTable")["TimeToLiveSpecification"]
    assert expiry == {"AttributeName": "expires", "Enabled": True}


def test_noncurrent_versions_of_the_data_bucket_expire_after_the_given_days() -> None:
    """What is kept goes by itself, also once nobody wants it kept any more."""
    rule = {
        "Id": "old-versions",
        "Status": "Enabled",
        "NoncurrentVersionExpiration": {"NoncurrentDays": "7"},
        "ExpiredObjectDeleteMarker": True,
    }
    for asked in ("yes", "no"):
        template = Template.read(DataVersions=asked, DataVersionDays="7")
        bucket = template.properties("DataBucket")
        is_versioned = bucket.get("VersioningConfiguration") == {"Status": "Enabled"}
        assert is_versioned == (asked == "yes")
        assert rule in bucket["LifecycleConfiguration"]["Rules"]
    assert "VersioningConfiguration" not in Template.read().properties("DataBucket")


def test_the_data_bucket_moves_shards_to_the_class_that_they_are_marked_for(
    template: Template,
) -> None:
    rules = template.properties("DataBucket")["LifecycleConfiguration"]["Rules"]
    moves = {
        tag["Value"]: (rule["Status"], move, rule["ObjectSizeGreaterThan"])
        for rule in rules
        for move in rule.get("Transitions", ())
        for tag in rule["TagFilters"]
    }
    assert moves == {
        wanted: (
            "Enabled",
            {
                "StorageClass": wanted,
                "TransitionInDays": INFREQUENT_DAYS if wanted in INFREQUENT else 0,
            },
            str(LEAST_BYTES - 1),
        )
        for wanted in MOVES_FROM
    }


@pytest.mark.parametrize("stage", STAGES)
def test_no_function_can_delete_what_the_data_bucket_keeps(template: Template, stage: str) -> None:
    granted = [grant for document in template.policies(stage) for grant in grants_in(document)]
    versions = {grant.resource for grant in granted if grant.action == "s3:DeleteObjectVersion"}
    assert versions <= {f"arn:aws:s3:::{NAMES.ingest_bucket}/*"}
    assert not versions or stage == "collect_garbage"  # which reads no file


def test_the_sweep_runs_often_and_audits_daily(template: Template) -> None:
    rules = template.of_type("AWS::Events::Rule").values()
    inputs = {
        rule["ScheduleExpression"]: rule["Targets"][0].get("Input")
        for rule in rules
        if "ScheduleExpression" in rule
    }
    assert inputs["rate(1 minute)"] is None
    assert inputs[f"rate({SWEEP_SECONDS // 60} minutes)"] is None
    assert json.loads(inputs["rate(1 day)"]) == {"audit": True}


def required_by(distribution: str) -> set[str]:
    """Return what a package needs here."""
    found = (Requirement(text) for text in requires(distribution) or ())
    return {canonicalize_name(r.name) for r in found if not r.marker or r.marker.evaluate()}


def test_layers_hold_whatever_the_library_imports_and_what_that_needs() -> None:
    """Layers are built of just the packages that their files name."""
    held = {name for file in SHIPPED for name in pins_in(file)}
    distributions = packages_distributions()
    library = sources(LIBRARY)
    imported = {each.name.partition(".")[0] for s in library for each in s.statements.imports}
    third_party = imported - {"dormouse"} - sys.stdlib_module_names
    needed = {
        canonicalize_name(distributions[name][0])
        for name in third_party
        if name in distributions and not name.startswith("mypy_boto3")
    }
    while more := {name for each in needed for name in required_by(each)} - needed:
        needed |= more
    assert needed - NEVER_LOADED == held


def paths_of(function: str) -> list[str]:
    """Return what a function imports when it needs it, as the tables of stages and requests say."""
    if function == "administer":
        return [kind.path for kind in get_args(AdminRequest)]
    paths = [{**SCHEDULED, **SERVED}.get(function, "") or STAGE_PATHS[function]]
    if function == "sweep":
        paths += [stage.overdue for stage in stages.STAGES if stage.overdue]
    return paths


STAGE_PATHS = {stage.name: stage.path for stage in stages.STAGES}


def needs(stage: str, package: str) -> bool:
    """Return whether a handler or its stage, or what they import, imports a package."""
    files = [s for s in sources(LIBRARY, "functions") if not s.place.endswith("__init__.py")]
    by_module = {source.module: source for source in files}
    pending = [f"dormouse.features.{path.partition(':')[0]}" for path in paths_of(stage)]
    pending.append(f"functions.{stage}.handler")
    seen: set[str] = set()
    while pending:
        imported = {each.name for each in by_module[pending.pop()].statements.imports}
        if any(name.partition(".")[0] == package for name in imported):
            return True
        pending += (imported - seen) & by_module.keys()
        seen |= imported
    return False


@pytest.mark.parametrize("stage", STAGES)
def test_a_function_carries_engines_just_if_its_stage_needs_them(
    template: Template, stage: str
) -> None:
    layers = " ".join(template.function(stage)["Layers"])
    assert ("-statements:" in layers) == needs(stage, "duckdb")
    assert ("-engine:" in layers or "-statements:" in layers) == needs(stage, "datafusion")
    assert not ("-engine:" in layers and "-statements:" in layers)


def test_functions_without_an_engine_layer_never_load_the_engine() -> None:
    light = [stage for stage in STAGES if not needs(stage, "datafusion")]
    modules = [path.partition(":")[0] for stage in light for path in paths_of(stage)]
    imports = "".join(f"import functions.{stage}.handler\n" for stage in light)
    imports += "".join(f"import dormouse.features.{module}\n" for module in modules)
    code = f"import sys\n{imports}assert 'datafusion' not in sys.modules"
    path = {"PYTHONPATH": f"{ROOT}:{ROOT / 'shared'}"}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, env=path)
