"""Look up which sources were ingested, however long ago, and which were refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dormouse.errors import CorruptDataError, NotFoundError
from dormouse.model.sources import Source, ids_at_origins
from dormouse.model.state import TableState
from dormouse.ports.services import JobRecord, Services
from dormouse.tables.table import Table

LOOKUP_ATTEMPTS = 5
"""How often a look-up is tried because segments are merged and deleted at the same time."""


@dataclass(frozen=True, slots=True)
class SourceLookup:
    """The sources that were ingested by `state`, of those that were looked up."""

    state: TableState
    ids: frozenset[str]

    def fresh(self, sources: Sequence[Source]) -> list[Source]:
        """Return those of `sources` that were not ingested; of several with one idempotency key,
        the first.
        """
        left: dict[str, Source] = {}
        for source in sources:
            if source.id not in self.ids:
                left.setdefault(source.remembered_id, source)
        return list(left.values())


def look_up_sources(services: Services, table: Table, sources: Iterable[Source]) -> SourceLookup:
    """Return which sources are ingested by now, however long ago, here or where the table was
    copied from.

    All code that asks this question goes through here.

    Raises:
        CorruptDataError: the segments of sealed sources are damaged or lost.
    """
    named = remembered_ids(table, sources)
    found = look_up_source_ids(services, table, list(named))
    return SourceLookup(found.state, ids_of(named, found.ids))


def remembered_ids(table: Table, sources: Iterable[Source]) -> dict[str, set[str]]:
    """Return every id under which the table may remember sources, with the ids of these.

    Sources with one idempotency key are remembered under one id.
    """
    named: dict[str, set[str]] = {}
    for source in sources:
        for each in (source.remembered_id, *ids_at_origins(source, table)):
            named.setdefault(each, set()).add(source.id)
    return named


def ids_of(named: dict[str, set[str]], found: Iterable[str]) -> frozenset[str]:
    """Return the ids of the sources that were found under ids from `remembered_ids`."""
    return frozenset(source for each in found for source in named[each])


def look_up_source_ids(services: Services, table: Table, ids: Sequence[str]) -> SourceLookup:
    """Return which of the sources with these ids are ingested by now.

    Raises:
        CorruptDataError: as `look_up_sources`.
    """
    store = services.store(table)
    for _ in range(LOOKUP_ATTEMPTS):
        state = store.current()
        try:
            return SourceLookup(state, _ingested(services, table, state, ids))
        except NotFoundError as error:
            gone = error
            if store.current().all_source_segments == state.all_source_segments:
                break
    from dormouse.statestore.source_lookup import HINT

    raise CorruptDataError(
        f"sources that table {table.name!r} has ingested are lost: {gone}", hint=HINT
    ) from gone


def _ingested(
    services: Services, table: Table, state: TableState, ids: Sequence[str]
) -> frozenset[str]:
    """Return which sources were ingested; segments are read only if there are any."""
    if not state.all_source_segments:
        return frozenset(source for source in ids if source in state.sources)
    from dormouse.statestore.source_lookup import ingested_of  # loads Arrow; few tables need it

    return ingested_of(services.storage, table.id, state, ids)


def refusal_of(
    services: Services, source: Source, *table_ids: str, in_doubt: bool = False
) -> JobRecord | None:
    """Return the record that a source was refused by one of these tables, if it is still valid.

    It is not valid if the object was put in a later second than the record: then it was dropped
    again, and the schema or the table's properties may have changed in between. S3 dates objects by
    the second, so an object put in the second of its refusal may have been dropped before or after
    it. By default such a file is refused. With `in_doubt` it is treated as dropped again, so that
    the audit tries it once more.
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
