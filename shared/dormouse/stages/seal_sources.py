"""seal_sources: the sources a state has gathered → a segment, in which they stay.

Order: the segment is put, then committed. A crash in between leaves a segment that no state names,
and an audit deletes it; so it does with those that a newer one has taken in. Who still reads such a
one finds it gone, and reads the state again.
"""

from __future__ import annotations

from dormouse.errors import CorruptDataError, NotFoundError
from dormouse.model.names import sources_path, sources_prefix, sources_segment_of
from dormouse.model.source_segments import SourceSegment
from dormouse.model.tables import Table
from dormouse.model.transactions import SealSources
from dormouse.policy.sealing import SEAL_AT, taken_in, whole_chain
from dormouse.ports import Services
from dormouse.statestore.codec_sources import Cover, digests_of, encode_sources
from dormouse.statestore.sources import HINT, read_segment


def seal_sources(services: Services, table: Table, *, least: int = SEAL_AT) -> None:
    """Seal what sources have gathered, if they are at least so many. Any number may at once.

    Raises:
        CorruptDataError: a segment that is to be merged is damaged or lost; none was sealed.
    """
    store = services.store(table)
    state = store.current()
    if len(state.sources) < least:
        return
    there = state.source_segments
    fresh = state.sources_up_to(state.version)
    taken = taken_in([segment.count for segment in there], len(fresh))
    kept, replaced = there[: len(there) - taken], there[len(there) - taken :]
    after = kept[-1].up_to if kept else 0
    cover = Cover(table.id, table.log, state.generation, after, state.version)
    try:
        parts = [read_segment(services.storage, table.id, one.id)[2] for one in replaced]
    except NotFoundError as error:
        if store.current().source_segments == there:
            raise CorruptDataError(
                f"sources that table {table.name!r} has ingested are lost: {error}", hint=HINT
            ) from error
        return  # somebody else has sealed meanwhile
    segment, body = encode_sources(services.ids.new(), cover, [*parts, digests_of(fresh)])
    services.storage.put(sources_path(table.id, segment.id), body)
    sealing = SealSources(segment, tuple(one.id for one in replaced))
    store.commit(sealing, generation=state.generation)


def kept_segments(services: Services, table: Table) -> tuple[tuple[SourceSegment, ...], list[str]]:
    """Return segments with all that this generation of a table sealed, whatever its state says.

    Besides, what is wrong with them.
    """
    by_log: dict[str, list[SourceSegment]] = {}
    reasons: list[str] = []
    for stored in services.storage.list(sources_prefix(table.id)):
        try:
            named, cover, _ = read_segment(
                services.storage, table.id, sources_segment_of(stored.path)
            )
        except NotFoundError:
            continue  # an audit has deleted it since it was listed
        except CorruptDataError as error:
            reasons.append(error.explanation)
            continue
        if cover.generation == table.generation:
            by_log.setdefault(cover.log, []).append(named)
    kept: list[SourceSegment] = []
    for log in sorted(by_log):
        chain, wrong = whole_chain(by_log[log])
        kept += chain
        reasons += wrong
    return tuple(kept), reasons


def spent_segments(services: Services, table: Table, before_ms: int) -> list[str]:
    """Return the paths of segments, put before a time, that the state does not name."""
    listed = list(services.storage.list(sources_prefix(table.id)))
    if not listed:
        return []
    # Read after they were listed, so that it names each that was committed meanwhile.
    named = {segment.id for segment in services.store(table).current().all_source_segments}
    return [
        stored.path
        for stored in listed
        if stored.modified_ms < before_ms and sources_segment_of(stored.path) not in named
    ]
