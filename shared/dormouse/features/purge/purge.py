"""A purge: which rows of a table are to be removed, and which shards were found to hold them.

What is stored of a purge has the keys or values that must be forgotten, so it is deleted when the
purge is finished.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import UNSET, UnsetType

from dormouse.keys.ranges import KeyRange
from dormouse.model.partitions import ROOT, Partition, PartitionTree
from dormouse.model.shards import Reference, Shard
from dormouse.model.state import TableState
from dormouse.query.selection import Selection
from dormouse.query.selection_codec import StoredSelection, load_selection, store_selection
from dormouse.schema.schema import Schema
from dormouse.stored.decoding import raise_corrupt
from dormouse.stored.json_objects import decode_stored, encode_stored
from dormouse.tables.spark_options import SparkOptions

MAX_REWRITE_INPUTS = 50
"""The most shards that one job rewrites."""
MAX_JOB_BYTES = 1024**3
"""The most bytes that one job rewrites in a function, within its time-out; a single shard may be
larger."""
JOINED_BYTES = 8 * 1024**2
"""The most bytes of several partitions that one job rewrites. Of smaller jobs, most of the time is
none of reading and writing."""


@dataclass(frozen=True, slots=True)
class PurgeRequest:
    """A purge: `selection` has the rows to remove, by a condition or by keys or prefixes of them.

    Its names are those of `schema`, since a name can be given to another column later. `generation`
    is the table's when the purge was requested. If `spark` has options, Spark rewrites the shards,
    else compaction does.
    """

    id: str
    schema: Schema
    selection: Selection
    generation: int = 0
    spark: SparkOptions | None = None

    @property
    def requested_ms(self) -> int:
        """When the purge was requested."""
        return self.selection.time_ms

    @property
    def max_job_bytes(self) -> int | None:
        """The most bytes that one job rewrites, unless one shard is larger; None for no limit."""
        return None if self.spark else MAX_JOB_BYTES

    def can_match(self, shard: Shard) -> bool:
        """Return whether a shard's least and greatest key allow it to hold rows to remove."""
        return any(span.overlaps_span(shard.low, shard.high) for span in self.selection.ranges)


@dataclass(frozen=True, slots=True)
class ShardMatches:
    """The shards checked so far: `matching` hold rows to remove, `clean` hold none.

    Shards never change, so a result stays valid.
    """

    matching: frozenset[str] = frozenset()
    clean: frozenset[str] = frozenset()

    def __contains__(self, shard: str) -> bool:
        """Return whether a shard was checked."""
        return shard in self.matching or shard in self.clean

    def __len__(self) -> int:
        """Return the number of shards checked."""
        return len(self.matching) + len(self.clean)

    def __or__(self, other: ShardMatches) -> ShardMatches:
        """Return the union of both."""
        return ShardMatches(self.matching | other.matching, self.clean | other.clean)


def shard_matches(found: Mapping[str, bool]) -> ShardMatches:
    """Return the matches of shards, given whether each holds rows to remove."""
    return ShardMatches(
        frozenset(shard for shard, matches in found.items() if matches),
        frozenset(shard for shard, matches in found.items() if not matches),
    )


def unchecked_shards(state: TableState, request: PurgeRequest, known: ShardMatches) -> list[Shard]:
    """Return the referenced shards that can hold rows to remove and were not checked."""
    referenced = (shard for shard, count in state.reference_counts.items() if count)
    shards = (state.shards[shard] for shard in sorted(referenced) if shard not in known)
    return [shard for shard in shards if request.can_match(shard)]


def references_to(state: TableState, shards: frozenset[str]) -> list[Reference]:
    """Return all references to some shards.

    References of partitions without rows to remove are included: as long as one reference is left,
    the shard's object, with the rows of all its partitions, stays.
    """
    left = referenced_of(state, shards)
    return [each for each in state.all_references() if each.shard in left] if left else []


def referenced_of(state: TableState, shards: frozenset[str]) -> frozenset[str]:
    """Return those of some shards that have a reference. It looks at no reference itself: a shard
    may have one in each of many partitions.
    """
    return frozenset(shard for shard in shards if state.reference_counts.get(shard))


def rewrite_jobs(
    state: TableState, references: Iterable[Reference], max_bytes: int | None = MAX_JOB_BYTES
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the partition and the input shards of each job that rewrites `references`, which are
    all references to some shards.

    References that a job already holds are skipped, and those to disputed shards: the purge
    continues once the dispute is resolved. A job rewrites a shard for as many leaves as it can, and
    small shards of neighbouring leaves together. It has at most `MAX_REWRITE_INPUTS` shards and
    `max_bytes`, unless one shard is larger; None is no limit. Four free shards of 400, 400, 400 and
    1200 bytes in a partition, with `max_bytes=1000`,
    give jobs of 400 + 400, 400, and 1200.
    """
    by_shard: dict[str, list[Reference]] = {}
    for reference in references:
        if reference.shard not in state.disputed:
            by_shard.setdefault(reference.shard, []).append(reference)
    free: dict[str, list[Shard]] = {}
    whole: dict[str, list[Shard]] = {}
    for shard, held in by_shard.items():
        is_whole = not state.taken.get(shard) and all(each.job is None for each in held)
        for partition in _partitions_to_rewrite(state, shard, held):
            (whole if is_whole else free).setdefault(partition, []).append(state.shards[shard])
    for partition, shards in _places(state.partitions, whole) if whole else ():
        free.setdefault(partition, []).extend(shards)
    for partition in sorted(free):
        ordered = sorted(free[partition], key=lambda shard: (shard.low, shard.id))
        for group in _groups(ordered, max_bytes):
            yield partition, tuple(shard.id for shard in group)


def _partitions_to_rewrite(
    state: TableState, shard: str, references: Iterable[Reference]
) -> Iterator[str]:
    """Return the partitions in which jobs can rewrite a shard, as few as possible."""
    tree = state.partitions
    free: list[KeyRange] = []
    others = [taking.range for taking in state.taken.get(shard, ())]
    for reference in references:
        span = tree.get(reference.partition).range
        (others if reference.job else free).append(span)
    return _join(tree, tree.get(ROOT), free, others) if free else iter(())


def _join(
    tree: PartitionTree, partition: Partition, free: Sequence[KeyRange], others: Sequence[KeyRange]
) -> Iterator[str]:
    """Yield the highest partitions that have none of the keys of `others`, but have several of the
    ranges `free`, or one leaf with such a range.

    Example: leaves a to h, and a job has taken the rows of c. The partitions are ab, d, and efgh.
    """
    children = [tree.get(child) for child in partition.children or ()]
    parts = [[span for span in free if child.range.covers(span)] for child in children]
    if not children or (not others and all(parts)):
        yield partition.id
        return
    for child, part in zip(children, parts, strict=True):
        if part:
            left = [span for span in others if span.overlaps(child.range)]
            yield from _join(tree, child, part, left)


def _places(
    tree: PartitionTree, whole: Mapping[str, list[Shard]]
) -> Iterator[tuple[str, list[Shard]]]:
    """Yield the partitions in which to rewrite shards that are free wherever they have rows, given
    the lowest partition that has all rows of each.
    """
    if last := (yield from _together(tree, tree.get(ROOT), whole)):
        yield last


def _together(
    tree: PartitionTree, partition: Partition, whole: Mapping[str, list[Shard]]
) -> Generator[tuple[str, list[Shard]], None, tuple[str, list[Shard]] | None]:
    """Yield partitions with shards to rewrite there, a few small shards in a common higher one.

    Return the last of them, for which there may be more beside it. Example: leaves a to d have a
    shard each, of 3, 4, 5 and 6 MiB. The partitions are ab, c and d.
    """
    parts = []
    for child in partition.children or ():
        if part := (yield from _together(tree, tree.get(child), whole)):
            parts.append(part)
    if partition.id in whole:
        parts.append((partition.id, whole[partition.id]))
    if len(parts) < 2:
        return parts[0] if parts else None
    joined = [shard for _, shards in parts for shard in shards]
    size_bytes = sum(shard.size_bytes for shard in joined)
    if len(joined) <= MAX_REWRITE_INPUTS and size_bytes <= JOINED_BYTES:
        return partition.id, joined
    yield from parts
    return None


def _groups(shards: Sequence[Shard], max_bytes: int | None) -> Iterator[list[Shard]]:
    group: list[Shard] = []
    size_bytes = 0
    for shard in shards:
        is_large = max_bytes is not None and size_bytes + shard.size_bytes > max_bytes
        is_full = len(group) == MAX_REWRITE_INPUTS or is_large
        if group and is_full:
            yield group
            group, size_bytes = [], 0
        group.append(shard)
        size_bytes += shard.size_bytes
    if group:
        yield group


class _StoredRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON form."""

    id: str
    generation: int
    selection: StoredSelection
    spark: SparkOptions | UnsetType = UNSET


class _StoredMatches(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    matching: tuple[str, ...]
    clean: tuple[str, ...]


FORMAT = 1
_REQUEST, _MATCHES = "the request of a purge", "shard matches of a purge"


def encode_request(request: PurgeRequest, path: str) -> bytes:
    """Return the stored form of a request, for `path`."""
    selection = store_selection(request.selection, request.schema)
    stored = _StoredRequest(request.id, request.generation, selection, request.spark or UNSET)
    return encode_stored(_REQUEST, FORMAT, path, stored)


def decode_request(stored: bytes, path: str) -> PurgeRequest:
    """Parse the result of `encode_request`.

    Raises:
        CorruptDataError: the object at `path` is damaged or is no request.
    """
    hint = "request the purge again, and delete this object: which rows it was to remove is lost"
    with raise_corrupt(f"{path} is no request of a purge", hint=hint):
        body = decode_stored(_REQUEST, FORMAT, path, stored, _StoredRequest)
        schema, selection = load_selection(body.selection)
    return PurgeRequest(body.id, schema, selection, body.generation, body.spark or None)


def encode_matches(matches: ShardMatches, path: str) -> bytes:
    """Return the stored form of shard matches, for `path`."""
    stored = _StoredMatches(tuple(sorted(matches.matching)), tuple(sorted(matches.clean)))
    return encode_stored(_MATCHES, FORMAT, path, stored)


def decode_matches(stored: bytes, path: str) -> ShardMatches:
    """Parse the result of `encode_matches`.

    Raises:
        CorruptDataError: the object at `path` is damaged or has no shard matches.
    """
    with raise_corrupt(f"{path} has no shard matches of a purge"):
        body = decode_stored(_MATCHES, FORMAT, path, stored, _StoredMatches)
    return ShardMatches(frozenset(body.matching), frozenset(body.clean))
