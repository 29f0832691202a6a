"""Every way in takes the same objects for files, and says nothing of the others."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dormouse.client.ingesting import ingest_key
from dormouse.client.instance import Instance
from dormouse.errors import NotFoundError, RefusedSourceError
from dormouse.messages.requests import IngestFiles
from dormouse.messages.stages import FilesWaiting, OutboundMessage
from dormouse.state.sources import NO_FILES, Source, is_file
from tests.support.stray_objects import FILES, STRAYS
from tests.support.world import LETTERS, World

HIDDEN_TABLE = ("_temporary/0/part-0.csv", ".git/part-0.csv", "letters_$folder$", "letters/")


def content(name: str) -> bytes:
    return f"letter,at,note\na,1,{name}\n".encode()


def dropped(world: World) -> list[Source]:
    """Drop all objects into the bucket, without events."""
    keys = [f"letters/{name}" for name in (*STRAYS, *FILES)] + list(HIDDEN_TABLE)
    return [world.sources.drop(key, content(key.removeprefix("letters/"))) for key in keys]


def notified(world: World) -> None:
    world.notify(*dropped(world))


def missed(world: World) -> None:
    dropped(world)
    world.clock.advance(seconds=1)
    world.sweep(audit=True)


def requested(world: World) -> None:
    dropped(world)
    world.administer(IngestFiles("r", "letters", ("letters",), reply=True))


def waiting(world: World) -> None:
    table = world.tables.named("letters")
    assert table is not None
    message = FilesWaiting(table.id, 0, 0, tuple(dropped(world)))
    world.queue.append(OutboundMessage("files", message))


@pytest.mark.parametrize("come_in", [notified, missed, requested, waiting])
def test_stages_ingest_files_and_ignore_what_is_none(
    tmp_path: Path, come_in: Callable[[World], None]
) -> None:
    world = World(tmp_path)
    table = world.create()
    come_in(world)
    world.settle()
    world.sweep(audit=True)
    world.settle()
    assert sorted(str(row["note"]) for row in world.rows(table)) == sorted(FILES)
    assert {record.state for record in world.tracker.kept.values()} == {"finished"}
    assert world.dead == []


def test_a_request_for_what_is_no_file_says_why_nothing_is_found(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create()
    dropped(world)
    for name in STRAYS:
        if name.endswith("/") or not is_file(name.rpartition("/")[2]):
            with pytest.raises(NotFoundError) as error:
                world.administer(IngestFiles("r", "letters", (f"letters/{name}",)))
            assert NO_FILES in error.value.hint


LANDED = ("_landing/.raw/a.csv", "_landing/.raw/p=1/b.csv", "_landing/c.csv")
NOT_LANDED = ("_landing/.raw/_SUCCESS", "_landing/.raw/_temporary/0/a.csv", "_landing/_d.csv")


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("_landing/.raw", LANDED[:2]),
        ("_landing/.raw/", LANDED[:2]),
        ("_landing/.raw/a.csv", LANDED[:1]),
        ("_landing/", LANDED[2:]),
    ],
)
def test_a_folder_that_is_named_may_be_called_anything(
    tmp_path: Path, named: str, expected: tuple[str, ...]
) -> None:
    """It was ignored whole, and the request said that the bucket has no such files."""
    world = World(tmp_path / "world")
    table = world.create()
    with closing(Instance.open(tmp_path / "mice", background=False)) as instance:
        opened = instance.create_table("letters", LETTERS)
        for key in (*LANDED, *NOT_LANDED):
            world.sources.drop(key, content(key))
            path = tmp_path / "mice" / "inbox" / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content(key))
        world.administer(IngestFiles("r", "letters", (named,)))
        instance.ingest_files("letters", [named]).wait()
        in_folder = opened.query().to_arrow()["note"].to_pylist()
    world.settle()
    assert sorted(str(row["note"]) for row in world.rows(table)) == list(expected)
    assert sorted(in_folder) == list(expected)


def written(root: Path) -> None:
    """Write all objects as files, as other programs do; they have rested for a while."""
    for name in (*STRAYS, *FILES):
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(name))
        os.utime(path, (0, 0))


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    with closing(Instance.open(tmp_path / "mice", background=False)) as opened:
        opened.create_table("letters", LETTERS)
        yield opened


def by_inbox(instance: Instance, folder: Path) -> None:
    written(folder / "mice" / "inbox" / "letters")
    written(folder / "mice" / "inbox" / ".git")
    instance.wait()


def by_folder(instance: Instance, folder: Path) -> None:
    written(folder / "given")
    instance.table("letters").ingest(folder / "given")


def by_pattern(instance: Instance, folder: Path) -> None:
    written(folder / "given")
    instance.table("letters").ingest(folder / "given" / "**" / "*")


def by_prefix(instance: Instance, folder: Path) -> None:
    written(folder / "mice" / "inbox" / "letters")
    instance.ingest_files("letters", ["letters/"]).wait()


@pytest.mark.parametrize("come_in", [by_inbox, by_folder, by_pattern, by_prefix])
def test_a_folder_and_the_client_ingest_files_and_ignore_what_is_none(
    tmp_path: Path, instance: Instance, come_in: Callable[[Instance, Path], None]
) -> None:
    come_in(instance, tmp_path)
    instance.wait()
    table = instance.table("letters")
    found = table.query().to_arrow().to_pylist()
    assert sorted(row["note"] for row in found) == sorted(FILES)
    assert not [job for job in instance.jobs() if job.state == "refused"]


def test_what_a_shell_names_beside_files_is_left_out_and_alone_is_said_to_be_none(
    tmp_path: Path, instance: Instance
) -> None:
    """As by ``dormouse ingest letters out/*``, of what Spark wrote."""
    table = instance.table("letters")
    written(tmp_path / "out")
    table.ingest([tmp_path / "out" / "_SUCCESS", tmp_path / "out" / "part-0.csv"])
    assert table.count() == 1
    with pytest.raises(NotFoundError) as error:
        table.ingest(tmp_path / "out" / "_x.csv")
    assert error.value.hint == NO_FILES


def test_names_that_would_be_ignored_are_refused_at_once() -> None:
    """As those of uploads over HTTP, and so of the console: their senders would wait for ever."""
    for name in FILES:
        assert ingest_key("t", name) == f"t/{name}"
    for name in STRAYS:
        with pytest.raises(RefusedSourceError) as error:
            ingest_key("t", name)
        assert error.value.hint == NO_FILES
