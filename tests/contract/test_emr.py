"""EMR Serverless as the functions see it: what is asked of it, and what its refusals mean."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError

from dormouse.aws.emr import EmrServerless, find_application, parameters
from dormouse.errors import InvalidRequestError, OutcomeUnknownError, UnavailableError
from dormouse.ports import SparkRun, SparkRunState
from dormouse.settings import SparkSettings
from dormouse.state.jobs import ClusterSize
from dormouse.stored.paths import InstanceNames
from dormouse_cli.local import moto_emr
from tests.contract.mocked_aws import REGION, mocked_aws

ROLE = "arn:aws:iam::123456789012:role/spark"
SIZE = ClusterSize(7, 4, 16 * 1024**3)
RUN = SparkRun("table1", "job1", "ingest", 3, 2, "token1", SIZE, "v1")


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    moto_emr.apply()
    with mocked_aws(monkeypatch):
        made = boto3.client("emr-serverless", region_name=REGION)
        made.create_application(name="app", releaseLabel="emr-spark-8.0.0", type="SPARK")
        yield made


@pytest.fixture
def emr(client: Any) -> EmrServerless:
    return EmrServerless(
        client, SparkSettings("app", ROLE, Path("/opt")), InstanceNames("dev", "123456789012")
    )


def test_a_run_is_given_ids_alone_and_its_size(client: Any, emr: EmrServerless) -> None:
    run = client.get_job_run(applicationId="app", jobRunId=emr.start(RUN))["jobRun"]
    submit = run["jobDriver"]["sparkSubmit"]
    code = "s3://dormouse-dev-data-123456789012/spark-job-packages/v1/"
    assert submit["entryPoint"] == f"{code}bulk_import.py"
    assert " ".join(submit["entryPointArguments"]) == (
        "--instance dev --table-id table1 --job-id job1 --generation 3 --attempt 2"
    )
    assert submit["sparkSubmitParameters"] == parameters(SIZE, f"{code}environment.tar.gz")
    archives = f"--conf spark.archives={code}environment.tar.gz#environment"
    assert archives in submit["sparkSubmitParameters"]
    assert run["executionRole"] == ROLE


def test_memory_is_shared_by_the_jvm_and_python() -> None:
    text = parameters(SIZE, "s3://bucket/environment.tar.gz")
    assert "spark.executor.memory=8g" in text and "spark.executor.memoryOverhead=8g" in text
    assert "spark.dynamicAllocation.maxExecutors=7" in text
    assert "spark.executor.cores=4" in text


def test_parameters_are_words_without_spaces() -> None:
    words = parameters(SIZE, "s3://bucket/environment.tar.gz").split(" ")
    assert set(words[::2]) == {"--conf"}
    settings = dict(word.split("=", 1) for word in words[1::2])
    assert settings["spark.executor.extraJavaOptions"] == "-XX:TieredStopAtLevel=1"
    assert settings["spark.locality.wait"] == "30s"


def test_one_token_is_one_run(emr: EmrServerless) -> None:
    assert emr.start(RUN) == emr.start(RUN)


def test_the_state_of_a_run_is_returned_with_its_table_and_job(
    client: Any, emr: EmrServerless
) -> None:
    run_id = emr.start(RUN)
    assert emr.describe(run_id) == SparkRunState("table1", "job1", 2, "")
    client.cancel_job_run(applicationId="app", jobRunId=run_id)
    assert emr.describe(run_id) == SparkRunState("table1", "job1", 2, "failed", "it was cancelled")


def test_runs_of_others_and_runs_that_are_not_there_are_no_runs(
    client: Any, emr: EmrServerless
) -> None:
    emr.start(RUN)
    assert emr.describe("none") is None
    foreign = client.start_job_run(
        applicationId="app", clientToken="other", executionRoleArn=ROLE, name="by hand"
    )
    assert emr.describe(foreign["jobRunId"]) is None
    for arguments in (["--table-id", "t", "--job-id"], ["--table-id", "t", "--attempt", "first"]):
        foreign = client.start_job_run(
            applicationId="app",
            clientToken=" ".join(arguments),
            executionRoleArn=ROLE,
            name="table1/job1/2",
            jobDriver={"sparkSubmit": {"entryPoint": "x", "entryPointArguments": arguments}},
        )
        assert emr.describe(foreign["jobRunId"]) is None


def refusal(code: str) -> ClientError:
    response: Any = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {}}
    return ClientError(response, "StartJobRun")


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (refusal("ThrottlingException"), UnavailableError),
        (refusal("ConflictException"), UnavailableError),
        (refusal("ServiceQuotaExceededException"), UnavailableError),
        (refusal("InternalServerException"), UnavailableError),
        (refusal("ValidationException"), InvalidRequestError),
        (refusal("ResourceNotFoundException"), InvalidRequestError),
        (refusal("AccessDeniedException"), InvalidRequestError),
        (ConnectTimeoutError(endpoint_url="https://emr"), OutcomeUnknownError),
    ],
)
def test_a_refused_start_says_whether_to_try_again(
    client: Any, emr: EmrServerless, error: Exception, meaning: type[Exception]
) -> None:
    def fail(**_: Any) -> None:
        raise error

    client.meta.events.register("before-call.emr-serverless.StartJobRun", fail)
    with pytest.raises(meaning):
        emr.start(RUN)


def test_the_application_of_an_instance_is_found_by_its_name(client: Any) -> None:
    for name in ("dormouse-other", "dormouse-dev", "another"):
        client.create_application(name=name, releaseLabel="emr-spark-8.0.0", type="SPARK")
    found = find_application(client, InstanceNames("dev", "123456789012"))
    assert found == ("dormouse-dev", "STARTED")
    assert find_application(client, InstanceNames("devel", "123456789012")) is None


def test_an_application_that_was_deleted_is_none(client: Any) -> None:
    client.create_application(name="dormouse-dev", releaseLabel="emr-spark-8.0.0", type="SPARK")
    client.stop_application(applicationId="dormouse-dev")
    client.delete_application(applicationId="dormouse-dev")
    assert find_application(client, InstanceNames("dev", "123456789012")) is None


def test_a_denied_listing_of_applications_is_reported(client: Any) -> None:
    def fail(**_: Any) -> None:
        raise refusal("AccessDeniedException")

    client.meta.events.register("before-call.emr-serverless.ListApplications", fail)
    with pytest.raises(UnavailableError, match="AccessDenied"):
        find_application(client, InstanceNames("dev", "123456789012"))


def test_an_application_that_is_gone_is_a_refusal(client: Any) -> None:
    names = InstanceNames("dev", "123456789012")
    gone = EmrServerless(client, SparkSettings("gone", ROLE, Path("/opt")), names)
    with pytest.raises(InvalidRequestError, match="does not exist"):
        gone.start(RUN)
