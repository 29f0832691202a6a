"""What every data root promises, whatever it is made of."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dormouse.aws.storage import S3Storage
from dormouse.errors import InvalidRequestError, NotFoundError, UnavailableError
from dormouse.folder import wiring
from dormouse.folder.sqlite import Database
from dormouse.folder.wiring import FolderObjects
from dormouse.ports import Storage
from dormouse.storage import PIECE_BYTES, FolderStorage
from dormouse.system import SystemClock
from tests.contract.mocked_aws import mocked_aws, s3_bucket
from tests.support.memory_storage import MemoryStorage


@pytest.fixture(params=["folder", "rows", "memory", "s3"])
def storage(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Storage]:
    match request.param:
        case "folder":
            yield FolderStorage(tmp_path / "root")
        case "rows":
            monkeypatch.setattr(wiring, "may_be_row", bool)
            database = Database(tmp_path / "rows.sqlite")
            database.create()
            yield FolderObjects(tmp_path / "root", database, SystemClock())
        case "memory":
            yield MemoryStorage()
        case _:
            with mocked_aws(monkeypatch):
                yield S3Storage(s3_bucket("data"), "data")


def test_an_object_is_read_as_it_was_put(storage: Storage) -> None:
    assert storage.put("t/data/a.parquet", b"\x00rows\xff")
    assert storage.get("t/data/a.parquet") == b"\x00rows\xff"


def test_a_second_put_neither_changes_nor_replaces_the_object(storage: Storage) -> None:
    assert storage.put("t/a", b"first")
    assert not storage.put("t/a", b"second")
    assert storage.get("t/a") == b"first"


def test_an_upload_is_a_put_of_the_file(storage: Storage, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.write_bytes(b"x" * 3_000_000)
    assert storage.upload("t/a", local)
    assert not storage.upload("t/a", local)
    assert storage.get("t/a") == local.read_bytes()


def test_a_file_that_is_linked_to_an_object_outlives_it_and_only_files_are(
    storage: Storage, tmp_path: Path
) -> None:
    storage.put("t/a", b"rows")
    local = tmp_path / "local"
    assert storage.link("t/a", local) == isinstance(storage, FolderStorage) == local.exists()
    storage.delete(["t/a"])
    assert not local.exists() or local.read_bytes() == b"rows"


def test_an_object_that_is_not_there_has_no_second_name(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path / "root")
    storage.put("t/a", b"rows")
    for path in ("t/b", "t/a/b"):
        with pytest.raises(NotFoundError):
            storage.link(path, tmp_path / "local")


@pytest.mark.parametrize("refused", [errno.EXDEV, errno.EMLINK])
def test_a_file_on_another_disk_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    storage, local, plain = FolderStorage(tmp_path / "root"), tmp_path / "local", os.link

    def link(existing: Path, new: Path) -> None:
        if local in (existing, new):
            raise OSError(refused, "no link")
        plain(existing, new)

    monkeypatch.setattr(os, "link", link)
    local.write_bytes(b"rows")
    assert storage.upload("t/a", local)
    assert not storage.upload("t/a", local)
    assert storage.get("t/a") == b"rows"
    assert not local.samefile(tmp_path / "root" / "t" / "a")
    local.unlink()
    assert not storage.link("t/a", local)
    assert not local.exists()


def test_a_file_on_the_disk_of_the_folder_is_not_copied(tmp_path: Path) -> None:
    storage, local = FolderStorage(tmp_path / "root"), tmp_path / "local"
    local.write_bytes(b"rows")
    assert storage.upload("t/a", local)
    assert local.samefile(tmp_path / "root" / "t" / "a")
    local.unlink()
    assert storage.get("t/a") == b"rows"


def test_an_object_in_a_folder_is_on_the_disk_before_it_has_a_name_and_the_name_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []

    def flush(descriptor: int) -> None:
        steps.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "object")

    def link(existing: str, new: Path, plain: Callable[[str, Path], None] = os.link) -> None:
        steps.append("name")
        plain(existing, new)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(os, "link", link)
    storage = FolderStorage(tmp_path)
    storage.put("t/a", b"rows")
    assert steps == ["object", "folder", "name", "folder"], "the name of the new folder lasts, too"
    steps.clear()
    storage.put("t/b", b"rows")
    assert steps == ["object", "name", "folder"]
    steps.clear()
    (tmp_path / "local").write_bytes(b"rows")
    storage.upload("t/c", tmp_path / "local")
    assert steps == ["object", "name", "folder"]


def test_a_file_where_a_folder_belongs_is_not_taken_for_the_object(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("in the way")
    with pytest.raises(OSError, match="t"):
        FolderStorage(tmp_path).put("t/a", b"rows")


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "link to itself", "link to nothing"])
def test_what_is_no_file_is_no_object_and_keeps_nobody_waiting(tmp_path: Path, kind: str) -> None:
    storage, place = FolderStorage(tmp_path / "root"), tmp_path / "root/t/b"
    assert storage.put("t/a", b"it")
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    else:
        place.symlink_to({"device": os.devnull, "link to itself": "b"}.get(kind, "nothing"))
    for read in (
        *(lambda: storage.get("t/b"), lambda: storage.open("t/b", 2).read()),
        *(lambda: [*storage.stream("t/b", 2, 0, 2)], lambda: storage.link("t/b", tmp_path / "c")),
    ):
        with pytest.raises(NotFoundError):
            read()
    assert [item.path for item in storage.list("t/")] == ["t/a"]
    storage.delete(["t/b"])
    assert storage.get("t/a") == b"it"


def test_an_object_in_a_folder_may_be_read_by_whom_the_umask_lets(tmp_path: Path) -> None:
    """The database of an instance may be, so a query by another user would fail half way."""
    storage, other = FolderStorage(tmp_path), tmp_path / "other"
    other.touch()
    storage.put("t/a", b"rows")
    assert (tmp_path / "t" / "a").stat().st_mode == other.stat().st_mode


def test_of_many_writers_of_one_path_exactly_one_wins(storage: Storage) -> None:
    won: list[int] = []

    def write(number: int) -> None:
        if storage.put("t/contended", str(number).encode() * 1000):
            won.append(number)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert storage.get("t/contended") == str(won[0]).encode() * 1000


def test_an_opened_object_can_be_read_from_any_place(storage: Storage) -> None:
    storage.put("t/a", b"0123456789")
    with storage.open("t/a", 10) as opened:
        opened.seek(-3, 2)
        assert opened.read() == b"789"
        opened.seek(2)
        assert opened.read(4) == b"2345"


@pytest.mark.parametrize(("start", "end"), [(0, 10), (3, 7), (9, 10), (4, 4)])
def test_a_part_of_an_object_is_streamed(storage: Storage, start: int, end: int) -> None:
    storage.put("t/a", b"0123456789")
    assert b"".join(storage.stream("t/a", 10, start, end)) == b"0123456789"[start:end]


def test_a_stream_comes_in_pieces_of_bounded_size(storage: Storage) -> None:
    body = bytes(range(256)) * 3000
    storage.put("t/a", body)
    pieces = list(storage.stream("t/a", len(body), 7, len(body) - 1))
    assert b"".join(pieces) == body[7:-1]
    assert max(map(len, pieces)) <= PIECE_BYTES < len(body)


def test_what_is_not_there_is_not_found(storage: Storage) -> None:
    storage.put("t/a/b", b"")
    for path in ("t/x", "x", "t/a", "t/a/b/c"):
        with pytest.raises(NotFoundError, match=path):
            storage.get(path)
        with pytest.raises(NotFoundError, match=path):
            storage.open(path, 1).read()  # at once, or by the first read
        with pytest.raises(NotFoundError, match=path):
            list(storage.stream(path, 1, 0, 1))


def test_a_listing_is_in_the_order_of_paths_not_of_folders(storage: Storage) -> None:
    paths = ["t/a/1", "t/a-b/1", "t/a", "u/a"][::-1]
    paths.remove("t/a")  # a folder cannot hold an object and a folder of one name
    for path in paths:
        storage.put(path, path.encode())
    assert [item.path for item in storage.list("t/")] == ["t/a-b/1", "t/a/1"]
    assert [item.path for item in storage.list("t/a")] == ["t/a-b/1", "t/a/1"]
    assert [item.path for item in storage.list("t/a/")] == ["t/a/1"]
    assert [item.path for item in storage.list("")] == ["t/a-b/1", "t/a/1", "u/a"]
    assert [item.size_bytes for item in storage.list("u/")] == [3]
    assert list(storage.list("none/")) == []


def test_a_listing_of_a_prefix_holds_no_neighbour(storage: Storage) -> None:
    for path in ("t/state/1", "t/stated/1", "t1/state/1"):
        storage.put(path, b"")
    assert [item.path for item in storage.list("t/state/")] == ["t/state/1"]


def test_deleting_can_be_repeated_and_frees_the_path(storage: Storage) -> None:
    storage.put("t/a", b"first")
    storage.delete(["t/a", "t/never"])
    storage.delete(["t/a"])
    assert list(storage.list("")) == []
    assert storage.put("t/a", b"second")


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "../x", "t/../../x", "t//a", "t/./a", "t/a/", "t/a\n", "t\\a"]
)
def test_a_path_that_leaves_the_root_or_is_ambiguous_is_refused(
    storage: Storage, path: str
) -> None:
    with pytest.raises(InvalidRequestError):
        storage.put(path, b"")
    with pytest.raises(InvalidRequestError):
        storage.get(path)
    with pytest.raises(InvalidRequestError):
        storage.delete([path])


def test_a_prefix_that_climbs_is_refused(storage: Storage) -> None:
    for prefix in ("../", "/etc/", "t/../u"):
        with pytest.raises(InvalidRequestError):
            list(storage.list(prefix))


def test_folders_that_hold_nothing_any_more_are_gone_and_come_back(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path)
    for path in ("t/data/a", "t/data/b", "t/state/c", "u/a"):
        storage.put(path, b"rows")
    storage.delete(["t/data/a"])
    assert (tmp_path / "t" / "data").is_dir()
    storage.delete(["t/data/b", "t/state/c"])
    assert sorted(path.name for path in tmp_path.iterdir()) == [".incoming", "u"]
    assert storage.put("t/data/a", b"rows")


def test_an_object_gets_its_name_though_its_folder_is_removed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, plain = FolderStorage(tmp_path), os.link

    def removed_first(existing: Path, new: Path) -> None:
        monkeypatch.setattr(os, "link", plain)
        storage.delete([new.relative_to(tmp_path).as_posix()])
        plain(existing, new)

    storage.put("t/data/a", b"rows")
    storage.delete(["t/data/a"])
    (tmp_path / "t" / "data").mkdir(parents=True)
    monkeypatch.setattr(os, "link", removed_first)
    assert storage.put("t/data/b", b"rows")
    assert storage.get("t/data/b") == b"rows"


def test_an_unfinished_object_of_a_crashed_writer_is_never_seen(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path)
    storage.put("t/a", b"whole")
    (tmp_path / ".incoming" / "left over").write_bytes(b"half")
    assert [item.path for item in storage.list("")] == ["t/a"]
    with pytest.raises(InvalidRequestError, match="unfinished"):
        storage.get(".incoming/left over")


def no_right(*_: object, **__: object) -> None:
    raise PermissionError(errno.EACCES, "Permission denied", "mice/t/a")


@pytest.mark.parametrize(
    ("refused", "use"),
    [
        ("os.open", lambda storage: storage.get("t/a")),
        ("os.open", lambda storage: storage.open("t/a", 4)),
        ("os.link", lambda storage: storage.link("t/a", Path("b"))),
        ("os.scandir", lambda storage: list(storage.list("t/"))),
        ("pathlib.Path.stat", lambda storage: list(storage.list("t/"))),
    ],
)
def test_what_one_may_not_read_is_named_and_never_taken_for_missing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    refused: str,
    use: Callable[[FolderStorage], object],
) -> None:
    storage = FolderStorage(tmp_path)
    storage.put("t/a", b"rows")
    monkeypatch.setattr(refused, no_right)
    with pytest.raises(UnavailableError, match="mice/t/a cannot be read") as raised:
        use(storage)
    assert "may read" in raised.value.hint


def test_a_folder_that_cannot_be_listed_is_not_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = FolderStorage(tmp_path)
    storage.put("t/a", b"rows")
    assert list(storage.list("u/")) == []

    def failed(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "scandir", failed)
    with pytest.raises(OSError, match="Input/output error"):
        list(storage.list("t/"))


def test_folders_are_those_that_hold_something_each_once_and_no_other_begins_like_them(
    storage: Storage,
) -> None:
    assert list(storage.folders()) == list(storage.folders("t/")) == []
    for path in ("t/data/a", "t/data/b", "t/data-2/x/y", "t/state/pages/1", "tt/data/a", "u"):
        storage.put(path, b"rows")
    assert list(storage.folders()) == ["t", "tt"]
    assert list(storage.folders("t/")) == ["data", "data-2", "state"]
    assert list(storage.folders("t/state/")) == ["pages"]
    assert list(storage.folders("t/data/")) == list(storage.folders("none/")) == []
    storage.delete(["t/data/a", "t/data/b"])
    assert list(storage.folders("t/")) == ["data-2", "state"]
