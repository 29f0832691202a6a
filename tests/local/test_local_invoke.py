"""One function runs on one event as Lambda runs it: result, log, time and memory are shown."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from dormouse_cli.local.stack import LocalStack
from dormouse_cli.main import app

TEMPLATE = Path(__file__).parent / "stack" / "template.yaml"
Invoke = Callable[..., Result]


@pytest.fixture
def invoke(tmp_path: Path, stack: LocalStack, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Run `dormouse local invoke` against the stack, with an event as its file has it."""
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("DORMOUSE_INSTANCE", stack.environment["DORMOUSE_INSTANCE"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", stack.environment["AWS_ENDPOINT_URL"])

    def run(function: str, event: object, *options: str) -> Result:
        file = tmp_path / "event.json"
        file.write_text(event if isinstance(event, str) else json.dumps(event))
        template = ("--template", str(TEMPLATE), "--parameter", "WithSpare=yes")
        return CliRunner().invoke(
            app, ["local", "invoke", function, str(file), *template, *options]
        )

    return run


def test_a_result_goes_to_standard_output_alone_and_the_process_has_ended(
    invoke: Invoke, stack: LocalStack
) -> None:
    done = invoke("FailingFunction", {"do": "describe"})
    assert done.exit_code == 0, done.output
    described = json.loads(done.stdout)
    environment = described["environment"]
    assert environment["AWS_LAMBDA_FUNCTION_NAME"] == "local-FailingFunction"
    assert environment["AWS_ENDPOINT_URL"] == stack.environment["AWS_ENDPOINT_URL"]
    assert environment["SPARE"] == "spare"
    assert "AWS_PROFILE" not in environment
    assert described["greeting"] == "hello from the layer"
    assert not Path(f"/proc/{described['pid']}").exists()
    assert not Path(environment["TMPDIR"]).exists()


def test_time_and_memory_are_shown_beside_what_lambda_allows(invoke: Invoke) -> None:
    shown = invoke("FailingFunction", {"do": "describe"}).stderr.splitlines()[-1]
    found = re.fullmatch(
        r"local-FailingFunction: (\d+\.\d\d) s with its start, at most (\d+) MB of memory; "
        r"on Lambda it has 900 s and 128 MB",
        shown,
    )
    assert found is not None, shown
    assert float(found[1]) > 0 and int(found[2]) >= 5


def test_a_function_that_raises_crashes_or_takes_too_long_fails_with_its_log(
    invoke: Invoke,
) -> None:
    raised = invoke("FailingFunction", {"do": "raise"})
    assert (raised.exit_code, json.loads(raised.stdout)["errorType"]) == (1, "ValueError")
    assert "asked to raise" in raised.stderr
    crashed = invoke("FailingFunction", {"do": "crash"})
    assert (crashed.exit_code, json.loads(crashed.stdout)["errorType"]) == (1, "Runtime.ExitError")
    hung = invoke("HangingFunction", {})
    assert (hung.exit_code, json.loads(hung.stdout)["errorType"]) == (1, "Sandbox.Timedout")
    assert "Task timed out after 1.00 seconds" in hung.stderr


def test_what_a_function_does_is_done_to_the_stack(invoke: Invoke, stack: LocalStack) -> None:
    record = {"messageId": "m-1", "body": "fail", "attributes": {"ApproximateReceiveCount": "1"}}
    done = invoke("test-work", {"Records": [record]})
    assert json.loads(done.stdout) == {"batchItemFailures": [{"itemIdentifier": "m-1"}]}
    bucket = json.loads(invoke("FailingFunction", {"do": "describe"}).stdout)["environment"][
        "RESULTS_BUCKET"
    ]
    kept = stack.client("s3").get_object(Bucket=bucket, Key="m-1/1")["Body"].read()
    assert json.loads(kept)["body"] == "fail"


@pytest.mark.parametrize(
    ("function", "event", "why"),
    [("Nobody", {}, "there is no function 'Nobody'"), ("FailingFunction", "{", "is not JSON")],
)
def test_what_cannot_be_run_is_a_sentence(
    invoke: Invoke, function: str, event: object, why: str
) -> None:
    done = invoke(function, event)
    assert done.exit_code == 1
    assert why in done.stderr and "Traceback" not in done.stderr


def test_without_a_stack_nothing_runs(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    for url, why in ((f"http://127.0.0.1:{port}", "nothing answers"), ("nowhere", "not a URL")):
        refused = invoke("FailingFunction", {"do": "describe"}, "--endpoint", url)
        assert (refused.exit_code, why in refused.stderr) == (1, True), refused.output
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    refused = invoke("FailingFunction", {"do": "describe"})
    assert refused.exit_code == 1
    assert "no stack to run the function against" in refused.stderr
    (tmp_path / "event.json").unlink()
    gone = CliRunner().invoke(app, ["local", "invoke", "Nobody", str(tmp_path / "event.json")])
    assert "cannot be read" in gone.stderr
