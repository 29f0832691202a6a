"""Files that wait: dropped for a table, and neither ingested nor refused yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dormouse.ports.services import NO_TABLE, Services
from dormouse.tables.table import Table

if TYPE_CHECKING:
    from dormouse.features.ingest.known_sources import SourceLookup
    from dormouse.model.sources import Source

PENDING_FILES_MS = 7 * 24 * 60 * 60 * 1000
"""How long a dropped file counts as pending: as long as the tracker keeps a refusal."""


def files_that_wait(services: Services, table: Table) -> tuple[SourceLookup, list[Source]]:
    """Return the files that wait, and the look-up that says so."""
    from dormouse.features.ingest.known_sources import look_up_sources, refusal_of

    # As in an audit: files dropped before may belong to an earlier table of this name.
    since_ms = max(services.clock.now_ms() - PENDING_FILES_MS, table.files_since_ms)
    dropped = list(services.sources.list(f"{table.name}/", since_ms=since_ms))
    # Looked up after the listing: a file ingested in between counts as ingested.
    known = look_up_sources(services, table, dropped)
    # A file dropped before the table was created is recorded under no table.
    fresh = known.fresh(dropped)
    return known, [s for s in fresh if not refusal_of(services, s, table.id, NO_TABLE)]
