"""What is wrong with an entry in itself, whatever the state of its table, as data.

A store calls `entry_violations` before it writes an entry, and refuses a broken one. The fold calls
it too: if a broken entry got into a log anyway (by another release, a bug, by hand), every reader
reports the same violation. After this check, `rules` and `fold` may rely on it: keys compare,
counts are counts, ids are ids, and nothing is named twice.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from dormouse.errors import CorruptDataError
from dormouse.fold.rules import Rule, Violation
from dormouse.keys.ranges import INT64_MAX, decode_key
from dormouse.model.shards import NewShard
from dormouse.model.source_segments import SourceSegment
from dormouse.model.transactions import (
    AddShards,
    AdoptSegments,
    AssignJob,
    DeleteShards,
    DisputeShards,
    Entry,
    ExtendTree,
    InitialisePartitions,
    ReleaseJob,
    ReplaceShards,
    ResetTable,
    ResolveDisputes,
    RestoreVersion,
    SealSources,
    SplitPartition,
)
from dormouse.schema.key_types import KeyTypes, key_part_problem, key_problem
from dormouse.schema.schema import KEY_TYPES

MAX_ID_LENGTH = 128
"""The longest id. With it, two thousand references fit into one DynamoDB item, and each fits
into a sort key of 1,024 bytes."""
MAX_SHARD_ROWS = 2**40
MAX_SHARD_BYTES = 2**50
"""Far more than any object has. The limit keeps sums over all shards of a table within 64
bits."""
MAX_TIME_MS = 253_402_300_799_999
"""The end of the year 9999. A clock beyond it would stop the time of its table."""

_ID = re.compile(rf"[ -.0-~]{{1,{MAX_ID_LENGTH}}}")
"""Printable ASCII without a slash, since slashes separate the parts of object and item names."""


def entry_violations(entry: Entry, key_types: KeyTypes) -> tuple[Violation, ...]:
    """Return every reason why `entry` can be applied to no state of a table with these key types.

    `key_types` is empty for a table that has no tree yet, or if the types of the entry's generation
    are not known. Then keys only need parts that can be stored.
    """
    return tuple(_faults(entry, key_types))


def _faults(entry: Entry, types: KeyTypes) -> Iterator[Violation]:  # noqa: C901  # a case a kind
    yield from _number(entry.time_ms, "the time", MAX_TIME_MS)
    yield from _number(entry.generation, "the generation", INT64_MAX)
    match entry.transaction:
        case InitialisePartitions(splits=splits, key_types=key_types):
            yield from _first_splits(splits, key_types)
        case AddShards(job=job, sources=sources, shards=shards, looked_up_to=looked_up_to):
            yield from _ids([job])
            yield from _number(looked_up_to, job, INT64_MAX)
            yield from _named_once(sources)
            yield from _shards(shards, types)
        case AssignJob(job=job, partition=partition, inputs=inputs) as assigned:
            yield from _inputs(job, partition, inputs)
            causes = assigned.purge_id, assigned.request_key
            yield from _ids(cause for cause in causes if cause is not None)
        case ReleaseJob(job=job):
            yield from _ids([job])
        case ReplaceShards(job=job, partition=partition, inputs=inputs, outputs=outputs) as done:
            yield from _inputs(job, partition, inputs)
            yield from _shards(outputs, types)
            yield from _rows(done.rows_taken)
            yield from _number(done.rows_removed, job, INT64_MAX)
            yield from _conserved(done)
        case SplitPartition(partition=partition, at=at, rows_left=rows_left):
            yield from _splits([(partition, at)], types)
            yield from _rows(rows_left)
        case ExtendTree(splits=splits):
            yield from _splits(splits, types)
        case DeleteShards(shards=shards):
            yield from _named_once(shards)
        case DisputeShards(shards=shards, job=job):
            yield from _ids([job])
            yield from _named_once(shards)
        case ResolveDisputes(disputes=disputes):
            yield from _named_once([shard for shard, _ in disputes])
            for shard, since_ms in disputes:
                yield from _number(since_ms, shard, MAX_TIME_MS)
        case SealSources(segment=segment, replaced=replaced):
            yield from _segments([segment])
            yield from _named_once(replaced)
        case AdoptSegments(segments=segments):
            yield from _segments(segments)
        case ResetTable(generation=generation, splits=splits, key_types=key_types):
            yield from _number(generation, "the new generation", INT64_MAX)
            given = key_types or types
            yield from _first_splits(splits, given) if given else _ascending(splits, given)
        case RestoreVersion(generation=generation, version=version):
            yield from _number(generation, "the new generation", INT64_MAX)
            yield from _number(version, "the version", INT64_MAX)


def _segments(segments: Sequence[SourceSegment]) -> Iterator[Violation]:
    yield from _named_once([segment.id for segment in segments])
    for segment in segments:
        bounded = (segment.count, segment.size_bytes, segment.index_at, segment.slots)
        for number in (*bounded, segment.after, segment.up_to):
            yield from _number(number, segment.id, MAX_SHARD_BYTES)
        if not segment.count:
            yield Violation(Rule.SEGMENT_MISCOUNTED, shown(segment.id))


def _first_splits(splits: Sequence[bytes], types: KeyTypes) -> Iterator[Violation]:
    if types and KEY_TYPES.issuperset(types):
        yield from _ascending(splits, types)
    else:
        yield Violation(Rule.KEY_TYPES_UNFIT, "key types")


def _ascending(splits: Sequence[bytes], types: KeyTypes) -> Iterator[Violation]:
    for number, key in enumerate(splits, start=1):
        yield from _key(key, types, 1, f"split point {number}")
    if b"" in splits or any(here <= before for before, here in pairwise(splits)):
        yield Violation(Rule.SPLITS_NOT_ASCENDING, "split points")


def _inputs(job: str, partition: str, inputs: Sequence[str]) -> Iterator[Violation]:
    yield from _ids([job, partition, *inputs])
    if not inputs or len(set(inputs)) < len(inputs):
        yield Violation(Rule.NO_INPUTS, shown(job))


def _conserved(done: ReplaceShards) -> Iterator[Violation]:
    """Check that a job counts its rows. A job without outputs may not have: a rebuild cannot know
    the counts.
    """
    if not done.outputs and not done.rows_taken and not done.rows_removed:
        return
    if sorted(shard for shard, _ in done.rows_taken) != sorted(done.inputs):
        yield Violation(Rule.ROWS_NOT_COUNTED, shown(done.job))
    taken = sum(rows for _, rows in done.rows_taken)
    if taken - done.rows_removed != sum(new.shard.rows for new in done.outputs):
        yield Violation(Rule.ROWS_NOT_CONSERVED, shown(done.job))


def _splits(splits: Sequence[tuple[str, bytes]], types: KeyTypes) -> Iterator[Violation]:
    if not splits:
        yield Violation(Rule.NO_SPLITS, "splits")
    yield from _ids(partition for partition, _ in splits)
    yield from _twice([partition for partition, _ in splits], Rule.PARTITION_SPLIT)
    for partition, at in splits:
        yield from _key(at, types, 1, f"the split of {shown(partition)}")


def _named_once(names: Sequence[str]) -> Iterator[Violation]:
    yield from _ids(names)
    yield from _twice(names, Rule.NAMED_TWICE)


def _rows(counted: Sequence[tuple[str, int]]) -> Iterator[Violation]:
    yield from _named_once([shard for shard, _ in counted])
    for shard, rows in counted:
        yield from _number(rows, shard, MAX_SHARD_ROWS)


def _shards(shards: Sequence[NewShard], types: KeyTypes) -> Iterator[Violation]:
    yield from _ids(new.shard.id for new in shards)
    yield from _twice([new.shard.id for new in shards], Rule.SHARD_EXISTS)
    for new in shards:
        yield from _shard(new, types)


def _shard(new: NewShard, types: KeyTypes) -> Iterator[Violation]:
    """Yield what is wrong with a shard. Most of a log is shards, and most of them are sound."""
    shard, name = new.shard, new.shard.id
    if not 0 <= shard.size_bytes <= MAX_SHARD_BYTES:
        yield Violation(Rule.OUT_OF_BOUNDS, shown(name))
    if not 0 <= shard.rows <= MAX_SHARD_ROWS:
        yield Violation(Rule.OUT_OF_BOUNDS, shown(name))
    low = _key_fault(shard.low, types, len(types))
    high = low if shard.high == shard.low else _key_fault(shard.high, types, len(types))
    if low:
        yield Violation(Rule.KEY_UNFIT, f"the least key of shard {shown(name)} ({low})")
    if high:
        yield Violation(Rule.KEY_UNFIT, f"the greatest key of shard {shown(name)} ({high})")
    is_reversed = bool(types) and not (low or high) and shard.high < shard.low
    if shard.rows == 0 or not new.rows_by_partition or is_reversed:
        yield Violation(Rule.SHARD_EMPTY, shown(name))
    placed, rows, least = set[str](), 0, 0
    for partition, count in new.rows_by_partition:
        if not _ID.fullmatch(partition):
            yield Violation(Rule.ID_UNFIT, shown(partition))
        placed.add(partition)
        rows, least = rows + count, min(least, count)
    if len(placed) < len(new.rows_by_partition):
        yield Violation(Rule.ROWS_COUNTED_TWICE, shown(name))
    if rows != shard.rows or least < 0:
        yield Violation(Rule.ROWS_MISCOUNTED, shown(name))


def _key(key: bytes, types: KeyTypes, fewest_parts: int, where: str) -> Iterator[Violation]:
    if fault := _key_fault(key, types, fewest_parts):
        yield Violation(Rule.KEY_UNFIT, f"{where} ({fault})")


def _key_fault(stored: bytes, types: KeyTypes, fewest_parts: int) -> str:
    """Return why bytes are no key of these types; an empty string if they are. Whatever holds keys
    need not decode them once more.
    """
    try:
        key = decode_key(stored)
    except CorruptDataError:
        return "it is not a stored key"
    return key_problem(key, types, fewest_parts=fewest_parts) if types else key_part_problem(key)


def _ids(ids: Iterable[str]) -> Iterator[Violation]:
    for name in ids:
        if not _ID.fullmatch(name):
            yield Violation(Rule.ID_UNFIT, shown(name))


def _twice(names: Sequence[str], rule: Rule) -> Iterator[Violation]:
    if len(set(names)) < len(names):
        for name, count in Counter(names).items():
            if count > 1:
                yield Violation(rule, shown(name))


def _number(number: int, name: str, most: int) -> Iterator[Violation]:
    if not 0 <= number <= most:
        yield Violation(Rule.OUT_OF_BOUNDS, shown(name))


def shown(name: str) -> str:
    """Return a name in a form that a violation can carry: short, printable ASCII."""
    printable = name if name.isascii() and name.isprintable() else ascii(name)
    return printable if len(printable) <= MAX_ID_LENGTH else f"{printable[:MAX_ID_LENGTH]}…"
