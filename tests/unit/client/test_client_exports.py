from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from dormouse.client.table import TableHandle
from dormouse.client.waiting import TaskProgress
from dormouse.errors import (
    CorruptDataError,
    DormouseError,
    InvalidRequestError,
    NotFoundError,
    TimedOutError,
)
from dormouse.features.export import MANIFESTS, load_manifest
from dormouse.stored.paths import MANIFEST, shard_path
from dormouse_cli.errors import exit_code
from tests.support.instances import InMemory
from tests.support.world import World, letters


@pytest.fixture
def memory(tmp_path: Path) -> InMemory:
    return InMemory.over(World(tmp_path / "world"))


@pytest.fixture
def handle(memory: InMemory) -> TableHandle:
    """A table of two leaves with the letters a, b, x, y."""
    memory.world.create(splits=[("m",)])
    memory.world.drop("letters/1.parquet", letters("abxy"))
    memory.world.settle()
    return memory.instance.table("letters")


def test_an_export_is_watched_until_its_manifest_is_there(handle: TableHandle) -> None:
    export = handle.export(to="out")
    assert export.uri == f"{handle.services.results.uri}/out"
    with pytest.raises(NotFoundError, match="not complete"):
        export.manifest()
    seen: list[TaskProgress] = []
    manifest = export.wait(watch=seen.append)
    assert seen[0] == TaskProgress(0, 1)
    assert export.progress() is None
    assert (manifest.rows, manifest.version) == (4, handle.state().version)
    assert export.manifest() == manifest


def test_keys_and_ranges_are_given_as_for_a_query(handle: TableHandle) -> None:
    assert handle.export([("b", "y")], exact="a").wait().rows == 3
    assert handle.export([(None, "b")], where="at >= 0").wait().rows == 1
    assert handle.export(exact=["x", "q"]).wait().ranges == ((("q",), ("q\0",)), (("x",), ("x\0",)))
    now = dt.datetime.fromtimestamp(handle.services.clock.now_ms() / 1000, dt.UTC)
    assert handle.export(as_of=now).wait().rows == 4
    for nothing in ([], None):
        with pytest.raises(InvalidRequestError, match="no rows or columns are asked for"):
            handle.export(exact=[], columns=nothing)
    with pytest.raises(InvalidRequestError, match="time zone"):
        handle.export(as_of=now.replace(tzinfo=None))


def test_an_export_that_failed_says_why(memory: InMemory, handle: TableHandle) -> None:
    export = handle.export()
    shards = [shard_path(handle.table.id, shard) for shard in handle.state().shards]
    memory.world.storage.delete(shards)
    with pytest.raises(DormouseError, match="--skip-damaged") as failed:
        export.wait()
    assert exit_code(failed.value) == 1


def test_a_long_export_continues_after_its_waiter_timed_out(
    memory: InMemory, handle: TableHandle
) -> None:
    memory.sleeper.asleep = True
    export = handle.export()
    with pytest.raises(TimedOutError):
        export.wait(5)
    memory.sleeper.asleep = False
    assert export.wait().rows == 4


def test_files_are_copied_whole_into_an_empty_folder(handle: TableHandle, tmp_path: Path) -> None:
    export = handle.export()
    export.wait()
    copied: list[str] = []
    manifest = export.download(tmp_path / "new" / "folder", watch=copied.append)
    assert copied == [file.name for file in manifest.files]
    assert pq.read_table(tmp_path / "new" / "folder").num_rows == 4
    stored = export.handle.services.results.get(f"{export.to}/{MANIFEST}")
    assert (tmp_path / "new" / "folder" / MANIFEST).read_bytes() == stored
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file" / "x", "a\0b"):
        with pytest.raises(InvalidRequestError, match="cannot be used"):
            export.download(folder)
    with pytest.raises(InvalidRequestError, match="not an empty folder"):
        export.download(tmp_path / "new")


def test_a_manifest_that_names_files_elsewhere_writes_none(
    memory: InMemory, handle: TableHandle, tmp_path: Path
) -> None:
    """Anybody who may write to the bucket for results may have made it."""
    export = handle.export(to="out")
    (file,) = export.wait().files
    stored = memory.world.folder / "results" / "out" / MANIFEST
    whole = load_manifest(memory.world.results, "out")
    assert whole is not None
    evil = replace(whole, files=(replace(whole.files[0], name="../../evil"),))
    stored.write_bytes(MANIFESTS.encode(evil, MANIFEST))
    with pytest.raises(CorruptDataError, match="not a file of this export"):
        export.download(tmp_path / "a" / "b" / "copy")
    assert not list(tmp_path.glob("**/evil"))


def test_a_file_that_is_gone_or_cut_is_not_taken_for_a_copy(
    memory: InMemory, handle: TableHandle, tmp_path: Path
) -> None:
    export = handle.export(to="out")
    (file,) = export.wait().files
    stored = memory.world.folder / "results" / "out" / file.name
    stored.write_bytes(stored.read_bytes()[:-1])
    with pytest.raises(CorruptDataError, match="bytes, not"):
        export.download(tmp_path / "copy")
    assert list((tmp_path / "copy").iterdir()) == []
    stored.unlink()
    with pytest.raises(NotFoundError):
        export.download(tmp_path / "copy")
