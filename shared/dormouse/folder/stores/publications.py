"""The records of publications: `ports.Publications`.

Records of the kind ``publication``, owned by the table's id. Beside a table's metadata lies the
file `version-hint.text` with the name of the newest: engines that read files without a catalog look
there. It is written in the transaction that replaces the record, before it ends, so that the file
follows the order of the records. A crash in between leaves it one publication ahead, of which all
files are there; the next run makes the same one, or a newer.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from dormouse.errors import CorruptDataError
from dormouse.folder.sqlite.database import Database
from dormouse.folder.sqlite.records import fetch, remove, store
from dormouse.model.versions.publications import PublicationRecord
from dormouse.ports.publications import LOST_PUBLICATION
from dormouse.stored.paths import METADATA_SUFFIX, VERSION_HINT, iceberg_metadata_path

_PUBLICATION = "publication"


class SqlitePublications:
    """`Publications` in the SQLite file; safe for many threads and processes."""

    def __init__(self, database: Database, root: Path) -> None:
        """Use `database`, and write hints below the data root."""
        self._database, self._root = database, root

    def get(self, table_id: str) -> PublicationRecord | None:
        """Return the record of a table; None if there is none."""
        with self._database.reading() as connection:
            return _read(connection, table_id)

    def replace(self, table_id: str, old: PublicationRecord | None, new: PublicationRecord) -> bool:
        """Put a record in the place of another, or of none; False if that is not there."""
        with self._database.writing() as connection:
            if _read(connection, table_id) != old:
                return False
            store(connection, _PUBLICATION, table_id, "", new)
            self._hint(table_id, new)
            return True

    def delete(self, table_id: str) -> None:
        """Delete the record of a table, damaged or not; none is no error."""
        with self._database.writing() as connection:
            remove(connection, _PUBLICATION, table_id, "")

    def _hint(self, table_id: str, record: PublicationRecord) -> None:
        """Write the name of the newest metadata beside it, at once and whole."""
        hint = self._root / iceberg_metadata_path(table_id, VERSION_HINT)
        if not record.metadata:
            hint.unlink(missing_ok=True)
            return
        hint.parent.mkdir(parents=True, exist_ok=True)
        written = hint.with_suffix(".new")
        written.write_text(Path(record.metadata).name.removesuffix(METADATA_SUFFIX))
        written.replace(hint)


def _read(connection: sqlite3.Connection, table_id: str) -> PublicationRecord | None:
    record = fetch(connection, _PUBLICATION, table_id, "")
    if record is None:
        return None
    try:
        publication: PublicationRecord = record.read(PublicationRecord)
    except (CorruptDataError, ValueError) as error:
        raise CorruptDataError(
            f"the record of what is published of table {table_id} is damaged",
            hint=LOST_PUBLICATION,
        ) from error
    return publication
