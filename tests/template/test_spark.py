"""Spark in the template: its runs can end where somebody looks, and it can be left out."""

from __future__ import annotations

import runpy

import pytest

from dormouse.aws.emr import ENTRY_POINTS
from dormouse.model.names import TABLE_ID_DIGITS, purge_prefix, spark_prefix
from dormouse_cli.local.template import read
from dormouse_spark.entry import RUNS
from tests.template.conftest import NAMES, REGION, ROOT, TEMPLATE, Template
from tests.template.iam import Need, is_granted, statements
from tests.template.test_template import arn_of

TABLE_ID = "0" * TABLE_ID_DIGITS
DATA = f"arn:aws:s3:::{NAMES.data_bucket}/"


def test_the_end_of_a_run_comes_to_the_queue_of_track_spark(
    template: Template,
) -> None:
    rule = template.properties("SparkRunsRule")
    (target,) = rule["Targets"]
    assert target["Arn"] == arn_of("spark-runs")
    assert target["DeadLetterConfig"] == {"Arn": arn_of("spark-runs-dead")}
    assert set(rule["EventPattern"]["detail"]["state"]) == {"SUCCESS", "FAILED", "CANCELLED"}
    application = template.properties("SparkApplication")["Name"]
    assert rule["EventPattern"]["detail"]["applicationId"] == [application]


def test_the_application_costs_nothing_while_it_is_idle(template: Template) -> None:
    application = template.properties("SparkApplication")
    assert application["AutoStopConfiguration"]["Enabled"]
    assert "InitialCapacity" not in application
    assert application["ReleaseLabel"] == "emr-spark-8.0.0"


def test_a_job_reads_its_code_and_its_requests_and_writes_neither(template: Template) -> None:
    (document,) = template.policies("spark_job")
    granted = list(statements(document))

    def may(action: str, path: str) -> bool:
        return is_granted(Need(f"s3:{action}", path), granted)

    code = NAMES.spark_code_uri.replace("s3://", "arn:aws:s3:::")
    asked = [f"{DATA}{prefix(TABLE_ID)}x" for prefix in (spark_prefix, purge_prefix)]
    for path in (f"{code}compact.py", *asked):
        assert may("GetObject", path), path
        assert not may("PutObject", path) and not may("DeleteObject", path), path


def test_the_code_is_where_the_application_and_the_functions_look_for_it(
    template: Template,
) -> None:
    (defaults,) = template.properties("SparkApplication")["RuntimeConfiguration"]
    archive, _, folder = defaults["Properties"]["spark.archives"].partition("#")
    assert archive.startswith(NAMES.spark_code_uri)
    assert defaults["Properties"]["spark.executorEnv.PYTHONPATH"] == f"./{folder}"


def test_the_file_that_is_started_for_a_job_runs_jobs_of_its_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert ENTRY_POINTS.keys() == RUNS.keys()
    run: list[str] = []
    monkeypatch.setattr("dormouse_spark.entry.main", run.append)
    for entry_point in ENTRY_POINTS.values():
        with pytest.raises(SystemExit):
            runpy.run_path(str(ROOT / "spark" / entry_point), run_name="__main__")
    assert run == list(ENTRY_POINTS)


def test_spark_can_be_left_out() -> None:
    parameters = {"Instance": NAMES.instance, "Spark": "no"}
    deployment = read(TEMPLATE, parameters, "http://localhost", REGION)
    assert not deployment.spark_applications and not deployment.rules
    dispatch = deployment.function("DispatchSparkFunction")
    assert dispatch is not None
    assert dispatch.environment["DORMOUSE_SPARK_APPLICATION"] == ""
