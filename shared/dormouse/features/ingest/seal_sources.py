"""seal_sources: the sources a state has gathered → a segment, in which they stay.

Order: the segment is put, then committed. A crash in between leaves a segment that no state names,
and an audit deletes it; so it does with those that a newer one has taken in. Who still reads such a
one finds it gone, and reads the state again.
"""

from __future__ import annotations

from collections.abc import Sequence

from dormouse.errors import CorruptDataError, NotFoundError
from dormouse.features.ingest.sealing import SEAL_AT, taken_in, whole_chain
from dormouse.jobs.tracking import finalise, record
from dormouse.model.source_segments import SourceSegment
from dormouse.model.state import TableState
from dormouse.model.transactions import SealSources
from dormouse.ports import Services
from dormouse.statestore.codec_sources import Cover, digests_of, encode_sources
from dormouse.statestore.sources import read_segment
from dormouse.stored.paths import sources_path, sources_prefix, sources_segment_of
from dormouse.tables.table import Table

SEALING = "seal-sources"
"""The job under which the tracker keeps that segments could not be merged."""


def seal_sources(services: Services, table: Table, *, least: int = SEAL_AT) -> None:
    """Seal what sources have gathered, if they are at least so many. Any number may at once.

    Where a segment that is to be merged is damaged or lost, sources are sealed beside it, so that
    the planning of the table goes on, and the job is recorded as failed.
    """
    state = services.store(table).current()
    if len(state.sources) < least:
        return
    there = state.source_segments
    taken = taken_in([segment.count for segment in there], len(state.sources))
    replaced = there[len(there) - taken :]
    try:
        _seal(services, table, state, replaced)
    except (NotFoundError, CorruptDataError) as error:
        if services.store(table).current().source_segments != there:
            return  # somebody else has sealed meanwhile, and the audit deleted what was replaced
        _seal(services, table, state, ())
        reason = f"segments of sources cannot be merged: {error.explanation}"
        record(services, table.id, SEALING, "sealing", "failed", reason=reason)
    else:
        if replaced:
            finalise(services, table.id, SEALING, failed=True)


def _seal(
    services: Services, table: Table, state: TableState, replaced: Sequence[SourceSegment]
) -> None:
    kept = state.source_segments[: len(state.source_segments) - len(replaced)]
    after = kept[-1].up_to if kept else 0
    cover = Cover(table.id, table.log, state.generation, after, state.version)
    parts = [read_segment(services.storage, table.id, one.id)[2] for one in replaced]
    fresh = digests_of(state.sources_up_to(state.version))
    segment, body = encode_sources(services.ids.new(), cover, [*parts, fresh])
    services.storage.put(sources_path(table.id, segment.id), body)
    sealing = SealSources(segment, tuple(one.id for one in replaced))
    services.store(table).commit(sealing, generation=state.generation)


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
