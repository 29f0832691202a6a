"""Leave out row groups whose Bloom filters show that they lack all values that a column may have.

The filters of a shard follow its row groups, and are fetched by one read. They may be larger than
what a look-up should hold, so of each only the block for each value is kept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from dormouse.keys.ranges import KeyPart
from dormouse.ports.services import StreamedObjects
from dormouse.readers.ranged_reads import stream_sections
from dormouse.readers.reading import RowGroups
from dormouse.readers.threads import reading_threads
from dormouse.schema.schema import Field
from dormouse.shards.format.bloom import BLOCK_BYTES, can_hold, digest_of, filter_of
from dormouse.shards.format.crcs import Section, filter_section
from dormouse.shards.format.index import ShardIndex
from dormouse.stored.paths import shard_path

Values = Mapping[Field, Sequence[KeyPart]]
"""The values that some columns may have in the wanted rows."""

MIN_ROW_GROUPS = 4
"""Fewer row groups of a shard are read at once, without its filters."""


@dataclass(frozen=True, slots=True)
class _Test:
    """A question to one filter: whether it holds a hash, by the block at an offset."""

    group: int
    field: Field
    digest: int
    block: int


def without_excluded(
    objects: StreamedObjects, table_id: str, found: Sequence[RowGroups], values: Values
) -> list[RowGroups]:
    """Return `found` without the row groups that the filters of their shards exclude; all if these
    are less than half, so that most must be read anyway.

    Raises:
        NotFoundError: a shard is gone.
        DamagedShardError: its filters are damaged.
    """
    shards: dict[str, list[RowGroups]] = {}
    for groups in found:
        shards.setdefault(groups.slice.shard.id, []).append(groups)
    tasks = {}
    for shard_id, of_shard in shards.items():
        path = shard_path(table_id, shard_id)
        numbers = sorted({number for groups in of_shard for number in groups.numbers})
        section = _section(of_shard[0], path)
        tests = _tests(of_shard[0].index, numbers, values)
        if section is not None and tests and len(numbers) >= MIN_ROW_GROUPS:
            size_bytes = of_shard[0].slice.shard.size_bytes
            tasks[shard_id] = partial(_excluded, objects, path, size_bytes, section, tests)
    with reading_threads(objects, len(tasks)) as start:
        started = {shard_id: start(task) for shard_id, task in tasks.items()}
        excluded = {shard_id: wait() for shard_id, wait in started.items()}
    none: frozenset[int] = frozenset()
    left = [groups.without(excluded.get(groups.slice.shard.id, none)) for groups in found]
    before, after = (sum(len(groups.numbers) for groups in each) for each in (found, left))
    return left if 2 * after <= before else list(found)


def _section(groups: RowGroups, path: str) -> Section | None:
    """Return the filters of a shard; None if it has none."""
    size_bytes = groups.slice.shard.size_bytes
    return filter_section(groups.metadata, groups.index.stored, path, size_bytes)


def _tests(index: ShardIndex, numbers: Sequence[int], values: Values) -> list[_Test]:
    """Return what to ask of the filters of some row groups."""
    tests = []
    for field, wanted in values.items():
        if field.id not in index.names:
            continue
        _, at = index.stored.columns[field.id]
        digests = [digest_of(value, field.type) for value in wanted]
        for number in numbers:
            place = filter_of(index.metadata.row_group(number).column(at))
            if place is None:
                continue
            tests += [
                _Test(number, field, digest, place.block_of(digest))
                for digest in digests
                if digest is not None
            ]
    return tests


def _excluded(
    objects: StreamedObjects, path: str, size_bytes: int, section: Section, tests: Sequence[_Test]
) -> frozenset[int]:
    """Return the row groups of which a column lacks all values that it may have."""
    blocks = _read_blocks(objects, path, size_bytes, section, {test.block for test in tests})
    held: dict[tuple[int, Field], bool] = {}
    for test in tests:
        place = test.group, test.field
        held[place] = held.get(place, False) or can_hold(blocks[test.block], test.digest)
    return frozenset(number for (number, _), can in held.items() if not can)


def _read_blocks(
    objects: StreamedObjects, path: str, size_bytes: int, section: Section, wanted: set[int]
) -> dict[int, bytes]:
    """Return the blocks at some offsets in the filters, which are verified as a whole."""
    starts = sorted(wanted)
    blocks = {start: bytearray() for start in starts}
    for _, offset, part in stream_sections(objects, path, size_bytes, [section]):
        stop = offset + len(part)
        for start in starts[bisect_left(starts, offset - BLOCK_BYTES + 1) :]:
            if start >= stop:
                break
            blocks[start] += part[max(0, start - offset) : start + BLOCK_BYTES - offset]
    return {start: bytes(block) for start, block in blocks.items()}
