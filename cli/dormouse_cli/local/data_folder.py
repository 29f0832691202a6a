"""The folder in which `local up --data` keeps an instance while no stack runs; used by
`moto_server`.

    DIR/
      lock        locked while a stack runs on it
      state.json  objects without their contents, items, messages: of one moment
      objects/    the contents of objects, a file each

`state.json` is replaced as a whole, after the files that it names have reached the disk, and only
then are those deleted that it no longer names. So whenever the stack dies, the folder holds all
services as they were at one moment.
"""

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from dormouse_cli.local.errors import StartError
from dormouse_cli.local.moto_values import ValueFolder

FORMAT = 1
_STATE, _NEW, _LOCK, _OBJECTS = "state.json", "state.json.new", "lock", "objects"


def open_folder(path: Path) -> "DataFolder":
    """Open a folder, and lock it; an empty one, or one that is not there, is made into one.

    Raises:
        StartError: it holds other things, is of another format, damaged, or in use.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        others = {entry.name for entry in os.scandir(path)} - {_STATE, _LOCK, _OBJECTS, _NEW}
        if others and not (path / _STATE).exists():
            raise StartError(
                f"{path} holds other things, such as {min(others)}",
                hint="name an empty folder, or one that is not there",
            )
        lock = (path / _LOCK).open("ab")
    except OSError as error:
        raise StartError(
            f"{path} cannot be used: {error.strerror}", hint="name a folder that can be written"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise StartError(
            f"{path} is in use by a local stack that runs",
            hint="stop that one (Ctrl-C, or `dormouse local down`), or name another folder",
        ) from error
    return DataFolder(path, lock, _load(path / _STATE))


def _load(path: Path) -> Mapping[str, Any]:
    """Return what was saved last; nothing if nothing was."""
    try:
        held = json.loads(path.read_bytes())
        found = held["format"]
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise StartError(
            f"{path} is damaged: {error}",
            hint="restore the folder from a copy, or begin with another one",
        ) from error
    if found != FORMAT:
        raise StartError(
            f"{path.parent} is of format {found!r}, this release reads {FORMAT}",
            hint="use the release of Dormouse that made it, or begin with another folder",
        )
    return {name: part for name, part in held.items() if name != "format"}


class DataFolder:
    """A locked folder; the process that opened it is the only one to use it, until it ends."""

    def __init__(self, path: Path, lock: IO[bytes], held: Mapping[str, Any]) -> None:
        """Made by `open_folder`; `held` is what was saved last."""
        self.path, self._lock = path, lock
        self.held = held
        self.values = ValueFolder(path / _OBJECTS, keeps_removed=True)

    def keep_only(self, names: set[str]) -> None:
        """Delete the contents that nothing names: they were written after the last save.

        Raises:
            StartError: one of the names is missing.
        """
        found = self.values.names()
        if missing := names - found:
            raise StartError(
                f"{self.path} is damaged: {len(missing)} files are missing from {_OBJECTS}/",
                hint="restore the folder from a copy, or begin with another one",
            )
        self.values.unlink(found - names)

    def save(self, state: Mapping[str, Any], removed: set[str]) -> None:
        """Replace what is held; `removed` are the files that had no object in this state."""
        self._save(state)
        self.values.unlink(removed)

    def _save(self, state: Mapping[str, Any]) -> None:
        self.values.flush()
        new = self.path / _NEW
        with new.open("w") as file:
            json.dump({"format": FORMAT, **state}, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path / _STATE)
        for folder in (self.path / _OBJECTS, self.path):
            _flush_names(folder)


def _flush_names(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
