"""The folder in which `local up --data` keeps an instance while no stack runs; used by
`moto_server`.

    DIR/
      lock        locked while a stack runs on it
      state.json  a line with the format and the SHA-256 of the rest, and then, as JSON, objects
                  without their contents, items, messages: of one moment
      objects/    the contents of objects, a file each

`state.json` is replaced as a whole, after the files that it names have reached the disk, and only
then are those deleted that it no longer names. So whenever the stack dies, the folder holds all
services as they were at one moment. It is the first file to be made: without it, what lies in a
folder is not ours, and is left alone.
"""

import fcntl
import json
import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from dormouse_cli.local.errors import StartError
from dormouse_cli.local.moto_values import ValueFolder

FORMAT = 2
_STATE, _NEW, _LOCK, _OBJECTS = "state.json", "state.json.new", "lock", "objects"
_RESTORE = "restore the folder from a copy, or begin with another one"


def open_folder(path: Path) -> "DataFolder":
    """Open a folder, and lock it; an empty one, or one that is not there, is made into one.

    Raises:
        StartError: it holds other things, is of another format, damaged, or in use.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        others = {entry.name for entry in os.scandir(path)} - {_LOCK, _NEW}
        if others and not (path / _STATE).exists():
            raise StartError(
                f"{path} holds other things, such as {min(others)}",
                hint="name an empty folder, or one that is not there",
            )
        lock = (path / _LOCK).open("ab")
        try:
            _lock(lock, path)
            held = _load(path / _STATE)
            if held is None:
                _replace(path, {})
            return DataFolder(path, lock, held or {})
        except BaseException:
            lock.close()
            raise
    except OSError as error:
        raise StartError(
            f"{path} cannot be used: {error.strerror}", hint="name a folder that can be written"
        ) from error


def _lock(lock: IO[bytes], path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StartError(
            f"{path} is in use by a local stack that runs",
            hint="stop that one (Ctrl-C, or `dormouse local down`), or name another folder",
        ) from error


def _load(path: Path) -> Mapping[str, Any] | None:
    """Return what was saved last; None if nothing was."""
    try:
        with path.open("rb") as file:
            first, rest = file.readline(), file.read()
    except FileNotFoundError:
        return None
    try:
        header = json.loads(first)
        found, digest = header["format"], header.get("sha256")
    except (ValueError, KeyError, TypeError) as error:
        raise StartError(f"{path} is damaged: it has no format", hint=_RESTORE) from error
    if found != FORMAT:
        raise StartError(
            f"{path.parent} is of format {found!r}, this release reads {FORMAT}",
            hint="use the release of Dormouse that made it, or begin with another folder",
        )
    if sha256(rest).hexdigest() != digest:
        raise StartError(f"{path} is damaged: its SHA-256 is another one", hint=_RESTORE)
    held: dict[str, Any] = json.loads(rest)
    return held


def _replace(folder: Path, state: Mapping[str, Any]) -> None:
    """Replace what a folder holds, at once."""
    body = json.dumps(state).encode()
    header = {"format": FORMAT, "sha256": sha256(body).hexdigest()}
    new = folder / _NEW
    with new.open("wb") as file:
        file.writelines((json.dumps(header).encode(), b"\n", body))
        file.flush()
        os.fsync(file.fileno())
    new.replace(folder / _STATE)
    _flush_names(folder)


class DataFolder:
    """A locked folder; the process that opened it is the only one to use it, until it ends."""

    def __init__(self, path: Path, lock: IO[bytes], held: Mapping[str, Any]) -> None:
        """Made by `open_folder`; `held` is what was saved last."""
        self.path, self._lock = path, lock
        self.held = held
        self.values = ValueFolder(path / _OBJECTS, keeps_removed=True)

    def keep_only(self, sizes: Mapping[str, int]) -> None:
        """Delete the contents that nothing names: they were written after the last save.

        `sizes` are those of the contents that are named, in bytes.

        Raises:
            StartError: one of them is missing, or has another size.
        """
        found = self.values.sizes()
        for wrong, what in (
            (sizes.keys() - found.keys(), "missing from"),
            ({name for name in sizes.keys() & found if sizes[name] != found[name]}, "damaged in"),
        ):
            if wrong:
                raise StartError(
                    f"{self.path} is damaged: {len(wrong)} files are {what} {_OBJECTS}/",
                    hint=_RESTORE,
                )
        self.values.unlink(found.keys() - sizes.keys())

    def save(self, state: Mapping[str, Any], removed: set[str]) -> None:
        """Replace what is held; `removed` are the files that had no object in this state."""
        self.values.flush()
        _flush_names(self.path / _OBJECTS)
        _replace(self.path, state)
        self.values.unlink(removed)


def _flush_names(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
