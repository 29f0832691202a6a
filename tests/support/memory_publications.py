"""Records of publications in memory."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from dormouse.state.versions import PublicationRecord


@dataclass
class MemoryPublications:
    """`ports.Publications` in memory; safe for many threads."""

    kept: dict[str, PublicationRecord] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, table_id: str) -> PublicationRecord | None:
        """Return the record of a table; None if there is none."""
        return self.kept.get(table_id)

    def replace(self, table_id: str, old: PublicationRecord | None, new: PublicationRecord) -> bool:
        """Put a record in the place of another, or of none; False if that is not there."""
        with self._lock:
            if self.kept.get(table_id) != old:
                return False
            self.kept[table_id] = new
            return True

    def delete(self, table_id: str) -> None:
        """Delete the record of a table; none is no error."""
        with self._lock:
            self.kept.pop(table_id, None)
