"""Spark in the template: its runs can end where somebody looks, and it can be left out."""

from __future__ import annotations

from fnmatch import fnmatchcase

from dormouse.aws.emr import ENTRY_POINTS
from dormouse.model.names import (
    data_prefix,
    ending_prefix,
    export_prefix,
    purge_prefix,
    spark_prefix,
    state_prefix,
)
from dormouse_cli.local.template import read
from tests.template.conftest import NAMES, REGION, ROOT, TEMPLATE, Template, many
from tests.template.test_template import arn_of

DATA = f"arn:aws:s3:::{NAMES.data_bucket}/"


def test_the_end_of_a_run_comes_to_the_queue_of_track_spark_and_nobody_else_can_send_there(
    template: Template,
) -> None:
    rule = template.properties("SparkRunsRule")
    (target,) = rule["Targets"]
    assert target["Arn"] == arn_of("spark-runs")
    assert target["DeadLetterConfig"] == {"Arn": arn_of("spark-runs-dead")}
    assert set(rule["EventPattern"]["detail"]["state"]) == {"SUCCESS", "FAILED", "CANCELLED"}
    application = template.properties("SparkApplication")["Name"]
    assert rule["EventPattern"]["detail"]["applicationId"] == [application]
    (statement,) = template.properties("SparkRunsQueuePolicy")["PolicyDocument"]["Statement"]
    assert statement["Resource"] == [arn_of("spark-runs"), arn_of("spark-runs-dead")]
    rule_arn = f"arn:aws:events:{REGION}:{NAMES.account}:rule/{rule['Name']}"
    assert statement["Condition"] == {"ArnEquals": {"aws:SourceArn": rule_arn}}


def test_the_application_costs_nothing_while_it_is_idle(template: Template) -> None:
    application = template.properties("SparkApplication")
    assert application["AutoStopConfiguration"]["Enabled"]
    assert "InitialCapacity" not in application
    assert application["ReleaseLabel"] == "emr-spark-8.0.0"


def test_a_job_may_reach_its_code_and_what_is_the_tables_and_no_more(template: Template) -> None:
    (policy,) = template.properties("SparkJobRole")["Policies"]
    grants = [
        (action, resource)
        for statement in policy["PolicyDocument"]["Statement"]
        for action in many(statement["Action"])
        for resource in many(statement["Resource"])
    ]
    assert not [action for action, _ in grants if "*" in action]
    put = [resource for action, resource in grants if action == "s3:PutObject"]
    for prefix in (data_prefix("t"), state_prefix("t"), ending_prefix("t"), export_prefix("t")):
        assert any(fnmatchcase(f"{DATA}{prefix}x", resource) for resource in put), prefix
    for prefix in (spark_prefix("t"), purge_prefix("t")):
        assert not any(fnmatchcase(f"{DATA}{prefix}x", resource) for resource in put), prefix
    assert any(fnmatchcase(f"arn:aws:s3:::{NAMES.results_bucket}/x", r) for r in put)
    get = [resource for action, resource in grants if action == "s3:GetObject"]
    code = NAMES.spark_code_uri.replace("s3://", "arn:aws:s3:::")
    for path in (f"{code}compact.py", f"{DATA}{spark_prefix('t')}x", f"{DATA}{purge_prefix('t')}x"):
        assert any(fnmatchcase(path, resource) for resource in get), path


def test_the_code_is_where_the_application_and_the_functions_look_for_it(
    template: Template,
) -> None:
    (defaults,) = template.properties("SparkApplication")["RuntimeConfiguration"]
    archive, _, folder = defaults["Properties"]["spark.archives"].partition("#")
    assert archive.startswith(NAMES.spark_code_uri)
    assert defaults["Properties"]["spark.executorEnv.PYTHONPATH"] == f"./{folder}"
    for entry_point in ENTRY_POINTS.values():
        assert (ROOT / "spark" / entry_point).is_file()


def test_spark_can_be_left_out() -> None:
    parameters = {"Instance": NAMES.instance, "Spark": "no"}
    deployment = read(TEMPLATE, parameters, "http://localhost", REGION)
    assert not deployment.spark_applications and not deployment.rules
    dispatch = deployment.function("DispatchSparkFunction")
    assert dispatch is not None
    assert dispatch.environment["DORMOUSE_SPARK_APPLICATION"] == ""
