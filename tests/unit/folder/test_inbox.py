"""The inbox: each file that is put there is announced once, when it is whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest

from dormouse.errors import InvalidRequestError, RefusedSourceError
from dormouse.folder import inbox as module
from dormouse.folder.inbox import SETTLED_MS, File, Inbox
from dormouse.folder.queues import SqliteQueues
from dormouse.folder.sqlite import Database
from dormouse.messages.stages import FilesDropped, decode
from dormouse.state.sources import Source
from tests.support.adapters import FakeClock


@pytest.fixture
def inbox(tmp_path: Path, database: Database, clock: FakeClock) -> Inbox:
    return Inbox(tmp_path / "inbox", database, clock)


def put(tmp_path: Path, key: str, text: str, clock: FakeClock, *, age_ms: int = SETTLED_MS) -> Path:
    """Write a file, as another program would, which was changed so long ago."""
    path = tmp_path / "inbox" / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    changed_ns = (clock.now_ms() - age_ms) * 1_000_000
    os.utime(path, ns=(changed_ns, changed_ns))
    return path


def announced(database: Database, clock: FakeClock) -> list[tuple[str, str]]:
    """Receive all notifications; return keys and ETags."""
    received = SqliteQueues(database, clock, "this", {"this"}.__contains__).receive("files", 100)
    messages = [decode(message.body, FilesDropped) for message in received]
    return [(source.key, source.etag) for each in messages for source in each.sources]


def test_a_new_file_is_announced_once_by_whichever_process_finds_it(
    tmp_path: Path, inbox: Inbox, database: Database, clock: FakeClock
) -> None:
    put(tmp_path, "t/a.csv", "rows", clock)
    put(tmp_path, "t/folder/b.csv", "more", clock)
    assert [source.key for source in inbox.find_new()] == ["t/a.csv", "t/folder/b.csv"]
    assert list(Inbox(tmp_path / "inbox", database, clock).find_new()) == []
    etag = md5(b"rows", usedforsecurity=False).hexdigest()
    assert announced(database, clock)[0] == ("t/a.csv", etag)


@pytest.mark.parametrize("prefix", ["../", "../other.csv", "t/../../", "/", "/tmp", "t//", "t/\0"])
def test_nothing_outside_of_the_inbox_is_listed(
    tmp_path: Path, inbox: Inbox, clock: FakeClock, prefix: str
) -> None:
    put(tmp_path, "../other.csv", "secret", clock)
    put(tmp_path, "t/a.csv", "rows", clock)
    with pytest.raises(InvalidRequestError):
        list(inbox.list(prefix, since_ms=0))


@pytest.mark.parametrize("name", ["a" * 252 + ".csv", "folder.csv"])
def test_a_name_that_the_disk_cannot_give_is_refused(
    tmp_path: Path, inbox: Inbox, name: str
) -> None:
    (tmp_path / "inbox/t/folder.csv").mkdir(parents=True)
    (tmp_path / "a.csv").touch()
    with pytest.raises(InvalidRequestError, match="no file can be written in"):
        inbox.drop(f"t/{name}", tmp_path / "a.csv")


def test_a_file_that_was_just_changed_is_left_until_it_rests(
    tmp_path: Path, inbox: Inbox, clock: FakeClock
) -> None:
    put(tmp_path, "t/a.csv", "half of it", clock, age_ms=SETTLED_MS - 1)
    assert list(inbox.find_new()) == []
    clock.advance(seconds=1)
    assert [source.key for source in inbox.find_new()] == ["t/a.csv"]


def test_a_file_that_is_changed_while_it_is_read_is_left_for_the_next_look(
    tmp_path: Path, inbox: Inbox, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(tmp_path, "t/a.csv", "rows", clock)
    opened = Path.open

    def meanwhile(self: Path, mode: str = "r") -> object:
        if self == path and mode == "rb":
            monkeypatch.undo()
            put(tmp_path, "t/a.csv", "rows and more", clock)
        return opened(self, mode)

    monkeypatch.setattr(Path, "open", meanwhile)
    assert list(inbox.find_new()) == []
    (found,) = inbox.find_new()
    assert found.size_bytes == len("rows and more")


def test_of_two_processes_that_find_a_file_at_once_one_announces_it(
    tmp_path: Path,
    inbox: Inbox,
    database: Database,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(tmp_path, "t/a.csv", "rows", clock)
    other = Inbox(tmp_path / "inbox", database, clock)
    found: list[str] = []
    opened = Path.open

    def meanwhile(self: Path, mode: str = "r") -> object:
        if mode == "rb":
            monkeypatch.undo()
            found.extend(source.key for source in other.find_new())
        return opened(self, mode)

    monkeypatch.setattr(Path, "open", meanwhile)
    assert list(inbox.find_new()) == []
    assert found == ["t/a.csv"]
    assert len(announced(database, clock)) == 1


def test_other_content_under_the_same_name_is_another_source(
    tmp_path: Path, inbox: Inbox, database: Database, clock: FakeClock
) -> None:
    put(tmp_path, "t/a.csv", "rows", clock)
    first = [source.id for source in inbox.find_new()]
    clock.advance(seconds=60)
    put(tmp_path, "t/a.csv", "other", clock)
    second = [source.id for source in inbox.find_new()]
    assert len({*first, *second}) == 2
    assert len(announced(database, clock)) == 2


@pytest.mark.parametrize("how", ["in its place", "as another file"])
def test_other_content_of_the_same_size_and_time_of_change_is_found(
    tmp_path: Path, inbox: Inbox, database: Database, clock: FakeClock, how: str
) -> None:
    """As by `cp --preserve` over it, or by a program that restores times."""
    path = put(tmp_path, "t/a.csv", "rows", clock)
    before = path.stat()
    assert len(list(inbox.find_new())) == 1
    written = path if how == "in its place" else tmp_path / "other"
    written.write_text("ROWS")
    os.utime(written, ns=(before.st_mtime_ns, before.st_mtime_ns))
    written.replace(path)
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert [source.etag for source in inbox.find_new()] == [
        md5(b"ROWS", usedforsecurity=False).hexdigest()
    ]
    assert list(inbox.find_new()) == []
    assert len(announced(database, clock)) == 2


def test_a_file_that_was_only_moved_or_given_other_rights_is_not_announced_again(
    tmp_path: Path, inbox: Inbox, database: Database, clock: FakeClock
) -> None:
    path = put(tmp_path, "t/a.csv", "rows", clock)
    before = path.stat()
    (first,) = inbox.find_new()
    clock.advance(seconds=60)
    path.chmod(0o600)
    assert list(inbox.find_new()) == []
    copy = tmp_path / "copy"
    copy.write_text("rows")
    os.utime(copy, ns=(before.st_mtime_ns, before.st_mtime_ns))
    copy.replace(path)
    assert list(inbox.find_new()) == []
    assert list(inbox.list("t/", since_ms=0)) == [first]
    assert len(announced(database, clock)) == 1


@pytest.mark.parametrize("look", [Inbox.find_new, partial(Inbox.list, prefix="t/", since_ms=0)])
def test_many_files_at_once_are_read_once_and_announced_by_few_transactions(
    tmp_path: Path,
    inbox: Inbox,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    clock: FakeClock,
    look: Callable[[Inbox], Iterator[Source]],
) -> None:
    for number in range(250):
        put(tmp_path, f"t/{number:03}.csv", "rows", clock)
    writing, reading = Database.writing, Inbox._etag
    transactions, read = [], []

    def counted(self: Database) -> object:
        transactions.append(1)
        return writing(self)

    def counted_read(self: Inbox, found: File) -> object:
        read.append(found.key)
        return reading(self, found)

    monkeypatch.setattr(Database, "writing", counted)
    monkeypatch.setattr(Inbox, "_etag", counted_read)
    assert len(list(look(inbox))) == 250
    assert len(transactions) == 3
    assert list(inbox.find_new()) == []
    assert len(read) == 250


def test_large_files_do_not_wait_for_each_other_to_be_announced(
    tmp_path: Path, inbox: Inbox, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "NOTED_BYTES", 4)
    for name in "ab":
        put(tmp_path, f"t/{name}.csv", "rows", clock)
    found = inbox.find_new()
    assert next(found).key == "t/a.csv"
    put(tmp_path, "t/b.csv", "rows and more", clock, age_ms=0)
    assert list(found) == []


def test_a_dropped_file_is_announced_by_its_drop_alone_with_the_same_identity(
    tmp_path: Path, inbox: Inbox, database: Database, clock: FakeClock
) -> None:
    local = tmp_path / "local.csv"
    local.write_text("rows")
    source = inbox.drop("t/a.csv", local)
    assert list(inbox.find_new()) == []
    assert [found.id for found in inbox.list("t/", since_ms=0)] == [source.id]
    assert announced(database, clock) == [(source.key, source.etag)]
    assert (tmp_path / "inbox" / "t" / "a.csv").read_text() == "rows"


def test_a_drop_that_dies_before_its_notification_is_found(
    tmp_path: Path, inbox: Inbox, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = tmp_path / "local.csv"
    local.write_text("rows")
    with monkeypatch.context() as dying:
        dying.setattr(Inbox, "_note", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            inbox.drop("t/a.csv", local)
    assert [source.key for source in inbox.find_new()] == ["t/a.csv"]


def test_hidden_files_are_not_looked_at_and_files_beside_the_folders_of_tables_are(
    tmp_path: Path, inbox: Inbox, clock: FakeClock
) -> None:
    for key in ("t/.a.csv", "t/_SUCCESS", ".incoming/x.csv", "t/.git/a.csv", "a.csv"):
        put(tmp_path, key, "rows", clock)
    assert [source.key for source in inbox.find_new()] == ["a.csv"], "to be refused"


def test_a_file_that_is_gone_is_forgotten_and_announced_when_it_comes_back(
    tmp_path: Path, inbox: Inbox, clock: FakeClock
) -> None:
    path = put(tmp_path, "t/a.csv", "rows", clock)
    before = path.stat()
    (first,) = inbox.find_new()
    path.unlink()
    assert list(inbox.find_new()) == []
    path.write_text("rows")
    os.utime(path, ns=(before.st_mtime_ns, before.st_mtime_ns))
    (again,) = inbox.find_new()
    assert again.id == first.id


def test_a_file_is_dated_by_when_it_was_found_not_by_its_last_change(
    tmp_path: Path, inbox: Inbox, clock: FakeClock
) -> None:
    put(tmp_path, "t/a.csv", "rows", clock, age_ms=10**9)
    now_ms = clock.now_ms()
    assert [source.dropped_ms for source in inbox.list("t/", since_ms=now_ms)] == [now_ms]
    assert list(inbox.list("t/", since_ms=now_ms + 1)) == []


def test_what_is_no_file_or_cannot_be_read_does_not_keep_the_others_waiting(
    tmp_path: Path, inbox: Inbox, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("t/a.csv", "t/c.csv", "t/z.csv"):
        put(tmp_path, key, "rows", clock)
    folder = tmp_path / "inbox" / "t"
    os.mkfifo(folder / "pipe.csv")
    (folder / "loop.csv").symlink_to(folder / "loop.csv")
    (folder / "nothing.csv").symlink_to(tmp_path / "nothing")
    opened = Path.open

    def refuse(self: Path, mode: str = "r") -> object:
        assert self.name != "pipe.csv", "it would wait for a writer for ever"
        if self.name == "c.csv":
            raise PermissionError(13, "Permission denied")
        return opened(self, mode)

    monkeypatch.setattr(Path, "open", refuse)
    assert [source.key for source in inbox.find_new()] == ["t/a.csv", "t/z.csv"]
    monkeypatch.undo()
    assert [source.key for source in inbox.find_new()] == ["t/c.csv"]


def test_a_closed_folder_is_named_and_its_files_are_neither_forgotten_nor_in_the_way_of_others(
    tmp_path: Path,
    inbox: Inbox,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    put(tmp_path, "t/a.csv", "rows", clock)
    assert [source.key for source in inbox.find_new()] == ["t/a.csv"]
    put(tmp_path, "u/b.csv", "rows", clock)

    def closed(call: Callable[..., Any]) -> Callable[..., Any]:
        def answer(path: Path, *others: Any, **more: Any) -> Any:
            if "inbox/t" in str(path):
                raise PermissionError(13, "Permission denied", str(path))
            return call(path, *others, **more)

        return answer

    monkeypatch.setattr(os, "scandir", closed(os.scandir))
    monkeypatch.setattr(Path, "is_file", closed(Path.is_file))
    assert [source.key for source in inbox.find_new()] == ["u/b.csv"]
    assert said(caplog) == ["'t' in the inbox is not ingested: it is closed: Permission denied"]
    monkeypatch.undo()
    assert list(inbox.find_new()) == [], "else files from before a reset would come again"


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_links_are_not_followed_as_they_may_lead_to_other_files_of_this_user(
    tmp_path: Path, inbox: Inbox, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, "t/a.csv", "rows", clock)
    secret = tmp_path / "outside" / "secret.csv"
    secret.parent.mkdir()
    secret.write_text("secret")
    os.utime(secret, (0, 0))
    (tmp_path / "inbox" / "t" / "link.csv").symlink_to(secret)
    (tmp_path / "inbox" / "t" / "folder").symlink_to(secret.parent)
    (tmp_path / "inbox" / "u").symlink_to(secret.parent)
    assert [source.key for source in inbox.find_new()] == ["t/a.csv"]
    assert [source.key for source in inbox.list("", since_ms=0)] == ["t/a.csv"]
    assert [text.split(" in the inbox")[0] for text in said(caplog)] == [
        "'t/folder'",
        "'t/link.csv'",
        "'u'",
    ]


def test_a_link_that_takes_the_place_of_a_folder_while_it_is_looked_at_is_not_followed(
    tmp_path: Path, inbox: Inbox, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = put(tmp_path, "t/a.csv", "rows", clock).parent
    secret = tmp_path / "outside" / "a.csv"
    secret.parent.mkdir()
    secret.write_text("secret")
    opened = Path.open

    def swap(self: Path, mode: str = "r") -> object:
        folder.rename(tmp_path / "aside")
        folder.symlink_to(secret.parent)
        try:
            return opened(self, mode)
        finally:
            folder.unlink()
            (tmp_path / "aside").rename(folder)

    monkeypatch.setattr(Path, "open", swap)
    assert list(inbox.find_new()) == []
    monkeypatch.undo()
    assert [source.etag for source in inbox.find_new()] == [
        md5(b"rows", usedforsecurity=False).hexdigest()
    ]


def test_a_name_that_no_key_has_stops_no_other_file(
    tmp_path: Path, inbox: Inbox, clock: FakeClock
) -> None:
    for name in ("a\\b.csv", "line\nfeed.csv", "ok.csv"):
        put(tmp_path, f"t/{name}", "rows", clock)
    assert [source.key for source in inbox.find_new()] == ["t/ok.csv"]
    assert [source.key for source in inbox.list("t/", since_ms=0)] == ["t/ok.csv"]


def test_why_something_is_not_ingested_is_said_once_with_its_name_escaped(
    tmp_path: Path,
    inbox: Inbox,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    put(tmp_path, "t/a\n\x1b[31m.csv", "rows", clock)
    put(tmp_path, "t/b.csv", "rows", clock)
    (tmp_path / "inbox" / "t" / os.fsdecode(b"\xff.csv")).write_text("rows")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    another = Inbox(inbox._root, inbox._database, clock)
    for each in (inbox, inbox, another):
        assert list(each.find_new()) == []
    assert said(caplog) == [
        r"'t/a\n\x1b[31m.csv' in the inbox is not ingested: its name has backslashes or control "
        "characters: rename it",
        "'t/b.csv' in the inbox is not ingested: it cannot be read: Permission denied",
        r"'t/\udcff.csv' in the inbox is not ingested: its name is not UTF-8: rename it",
    ]
    (tmp_path / "inbox/t/b.csv").unlink()
    assert list(inbox.find_new()) == []
    assert {path.name for path, _ in Inbox._said if tmp_path in path.parents} == {
        "a\n\x1b[31m.csv",
        os.fsdecode(b"\xff.csv"),
    }


def test_a_file_that_this_user_may_not_read_any_more_is_refused_by_its_name(
    tmp_path: Path, inbox: Inbox, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "t/a.csv", "rows", clock)
    (source,) = inbox.find_new()

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(RefusedSourceError, match=r"'t/a\.csv' cannot be read") as raised:
        inbox.download(source, tmp_path / "local")
    assert "touch" in raised.value.hint


def test_a_file_that_a_program_has_open_for_writing_is_left_however_long_it_pauses(
    tmp_path: Path, inbox: Inbox, clock: FakeClock
) -> None:
    """A part of it would become rows, and then the whole of it: all of the first part twice."""
    path = put(tmp_path, "t/a.csv", "rows", clock)
    with path.open("a"):
        assert list(inbox.find_new()) == []
        assert list(inbox.list("t/", since_ms=0)) == []
    assert [source.key for source in inbox.find_new()] == ["t/a.csv"]


def test_a_program_that_reads_a_file_keeps_nobody_from_ingesting_it(
    tmp_path: Path, inbox: Inbox, clock: FakeClock
) -> None:
    with put(tmp_path, "t/a.csv", "rows", clock).open():
        assert [source.key for source in inbox.find_new()] == ["t/a.csv"]
