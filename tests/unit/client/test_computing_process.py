"""The process that computes for one that must not end with it: what others notice of its death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from dormouse.client import computing
from dormouse.client.computing import ComputingProcess
from dormouse.errors import (
    InvalidRequestError,
    InvariantError,
    LimitExceededError,
    RefusedSourceError,
    UnavailableError,
)
from dormouse.http.messages import HttpRequest
from tests.support.waiting import eventually

TASKS = """
import os, signal, socket, sys, threading, time
import msgspec
from pathlib import Path
from dormouse.client.computing import Done, RowsRead, receive, send

control, root = socket.socket(fileno=int(sys.argv[2])), Path(sys.argv[1])

def serve(connection):
    while True:
        name = msgspec.msgpack.decode(receive(connection))["name"]
        error = None
        if name == "deadly":
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "slow":
            (root / f"slow-{os.getpid()}").touch()
            (root / f"begun-{time.monotonic_ns()}").touch()
            while not (root / "go").exists():
                time.sleep(0.01)
        if name == "broken":
            error = ("InvalidRequestError", "it is broken", "mend it")
        if name == "bug":
            error = ("KeyError", "what", "")
        (Path(os.environ["TMPDIR"]) / "spill").touch()
        send(connection, Done(read=RowsRead(os.getpid()), error=error))

if not (root / "starts").exists():
    control.send(b".")
while True:
    _, (descriptor,), *_ = socket.recv_fds(control, 1, 1)
    connection = socket.socket(fileno=descriptor)
    threading.Thread(target=serve, args=(connection,), daemon=True).start()
"""


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ComputingProcess]:
    (tmp_path / "tasks.py").write_text(TASKS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(computing, "MODULE", "tasks")
    process = ComputingProcess(str(tmp_path), tmp_path, os.environ)
    yield process
    process.end()
    assert not list(tmp_path.glob("computing-*")), "temporary files are removed"


def test_tasks_share_a_process_and_after_its_death_another_is_there(
    process: ComputingProcess, caplog: pytest.LogCaptureFixture
) -> None:
    first = process.count_rows("fine", b"").rows
    assert process.count_rows("fine", b"x" * 3_000_000).rows == first
    with pytest.raises(InvalidRequestError, match="it is broken") as refused:
        process.compute("broken", 0, 60)
    assert refused.value.hint == "mend it"
    with pytest.raises(InvariantError):
        process.compute("bug", 0, 60)
    assert process.count_rows("fine", b"").rows == first, "an error is no death"
    os.kill(first, signal.SIGSEGV)
    # the signal has been sent, and may not have ended it yet
    second = eventually(lambda: ({process.count_rows("fine", b"").rows} - {first}) or None).pop()
    with pytest.raises(LimitExceededError, match="with SIGKILL"):
        process.compute("deadly", 0, 60)
    with pytest.raises(RefusedSourceError, match="ended the process that read it, with SIGKILL"):
        process.count_rows("deadly", b"")
    process.check_sample(Path("fine"), {})
    with pytest.raises(RefusedSourceError, match="ended the process that read it"):
        process.check_sample(Path("deadly"), {})
    assert process.count_rows("fine", b"").rows not in (first, second)
    assert "the process that computes ended with SIGSEGV" in caplog.text


def test_what_another_task_ended_is_done_all_the_same(
    process: ComputingProcess, tmp_path: Path
) -> None:
    with ThreadPoolExecutor() as threads:
        slow = threads.submit(process.count_rows, "slow", b"")
        (first,) = eventually(lambda: list(tmp_path.glob("slow-*")))
        os.kill(int(first.name.removeprefix("slow-")), signal.SIGABRT)
        eventually(lambda: slow.done() or len(list(tmp_path.glob("slow-*"))) == 2)
        (tmp_path / "go").touch()
        assert str(slow.result().rows) in {
            p.name.removeprefix("slow-") for p in tmp_path.glob("slow-*")
        }


def _has_begun(folder: Path, tasks: int) -> bool:
    return len([*folder.glob("begun-*")]) == tasks


@pytest.mark.parametrize("has_started", [True, False])
def test_many_tasks_at_once_have_as_many_processes_as_there_may_be(
    process: ComputingProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_started: bool
) -> None:
    monkeypatch.setattr(computing, "MANY_TASKS", 2)
    monkeypatch.setattr(computing, "MOST_SHARED", 2)
    used, first = [], process.count_rows("fine", b"").rows
    if not has_started:
        (tmp_path / "starts").touch()
    with ThreadPoolExecutor(6) as threads:
        slow = []
        for number in range(1, 7):
            slow.append(threads.submit(process.count_rows, "slow", b""))
            eventually(partial(_has_begun, tmp_path, number))
            used.append(len([*tmp_path.glob("slow-*")]))
        (tmp_path / "go").touch()
        done = Counter(each.result().rows for each in slow)
    assert used == [1, 1, 2, 2, 2, 2]
    others = 3 if has_started else 5  # these do not wait for a process that starts
    assert done.pop(first) == others
    assert [*done.values()] == [6 - others]
    assert len(process._shared) == 2
    assert process.count_rows("fine", b"").rows == first
    assert len(process._shared) == 2, "it may soon be needed again"
    monkeypatch.setattr(computing, "IDLE_MS", -1)
    assert process.count_rows("fine", b"").rows == first
    assert len(process._shared) == len(process._running) == 1


def test_the_end_ends_what_is_computed_and_nothing_follows(
    process: ComputingProcess, tmp_path: Path
) -> None:
    with ThreadPoolExecutor() as threads:
        slow = threads.submit(process.count_rows, "slow", b"")
        eventually(lambda: list(tmp_path.glob("slow-*")))
        process.end()
        with pytest.raises(UnavailableError):
            slow.result()
    with pytest.raises(UnavailableError):
        process.compute("fine", 0, 60)


def test_a_task_that_never_ends_is_ended_with_its_process(
    process: ComputingProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call of a function of SQL may compute for hours, which nothing interrupts."""
    monkeypatch.setattr(computing, "ANSWER_SECONDS", 0.05)
    with pytest.raises(LimitExceededError, match="with SIGKILL: out of memory or time"):
        process.answer(HttpRequest("POST", "slow"))
    with pytest.raises(LimitExceededError, match="with SIGKILL: out of memory or time"):
        process.compute("slow", 0, 0.05)


def test_what_asks_for_most_of_the_memory_of_the_machine_fails(tmp_path: Path) -> None:
    code = (
        "import os; from dormouse.features.http.computing import limit_memory; limit_memory()\n"
        "most = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')\n"
        "try:\n    bytearray(max(most, 2**33))\nexcept MemoryError:\n    print('refused')"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "refused\n"
