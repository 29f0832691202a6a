"""The processes of statements: begun as forks, ended one by one and all together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from dormouse.client import Instance
from dormouse.errors import LimitExceededError, NotFoundError
from dormouse.statements import answering
from dormouse.statements.server import processes
from tests.support.waiting import LIMIT_SECONDS, eventually

BOMB = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.value + b.value < 0"


@pytest.fixture
def mice(tmp_path: Path) -> Iterator[Instance]:
    processes.end_server()  # that of other tests in this process
    with Instance.open(tmp_path / "mice", background=False) as instance:
        yield instance
    processes.end_server()


def server_pid() -> int:
    server = processes._PROCESSES._server
    assert server is not None
    return server.process.pid


def one(instance: Instance, text: str = "SELECT 1 AS a") -> list[object]:
    return instance.sql(text).to_arrow().column(0).to_pylist()


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_dead(pid: int) -> bool:
    """Return whether a process is gone, or a zombie, which nobody has waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_each_statement_has_a_process_of_its_own_and_all_have_one_server(mice: Instance) -> None:
    first, second = mice.sql("SELECT 1 AS a"), mice.sql("SELECT 2 AS a")
    assert [first.to_arrow().to_pylist(), second.to_arrow().to_pylist()] == [[{"a": 1}], [{"a": 2}]]
    server = server_pid()
    assert one(mice) == [1]
    assert server_pid() == server
    assert children(server) == []


@pytest.mark.skipif(sys.platform != "linux", reason="forks are made on Linux alone")
def test_the_server_has_one_thread_and_nothing_of_the_environment(
    mice: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    one(mice)
    process = Path(f"/proc/{server_pid()}")
    assert len(list((process / "task").iterdir())) == 1
    names = {entry.partition("=")[0] for entry in (process / "environ").read_text().split("\0")}
    assert names - {""} <= {"PYTHONPATH", "LD_LIBRARY_PATH", "JE_ARROW_MALLOC_CONF"}


_PLANNED = """
import sys
from dormouse.statements.server import start
start._import_all()
known = set(sys.modules)

from dormouse.arrow.types import arrow_schema
from dormouse.schema.schema import Field, Primitive, Schema
from dormouse.sql.statements import parse_statement
from dormouse.statements.child.datasets import TableDataset
from dormouse.statements.child.planning import plan_scans
from dormouse.statements.child.session import open_session, plan, register
schema = Schema((Field("k", Primitive.LONG),), (), (Field("f", Primitive.DOUBLE),))
context = open_session(sys.argv[1], 2**28, 2)
register(context, "#0", TableDataset(arrow_schema(schema), lambda _: iter(())), fenced=False)
for where in ("k = 7 AND f > 1.5", "k + 1 > 3 OR f IS NULL", "now() > '2024-01-01'"):
    text = parse_statement(f"SELECT k, sum(f) FROM t WHERE {where} GROUP BY k").sql
    found = plan_scans(plan(context, text, {}).optimized_logical_plan(), {"#0": schema}, set())
    assert found.scans or found.to_fence
print(*sorted(set(sys.modules) - known))
"""


def test_a_process_of_a_statement_imports_nothing_more(tmp_path: Path) -> None:
    """What a fork imports is imported again for each statement."""
    command = [sys.executable, "-c", _PLANNED, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == []


def test_a_statement_that_is_killed_costs_no_other(mice: Instance) -> None:
    other = mice.sql("SELECT value FROM range(100000)")
    with pytest.raises(LimitExceededError, match="longer than"):
        mice.sql(BOMB, timeout_seconds=LIMIT_SECONDS / 1000).to_arrow()
    server = server_pid()
    assert other.to_arrow().num_rows == 100_000
    assert one(mice) == [1]
    assert server_pid() == server


def test_a_server_that_is_killed_leaves_nothing_and_is_replaced(mice: Instance) -> None:
    found = mice.sql("SELECT a.value FROM range(1000000) a, range(1000000) b")
    assert next(iter(found)).num_rows
    server = server_pid()
    (child,) = children(server)
    os.kill(server, signal.SIGKILL)
    found.close()
    eventually(lambda: is_dead(child))
    assert one(mice) == [1]
    assert server_pid() != server


def script(tmp_path: Path, text: str) -> subprocess.Popen[str]:
    head = (
        "import os, sys\nfrom dormouse.client import Instance\n"
        "from dormouse.statements.server import processes\n"
        f"mice = Instance.open({str(tmp_path / 'other')!r}, background=False)\n"
    )
    command = [sys.executable, "-c", head + text]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_nothing_is_left_of_statements_when_the_process_that_asked_is_killed(
    tmp_path: Path,
) -> None:
    text = (
        f"found = mice.sql({'SELECT a.value FROM range(1000000) a, range(1000000) b'!r})\n"
        "next(iter(found))\n"
        "server = processes._PROCESSES._server.process.pid\n"
        "child = open(f'/proc/{server}/task/{server}/children').read().split()[0]\n"
        "print(server, child, flush=True)\nsys.stdin.read()\n"
    )
    with script(tmp_path, text) as asking:
        assert asking.stdout is not None
        pids = [int(pid) for pid in asking.stdout.readline().split()]
        assert len(pids) == 2
        asking.kill()
    for pid in pids:
        eventually(partial(is_dead, pid))


def test_a_fork_of_the_process_that_asks_has_a_server_of_its_own(tmp_path: Path) -> None:
    text = (
        "def one(): return mice.sql('SELECT 7 AS a').to_arrow().column(0)[0].as_py()\n"
        "one()\npid = os.fork()\n"
        "server = processes._PROCESSES._server\n"
        "print(one(), server is None, flush=True)\n"
        "processes.end_server()\n"
        "if pid == 0: os._exit(0)\n"
        "os.waitpid(pid, 0)\nprint(one())\n"
    )
    with script(tmp_path, text) as asking:
        said, _ = asking.communicate()
    assert sorted(said.splitlines()) == ["7", "7 False", "7 True"]


@pytest.mark.parametrize(
    ("setting", "is_replaced"), [("FORKS = False", False), ("IDLE_SECONDS = 0", True)]
)
def test_a_server_that_cannot_fork_or_has_gone_to_rest_answers_as_others_do(
    mice: Instance,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    setting: str,
    is_replaced: bool,
) -> None:
    module = (
        f"from dormouse.statements.server import fork_server\nfork_server.{setting}\n"
        "from dormouse.statements.server.start import main\nimport sys\nmain(int(sys.argv[1]))\n"
    )
    (tmp_path / "server_of_test.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(processes, "MODULE", "server_of_test")
    table = mice.create_table("t", "k:long", row_keys=["k"])
    table.ingest(pa.table({"k": [1, 2]}))
    assert one(mice, "SELECT sum(k + 0) FROM t") == [3]
    server = processes._PROCESSES._server
    assert server is not None
    if is_replaced:
        server.process.wait()
    assert one(mice, "SELECT sum(k + 0) FROM t") == [3]
    assert (server_pid() != server.process.pid) == is_replaced


def test_an_interruption_ends_the_statement_and_not_the_process_that_asks(tmp_path: Path) -> None:
    text = (
        "import signal, threading\n"  # the tests may run in the background, where it is ignored
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "mice.sql('SELECT 1').to_arrow()\n"
        "server = processes._PROCESSES._server.process.pid\n"
        "def children(): return open(f'/proc/{server}/task/{server}/children').read().split()\n"
        "def watch():\n"
        "    while not children(): threading.Event().wait(0.01)\n"
        "    print(*children(), flush=True)\n"
        "threading.Thread(target=watch).start()\n"
        f"try: mice.sql({BOMB!r}).to_arrow()\n"
        "except KeyboardInterrupt: print('stopped')\n"
        "print(mice.sql('SELECT 7 AS a').to_arrow().column(0)[0].as_py(), flush=True)\n"
        "sys.stdin.read()\n"
    )
    with script(tmp_path, text) as asking:
        assert asking.stdout is not None
        child = int(asking.stdout.readline())
        asking.send_signal(signal.SIGINT)
        assert [asking.stdout.readline() for _ in range(2)] == ["stopped\n", "7\n"]
        eventually(partial(is_dead, child))
        asking.communicate()


@pytest.mark.parametrize("change", ["delete", "rename", "drop a column", "reset"])
def test_a_table_that_changes_while_it_is_read_is_read_to_its_end_or_not_found(
    mice: Instance, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setattr(answering, "answer_plain", lambda *_: None)
    table = mice.create_table("t", "k:long, s:string?", row_keys=["k"])
    rows = 200_000
    table.ingest(pa.table({"k": range(rows), "s": ["x" * 20] * rows}))
    mice.wait()
    found = mice.sql("SELECT k, s FROM t")
    batches = iter(found)
    read = next(batches).num_rows
    match change:
        case "delete":
            mice.delete_table("t")
        case "rename":
            mice.rename_table("t", "u")
        case "drop a column":
            table.alter(drop=["s"])
        case "reset":
            mice.reinitialise_table("t")
    mice.wait()
    try:
        read += sum(batch.num_rows for batch in batches)
        assert read == rows
    except NotFoundError as error:
        assert change in ("delete", "reset")
        assert "cannot be read any more" in str(error)
    assert children(server_pid()) == []
