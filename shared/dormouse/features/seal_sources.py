"""seal_sources: move the ingested sources that a state remembers into a sorted segment.

Order of writes: segment, commit. A crash in between leaves a segment that no state names, which an
audit deletes, as it deletes segments that were merged into newer ones. A reader that finds its
segment deleted reads the state again.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from dormouse.errors import CorruptDataError, NotFoundError
from dormouse.features.reset import load_restored
from dormouse.jobs import finalise, record
from dormouse.log.engine import StateStore
from dormouse.log.sources import Cover, digests_of, encode_sources, read_segment
from dormouse.ports import Services
from dormouse.state.jobs import Failed, TrackedJob
from dormouse.state.state import SealSources, SourceSegment, TableState
from dormouse.stored.paths import SOURCES
from dormouse.tables.table import Table

# Decide when sources are sealed, and which segments a new segment is merged with.
#
# Segments are merged by levels, as in a tiered LSM tree: ten segments of one level become one of
# the next, which is ten times as large. Each source is therefore written once a level, and a table
# has at most nine segments of each level, plus those of the largest size.

MIN_SEALED_SOURCES = 4096
"""Sources are sealed once there are so many unsealed ones."""
SEGMENT_FANOUT = 10
MAX_SEGMENT_SOURCES = MIN_SEALED_SOURCES * SEGMENT_FANOUT**3
"""Segments of so many sources, four million, are merged no further: a function writes one in a few
seconds with 0.6 GB of memory."""


def segments_to_merge(counts: Sequence[int], fresh: int) -> int:
    """Return how many of the newest segments are merged into a new one with `fresh` sources.

    `counts` are the sources of each segment, oldest first. With segments of 4,096 sources, nine of
    them wait and the tenth sealing merges them:

    - ``[4096] * 8``, 4096 → 0: there are nine segments afterwards.
    - ``[4096] * 9``, 4096 → 9: one segment of 40,960 sources, of the next level.
    - ``[40960] * 9 + [4096] * 9``, 4096 → 18: the merged segment is the tenth of its own level.
    """
    rest, size = list(counts), fresh
    while True:
        level = _level(size)
        smaller, alike = _up_to(level - 1, rest), _up_to(level, rest)
        count = alike if alike - smaller >= SEGMENT_FANOUT - 1 else smaller
        if (
            not count
            or size >= MAX_SEGMENT_SOURCES
            or size + sum(rest[-count:]) > 2 * MAX_SEGMENT_SOURCES
        ):
            return len(counts) - len(rest)
        size += sum(rest[-count:])
        del rest[-count:]


def complete_chain(segments: Iterable[SourceSegment]) -> tuple[list[SourceSegment], list[str]]:
    """Return the shortest chain of segments that covers the versions of one log, and what is lost.

    Segments that were merged into others, or written and never committed, may still be stored. All
    are usable: a segment holds exactly the sources of its versions, those after `after` and up to
    `up_to`. Of (0, 4], (4, 8], (0, 8] and (8, 9] the chain is (0, 8], (8, 9]. Of (0, 4]
    and (5, 9] the chain is (0, 4], and the sources after version 4 are reported as lost.
    """
    chains: dict[int, list[SourceSegment]] = {0: []}
    ordered = sorted(segments, key=lambda segment: (segment.after, -segment.up_to, segment.id))
    for segment in ordered:
        before = chains.get(segment.after)
        chain = chains.get(segment.up_to)
        if before is not None and (chain is None or len(before) + 1 < len(chain)):
            chains[segment.up_to] = [*before, segment]
    end = max(chains)
    beyond = [segment.id for segment in ordered if segment.up_to > end]
    reasons = [
        f"sources ingested after version {end} are lost: no segment leads up to segment {name}"
        for name in beyond[:1]
    ]
    return chains[end], reasons


def _up_to(level: int, counts: Sequence[int]) -> int:
    """Return how many of the last counts in a row are of this level or a lower one."""
    return sum(1 for _ in takewhile(lambda count: _level(count) <= level, reversed(counts)))


def _level(count: int) -> int:
    level, least = 0, MIN_SEALED_SOURCES * SEGMENT_FANOUT
    while count >= least:
        level, least = level + 1, least * SEGMENT_FANOUT
    return level


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
    count = segments_to_merge([segment.count for segment in there], len(state.sources))
    replaced = there[len(there) - count :]
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
    before = state.source_segments[: len(state.source_segments) - len(replaced)]
    after = before[-1].up_to if before else 0
    cover = Cover(table.id, table.log, state.generation, after, state.version)
    parts = [read_segment(services.storage, table.id, one.id)[2] for one in replaced]
    fresh = digests_of(state.sources_up_to(state.version))
    segment, body = encode_sources(services.ids.new(), cover, [*parts, fresh])
    services.storage.put(SOURCES.path(table.id, segment.id), body)
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
    for item in services.storage.list(SOURCES.prefix(table.id)):
        try:
            ids, cover, _ = read_segment(services.storage, table.id, SOURCES.name_of(item.path))
        except NotFoundError:
            continue  # an audit has deleted it since it was listed
        except CorruptDataError as error:
            reasons.append(error.explanation)
            continue
        if cover.generation == table.generation or ids.id in begun_with:
            by_log.setdefault(cover.log, []).append(ids)
    segments: list[SourceSegment] = []
    for log in sorted(by_log):
        chain, wrong = complete_chain(by_log[log])
        segments += chain
        reasons += wrong
    return tuple(segments), reasons


def obsolete_segments(services: Services, table: Table, before_ms: int) -> list[str]:
    """Return the paths of segments that were written before a time and that neither the newest
    state nor a pinned version names.
    """
    objects = list(services.storage.list(SOURCES.prefix(table.id)))
    if not objects:
        return []
    # Read after the listing, so that it names each segment that was committed meanwhile.
    states = _states_to_keep(services.store(table))
    in_use = {segment.id for state in states for segment in state.all_source_segments}
    return [
        item.path
        for item in objects
        if item.modified_ms < before_ms and SOURCES.name_of(item.path) not in in_use
    ]


def _states_to_keep(store: StateStore) -> Iterator[TableState]:
    """Yield the newest state, the pinned versions, and the newest state after that: a restore names
    the segments of its version, and then removes its pin.
    """
    yield store.current()
    yield from store.pins.states()
    yield store.current()
