"""seal_sources: move the ingested sources that a state remembers into a sorted segment.

Order of writes: segment, commit. A crash in between leaves a segment that no state names, which an
audit deletes, as it deletes segments that were merged into newer ones. A reader that finds its
segment deleted reads the state again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dormouse.errors import CorruptDataError, NotFoundError
from dormouse.features.ingest.sealing import MIN_SEALED_SOURCES, complete_chain, segments_to_merge
from dormouse.features.tables.restored import load_restored
from dormouse.jobs.tracking import finalise, record
from dormouse.model.jobs.job_events import Failed, TrackedJob
from dormouse.model.source_segments import SourceSegment
from dormouse.model.state import TableState
from dormouse.model.transactions import SealSources
from dormouse.ports.services import Services
from dormouse.state_store import StateStore
from dormouse.statestore.source_codec import Cover, digests_of, encode_sources
from dormouse.statestore.source_lookup import read_segment
from dormouse.stored.paths import sources_path, sources_prefix, sources_segment_of
from dormouse.tables.table import Table

SEALING = "seal-sources"
"""The id of the tracker's record that segments could not be merged."""


def seal_sources(services: Services, table: Table, *, least: int = MIN_SEALED_SOURCES) -> None:
    """Seal the sources of the state if there are at least `least`; safe to run concurrently.

    If a segment to merge is damaged or lost, the sources are sealed without merging, so that the
    planning of the table continues, and the job is recorded as failed.
    """
    state = services.store(table).current()
    if len(state.sources) < least:
        return
    there = state.source_segments
    taken = segments_to_merge([segment.count for segment in there], len(state.sources))
    replaced = there[len(there) - taken :]
    try:
        _seal(services, table, state, replaced)
    except (NotFoundError, CorruptDataError) as error:
        if services.store(table).current().source_segments != there:
            return  # another process sealed meanwhile, and the audit deleted the merged segments
        _seal(services, table, state, ())
        reason = f"segments of sources cannot be merged: {error.explanation}"
        record(services, TrackedJob(table.id, SEALING, "sealing"), Failed(reason))
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


def load_segments(services: Services, table: Table) -> tuple[tuple[SourceSegment, ...], list[str]]:
    """Return stored segments that hold all sources sealed in this generation of a table.

    They are found by listing, without the table's state. The second value says what is damaged or
    lost. Of segments from before a restore, those count with which the generation started.
    """
    restored = load_restored(services.storage, table)
    begun_with = {segment.id for segment in restored.all_source_segments} if restored else set()
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
        if cover.generation == table.generation or named.id in begun_with:
            by_log.setdefault(cover.log, []).append(named)
    kept: list[SourceSegment] = []
    for log in sorted(by_log):
        chain, wrong = complete_chain(by_log[log])
        kept += chain
        reasons += wrong
    return tuple(kept), reasons


def obsolete_segments(services: Services, table: Table, before_ms: int) -> list[str]:
    """Return the paths of segments that were written before a time and that neither the newest
    state nor a pinned version names.
    """
    listed = list(services.storage.list(sources_prefix(table.id)))
    if not listed:
        return []
    # Read after the listing, so that it names each segment that was committed meanwhile.
    states = _states_to_keep(services.store(table))
    named = {segment.id for state in states for segment in state.all_source_segments}
    return [
        stored.path
        for stored in listed
        if stored.modified_ms < before_ms and sources_segment_of(stored.path) not in named
    ]


def _states_to_keep(store: StateStore) -> Iterator[TableState]:
    """Yield the newest state, the pinned versions, and the newest state after that: a restore names
    the segments of its version, and then removes its pin.
    """
    yield store.current()
    yield from store.pins.states()
    yield store.current()
