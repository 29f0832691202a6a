"""The command line: exit codes pass through, and nothing outlives the stack, however it ends."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dormouse_cli.local.commands import LOCAL_PARAMETERS, parse_parameters, run_command
from dormouse_cli.local.errors import LocalStackError, StartError
from dormouse_cli.local.stack import LocalStack
from tests.support.waiting import LIMIT_SECONDS, eventually

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = Path(__file__).parent / "stack" / "template.yaml"


def command(*arguments: str, state: Path) -> list[str]:
    program = "from dormouse_cli.local.commands import app; app()"
    name, *rest = arguments
    options = ["--template", str(TEMPLATE), "--state", str(state)]
    return [sys.executable, "-c", program, name, *options, *rest]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "cli"), "AWS_PROFILE": "production"}


def members(state: Path) -> list[int]:
    """The AWS server and the function processes of the stack with this state folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environ = (process / "environ").read_bytes()
            if (process / "cwd").readlink() == state or f"TMPDIR={state}".encode() in environ:
                found.append(int(process.name))
        except OSError:
            continue  # it has ended meanwhile, or belongs to another
    return found


def test_run_passes_on_the_exit_code_and_gives_only_the_stacks_account(tmp_path: Path) -> None:
    script = 'test "$AWS_ENDPOINT_URL" -a -z "$AWS_PROFILE" && echo $DORMOUSE_INSTANCE; exit 3'
    done = subprocess.run(
        command("run", "--", "sh", "-c", script, state=tmp_path),
        env=environment(),
        stdout=subprocess.PIPE,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, b"local\n")
    assert members(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_a_stack_that_gets_a_signal(
    tmp_path: Path, number: signal.Signals
) -> None:
    process = subprocess.Popen(
        command("up", state=tmp_path), env=environment(), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    exported = [process.stdout.readline() for _ in range(9)]
    assert b"export DORMOUSE_INSTANCE=local\n" in exported
    eventually(lambda: len(members(tmp_path)) == 2)  # S3's test event has started a function
    process.send_signal(number)
    assert process.wait(timeout=LIMIT_SECONDS) == (-number if number == signal.SIGKILL else 0)
    process.stdout.close()
    eventually(lambda: members(tmp_path) == [])


_INTERRUPTED_AT_EACH_LINE = """
import os, signal, sys, threading
from dormouse_cli.local.commands import _interruptible

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

def interrupt_at(line):
    lines = iter(range(line))
    def trace(frame, event, argument):
        if frame.f_code.co_name != "interrupt" and next(lines, None) == line - 1:
            interrupt()
        return trace
    return trace

for line in range(1, 20):
    with _interruptible() as interruption:
        later = threading.Timer(0.05, interrupt)  # where there are fewer lines
        later.start()
        sys.settrace(interrupt_at(line))
        number = interruption()
        sys.settrace(None)
        later.join()
    assert number == signal.SIGINT
"""


def test_no_moment_of_waiting_is_deaf_to_a_signal() -> None:
    program = [sys.executable, "-c", _INTERRUPTED_AT_EACH_LINE]
    subprocess.run(program, env=environment(), check=True, timeout=LIMIT_SECONDS)


def test_a_refused_template_is_one_line_without_a_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        command("up", "--parameter", "Nobody=1", state=tmp_path),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: the template has no parameter Nobody")
    assert "Traceback" not in done.stderr
    assert members(tmp_path) == []


def test_a_port_that_is_taken_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        stack = LocalStack(TEMPLATE, {}, tmp_path, port=port)
        with pytest.raises(StartError, match=f"port {port} cannot be used: .*in use") as refused:
            stack.start()
    assert "--port" in refused.value.hint
    assert members(tmp_path) == []


def test_the_command_line_loads_without_the_packages_of_the_local_stack() -> None:
    program = (
        "import sys; sys.modules.update(dict.fromkeys(['moto', 'samtranslator', 'boto3']));"
        "import dormouse_cli.local.commands"
    )
    subprocess.run(
        [sys.executable, "-c", program], env=environment(), check=True, timeout=LIMIT_SECONDS
    )


def test_a_stack_in_the_background_is_found_until_it_is_stopped(tmp_path: Path) -> None:
    kept = {**environment(), "XDG_STATE_HOME": str(tmp_path / "kept")}
    state = tmp_path / "state"

    def local(*arguments: str) -> subprocess.CompletedProcess[str]:
        program = "from dormouse_cli.local.commands import app; app()"
        return subprocess.run(
            [sys.executable, "-c", program, *arguments],
            env=kept,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )

    up = ("up", "--detach", "--template", str(TEMPLATE), "--state", str(state))
    for name in ("status", "env", "down"):
        none = local(name)
        assert none.returncode == 3
        assert "no local stack runs in the background" in none.stderr
    started = local(*up)
    try:
        assert started.returncode == 0, started.stderr
        assert "export AWS_ENDPOINT_URL=http://127.0.0.1:" in started.stdout
        assert local("env").stdout == started.stdout
        assert str(state / "logs") in local("status").stdout
        again = local(*up)
        assert (again.returncode, "runs already" in again.stderr) == (1, True)
    finally:
        stopped = local("down")
    assert stopped.returncode == 0
    assert members(state) == []
    assert local("status").returncode == 3


def test_a_stack_that_does_not_start_in_the_background_says_why(tmp_path: Path) -> None:
    done = subprocess.run(
        command("up", "--detach", "--parameter", "Nobody=1", state=tmp_path / "state"),
        env={**environment(), "XDG_STATE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert "the template has no parameter Nobody" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "dormouse").exists()


def test_a_command_ended_by_a_signal_gives_the_shells_code() -> None:
    assert run_command(["sh", "-c", "kill -9 $$"], os.environ) == 137


def test_a_command_that_does_not_exist_gives_the_shells_code() -> None:
    assert run_command(["no-such-command"], os.environ) == 127


def test_parameters_go_over_those_of_the_local_stack() -> None:
    assert parse_parameters(["Instance=a=b"]) == {**LOCAL_PARAMETERS, "Instance": "a=b"}
    with pytest.raises(LocalStackError, match="'Instance' is no parameter of the template"):
        parse_parameters(["Instance"])
