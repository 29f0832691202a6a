"""The folder of a stack's data: what it refuses, and when its files reach the disk and go."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dormouse_cli.local.data_folder import open_folder
from dormouse_cli.local.errors import StartError
from dormouse_cli.local.moto_values import StoredValue, ValueFolder
from dormouse_cli.local.stack import LocalStack
from tests.local.embedded_aws import TEMPLATE, serving


def test_a_folder_in_use_is_refused_until_its_stack_ends(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "data"),
        pytest.raises(StartError, match="is in use by a local stack") as refused,
    ):
        LocalStack(TEMPLATE, {}, tmp_path / "state", data=tmp_path / "data").start()
    assert "dormouse local down" in refused.value.hint
    with serving(tmp_path / "data"):
        pass


def _of_another_format(folder: Path) -> None:
    (folder / "state.json").write_text('{"format": 999}')


def _damaged(folder: Path) -> None:
    (folder / "state.json").write_text('{"format"')


def _of_somebody_else(folder: Path) -> None:
    (folder / "letter.txt").write_text("dear")


def _of_somebody_else_in_a_folder_named_as_ours(folder: Path) -> None:
    (folder / "objects").mkdir()
    (folder / "objects" / "letter.txt").write_text("dear")


def _with_another_letter(folder: Path) -> None:
    open_folder(folder).save({"buckets": {"letters": {}}}, set())
    state = folder / "state.json"
    state.write_text(state.read_text().replace("letters", "lettors"))


def _that_cannot_be_read(folder: Path) -> None:
    (folder / "state.json").mkdir()


def _without_its_objects(folder: Path) -> None:
    with serving(folder) as server:
        server.client("s3").put_object(Bucket="plain", Key="k", Body=b"body")
    for file in (folder / "objects").iterdir():
        file.unlink()


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        (_of_another_format, "is of format 999, this release reads 2"),
        (_damaged, "is damaged"),
        (_of_somebody_else, r"holds other things, such as letter\.txt"),
        (_of_somebody_else_in_a_folder_named_as_ours, "holds other things, such as objects"),
        (_with_another_letter, "is damaged: its SHA-256"),
        (_that_cannot_be_read, "cannot be used"),
        (_without_its_objects, "1 files are missing from objects"),
    ],
)
def test_a_folder_that_cannot_be_used_is_refused_and_left_as_it_is(
    tmp_path: Path, prepare: Callable[[Path], None], why: str
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    prepare(data)
    files = [path for path in data.rglob("*") if path.is_file() and path.name != "lock"]
    before = {path: path.read_bytes() for path in files}
    with pytest.raises(StartError, match=why) as refused:
        LocalStack(TEMPLATE, {}, tmp_path / "state", data=data).start()
    assert refused.value.hint
    assert {path: path.read_bytes() for path in before} == before


def test_contents_of_another_size_than_was_saved_are_refused(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    name = folder.values.put(b"whole")
    folder.keep_only({name: 5})
    folder.values.path(name).write_bytes(b"who")
    with pytest.raises(StartError, match="1 files are damaged in objects/"):
        folder.keep_only({name: 5})


def test_a_file_system_without_locks_is_not_taken_for_a_folder_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", without_locks)
    with pytest.raises(StartError, match="cannot be used: No locks available"):
        open_folder(tmp_path)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartError, match="cannot be used"):
        open_folder(tmp_path / "file" / "data")


def test_a_value_is_read_where_it_was_written_and_its_file_goes_with_it(tmp_path: Path) -> None:
    folder = ValueFolder(tmp_path)
    value = StoredValue(folder)
    assert (value.read(), folder.sizes()) == (b"", {})
    value.write(b"0123456789")
    value.seek(4)
    assert (value.read(3), value.read(3), value.read()) == (b"456", b"789", b"")
    assert folder.sizes() == {value.name: 10}
    value.truncate()
    assert (value.read(), folder.sizes()) == (b"", {})
    value.close()


def test_contents_for_which_there_is_no_room_take_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(path: Path, content: bytes) -> int:
        with path.open("wb") as file:
            file.write(content[:2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError, match="No space"):
        ValueFolder(tmp_path).put(b"body")
    assert list(tmp_path.iterdir()) == []


def test_what_a_state_names_reaches_the_disk_before_it_whatever_failed_or_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ValueFolder(tmp_path, keeps_removed=True)
    names = {folder.put(b"first"), folder.put(b"second")}
    folder.remove(min(names))  # after the state was taken
    flushed: list[str] = []

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    def note(descriptor: int) -> None:
        flushed.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output"):
        folder.flush()
    monkeypatch.setattr(os, "fsync", note)
    folder.flush()
    folder.flush()
    assert sorted(flushed) == sorted(names)


def test_contents_outlive_their_object_until_a_saved_state_is_without_it(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    value = StoredValue(folder.values)
    value.write(b"x")
    folder.save({}, folder.values.removed())
    value.close()
    assert len(folder.values.sizes()) == 1
    folder.save({}, set())  # of a moment before it was removed
    assert len(folder.values.sizes()) == 1
    folder.save({}, folder.values.removed())
    assert folder.values.sizes() == {}
