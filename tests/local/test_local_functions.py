"""Functions must fail here as they fail on Lambda: one by one, loudly, leaving nothing behind."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from dormouse_cli.local.plan import LocalStackError
from dormouse_cli.local.stack import LocalStack
from tests.support.waiting import eventually

FOLDER = Path(__file__).parent / "stack"


def ask(stack: LocalStack, **event: Any) -> Any:
    outcome = stack.invoke("FailingFunction", event)
    assert not outcome.failed, outcome.payload
    return json.loads(outcome.payload)


def error_of(stack: LocalStack, function: str, **event: Any) -> tuple[str, str]:
    outcome = stack.invoke(function, event)
    assert outcome.failed
    error = json.loads(outcome.payload)
    return error["errorType"], error["errorMessage"]


def is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_a_function_sees_what_lambda_shows_it(stack: LocalStack) -> None:
    seen = ask(stack, do="describe")
    environment = seen["environment"]
    assert seen["greeting"] == "hello from the layer"
    assert seen["cwd"] == environment["LAMBDA_TASK_ROOT"] == str(FOLDER / "functions" / "echo")
    assert seen["temporary"] == environment["TMPDIR"] != "/tmp"
    assert 0 < seen["remaining_ms"] <= 900_000
    assert environment["AWS_LAMBDA_FUNCTION_NAME"] == "local-FailingFunction"
    assert environment["AWS_ENDPOINT_URL"] == stack.environment["AWS_ENDPOINT_URL"]
    assert environment["PATH"]


def test_a_function_sees_nothing_of_the_callers_environment(
    stack: LocalStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    error_of(stack, "FailingFunction", do="crash")  # so that the next event starts a new process
    assert "AWS_PROFILE" not in ask(stack, do="describe")["environment"]


def test_a_handler_that_raises_keeps_its_process(stack: LocalStack) -> None:
    before = ask(stack, do="describe")["pid"]
    assert error_of(stack, "FailingFunction", do="raise") == ("ValueError", "asked to raise")
    assert ask(stack, do="describe")["pid"] == before


def test_a_crash_fails_the_event_and_the_next_gets_a_new_process(stack: LocalStack) -> None:
    before = ask(stack, do="describe")["pid"]
    assert error_of(stack, "FailingFunction", do="crash") == (
        "Runtime.ExitError",
        "Runtime exited with error: exit status 7",
    )
    assert ask(stack, do="describe")["pid"] != before


def test_a_function_over_its_time_is_killed_with_what_it_started(
    stack: LocalStack, state_folder: Path
) -> None:
    assert error_of(stack, "HangingFunction") == (
        "Sandbox.Timedout",
        "Task timed out after 1.00 seconds",
    )
    log = (state_folder / "logs" / "local-HangingFunction.log").read_text()
    loaded = re.search(r"loaded by (\d+) which started (\d+)", log)
    assert loaded is not None
    eventually(lambda: not any(is_running(int(pid)) for pid in loaded.groups()))


def test_a_module_that_cannot_be_imported_fails_each_event(stack: LocalStack) -> None:
    for _ in range(2):
        assert error_of(stack, "BrokenFunction") == ("RuntimeError", "broken on import")


def test_an_event_of_several_megabytes_passes_both_ways(stack: LocalStack) -> None:
    size = 5_000_000
    outcome = stack.invoke("FailingFunction", {"do": "describe", "size": size, "pad": "y" * size})
    assert len(json.loads(outcome.payload)["big"]) == size


def test_an_unknown_function_is_an_error_with_the_known_ones(stack: LocalStack) -> None:
    with pytest.raises(LocalStackError, match="no function 'Nobody'") as error:
        stack.invoke("Nobody", {})
    assert "echo" in error.value.hint


def test_no_process_is_left_after_stop(tmp_path: Path) -> None:
    with LocalStack(FOLDER / "template.yaml", {}, tmp_path) as own:
        function = ask(own, do="describe")["pid"]
        child = ask(own, do="spawn")["pid"]
        endpoint_url = own.environment["AWS_ENDPOINT_URL"]
        assert is_running(function) and is_running(child)
    eventually(lambda: not any(map(is_running, (function, child))))
    assert endpoint_url not in _environments()


def _environments() -> str:
    """What all processes on this machine that we may look at were started with."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        if process.name != str(os.getpid()):
            try:
                found.append((process / "environ").read_text(errors="replace"))
            except OSError:
                continue  # it has ended meanwhile, or belongs to another
    return "\n".join(found)
