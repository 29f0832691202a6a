"""Worlds that begin alike: what they begin with is made once in a process, and copied."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from dormouse.storage import FolderStorage
from tests.support.hooked_pages import HookedPages
from tests.support.world import World

Options = ParamSpec("Options")
Made = TypeVar("Made")

_PARTS = (
    "clock",
    "ids",
    "sources",
    "tables",
    "items",
    "tracker",
    "metrics",
    "dead_letters",
    "spark",
)
_LISTS = ("queue", "dead", "replies")
_FOLDERS = ("data", "results")


def made_once(
    make: Callable[Concatenate[World, Options], Made],
) -> Callable[Concatenate[World, Options], Made]:
    """Let `make` run once for all new worlds of a file of tests, and of the same arguments.

    Another world gets a copy of what the first one had then, which takes a tenth of the time. Not
    copied are a world that something happened in before, and files that name their folder, as the
    metadata of published tables do. What `make` returns may not hold the world. A test that
    replaced a part of the library that `make` depends on calls ``make.__wrapped__``: others would
    get what that part made.
    """
    kept: dict[str, tuple[_Snapshot, Made]] = {}

    @wraps(make)
    def made(world: World, *args: Options.args, **options: Options.kwargs) -> Made:
        if not _is_new(world):
            return make(world, *args, **options)
        file = os.environ["PYTEST_CURRENT_TEST"].partition("::")[0]
        alike = repr((file, world.services.has_spark, args, sorted(options.items())))
        if alike in kept:
            snapshot, result = kept[alike]
            snapshot.copy_into(world)
            return cast(Made, _copy(result))
        result = make(world, *args, **options)
        snapshot = _Snapshot.of(world)
        if not snapshot.names(world.folder):
            kept[alike] = snapshot, _copy(result)
        return result

    return cast(Callable[Concatenate[World, Options], Made], made)


def _is_new(world: World) -> bool:
    """Return whether nothing happened in a world, whose parts are those it was made with."""
    services = world.services
    is_whole = services.storage is world.storage and type(world.storage) is FolderStorage
    is_plain = type(world.pages) is HookedPages and type(world) is World
    touched = (world.tables.by_id, world.tables.settings, world.sources.objects, world.hooks)
    return is_whole and is_plain and world.ids.count == 0 and not any(touched)


@dataclass(frozen=True)
class _Snapshot:
    """What is in a world: the fields of its parts, its lists, and its files with their times."""

    parts: dict[str, dict[str, Any]]
    lists: dict[str, Any]
    files: dict[str, tuple[bytes, int]]

    @staticmethod
    def of(world: World) -> _Snapshot:
        found = [path for folder in _FOLDERS for path in (world.folder / folder).rglob("*")]
        files = {
            path.relative_to(world.folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
            for path in found
            if path.is_file()
        }
        return _Snapshot(
            {name: _values(getattr(world, name)) for name in _PARTS},
            {name: _copy(getattr(world, name)) for name in _LISTS},
            files,
        )

    def names(self, folder: Path) -> bool:
        return any(bytes(folder) in body for body, _ in self.files.values())

    def copy_into(self, world: World) -> None:
        for name, values in self.parts.items():
            vars(getattr(world, name)).update(_copy(values))
        for name, items in self.lists.items():
            setattr(world, name, _copy(items))
        made: set[Path] = set()
        for name, (body, time_ns) in self.files.items():
            path = world.folder / name
            if path.parent not in made:
                path.parent.mkdir(parents=True, exist_ok=True)
                made.add(path.parent)
            path.write_bytes(body)
            os.utime(path, ns=(time_ns, time_ns))


def _values(part: object) -> dict[str, Any]:
    """Return a copy of what a part holds, without other parts, locks and paths."""
    kinds = (dict, list, set, tuple, int, str, type(None))
    return {name: _copy(value) for name, value in vars(part).items() if isinstance(value, kinds)}


def _copy(value: Any) -> Any:
    """Return a copy of collections; what they hold is of types that do not change."""
    if isinstance(value, dict):
        return {key: _copy(each) for key, each in value.items()}
    if type(value) in (list, set, deque, tuple):
        return type(value)(_copy(each) for each in value)
    return value
