"""The command line: exit codes pass through, and nothing outlives the stack, however it ends."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dormouse_cli.local import detached
from dormouse_cli.local.commands import LOCAL_PARAMETERS, parse_parameters
from dormouse_cli.local.plan import LocalStackError, StartError
from dormouse_cli.local.signals import run_command
from dormouse_cli.local.stack import LocalStack
from tests.support.waiting import LIMIT_SECONDS, eventually

Local = Callable[..., subprocess.CompletedProcess[str]]

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = Path(__file__).parent / "stack" / "template.yaml"
PACKAGES = os.pathsep.join(str(ROOT / each) for each in ("cli", "shared"))


def command(*arguments: str, state: Path) -> list[str]:
    program = "from dormouse_cli.local.commands import app; app()"
    name, *rest = arguments
    options = ["--template", str(TEMPLATE), "--state", str(state)]
    return [sys.executable, "-c", program, name, *options, *rest]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": PACKAGES, "AWS_PROFILE": "production"}


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


def server_of(state: Path) -> list[int]:
    """The AWS server of the stack with this state folder."""
    found = ((pid, Path(f"/proc/{pid}/cmdline").read_bytes()) for pid in members(state))
    return [pid for pid, line in found if b"dormouse_cli.local.moto_server" in line]


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
    exported = [process.stdout.readline() for _ in range(10)]
    assert b"export DORMOUSE_INSTANCE=local\n" in exported
    eventually(lambda: len(members(tmp_path)) == 2)  # S3's test event has started a function
    process.send_signal(number)
    assert process.wait(timeout=LIMIT_SECONDS) == (-number if number == signal.SIGKILL else 0)
    process.stdout.close()
    eventually(lambda: members(tmp_path) == [])


_INTERRUPTED_AT_EACH_LINE = """
import os, signal, sys, threading
from dormouse_cli.local.signals import interruptible

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
    with interruptible() as interruptions:
        later = threading.Timer(0.05, interrupt)  # where there are fewer lines
        later.start()
        sys.settrace(interrupt_at(line))
        number = interruptions.get()
        sys.settrace(None)
        later.join()
    assert number == signal.SIGINT
"""


def test_no_moment_of_waiting_is_deaf_to_a_signal() -> None:
    program = [sys.executable, "-c", _INTERRUPTED_AT_EACH_LINE]
    subprocess.run(program, env=environment(), check=True, timeout=LIMIT_SECONDS)


_SIGNALLED_IN_ANOTHER_THREAD = """
import os, signal, sys, threading, time
from dormouse_cli.local.signals import interruptible, run_command

def interrupt():
    while signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:  # it would end the process
        time.sleep(0.01)
    time.sleep(0.2)  # by now the main thread mostly waits; a signal before that is right, too
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

threading.Thread(target=interrupt).start()
if sys.argv[1:]:
    sys.exit(run_command(sys.argv[1:], os.environ))
with interruptible() as interruptions:
    assert interruptions.get() == signal.SIGTERM
"""


@pytest.mark.parametrize(("command", "code"), [((), 0), (("sleep", "60"), 143)])
def test_a_signal_that_does_not_wake_the_main_thread_is_not_lost(
    command: tuple[str, ...], code: int
) -> None:
    """The system may hand it to any thread, or just before the main thread begins to wait."""
    program = [sys.executable, "-c", _SIGNALLED_IN_ANOTHER_THREAD, *command]
    done = subprocess.run(program, env=environment(), check=False, timeout=LIMIT_SECONDS)
    assert done.returncode == code


def test_signals_are_ignored_while_the_stack_stops() -> None:
    """It saves then, which takes a while, and a user may press Ctrl-C again."""
    program = (
        "import os, signal; from dormouse_cli.local.signals import interruptible\n"
        "with interruptible(): pass\n"
        "os.kill(os.getpid(), signal.SIGTERM); os.kill(os.getpid(), signal.SIGINT)"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment(), check=False)
    assert done.returncode == 0


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


@pytest.fixture
def local(tmp_path: Path) -> Local:
    """Runs `dormouse local` as a user of its own; its state folder is `tmp_path / "state"`."""
    kept = {**environment(), "XDG_STATE_HOME": str(tmp_path / "kept")}
    program = "from dormouse_cli.local.commands import app; app()"
    options = ("--template", str(TEMPLATE), "--state", str(tmp_path / "state"))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", program, *arguments, *(options if "up" in arguments else ())],
            env=kept,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )

    return run


def test_a_stack_in_the_background_is_found_until_it_is_stopped(
    tmp_path: Path, local: Local
) -> None:
    state = tmp_path / "state"
    for name in ("status", "env", "down"):
        none = local(name)
        assert none.returncode == 3
        assert "no local stack runs in the background" in none.stderr
    started = local("up", "--detach")
    try:
        assert started.returncode == 0, started.stderr
        assert "export AWS_ENDPOINT_URL=http://127.0.0.1:" in started.stdout
        assert local("env").stdout == started.stdout
        exported = [state / "exports.sh", tmp_path / "kept" / "dormouse" / "local.json"]
        assert {path.stat().st_mode & 0o077 for path in exported} == {0}
        assert str(state / "logs") in local("status").stdout
        again = local("up", "--detach")
        assert (again.returncode, "runs already" in again.stderr) == (1, True)
    finally:
        stopped = local("down")
    assert stopped.returncode == 0
    assert members(state) == []
    assert local("status").returncode == 3


def test_a_stack_in_the_background_that_does_not_answer_is_found_and_stopped(
    tmp_path: Path, local: Local
) -> None:
    state = tmp_path / "state"
    assert local("up", "--detach").returncode == 0
    (server,) = server_of(state)
    os.kill(server, signal.SIGSTOP)
    status = local("status")
    assert (status.returncode, "does not answer" in status.stdout) == (0, True)
    assert local("up", "--detach").returncode == 1
    assert local("down").returncode == 0
    assert members(state) == []


def test_a_process_that_got_the_number_of_a_killed_stack_is_not_stopped_for_it(
    tmp_path: Path, local: Local
) -> None:
    """Nor is a service that has its port: the record is of a stack that was killed."""
    with (
        subprocess.Popen(["sleep", "1000"]) as innocent,
        socket.create_server(("127.0.0.1", 0)) as service,
    ):
        record = tmp_path / "kept" / "dormouse" / "local.json"
        record.parent.mkdir(parents=True)
        endpoint = f"http://127.0.0.1:{service.getsockname()[1]}"
        exported = {"AWS_ENDPOINT_URL": endpoint, "DORMOUSE_INSTANCE": "local"}
        record.write_text(json.dumps({"pid": innocent.pid, "environment": exported, "state": ""}))
        assert [local(name).returncode for name in ("status", "down")] == [3, 3]
        assert innocent.poll() is None
        innocent.kill()


def test_of_two_stacks_that_start_at_once_in_the_background_one_is_refused(
    tmp_path: Path, local: Local
) -> None:
    with ThreadPoolExecutor(2) as both:
        started = list(both.map(local, ["up"] * 2, ["--detach"] * 2))
    try:
        assert sorted(done.returncode for done in started) == [0, 1]
        assert any("runs already" in done.stderr for done in started)
        assert len(server_of(tmp_path / "state")) == 1
    finally:
        assert local("down").returncode == 0
    assert members(tmp_path / "state") == []


def test_a_stack_ends_with_its_embedded_aws_and_says_so(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command("up", state=tmp_path), env=environment(), stdout=-1, stderr=-1, text=True
    )
    assert process.stdout is not None
    exported = [process.stdout.readline() for _ in range(10)]
    assert "export DORMOUSE_INSTANCE=local\n" in exported
    (server,) = server_of(tmp_path)
    os.kill(server, signal.SIGKILL)
    try:
        _, said = process.communicate(timeout=LIMIT_SECONDS)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "the embedded AWS has ended" in said
    assert "aws.log" in said
    assert members(tmp_path) == []


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
    assert not (tmp_path / "dormouse" / "local.json").exists()


def test_a_stack_that_cannot_be_noted_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(StartError, match="cannot be written: Not a directory") as raised:
        detached.start([], tmp_path / "state")
    assert "XDG_STATE_HOME" in raised.value.hint
    assert detached.running() is None


def test_modules_of_the_current_folder_are_not_run_by_a_stack_in_the_background(
    tmp_path: Path,
) -> None:
    (tmp_path / "copy.py").write_text("import pathlib; pathlib.Path('ran').touch()")
    program, *rest = command("up", "--detach", "--parameter", "Nobody=1", state=tmp_path / "state")
    done = subprocess.run(
        [program, "-P", *rest],
        env={**environment(), "XDG_STATE_HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert not (tmp_path / "ran").exists()


def test_a_command_ended_by_a_signal_gives_the_shells_code() -> None:
    assert run_command(["sh", "-c", "kill -9 $$"], os.environ) == 137


def test_a_command_that_does_not_exist_gives_the_shells_code() -> None:
    assert run_command(["no-such-command"], os.environ) == 127


def test_parameters_go_over_those_of_the_local_stack() -> None:
    assert parse_parameters(["Instance=a=b"]) == {**LOCAL_PARAMETERS, "Instance": "a=b"}
    with pytest.raises(LocalStackError, match="'Instance' is no parameter of the template"):
        parse_parameters(["Instance"])
