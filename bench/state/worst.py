"""A table at its worst for who loads it: just before a snapshot is due, and before an increment.

The increments are those that maintenance would have kept, and the last commits are made by the
store itself. In between, transactions are folded without a log, which takes a tenth of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from bench.state.commits import Table, table_of
from bench.state.counting import Requests
from bench.state.memory import TABLE
from bench.state.workload import Ids, Mix
from dormouse.log.compaction import COMMITS_TO_INCREMENT, gc_paused, has_key_index
from dormouse.log.increments import changes_between, encode_increment, rebased
from dormouse.log.log import fold_delta
from dormouse.log.pages import MOST_INCREMENTS, PAGE_CAPACITY, Increment, Segment, ends_at
from dormouse.log.tail import index_place_of, key_indexes
from dormouse.state.state import Entry, TableState

PERIOD = -(-COMMITS_TO_INCREMENT // PAGE_CAPACITY) * PAGE_CAPACITY
"""Commits from increment to increment, where maintenance follows each full page."""
_SEED_OF_IDS, _SEED_OF_MIX = 3, 4
_MS_BETWEEN = 1000


def spans(periods: int) -> list[int]:
    """Return how many periods each increment spans after so many: 8 are 6, 1 and 1."""
    ends = ends_at(periods, MOST_INCREMENTS)
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]


def worst_table(snapshot: bytes, kept_in: str, commits: int) -> Table:
    """Return a table with about so many commits since its snapshot, kept in `s3` or `dynamodb`."""
    table = table_of(snapshot, kept_in)
    state = cut = table.store(Requests(), 1).current()
    ids = Ids(table.clock, _SEED_OF_IDS)
    deltas = Mix(state, ids, _SEED_OF_MIX).deltas()
    increments: list[Increment] = []
    for span in spans(commits // PERIOD):
        for transactions in islice(deltas, span * PERIOD):
            table.clock.ms += _MS_BETWEEN
            with gc_paused():
                entries = [Entry(each, table.clock.ms, 0) for each in transactions]
                state, _ = fold_delta(state, entries)
        increments.append(_keep_increment(table, ids.new(), cut, state, increments))
        cut = state
    _end_log_at(table, state.version, increments)
    writer, maintainer = table.store(Requests(), 1), table.store(Requests(), 2)
    writer.current()
    for transactions in islice(deltas, PERIOD - 1):
        table.clock.ms += _MS_BETWEEN
        writer.commit(*transactions, generation=0)
        if writer.current().version % PAGE_CAPACITY == 0:
            maintainer.maintain()
    assert writer.current().version - state.version == PERIOD - 1
    return table


def _keep_increment(
    table: Table,
    increment_id: str,
    cut: TableState,
    state: TableState,
    before: Sequence[Increment],
) -> Increment:
    laid_over = rebased(state, cut)
    assert laid_over is not None, "nothing was reset"
    by_key = has_key_index(state)
    reader = table.store(Requests(), 0).reader
    indexes = key_indexes(reader, before, {}) if by_key else None
    body = encode_increment(changes_between(TABLE, cut, laid_over, by_key=by_key), indexes)
    reader.snapshots.put(increment_id, body)
    facts = cut.version, state.version, state.time_ms, len(body)
    return Increment(increment_id, *facts, index_place_of(body))


def _end_log_at(table: Table, version: int, increments: list[Increment]) -> None:
    """Make a log whose pages up to a version were compacted; that segment itself is not there."""
    head = table.pages.head(TABLE)
    assert head is not None
    segments = (Segment(f"{1:032x}", 0, version, 1),) if version else ()
    for number in range(head.last_page + 1, version // PAGE_CAPACITY + 1):
        table.pages.open_page(TABLE, number, head.low_water_mark)
    table.pages.delete_pages(TABLE, 0, version // PAGE_CAPACITY)
    manifest = replace(
        head.manifest,
        revision=head.manifest.revision + 1,
        increments=tuple(increments),
        segments=segments,
    )
    table.pages.set_manifest(TABLE, manifest)
