"""Spark in the template: its runs can end where somebody looks, and it can be left out."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from dormouse.aws.emr import ENTRY_POINTS, UNPACKED
from dormouse.features.spark import ARCHIVE, DESCRIPTION, decode_package
from dormouse.settings import SPARK_PACKAGE, library_version
from dormouse.stored.paths import SPARK_JOBS, TABLE_ID_DIGITS, spark_package_path
from dormouse_cli.local.template import read
from tests.template.conftest import NAMES, ROLES, ROOT, STAGES, TEMPLATE, Template
from tests.template.iam import Need, creating, is_granted, statements
from tests.template.test_template import arn_of

TABLE_ID = "0" * TABLE_ID_DIGITS
DATA = f"arn:aws:s3:::{NAMES.data_bucket}/"


def test_the_end_of_a_run_comes_to_the_queue_of_track_spark(template: Template) -> None:
    rule = template.properties("SparkRunsRule")
    (target,) = rule["Targets"]
    assert target["Arn"] == arn_of("spark-runs")
    assert target["DeadLetterConfig"] == {"Arn": arn_of("spark-runs-dead")}
    assert set(rule["EventPattern"]["detail"]["state"]) == {"SUCCESS", "FAILED", "CANCELLED"}
    application = template.properties("SparkApplication")["Name"]
    assert application == NAMES.spark_application
    assert rule["EventPattern"]["detail"]["applicationId"] == [application]


def test_the_application_costs_nothing_while_it_is_idle(template: Template) -> None:
    application = template.properties("SparkApplication")
    assert application["AutoStopConfiguration"]["Enabled"]
    assert "InitialCapacity" not in application
    assert application["ReleaseLabel"] == "emr-spark-8.0.0"


def test_a_job_reads_its_code_and_its_requests_and_writes_neither(template: Template) -> None:
    granted = [s for document in template.policies("spark_job") for s in statements(document)]

    def may(action: str, path: str) -> bool:
        return is_granted(Need(f"s3:{action}", path), granted)

    code = f"{DATA}{spark_package_path('version', 'compact.py')}"
    for path in (code, f"{DATA}{SPARK_JOBS.prefix(TABLE_ID)}x"):
        assert may("GetObject", path), path
        assert not may("PutObject", path) and not may("DeleteObject", path), path


def test_the_application_imports_from_where_a_run_unpacks_its_package(template: Template) -> None:
    (defaults,) = template.properties("SparkApplication")["RuntimeConfiguration"]
    assert "spark.archives" not in defaults["Properties"], "each run names its own"
    for process in ("executorEnv", "emr-serverless.driverEnv"):
        assert defaults["Properties"][f"spark.{process}.PYTHONPATH"] == f"./{UNPACKED}"


def test_the_layer_that_holds_the_package_is_deployed_with_who_starts_runs(
    template: Template,
) -> None:
    (layer,) = (arn for arn in template.function("dispatch_spark")["Layers"] if "-spark:" in arn)
    assert layer
    environment = template.function("dispatch_spark")["Environment"]["Variables"]
    assert environment["DORMOUSE_SPARK_PACKAGE"] == SPARK_PACKAGE
    assert 'spark-package"' in (ROOT / "shared" / "Makefile").read_text()
    others = [stage for stage in STAGES if stage != "dispatch_spark"]
    assert not [s for s in others if any("-spark:" in a for a in template.function(s)["Layers"])]


def test_only_dispatch_spark_brings_a_package_and_nobody_changes_one(template: Template) -> None:
    path = f"{DATA}{spark_package_path('version', 'compact.py')}"
    guards = [s for document in template.guards() for s in statements(document)]
    put = creating(path).with_key("s3:if-none-match", "*")
    for role in ROLES:
        granted = [s for document in template.policies(role) for s in statements(document)]
        assert is_granted(put, [*granted, *guards]) == (role == "dispatch_spark"), role
        assert not is_granted(creating(path), [*granted, *guards]), role
        assert not is_granted(Need("s3:DeleteObject", path), [*granted, *guards]), role


def test_a_package_is_packed_alike_and_described_as_the_functions_read_it(tmp_path: Path) -> None:
    versions = set()
    for name in ("one", "other"):
        environment, package = tmp_path / name / "environment", tmp_path / name / "package"
        shutil.copytree(ROOT / "shared" / "dormouse", environment / "dormouse")
        command = [sys.executable, ROOT / "shared" / "pack_spark.py", environment, ROOT / "spark"]
        subprocess.run([*command, package], check=True, capture_output=True)
        found = decode_package((package / DESCRIPTION).read_bytes(), DESCRIPTION)
        assert found.library == library_version()
        assert found.files.keys() == {ARCHIVE, *ENTRY_POINTS.values()}
        assert all((package / file).stat().st_size == found.files[file] for file in found.files)
        with tarfile.open(package / ARCHIVE) as archive:
            assert "dormouse/settings.py" in archive.getnames()
            assert not [member for member in archive if member.mtime or member.uid]
        versions.add(found.version)
    assert len(versions) == 1


def test_the_file_that_is_started_for_a_job_runs_jobs_of_its_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from dormouse_spark.entry import RUNS  # PySpark takes long to import

    assert ENTRY_POINTS.keys() == RUNS.keys()
    run: list[str] = []
    monkeypatch.setattr("dormouse_spark.entry.main", run.append)
    for entry_point in ENTRY_POINTS.values():
        with pytest.raises(SystemExit):
            runpy.run_path(str(ROOT / "spark" / entry_point), run_name="__main__")
    assert run == list(ENTRY_POINTS)


def test_spark_can_be_left_out() -> None:
    parameters = {"Instance": NAMES.instance, "Spark": "no"}
    deployment = read(TEMPLATE, parameters, "http://localhost")
    assert not deployment.spark_applications and not deployment.rules
    dispatch = deployment.function("DispatchSparkFunction")
    assert dispatch is not None
    assert dispatch.environment["DORMOUSE_SPARK_APPLICATION"] == ""
