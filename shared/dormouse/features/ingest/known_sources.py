"""What became of sources: which were ingested, however long ago, and which were refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dormouse.errors import CorruptDataError, NotFoundError
from dormouse.model.sources import Source
from dormouse.model.state import TableState
from dormouse.ports import JobRecord, Services
from dormouse.statestore.sources import HINT, ingested_of
from dormouse.tables.table import Table

LOOKS = 5
"""How often a look-up begins again because segments were merged meanwhile."""


@dataclass(frozen=True, slots=True)
class LookedUp:
    """Which of the sources asked for were ingested, as `state` knows it."""

    state: TableState
    ids: frozenset[str]

    def fresh(self, sources: Sequence[Source]) -> list[Source]:
        """Return those of these sources that were not."""
        return [source for source in sources if source.id not in self.ids]


def look_up(services: Services, table: Table, sources: Iterable[Source]) -> LookedUp:
    """Find which sources were ingested by now, however long ago: the one way to ask for it.

    Raises:
        CorruptDataError: where the table remembers them is damaged or lost.
    """
    return look_up_ids(services, table, [source.id for source in sources])


def look_up_ids(services: Services, table: Table, ids: Sequence[str]) -> LookedUp:
    """Find which sources of these ids were ingested by now. Raises as `look_up`."""
    store = services.store(table)
    for _ in range(LOOKS):
        state = store.current()
        try:
            return LookedUp(state, ingested_of(services.storage, table.id, state, ids))
        except NotFoundError as error:
            gone = error
            if store.current().all_source_segments == state.all_source_segments:
                break
    raise CorruptDataError(
        f"sources that table {table.name!r} has ingested are lost: {gone}", hint=HINT
    ) from gone


def refusal_of(
    services: Services, source: Source, *table_ids: str, in_doubt: bool = False
) -> JobRecord | None:
    """Return the record of a source's refusal for one of these tables, if it is the last word.

    It is not where the object was put in a later second: then it was dropped again, and the schema
    or the table's properties may be others by now. S3 dates objects by the second, so one that was
    put in the very second of its refusal may have been dropped before or after it. That counts as
    refused, but `in_doubt` counts it as dropped again: the audit then judges it once more.
    """
    for table_id in table_ids:
        known = services.tracker.get(table_id, source.id)
        if known is not None and known.kind == "ingest" and known.state == "refused":
            since_ms = known.updated_ms if in_doubt else _next_second_ms(known.updated_ms)
            later = services.sources.list(source.key, since_ms=since_ms)
            if all((each.key, each.etag) != (source.key, source.etag) for each in later):
                return known
    return None


def _next_second_ms(time_ms: int) -> int:
    return time_ms - time_ms % 1000 + 1000
