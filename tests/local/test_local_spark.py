"""EMR Serverless on this machine: runs really run, one at a time, and what ends is announced."""

import json
import os
import uuid
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from dormouse_cli.local.moto_emr import run_id_of
from dormouse_cli.local.stack import LocalStack
from tests.local.conftest import TEMPLATE
from tests.support.waiting import eventually

APPLICATION = "test-spark"
FINAL = ("SUCCESS", "FAILED", "CANCELLED")


def start(stack: LocalStack, *arguments: str, entry: str = "job.py", token: str = "") -> str:
    answer = stack.client("emr-serverless").start_job_run(
        applicationId=APPLICATION,
        clientToken=token or str(uuid.uuid4()),
        executionRoleArn="arn:aws:iam::123456789012:role/any",
        jobDriver={
            "sparkSubmit": {
                "entryPoint": f"s3://bucket/code/{entry}",
                "entryPointArguments": list(arguments),
            }
        },
    )
    return str(answer["jobRunId"])


def run_of(stack: LocalStack, run_id: str) -> dict[str, Any]:
    client = stack.client("emr-serverless")
    found: dict[str, Any] = client.get_job_run(applicationId=APPLICATION, jobRunId=run_id)
    run: dict[str, Any] = found["jobRun"]
    return run


def ended(stack: LocalStack, run_id: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        run = run_of(stack, run_id)
        return run if run["state"] in FINAL else None

    found = eventually(look)
    assert found is not None
    return found


def events(stack: LocalStack) -> list[dict[str, Any]]:
    """Take what was announced."""
    sqs = stack.client("sqs")
    url = sqs.get_queue_url(QueueName="local-RunsQueue")["QueueUrl"]
    found = []
    while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
        for message in messages:
            found.append(json.loads(message["Body"]))
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return found


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_run_is_given_its_arguments_and_this_stack_and_its_end_is_announced(
    stack: LocalStack, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    run_id = start(stack, str(said), "0", "--last")
    assert ended(stack, run_id)["state"] == "SUCCESS"
    found = json.loads(said.read_text())
    assert found["arguments"] == [str(said), "0", "--last"]
    assert found["AWS_ENDPOINT_URL"] == stack.environment["AWS_ENDPOINT_URL"]
    assert not Path(found["TMPDIR"]).exists(), "its temporary files go with it"
    (event,) = eventually(lambda: events(stack))
    assert event["detail-type"] == "EMR Serverless Job Run State Change"
    detail = event["detail"]
    assert (detail["jobRunId"], detail["state"]) == (run_id, "SUCCESS")
    assert detail["previousState"] == "RUNNING"


def test_a_run_that_fails_says_where_its_log_is(stack: LocalStack, tmp_path: Path) -> None:
    run = ended(stack, start(stack, str(tmp_path / "said"), "3"))
    assert run["state"] == "FAILED"
    assert "exit code" in run["stateDetails"] and "logs/spark-" in run["stateDetails"]
    missing = ended(stack, start(stack, entry="nothing.py"))
    assert missing["state"] == "FAILED"
    assert "nothing.py" in missing["stateDetails"]
    assert {event["detail"]["state"] for event in eventually(lambda: events(stack))} == {"FAILED"}


def test_one_token_is_one_run_and_no_other_request_may_have_it(
    stack: LocalStack, tmp_path: Path
) -> None:
    first = start(stack, "a", token="same", entry="nothing.py")
    assert first == run_id_of(APPLICATION, "same")
    assert start(stack, "a", token="same", entry="nothing.py") == first
    with pytest.raises(ClientError, match="ConflictException"):
        start(stack, "b", token="same", entry="nothing.py")
    ended(stack, first)
    assert start(stack, "a", token="same", entry="nothing.py") == first
    assert len(eventually(lambda: events(stack))) == 1


def test_a_cancelled_run_is_killed_and_the_next_begins(stack: LocalStack, tmp_path: Path) -> None:
    said = tmp_path / "said"
    hanging = start(stack, str(said), "hang")
    waiting = start(stack, entry="nothing.py")
    eventually(said.exists)
    pid = json.loads(eventually(said.read_text))["pid"]
    assert run_of(stack, waiting)["state"] == "SUBMITTED"
    stack.client("emr-serverless").cancel_job_run(applicationId=APPLICATION, jobRunId=hanging)
    assert ended(stack, waiting)["state"] == "FAILED"
    assert run_of(stack, hanging)["state"] == "CANCELLED"
    eventually(lambda: not is_alive(pid))
    seen: list[dict[str, Any]] = []
    eventually(lambda: seen.extend(events(stack)) or len(seen) >= 2)
    assert {each["detail"]["jobRunId"] for each in seen} == {hanging, waiting}


def test_no_process_of_a_run_outlives_the_stack(tmp_path: Path) -> None:
    said = tmp_path / "said"
    with LocalStack(TEMPLATE, {}, tmp_path / "stack") as own:
        start(own, str(said), "hang")
        eventually(said.exists)
        pid = json.loads(eventually(said.read_text))["pid"]
        assert is_alive(pid)
    eventually(lambda: not is_alive(pid))
