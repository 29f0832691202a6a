"""The worker of a folder: what becomes of messages, and how it ends with its process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest

from dormouse.client.instance import Instance
from dormouse.errors import DiskFullError, InvalidRequestError, RefusedSourceError, UnavailableError
from dormouse.folder import worker as deliveries
from dormouse.folder.processes import Leaving, LeavingError, LeavingStorage
from dormouse.folder.wiring import OpenFolder, open_folder
from dormouse.folder.worker import Background
from dormouse.jobs import MAX_RECEIVES
from dormouse.messages import stages
from dormouse.messages.stages import FilesDropped, IngestJob, OutboundMessage, TableChanged, encode
from dormouse.state.sources import Source
from tests.support.memory_storage import MemoryStorage
from tests.support.waiting import LIMIT_SECONDS
from tests.support.world import LETTERS

CHANGES, DEAD = "table-changes", "table-changes-dead"


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenFolder]:
    monkeypatch.setattr(deliveries, "FIRST_RETRY_SECONDS", 0)
    monkeypatch.setattr(deliveries, "NEXT_RETRY_SECONDS", 0)
    opened = open_folder(tmp_path / "mice", background=False)
    yield opened
    opened.close()


def stage_that(monkeypatch: pytest.MonkeyPatch, *results: object) -> list[Any]:
    """Let stages raise or return these, one after the other; return the messages they are given."""
    seen: list[Any] = []
    left = list(results)

    def stage(services: object, message: object) -> object:
        seen.append(message)
        result = left.pop(0) if left else []
        if isinstance(result, BaseException):
            raise result
        return result

    monkeypatch.setattr(stages.Stage, "load", lambda self: stage)
    return seen


def waiting(opened: OpenFolder, queue: str) -> int:
    found = opened.queues.counts([queue])[queue]
    return found.waiting + found.in_flight + found.delayed


def send(opened: OpenFolder, *changes: TableChanged) -> None:
    opened.queues.send(OutboundMessage(CHANGES, change) for change in changes)


def test_a_message_is_run_and_deleted_and_what_follows_is_sent(
    opened: OpenFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = stage_that(monkeypatch, [OutboundMessage(CHANGES, TableChanged("next"))])
    send(opened, TableChanged("t"))
    opened.finish(LIMIT_SECONDS)
    assert [message.table_id for message in seen] == ["t", "next"]
    assert waiting(opened, CHANGES) == 0


def test_changes_of_a_table_are_planned_once_and_a_swept_one_serves_the_others(
    opened: OpenFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = stage_that(monkeypatch)
    send(opened, *[TableChanged("t")] * 3, TableChanged("u"), TableChanged("t", swept=True))
    assert opened.worker.step()
    assert seen == [TableChanged("t", swept=True), TableChanged("u")]
    assert not opened.worker.step()


def test_a_job_comes_before_the_next_plan_if_planning_takes_long(
    opened: OpenFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[stages.Message] = []

    def stage(services: object, message: stages.Message) -> list[OutboundMessage]:
        seen.append(message)
        return [OutboundMessage(CHANGES, TableChanged("t"))] if len(seen) < 5 else []

    monkeypatch.setattr(stages.Stage, "load", lambda self: stage)
    monkeypatch.setattr(deliveries, "PLANNING_SHARE", 10**9)
    jobs = [stages.CompactionJob("t", 1, str(number)) for number in range(3)]
    send(opened, TableChanged("t"))
    opened.queues.send(OutboundMessage("compaction-jobs", job) for job in jobs)
    opened.finish(LIMIT_SECONDS)
    assert seen == [TableChanged("t"), *jobs, TableChanged("t")]


def test_what_fails_comes_again_and_what_can_never_succeed_ends_with_its_reason(
    opened: OpenFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [InvalidRequestError("it is no such thing")] * MAX_RECEIVES
    seen = stage_that(monkeypatch, *failures)
    send(opened, TableChanged("t"))
    opened.finish(LIMIT_SECONDS)
    assert len(seen) == MAX_RECEIVES
    (letter,) = opened.services.dead_letters.receive(CHANGES, 10)
    assert letter.reason == "it is no such thing"


def test_an_error_that_is_not_ours_stops_neither_the_worker_nor_is_it_quoted(
    opened: OpenFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage_that(monkeypatch, *[ValueError("Hazel's secret")] * MAX_RECEIVES)
    send(opened, TableChanged("t"))
    with caplog.at_level("INFO"):
        opened.finish(LIMIT_SECONDS)
    assert "ValueError" in caplog.text
    assert "secret" not in caplog.text
    assert waiting(opened, DEAD) == 1


def test_what_cannot_be_decoded_is_a_dead_letter_at_once(opened: OpenFolder) -> None:
    for queue in ("table-changes", "files", "spark-jobs"):
        opened.queues.send_body(queue, "{not json")
        assert opened.worker.step()
        assert waiting(opened, f"{queue}-dead") == 1


@pytest.mark.parametrize("error", [InvalidRequestError("no"), ValueError("no")])
def test_files_of_a_table_that_fails_do_not_hold_up_those_of_others(
    opened: OpenFolder, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    from dormouse.features import batch_files as module

    batched: list[list[str]] = []

    def batch(services: object, sources: list[Source], waiting: object) -> list[OutboundMessage]:
        keys = [source.key for source in sources]
        if "bad/a.csv" in keys:
            raise error
        batched.append(keys)
        return []

    monkeypatch.setattr(module, "batch_files", batch)
    for name in ("a", "b", "bad", "c"):
        source = Source("inbox", f"{name}/a.csv", "etag", 1)
        opened.queues.send_body("files", encode(FilesDropped((source,))))
    opened.finish(LIMIT_SECONDS)
    assert sorted(key for keys in batched for key in keys) == ["a/a.csv", "b/a.csv", "c/a.csv"]
    assert waiting(opened, "files") == 0
    assert waiting(opened, "files-dead") == 1


def test_a_full_disk_ends_no_worker_and_the_files_come_again(
    opened: OpenFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dormouse.features import batch_files as module

    failures = [OSError(28, "No space left on device")]

    def batch(*_: object) -> list[OutboundMessage]:
        if failures:
            raise failures.pop()
        return []

    monkeypatch.setattr(module, "batch_files", batch)
    for name in "ab":
        source = Source("inbox", f"{name}/a.csv", "etag", 1)
        opened.queues.send_body("files", encode(FilesDropped((source,))))
    assert opened.worker.step()
    assert waiting(opened, "files") == 2
    opened.finish(LIMIT_SECONDS)
    assert waiting(opened, "files") == waiting(opened, "files-dead") == 0


@pytest.mark.parametrize("layers", [0, 1, 2])
def test_work_for_which_a_disk_has_no_room_waits_for_it_and_who_waits_hears_of_it(
    opened: OpenFolder, monkeypatch: pytest.MonkeyPatch, layers: int
) -> None:
    """As often as it takes: it is the disk's fault, and no dead letter."""

    def full() -> Exception:
        error: Exception = OSError(28, "No space left on device", "/tmp/somebody's rows")
        for _ in range(layers):
            error, error.__cause__ = UnavailableError("not sorted"), error
        return error

    many = 2 * MAX_RECEIVES
    seen = stage_that(monkeypatch, *[full() for _ in range(many)])
    send(opened, TableChanged("t"))
    for _ in range(many):
        with pytest.raises(DiskFullError, match="is full") as raised:
            opened.worker.work_for(0)
        assert "free some space" in raised.value.hint
        assert "rows" not in raised.value.explanation
    opened.worker.work_for(0)
    assert len(seen) == many + 1
    assert waiting(opened, CHANGES) == waiting(opened, DEAD) == 0


def test_a_disk_that_was_full_long_ago_is_nothing_to_who_waits_now(
    opened: OpenFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage_that(monkeypatch, OSError(28, "No space left on device"))
    send(opened, TableChanged("t"))
    now = [1000.0]
    found = opened.worker._deliveries
    found.seconds = lambda: now[0]
    assert opened.worker.step()
    now[0] += deliveries.JUST_NOW_SECONDS
    found.check_disk()


def test_a_worker_that_leaves_hands_its_message_back_as_if_it_had_not_had_it(
    opened: OpenFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave() -> None:
        opened.worker.leaving.leave()
        opened.worker.services.storage.get("x")

    seen = stage_that(monkeypatch)
    monkeypatch.setattr(stages.Stage, "load", lambda self: lambda *_: leave())
    send(opened, TableChanged("t"))
    opened.worker.step()
    (message,) = opened.queues.receive(CHANGES, 1)
    assert message.receives == 1
    assert seen == []


def test_ctrl_c_hands_the_message_back(opened: OpenFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    stage_that(monkeypatch, KeyboardInterrupt())
    send(opened, TableChanged("t"))
    with pytest.raises(KeyboardInterrupt):
        opened.worker.step()
    assert opened.queues.receive(CHANGES, 1)[0].receives == 1


def test_every_access_of_a_worker_ends_when_it_has_to_leave(tmp_path: Path) -> None:
    storage, leaving = MemoryStorage(), Leaving()
    storage.put("a", b"rows")
    guarded = LeavingStorage(storage, leaving)
    opened = guarded.open("a", 4)
    assert opened.read(2) == b"ro"
    leaving.leave()
    for access in (
        lambda: opened.read(2),
        lambda: guarded.open("a", 4),
        lambda: guarded.get("a"),
        lambda: guarded.put("b", b""),
        lambda: guarded.upload("b", tmp_path),
        lambda: guarded.list(""),
        lambda: guarded.list_noncurrent(""),
        lambda: guarded.folders(),
        lambda: guarded.delete(["a"]),
    ):
        with pytest.raises(LeavingError):
            access()
    assert [item.path for item in storage.list("")] == ["a"]


def test_a_large_file_of_the_inbox_keeps_no_process_that_ends(
    opened: OpenFolder, tmp_path: Path
) -> None:
    """To read it takes a minute for each few gigabytes."""
    source = opened.inbox.drop("t/a.csv", write(tmp_path, "a", 1))
    worker = opened.worker
    worker.services.sources.download(source, tmp_path / "first")
    folder = opened.layout.inbox / "t"
    (folder / "new.csv").write_text("letter,at,note\n")
    os.utime(folder / "new.csv", (0, 0))
    worker.leaving.leave()
    with pytest.raises(LeavingError):
        worker.services.sources.download(source, tmp_path / "second")
    with pytest.raises(LeavingError):
        list(worker.inbox.find_new())
    opened.inbox.download(source, tmp_path / "third")  # by the caller, who stays


def test_many_threads_write_and_query_one_instance(tmp_path: Path) -> None:
    threads, files = 16, 2
    with Instance.open(tmp_path / "mice") as instance:
        table = instance.create_table("letters", LETTERS)

        def use(number: int) -> list[int]:
            counts = []
            for file in range(files):
                path = tmp_path / f"{number}-{file}.csv"
                path.write_text(f"letter,at,note\nt{number},{file},x\n")
                table.ingest(path)
                counts.append(table.count(where=f"letter = 't{number}'"))
            return counts

        with ThreadPoolExecutor(threads) as pool:
            found = list(pool.map(use, range(threads)))
        assert found == [[1, 2]] * threads
        assert table.count() == threads * files
        assert not any(queue.dead for queue in instance.queue_states()[0])


def test_a_thread_in_the_background_works_and_ends_when_it_is_closed(tmp_path: Path) -> None:
    instance = Instance.open(tmp_path / "mice")
    table = instance.create_table("letters", LETTERS)
    table.ingest([write(tmp_path, "a", n) for n in range(8)])
    table.wait(LIMIT_SECONDS)
    assert table.count() == 8
    assert instance.folder is not None
    assert instance.folder.background.runs
    instance.close()
    assert not instance.folder.background.runs


def write(folder: Path, letter: str, number: int) -> Path:
    path = folder / f"{number}.csv"
    path.write_text(f"letter,at,note\n{letter},{number},x\n")
    return path


ENDS = """
import sys
from dormouse.client import Instance
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import Primitive
instance = Instance.open(sys.argv[1])
table = instance.create_table("t", Schema(row_keys=(Field("a", Primitive.LONG),)))
for number in range(30):
    with open(f"{sys.argv[1]}.{number}.csv", "w") as file:
        file.write("a\\n" + "\\n".join(map(str, range(10_000))))
    table.ingest(file.name, wait=False)
print("leaving")
"""


def test_a_program_that_ends_in_the_middle_of_the_work_ends_at_once_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    root = tmp_path / "mice"
    done = subprocess.run(
        [sys.executable, "-c", ENDS, str(root)],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "leaving\n", "")
    with Instance.open(root, background=False) as instance:
        table = instance.table("t")
        table.wait(LIMIT_SECONDS)
        assert table.count() == 300_000
        assert not any(queue.dead for queue in instance.queue_states()[0])
        assert {job.state for job in table.jobs()} == {"finished"}


def test_rows_are_there_when_ingest_returns_and_a_refusal_is_raised(tmp_path: Path) -> None:
    with Instance.open(tmp_path / "mice", background=False) as instance:
        table = instance.create_table("letters", LETTERS)
        table.ingest(write(tmp_path, "a", 1))
        assert table.count() == 1
        later = table.ingest(write(tmp_path, "b", 2), wait=False)
        assert table.count() == 1
        later.wait(LIMIT_SECONDS)
        assert table.count() == 2
        bad = tmp_path / "bad.csv"
        bad.write_text("letter,at,note\na,not a number,x\n")
        with pytest.raises(RefusedSourceError, match="bad.csv was refused"):
            table.ingest(bad)
        assert table.count() == 2


def test_files_put_into_the_inbox_become_rows(tmp_path: Path) -> None:
    with Instance.open(tmp_path / "mice", background=False) as instance:
        table = instance.create_table("letters", LETTERS)
        folder = tmp_path / "mice" / "inbox" / "letters"
        folder.mkdir(parents=True)
        write(tmp_path, "a", 1).rename(folder / "a.csv")
        table.wait(LIMIT_SECONDS)
        assert table.count() == 1


class PanicException(BaseException):
    """As PyO3 raises it: no module can be imported that has it."""


def test_a_panic_of_a_library_is_a_failure_of_its_message_and_no_end_of_the_worker(
    opened: OpenFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage_that(monkeypatch, *[PanicException("index out of range")] * MAX_RECEIVES)
    send(opened, TableChanged("t"))
    opened.finish(LIMIT_SECONDS)
    assert (waiting(opened, CHANGES), waiting(opened, DEAD)) == (0, 1)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143)])
def test_an_interruption_anywhere_is_no_fault_of_the_message(
    opened: OpenFolder, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Also between the queue and the stage, whose code is imported there."""

    def interrupted(*_: object) -> None:
        raise error

    for place in ("_handle", "_plan"):
        send(opened, TableChanged("t"))
        with monkeypatch.context() as patched:
            patched.setattr(type(opened.worker), place, interrupted)
            with pytest.raises(type(error)):
                opened.worker.step()
        opened.queues.leave()
        (message,) = opened.queues.receive(CHANGES, 10)
        assert message.receives == 1
        opened.queues.delete([message])


def test_a_job_is_worked_on_once_at_a_time_however_often_it_was_asked_for(
    opened: OpenFolder, tmp_path: Path
) -> None:
    """Else the attempts of two processes at one file would be taken for two crashes."""
    jobs = [
        IngestJob("t", 0, job, (Source("inbox", f"t/{job}.csv", "e", 1, ms),))
        for job, ms in (("a", 1), ("a", 2), ("b", 3), ("a", 4))
    ]
    opened.queues.send(OutboundMessage("ingest-jobs", job) for job in jobs)
    other = open_folder(tmp_path / "mice", background=False)
    try:
        (first,) = opened.queues.receive("ingest-jobs", 1)
        (beside,) = other.queues.receive("ingest-jobs", 1)
        assert '"job_id":"a"' in first.body and '"job_id":"b"' in beside.body
        assert other.queues.receive("ingest-jobs", 10) == []
        opened.queues.retry_in(first, 60)
        (second,) = other.queues.receive("ingest-jobs", 1)
        assert '"job_id":"a"' in second.body
    finally:
        other.close()


def test_a_sweep_that_the_end_of_the_process_breaks_off_is_untold_and_due_again(
    opened: OpenFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken_off(*_: object, **__: object) -> None:
        opened.worker.leaving.leave()
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr("dormouse.folder.worker._each_table", broken_off)
    with opened.database.writing() as connection:
        connection.execute("INSERT OR REPLACE INTO settings VALUES ('swept_ms', '1')")
    thread = Background(opened.worker.leaving, enabled=True)
    thread.worker = opened.worker
    with caplog.at_level("DEBUG"):
        thread.wake()
        thread.stop()
    assert caplog.text == ""
    with opened.database.reading() as connection:
        (swept,) = connection.execute(
            "SELECT value FROM settings WHERE name = 'swept_ms'"
        ).fetchone()
    assert swept in ("0", "1"), "due"


DIES = """
import os, sys
from pathlib import Path
from dormouse.folder.wiring import open_folder
from dormouse.files import loader

loader.read_source = lambda *given: os._exit(86)
for _ in range(2):
    process = os.fork()
    if not process:
        open_folder(Path(sys.argv[1]), background=False).finish(60)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 86
"""


def test_a_file_whose_readers_died_twice_is_set_aside_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DORMOUSE_SPARK", "no")
    with Instance.open(tmp_path / "mice", background=False) as mice:
        table = mice.create_table("t", "k:long", row_keys=["k"])
        for name in ("bad", "good"):
            (tmp_path / f"{name}.csv").write_text("k\n1\n")
        table.ingest(tmp_path / "bad.csv", wait=False)
        subprocess.run([sys.executable, "-c", DIES, tmp_path / "mice"], check=True)
        table.ingest(tmp_path / "good.csv")
        assert table.count() == 1
        (refused,) = [job for job in table.jobs() if job.subject == "t/bad.csv"]
        assert refused.state == "refused" and "ended with their process" in refused.reason


TERMINATED = """
import os, signal, sys
from pathlib import Path
import pyarrow
from dormouse import Instance
from dormouse.features import batch_files, ingest
from dormouse.files import loader

loader.read_source = lambda *given: iter([os.kill(os.getpid(), signal.SIGTERM)])
for _ in range(int(sys.argv[2])):
    process = os.fork()
    if not process:
        if sys.argv[3] == "asked":
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        with Instance.open(sys.argv[1], background=False) as mice:
            mice.table("t").ingest(Path(sys.argv[1]) / "good.csv")
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert code == (143 if sys.argv[3] == "asked" else -signal.SIGTERM), code
"""


def test_a_script_that_sigterm_ends_sets_no_good_file_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first time, whatever it does; however often, if SIGTERM ends it as an exit does."""
    monkeypatch.setenv("DORMOUSE_SPARK", "no")
    for how, times in (("default", 1), ("asked", 2)):
        root = tmp_path / how
        with Instance.open(root, background=False) as mice:
            mice.create_table("t", "k:long", row_keys=["k"])
        (root / "good.csv").write_text("k\n1\n")
        subprocess.run([sys.executable, "-c", TERMINATED, root, str(times), how], check=True)
        with Instance.open(root, background=False) as mice:
            table = mice.table("t")
            table.wait()
            assert table.count() == 1, how
            assert {job.state for job in table.jobs() if job.kind == "ingest"} == {"finished"}


def test_the_process_that_reads_files_is_told_to_end_before_the_work_in_the_background_has(
    tmp_path: Path,
) -> None:
    """Who asks this process to end kills it some seconds later, and with it the one that reads."""
    opened = open_folder(tmp_path / "mice")
    begun, told, waited = threading.Event(), threading.Event(), list[bool]()

    def works_until_told(*_: object) -> bool:
        begun.set()
        waited.append(told.wait(LIMIT_SECONDS))
        return True

    opened.worker.reader = Mock(end=told.set)
    with patch.object(opened.worker, "step", works_until_told):
        opened.background.wake()
        assert begun.wait(LIMIT_SECONDS)
        opened.close()
    assert waited == [True]
