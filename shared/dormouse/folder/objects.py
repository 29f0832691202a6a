"""The data root of a folder: small objects are rows of its SQLite file, all others files.

A shard of ten rows has some kilobytes. As a file it takes two flushes and a place in a folder, as a
row one short transaction. Readers see no difference, except programs that open files themselves:
`expose` makes files of the objects that these read.

A path has one object. A small one is put in a transaction that finds no file; a larger one gets its
name, and then gives it up again if there is a small one, in a transaction of its own. So of two
writers one wins. After a crash in between, or in `expose`, there may be both: the row counts.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from dormouse.folder.sqlite import Database
from dormouse.items.store import LAST
from dormouse.ports import Clock, StoredObject
from dormouse.storage import FolderStorage, check_path, check_prefix, writing_files
from dormouse.stored.paths import is_plain, shard_id_of

MOST_BYTES = 16 * 1024
"""The size of the largest object that is a row: SQLite reads and writes it in less time than a file
takes.
"""
_KINDS = ("data", "state")


def may_be_row(path: str) -> bool:
    """Return whether an object is a row if it is small: what other programs read never is."""
    _, _, below = path.partition("/")
    return below.partition("/")[0] in _KINDS and not is_plain(shard_id_of(path) or "")


class FolderObjects(FolderStorage):
    """`ports.Storage` in a folder and its SQLite file; safe for many threads and processes."""

    def __init__(self, root: Path, database: Database, clock: Clock) -> None:
        """Use the folder `root`, and the rows of `database`."""
        super().__init__(root)
        self._database, self._clock = database, clock

    def get(self, path: str) -> bytes:
        """Return a whole object. Raises NotFoundError."""
        body = self._row(path)
        return super().get(path) if body is None else body

    def put(self, path: str, body: bytes) -> bool:
        """Store an object if there is none at that path; return whether it was stored."""
        if not may_be_row(path):
            return super().put(path, body)
        if len(body) > MOST_BYTES:
            return super().put(path, body) and self._keeps_name(path)
        file, values = self._file(path), (path, body, self._clock.now_ms())
        with self._database.writing() as connection:
            if file.exists():
                return False
            insert = "INSERT OR IGNORE INTO objects VALUES (?, ?, ?)"
            return connection.execute(insert, values).rowcount > 0

    def upload(self, path: str, local: Path) -> bool:
        """Store a local file as `put` does."""
        if not may_be_row(path):
            return super().upload(path, local)
        if local.stat().st_size > MOST_BYTES:
            return super().upload(path, local) and self._keeps_name(path)
        return self.put(path, local.read_bytes())

    def open(self, path: str, size_bytes: int) -> BinaryIO:
        """Open an object to seek and read. Raises NotFoundError."""
        body = self._row(path) if size_bytes <= MOST_BYTES else None
        return super().open(path, size_bytes) if body is None else io.BytesIO(body)

    def link(self, path: str, local: Path) -> bool:
        """Make `local` a second name of an object's file, or a file with the bytes of a row: whole,
        as other engines want it.
        """
        body = self._row(path)
        if body is None:
            return super().link(path, local)
        with writing_files(local.parent):
            local.write_bytes(body)
        return True

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects whose path begins with `prefix`, in path order."""
        check_prefix(prefix)
        # First the rows: what is made a file meanwhile is in both, and not in neither.
        select = "SELECT path, length(body), modified_ms FROM objects WHERE path BETWEEN ? AND ?"
        rows = self._database.select(select, (prefix, prefix + LAST))
        found = {path: StoredObject(path, *facts) for path, *facts in rows}
        found = {each.path: each for each in super().list(prefix)} | found
        yield from sorted(found.values(), key=lambda each: each.path)

    def folders(self) -> Iterator[str]:
        """Yield the first part of every path that has several parts, in order, each once."""
        first = "SELECT DISTINCT substr(path, 1, instr(path, '/') - 1) FROM objects"
        yield from sorted({*super().folders(), *(name for (name,) in self._database.select(first))})

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; missing ones are ignored."""
        values = [(check_path(path),) for path in paths if may_be_row(path)]
        if values:
            with self._database.writing() as connection:
                delete = "DELETE FROM objects WHERE path = ?"
                is_any = connection.executemany(delete, values).rowcount > 0
            if is_any:
                self._database.forget()
        super().delete(paths)

    def expose(self, prefix: str) -> None:
        """Let each object whose path begins with `prefix` be a file."""
        check_prefix(prefix)
        select = "SELECT path FROM objects WHERE path BETWEEN ? AND ?"
        for (path,) in self._database.select(select, (prefix, prefix + LAST)):
            with self._database.writing() as connection:
                for (body,) in connection.select(
                    "SELECT body FROM objects WHERE path = ?", (path,)
                ):
                    super().put(path, body)
                    connection.execute("DELETE FROM objects WHERE path = ?", (path,))

    def _row(self, path: str) -> bytes | None:
        if not may_be_row(check_path(path)):
            return None
        rows = self._database.select("SELECT body FROM objects WHERE path = ?", (path,))
        return rows[0][0] if rows else None

    def _keeps_name(self, path: str) -> bool:
        """Return whether a file that was put has its path alone; else it is none any more."""
        with self._database.writing():  # after any writer of a row that saw no file
            is_alone = self._row(path) is None
            if not is_alone:
                super().delete([path])
        return is_alone
