"""The SQLite file: whole transactions, what another program or release left, damage, forks."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from pathlib import Path

import pytest

from dormouse.errors import (
    ContendedError,
    CorruptDataError,
    InvalidRequestError,
    OutcomeUnknownError,
    UnavailableError,
)
from dormouse.folder import sqlite as module
from dormouse.folder.sqlite import (
    FORMAT,
    PAGE_BYTES,
    Connection,
    Database,
    SqliteItems,
    committing,
    using,
)
from dormouse.items import store as items
from dormouse.items.store import Key
from tests.contract.folders import database_in

KEY = Key("jobs", "test", "key")


def test_a_look_up_by_key_does_not_look_at_all_items(tmp_path: Path) -> None:
    with database_in(tmp_path) as database:
        for start in range(0, 5000, 1000):
            some = (Key("jobs", "test", f"{n:05d}") for n in range(start, start + 1000))
            assert SqliteItems(database).write(*(items.put(key, "x") for key in some))
        steps: list[None] = []
        with database.reading() as connection:
            connection.set_progress_handler(lambda: steps.append(None), 100)
            keys = [Key("jobs", "test", name) for name in ("04999", "none", "00007", "04999")]
            found = SqliteItems(connection).get(*keys)
        assert [item and item.key for item in found] == [keys[0], None, keys[2], keys[0]]
        assert len(steps) < 20, "of SQLite's machine, hundreds"


def store(connection: sqlite3.Connection, value: str, name: str = "key") -> None:
    SqliteItems(connection).write(items.put(Key("jobs", "test", name), value))


def put(database: Database, value: str) -> None:
    with database.writing() as connection:
        store(connection, value)


def got(database: Database) -> object:
    (item,) = SqliteItems(database).get(KEY)
    return None if item is None else item.read()


def test_what_is_deferred_is_part_of_the_next_transaction_that_lasts(database: Database) -> None:
    SqliteItems(database).defer(items.put(KEY, "deferred"))
    assert got(database) is None
    with pytest.raises(ValueError, match="no"), database.writing():
        assert got(database) is None
        raise ValueError("no")
    assert got(database) is None
    with database.writing() as connection:
        (item,) = SqliteItems(connection).get(KEY)
        assert item is not None
        SqliteItems(connection).delete([KEY])
    with database.writing() as connection:
        store(connection, "another", "other")
    assert got(database) is None, "it is put once"


def test_what_other_threads_defer_meanwhile_is_not_forgotten(database: Database) -> None:
    def meanwhile() -> None:
        SqliteItems(database).defer(items.put(Key("jobs", "test", "other"), "deferred"))

    SqliteItems(database).defer(items.put(KEY, "before"))
    with database.writing() as connection:
        store(connection, "first")
        thread = threading.Thread(target=meanwhile)
        thread.start()
        thread.join()
    put(database, "second")
    (other,) = SqliteItems(database).get(Key("jobs", "test", "other"))
    assert other is not None
    assert other.read() == "deferred"


def test_a_transaction_that_raises_changes_nothing_and_the_next_one_works(
    database: Database,
) -> None:
    put(database, "first")
    with pytest.raises(ValueError, match="no"), database.writing() as connection:
        store(connection, "second")
        raise ValueError("no")
    assert got(database) == "first"
    put(database, "third")
    assert got(database) == "third"


def test_readers_see_one_moment_and_do_not_wait_for_a_writer(database: Database) -> None:
    put(database, "first")
    with database.writing() as connection:
        store(connection, "second")
        assert got(database) == "first"
    assert got(database) == "second"


def test_writers_of_many_threads_wait_for_each_other(database: Database) -> None:
    put(database, "0")

    def count() -> None:
        for _ in range(20):
            with database.writing() as connection:
                (item,) = SqliteItems(connection).get(KEY)
                assert item is not None
                store(connection, str(int(item.text()) + 1))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got(database) == "80"


def test_a_lock_that_others_keep_ends_the_wait_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dormouse.folder.sqlite.BUSY_SECONDS", 0)
    with database_in(tmp_path) as database:
        impatient = Database(database.path)
        with database.writing(), pytest.raises(ContendedError, match="locked"):
            put(impatient, "x")
        put(impatient, "x")
        impatient.close()


@pytest.mark.parametrize(("found", "hint"), [(FORMAT + 1, "upgrade"), (FORMAT - 1, "earlier")])
def test_another_format_is_refused_with_what_to_do(
    database: Database, found: int, hint: str
) -> None:
    with database.writing() as connection:
        connection.execute(f"PRAGMA user_version = {found}")
    database.close()
    with pytest.raises(CorruptDataError, match=f"format {found}") as raised:
        got(database)
    assert hint in raised.value.hint


def test_a_file_of_another_program_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE records (x)")
    connection.close()
    before = path.read_bytes()
    database = Database(path)
    assert not database.is_empty()
    with pytest.raises(InvalidRequestError, match="not a file of Dormouse"):
        put(database, "x")
    assert path.read_bytes() == before


def test_a_file_that_is_not_sqlite_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "dormouse.sqlite"
    path.write_bytes(b"these are no pages of SQLite" * 100)
    with pytest.raises(CorruptDataError, match="damaged") as raised:
        got(Database(path))
    assert "backup" in raised.value.hint


def test_a_file_whose_maker_died_is_empty_and_is_completed(tmp_path: Path) -> None:
    path = tmp_path / "dormouse.sqlite"
    path.touch()
    database = Database(path)
    assert database.is_empty()
    database.create()
    assert not database.is_empty()
    put(database, "x")
    database.close()


def test_each_commit_is_flushed_to_the_disk_but_a_lazy_one(database: Database) -> None:
    def level(connection: Connection) -> tuple[object, object]:
        (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        return synchronous, mode

    full, normal = (2, "wal"), (1, "wal")
    with database.reading() as connection:
        assert level(connection) == full
    for _ in range(2):  # by the same connection
        with database.writing(lazy=True) as connection:
            assert level(connection) == normal
        with database.writing() as connection:
            assert level(connection) == full


def test_a_folder_that_can_only_be_read_is_read_and_nothing_is_made_in_it(tmp_path: Path) -> None:
    with database_in(tmp_path) as database:
        put(database, "kept")
    reader = Database(database.path, is_read_only=True)
    assert got(reader) == "kept"
    with pytest.raises(InvalidRequestError, match="read-only") as raised:
        put(reader, "x")
    assert "queries work" in raised.value.hint
    reader.close()
    assert [path.name for path in tmp_path.iterdir()] == ["dormouse.sqlite"]


def test_a_folder_on_a_medium_that_can_only_be_read_is_read_if_all_is_in_the_file(
    tmp_path: Path,
) -> None:
    with database_in(tmp_path) as database:
        put(database, "kept")
    wal = tmp_path / "dormouse.sqlite-wal"
    wal.touch()  # of a process that opened it, and was killed
    reader = Database(database.path, is_read_only=True)
    assert got(reader) == "kept"
    reader.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dormouse.sqlite", wal.name]
    wal.write_bytes(b"commits")
    with pytest.raises(
        UnavailableError, match="holds commits of a process that was killed"
    ) as said:
        got(reader)
    assert "copy the folder" in said.value.hint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dormouse.sqlite", wal.name]


def test_who_may_only_read_a_folder_sees_what_others_write_to_it_since(tmp_path: Path) -> None:
    """SQLite was told that the file never changes, as it makes files beside one that may."""
    with database_in(tmp_path) as database:
        put(database, "kept")
    reader = Database(database.path, is_read_only=True)
    assert got(reader) == "kept"
    writer = Database(database.path)
    put(writer, "changed")
    assert got(reader) == "changed"
    writer.close()
    assert got(reader) == "changed"
    reader.close()
    reader = Database(database.path, is_read_only=True)
    assert got(reader) == "changed"
    writer = Database(database.path)
    put(writer, "once more")
    writer.close()
    assert got(reader) == "once more"
    reader.close()


def test_a_process_forked_from_one_with_connections_is_refused_and_breaks_nothing(
    database: Database,
) -> None:
    """It would believe in locks that the kernel did not give it, and its commits would be lost."""
    put(database, "parent")
    child = os.fork()
    if child == 0:
        refused = 0
        for use in (lambda: put(database, "child"), lambda: got(Database(database.path))):
            try:
                use()
            except InvalidRequestError as error:
                refused += "spawn" in error.hint
        database.close()  # it leaves the connections to the parent
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    put(database, "parent again")
    assert got(database) == "parent again"


def test_a_process_forked_before_or_after_opens_its_own(database: Database) -> None:
    put(database, "parent")
    database.close()
    child = os.fork()
    if child == 0:
        put(database, "child")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert got(database) == "child"


@pytest.mark.parametrize("how", ["moved", "deleted", "replaced"])
def test_nothing_is_answered_from_a_folder_that_is_elsewhere_by_now(
    tmp_path: Path, how: str
) -> None:
    """The shards that a commit names would lie in another folder than the commit."""
    root = tmp_path / "mice"
    with database_in(root) as database:
        put(database, "before")
        if how == "deleted":
            shutil.rmtree(root)
        else:
            root.rename(tmp_path / "moved")
        if how == "replaced":
            with database_in(root):
                pass
        for use in (lambda: put(database, "after"), lambda: got(database)):
            with pytest.raises(UnavailableError, match="while this process used it") as raised:
                use()
            assert "open the instance again" in raised.value.hint
        assert root.exists() == (how == "replaced"), "nothing is made at the old place"
    if how == "moved":
        assert got(Database(tmp_path / "moved" / "dormouse.sqlite")) == "before"


def test_a_folder_that_moves_during_a_transaction_keeps_nothing_of_it(tmp_path: Path) -> None:
    root = tmp_path / "mice"
    with database_in(root) as database:
        put(database, "before")
        with pytest.raises(UnavailableError, match="moved"), database.writing() as connection:
            store(connection, "after")
            root.rename(tmp_path / "moved")
    assert got(Database(tmp_path / "moved" / "dormouse.sqlite")) == "before"


def failed(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("it failed")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (sqlite3.SQLITE_FULL, UnavailableError, "full"),
        (sqlite3.SQLITE_IOERR_WRITE, UnavailableError, "cannot be read or written"),
        (sqlite3.SQLITE_READONLY_DIRECTORY, InvalidRequestError, "read-only"),
        (sqlite3.SQLITE_PROTOCOL, InvalidRequestError, "no locks"),
        (sqlite3.SQLITE_CORRUPT_INDEX, CorruptDataError, "damaged"),
        (sqlite3.SQLITE_CANTOPEN, UnavailableError, "cannot be read or written"),
    ],
)
def test_every_failure_of_sqlite_is_a_sentence_with_a_hint(
    code: int, kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says) as raised, using(Path("mice/dormouse.sqlite")):
        raise failed(code)
    assert getattr(raised.value, "hint", "")


def test_a_mistake_of_our_own_is_not_taken_for_a_failure_of_the_disk() -> None:
    with pytest.raises(sqlite3.OperationalError), using(Path("x")):
        raise failed(sqlite3.SQLITE_ERROR)


def test_after_a_commit_that_the_disk_failed_at_the_outcome_is_unknown() -> None:
    with pytest.raises(OutcomeUnknownError), committing(Path("x")):
        raise failed(sqlite3.SQLITE_IOERR_FSYNC)
    with pytest.raises(UnavailableError), committing(Path("x")):
        raise failed(sqlite3.SQLITE_FULL)


def test_a_file_system_without_shared_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's file system "unix-none" has no locks, so there is no WAL in it."""

    def connect(name: str, **more: object) -> sqlite3.Connection:
        return plain(f"{name}&vfs=unix-none", **more)  # type: ignore[call-overload, no-any-return]

    plain = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", connect)
    with pytest.raises(InvalidRequestError, match="no locks") as raised:
        Database(tmp_path / "dormouse.sqlite").create()
    assert "local disk" in raised.value.hint


def filled(database: Database, megabytes: int) -> None:
    with database.writing() as connection:
        for number in range(megabytes):
            store(connection, "x" * 1_000_000, str(number))


def emptied(database: Database, least: int = 0) -> None:
    with database.writing() as connection:
        connection.execute("DELETE FROM items WHERE CAST(name AS INTEGER) >= ?", (least,))


def pages(database: Database) -> int:
    with database.reading() as connection:
        (count,) = connection.execute("PRAGMA page_count").fetchone()
    return int(count)


def test_a_file_of_which_most_is_free_is_made_smaller(tmp_path: Path) -> None:
    with database_in(tmp_path) as database:
        filled(database, 12)
        full = pages(database)
        emptied(database)
        assert pages(database) == full
        assert database.shrink() > full // 2
        assert pages(database) < full // 2
        database.close()
        assert database.path.stat().st_size < full * PAGE_BYTES // 2


def test_what_is_free_in_a_file_that_is_in_use_is_left_for_what_comes(tmp_path: Path) -> None:
    with database_in(tmp_path) as database:
        filled(database, 12)
        emptied(database, least=8)
        assert database.shrink() == 0


def test_a_large_file_is_made_smaller_a_little_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SHRUNK_PAGES", 100)
    monkeypatch.setattr(module, "SHRINKS_AT_ONCE", 3)
    with database_in(tmp_path) as database:
        filled(database, 12)
        emptied(database)
        assert database.shrink() == 300
