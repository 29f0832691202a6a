"""Opening a folder: what may become an instance, and what is refused with nothing half made."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest

from dormouse.client.instance import Instance
from dormouse.errors import CorruptDataError, DiskFullError, InvalidRequestError, UnavailableError
from dormouse.features import ingest
from dormouse.folder import worker
from dormouse.folder.sqlite import SqliteItems, using
from dormouse.folder.wiring import OpenFolder, open_folder
from dormouse.items.store import Key, put
from dormouse.state.partitions import NewShard
from dormouse.tables.properties import SparkOptions
from tests.support.waiting import LIMIT_SECONDS
from tests.support.world import LETTERS, letters

LARGE = Key("jobs", "test", "large")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "mice"


@pytest.fixture
def opened(root: Path) -> Iterator[OpenFolder]:
    opened = open_folder(root, background=False)
    yield opened
    opened.close()


def everything_in(folder: Path) -> list[tuple[str, int]]:
    paths = sorted(folder.rglob("*"))
    return [(str(path), path.stat().st_size) for path in paths]


@pytest.mark.parametrize("before", ["missing", "missing above", "empty", "empty file"])
def test_a_folder_that_is_empty_or_not_there_becomes_an_instance(
    tmp_path: Path, before: str
) -> None:
    root = tmp_path / "above" / "mice" if before == "missing above" else tmp_path / "mice"
    if before.startswith("empty"):
        root.mkdir()
    if before == "empty file":
        (root / "dormouse.sqlite").touch()  # its maker died
    made = open_folder(root, background=False)
    assert made.was_made
    again = open_folder(root, background=False)
    assert not again.was_made
    made.close()
    again.close()


def test_a_folder_of_something_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    before = everything_in(tmp_path)
    with pytest.raises(InvalidRequestError, match="not the folder of an instance") as raised:
        open_folder(tmp_path)
    assert "empty folder" in raised.value.hint
    assert everything_in(tmp_path) == before


def test_tables_beside_a_lost_sqlite_file_are_no_place_for_a_new_instance(
    tmp_path: Path, root: Path
) -> None:
    local = tmp_path / "a.csv"
    local.write_text("letter,at,note\na,1,x\n")
    with Instance.open(root, background=False) as instance:
        table = instance.create_table("letters", LETTERS)
        table.ingest(local)
    (root / "dormouse.sqlite").write_bytes(b"")
    before = everything_in(root / "tables")
    with pytest.raises(CorruptDataError, match="is empty, but there is .*tables") as raised:
        open_folder(root)
    assert "backup" in raised.value.hint
    assert (root / "dormouse.sqlite").stat().st_size == 0
    (root / "dormouse.sqlite").unlink()
    with pytest.raises(InvalidRequestError, match="has no dormouse.sqlite") as missing:
        open_folder(root)
    assert "backup" in missing.value.hint
    assert everything_in(root / "tables") == before


def test_of_two_processes_that_make_an_instance_at_once_neither_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other makes it after this one saw no database, and before it looks what there is."""
    root.mkdir()
    plain = Path.iterdir
    others: list[OpenFolder] = []

    def meanwhile(self: Path) -> Iterator[Path]:
        monkeypatch.undo()
        others.append(open_folder(root, background=False))
        return plain(self)

    monkeypatch.setattr(Path, "iterdir", meanwhile)
    opened = open_folder(root, background=False)
    assert [others[0].was_made, opened.was_made] == [True, False]
    opened.close()
    others[0].close()


def test_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mice"
    path.write_text("x")
    with pytest.raises(InvalidRequestError, match="is a file"):
        open_folder(path)


@pytest.mark.parametrize("what", [b"not SQLite at all" * 1000, None])
def test_a_damaged_file_is_refused_with_what_to_do(root: Path, what: bytes | None) -> None:
    opened = open_folder(root, background=False)
    opened.services.tables.change_defaults(lambda kept: {"gc_delay_seconds": 5})
    opened.close()
    path = root / "dormouse.sqlite"
    body = bytearray(path.read_bytes())
    if what is None:
        body[100 : len(body) // 2] = bytes(len(body) // 2 - 100)  # pages without their content
    path.write_bytes(what or bytes(body))
    with pytest.raises(CorruptDataError, match="damaged") as raised:
        open_folder(root, background=False).services.tables.defaults()
    assert "backup" in raised.value.hint


def test_a_later_format_is_refused_and_nothing_of_it_is_changed(root: Path) -> None:
    opened = open_folder(root, background=False)
    with opened.database.writing() as connection:
        connection.execute("PRAGMA user_version = 99")
    opened.close()
    before = (root / "dormouse.sqlite").read_bytes()
    with pytest.raises(CorruptDataError, match="format 99") as raised:
        open_folder(root)
    assert "upgrade" in raised.value.hint
    assert (root / "dormouse.sqlite").read_bytes() == before
    assert list((root / ".processes").iterdir()) == []


def test_two_releases_at_once_are_refused(root: Path) -> None:
    earlier = open_folder(root, background=False, release="0.9.1")
    with pytest.raises(InvalidRequestError, match="a process with release"):
        open_folder(root, release="0.10.0")
    earlier.close()
    open_folder(root, background=False, release="0.10.0").close()


def use(root: Path) -> str:
    """Read and try to write as a program would; return what it sees."""
    with Instance.connect(str(root)) as instance:
        found = f"{instance.table('letters').count()} {instance.tables()[0].name}; "
        try:
            instance.set_online("letters", False)
        except InvalidRequestError as error:
            return found + error.explanation
        return found + "it was changed"


def as_nobody(root: Path) -> str:
    """Do `use` in a process whose user may not write."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setuid(65534)
            os.write(writing, use(root).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as raised:
        text = raised.read()
    os.waitpid(child, 0)
    return text


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become a user who may not write")
def test_a_folder_that_one_may_not_write_to_can_be_queried_and_says_so_of_a_change() -> None:
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        root = Path(folder) / "mice"
        with Instance.open(root, background=False) as instance:
            instance.create_table("letters", LETTERS)
        assert use(root) == "0 letters; it was changed"  # and what it needs is imported
        for path in (root, *root.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        before = everything_in(root)
        found = as_nobody(root)
        assert found.startswith("0 letters; ")
        assert "is read-only; " in found
        assert "queries work" in found
        assert everything_in(root) == before


def test_a_full_disk_fails_what_is_written_and_nothing_else_and_is_gone_with_the_next_try(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = tmp_path / "a.csv"
    local.write_text("letter,at,note\na,1,x\n")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Instance.open(root, background=False) as instance:
        table = instance.create_table("letters", LETTERS)
        with monkeypatch.context() as there:
            there.setattr(os, "fsync", full)
            with pytest.raises(UnavailableError, match=f"the disk of {root}.* is full") as raised:
                table.ingest(local)
            assert "free some space" in raised.value.hint
            with pytest.raises(UnavailableError, match="is full"):
                instance.services.storage.put("t/a", b"rows")
        assert table.count() == 0
        assert list(instance.services.storage.list("t/")) == []
        assert not (root / "inbox" / "letters" / "a.csv").exists()
        table.ingest(local)
        assert table.count() == 1


def test_a_full_disk_of_temporary_files_refuses_no_file(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a function nobody else fills it, so a file that does not fit never will."""
    local = tmp_path / "a.csv"
    local.write_text("letter,at,note\na,1,x\n")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(worker, "NEXT_RETRY_SECONDS", 0)
    with Instance.open(root, background=False) as instance:
        table = instance.create_table("letters", LETTERS)
        with monkeypatch.context() as there:
            there.setattr(ingest, "_write_in_scratch", full)
            with pytest.raises(DiskFullError, match="temporary files is full") as raised:
                table.ingest(local)
            assert "free some space" in raised.value.hint
        table.wait(LIMIT_SECONDS)
        assert table.count() == 1
        assert table.ingest(local).known


def test_rows_are_in_a_folder_of_their_own_where_other_users_may_write(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.setenv("TMPDIR", str(shared))
    write_shards, modes = ingest.write_shards, list[int]()

    def spy(*arguments: Any, scratch: Path, **options: Any) -> list[NewShard]:
        modes.append(scratch.stat().st_mode & 0o777)
        return write_shards(*arguments, scratch=scratch, **options)

    monkeypatch.setattr(ingest, "write_shards", spy)
    with Instance.open(root, background=False) as instance:
        table = instance.create_table("letters", LETTERS)
        table.ingest(pa.Table.from_pylist(letters("a")))
        assert table.count() == 1
    assert modes == [0o700]
    assert list(shared.iterdir()) == []


def test_a_folder_on_a_full_disk_is_not_opened_with_that_reason_and_nothing_is_left(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_folder(root, background=False).close()

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as there:
        there.setattr(os, "write", full)
        with pytest.raises(DiskFullError, match=f"the disk of {root}.* is full"):
            open_folder(root, background=False)
    assert list((root / ".processes").iterdir()) == []
    open_folder(root, background=False).close()


@pytest.mark.parametrize(("free", "expected"), [(1000, DiskFullError), (10**9, UnavailableError)])
def test_what_sqlite_cannot_make_beside_its_file_is_for_want_of_room_only_if_there_is_none(
    opened: OpenFolder, monkeypatch: pytest.MonkeyPatch, free: int, expected: type[Exception]
) -> None:
    """It says `disk I/O error` if there is no room for its shared memory."""
    usage = shutil.disk_usage(opened.layout.root)._replace(free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
    with pytest.raises(UnavailableError) as raised, using(opened.layout.database):
        raise error
    assert type(raised.value) is expected


def test_a_full_disk_is_said_of_sqlite_too(opened: OpenFolder) -> None:
    def fill() -> None:
        with opened.database.writing() as connection:
            connection.execute("PRAGMA max_page_count = 1")  # as many as there are
            for _ in range(100):
                SqliteItems(connection).write(put(LARGE, "x" * 1_000_000))

    with pytest.raises(UnavailableError, match="is full") as raised:
        fill()
    assert "free some space" in raised.value.hint
    assert SqliteItems(opened.database).get(LARGE) == [None]
    with opened.database.reading() as connection:
        connection.execute("PRAGMA max_page_count = 1000000")
    opened.queues.send_body("files", "{}")


def test_what_is_asked_of_spark_is_done_by_the_process_if_spark_is_not_there(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DORMOUSE_SPARK", "no")
    with Instance.open(root, background=False) as instance:
        table = instance.create_table("letters", LETTERS)
        for number in range(3):
            local = tmp_path / f"{number}.csv"
            local.write_text(f"letter,at,note\na,{number},x\n")
            table.ingest(local)
        assert instance.compact("letters", everything=True, spark=SparkOptions()) == 1
        table.wait(LIMIT_SECONDS)
        assert (table.count(), table.status().shards) == (3, 1)
        again = instance.ingest_files(
            "letters", ["letters/0.csv"], spark=SparkOptions(), again=True
        )
        again.wait(LIMIT_SECONDS)
        assert table.count() == 4
        export = table.export(to="out", spark=SparkOptions())
        export.wait(LIMIT_SECONDS)
        assert (root / "exports" / "out" / "_manifest.json").is_file()


def test_a_folder_can_be_moved_while_nobody_uses_it(tmp_path: Path, root: Path) -> None:
    with Instance.open(root, background=False) as instance:
        table = instance.create_table("letters", LETTERS)
        local = tmp_path / "a.csv"
        local.write_text("letter,at,note\na,1,x\n")
        table.ingest(local)
    root.rename(tmp_path / "elsewhere")
    with Instance.open(tmp_path / "elsewhere", background=False) as instance:
        table = instance.table("letters")
        assert table.count() == 1
        assert table.ingest(local).known, "it is remembered there too"
        assert table.count() == 1
    stored = [path.read_bytes() for path in (tmp_path / "elsewhere").rglob("*") if path.is_file()]
    assert not any(str(root).encode() in body for body in stored)


def test_what_died_writers_left_is_removed_and_what_living_ones_write_is_not(root: Path) -> None:
    first = open_folder(root, background=False)
    left = [root / part / ".incoming" / "half" for part in ("tables", "exports", "inbox")]
    left.append(root / ".scratch" / "half")
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half of it")
    second = open_folder(root, background=False)
    assert all(path.exists() for path in left)
    first.close()
    second.close()
    open_folder(root, background=False).close()
    assert not any(path.exists() for path in left)


def test_a_place_for_temporary_files_that_is_not_there_is_refused_by_its_name(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    with pytest.raises(InvalidRequestError, match=r"TMPDIR names .*none"):
        Instance.open(root, background=False)
    assert not root.exists()
