"""The records of publications of a folder, each with a file that names its newest metadata.

Beside a table's metadata lies the file `version-hint.text`: engines that read files without a
catalog look there. It is written in the transaction that replaces the record, before it ends, so
that the file follows the order of the records. A crash in between leaves it one publication ahead,
of which all files are there; the next run makes the same one, or a newer.
"""

from __future__ import annotations

from pathlib import Path

from dormouse.folder.sqlite import SqliteItems
from dormouse.items.records import ItemPublications
from dormouse.state.versions import PublicationRecord
from dormouse.stored.paths import METADATA_SUFFIX, VERSION_HINT, iceberg_metadata_path


class FolderPublications(ItemPublications):
    """`Publications` in the SQLite file; safe for many threads and processes."""

    def __init__(self, items: SqliteItems, root: Path) -> None:
        """Keep them in `items`, and write hints below the data root."""
        super().__init__(items)
        self._file, self._root = items, root

    def replace(self, table_id: str, old: PublicationRecord | None, new: PublicationRecord) -> bool:
        """Put a record in the place of another, or of none; False if that is not there."""
        with self._file.transaction() as items:
            is_replaced = ItemPublications(items).replace(table_id, old, new)
            if is_replaced:
                self._hint(table_id, new)
            return is_replaced

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
