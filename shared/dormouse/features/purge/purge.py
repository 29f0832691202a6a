"""A purge: which rows of a table are to be removed, and what is known of its shards so far.

What is kept of a purge names keys or values which are to be forgotten, so it is itself deleted
when the purge is finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import UNSET, UnsetType

from dormouse.key_forms.stored import decode_key, encode_key
from dormouse.keys.ranges import Key, KeyRange, union_ranges
from dormouse.model.shards import Reference, Shard
from dormouse.model.state import TableState
from dormouse.stored.decoding import raise_corrupt
from dormouse.stored.json_objects import decode_stored, encode_stored
from dormouse.tables.spark_options import SparkOptions

MAX_REWRITE_INPUTS = 50
"""The most shards which one job rewrites."""
MAX_JOB_BYTES = 1024**3
"""What one job of a function rewrites at most, unless a single shard is larger: it has minutes."""


@dataclass(frozen=True, slots=True)
class PurgeRequest:
    """Rows to remove: those `where` is true of, or, if it is empty, those below any of `keys`.

    `where` is a predicate in its normal form, `columns` the ids of those it names: a name can come
    to mean another column. Keys may be prefixes. `generation` is that of the table when it was
    asked for, at `requested_ms`. With options for it, Spark rewrites shards, else whoever compacts.
    """

    id: str
    generation: int = 0
    requested_ms: int = 0
    where: str = ""
    columns: tuple[tuple[str, int], ...] = ()
    keys: tuple[Key, ...] = ()
    spark: SparkOptions | None = None

    @property
    def max_job_bytes(self) -> int | None:
        """What one job rewrites at most, unless a single shard is larger; None for any number."""
        return None if self.spark else MAX_JOB_BYTES

    @property
    def ranges(self) -> list[KeyRange]:
        """The ranges of keys whose rows can match, disjoint and in order."""
        return (
            union_ranges([KeyRange.exactly(key) for key in self.keys])
            if self.keys
            else [KeyRange()]
        )

    def can_match(self, shard: Shard) -> bool:
        """Return whether, by its least and greatest key, a shard can hold rows to remove."""
        return any(span.overlaps_span(shard.min_key, shard.max_key) for span in self.ranges)


@dataclass(frozen=True, slots=True)
class ShardMatches:
    """What was found out about shards, which never change: `matching` hold rows to remove."""

    matching: frozenset[str] = frozenset()
    clean: frozenset[str] = frozenset()

    def __contains__(self, shard: str) -> bool:
        """Return whether a shard was looked at."""
        return shard in self.matching or shard in self.clean

    def __len__(self) -> int:
        """Count the shards looked at."""
        return len(self.matching) + len(self.clean)

    def __or__(self, other: ShardMatches) -> ShardMatches:
        """Return what both know."""
        return ShardMatches(self.matching | other.matching, self.clean | other.clean)


def shard_matches(found: Mapping[str, bool]) -> ShardMatches:
    """Return the verdicts on shards of which is known whether they match."""
    return ShardMatches(
        frozenset(shard for shard, matches in found.items() if matches),
        frozenset(shard for shard, matches in found.items() if not matches),
    )


def unchecked_shards(state: TableState, request: PurgeRequest, known: ShardMatches) -> list[Shard]:
    """Return the shards with references that can hold rows to remove and were not looked at."""
    referenced = {reference.shard for reference in state.all_references()}
    shards = (state.shards[shard] for shard in sorted(referenced) if shard not in known)
    return [shard for shard in shards if request.can_match(shard)]


def references_to(state: TableState, shards: frozenset[str]) -> list[Reference]:
    """Return all references to some shards.

    Those in partitions without a row to remove are among them: as long as one is left, the object
    with the rows of all partitions stays.
    """
    return [reference for reference in state.all_references() if reference.shard in shards]


def rewrite_jobs(
    state: TableState, references: Iterable[Reference], max_bytes: int | None = MAX_JOB_BYTES
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Return the partition and inputs of each job that rewrites the free ones of `references`.

    Those to disputed shards are left alone: who settles the dispute lets the purge go on. A job has
    `max_bytes` at most, unless a single shard is larger; None for any number.
    """
    free: dict[str, list[Shard]] = {}
    for reference in references:
        if reference.job is None and reference.shard not in state.disputed:
            free.setdefault(reference.partition, []).append(state.shards[reference.shard])
    for partition in sorted(free):
        ordered = sorted(free[partition], key=lambda shard: (shard.min_key, shard.id))
        for group in _groups(ordered, max_bytes):
            yield partition, tuple(shard.id for shard in group)


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
    """The JSON form; keys are hexadecimal `encode_key`."""

    id: str
    generation: int
    requested_ms: int
    where: str
    columns: tuple[tuple[str, int], ...]
    keys: tuple[str, ...]
    spark: SparkOptions | UnsetType = UNSET


class _StoredMatches(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    matching: tuple[str, ...]
    clean: tuple[str, ...]


FORMAT = 2
_REQUEST, _VERDICTS = "the request of a purge", "verdicts of a purge"


def encode_request(request: PurgeRequest, path: str) -> bytes:
    """Return what is put at `path` of a request."""
    keys = tuple(encode_key(key).hex() for key in request.keys)
    stored = _StoredRequest(
        request.id,
        request.generation,
        request.requested_ms,
        request.where,
        request.columns,
        keys,
        request.spark or UNSET,
    )
    return encode_stored(_REQUEST, FORMAT, path, stored)


def decode_request(stored: bytes, path: str) -> PurgeRequest:
    """Parse what `encode_request` gave.

    Raises:
        CorruptDataError: it is no such thing; `path` is named.
    """
    hint = "ask for the purge once more, and delete this object: nobody can tell what it was about"
    with raise_corrupt(f"{path} is no request of a purge", hint=hint):
        body = decode_stored(_REQUEST, FORMAT, path, stored, _StoredRequest)
        keys = tuple(decode_key(bytes.fromhex(key)) for key in body.keys)
    return PurgeRequest(
        body.id,
        body.generation,
        body.requested_ms,
        body.where,
        body.columns,
        keys,
        body.spark or None,
    )


def encode_matches(verdicts: ShardMatches, path: str) -> bytes:
    """Return what is put at `path` of verdicts."""
    stored = _StoredMatches(tuple(sorted(verdicts.matching)), tuple(sorted(verdicts.clean)))
    return encode_stored(_VERDICTS, FORMAT, path, stored)


def decode_matches(stored: bytes, path: str) -> ShardMatches:
    """Parse what `encode_matches` gave.

    Raises:
        CorruptDataError: it is no such thing; `path` is named.
    """
    with raise_corrupt(f"{path} holds no verdicts of a purge"):
        body = decode_stored(_VERDICTS, FORMAT, path, stored, _StoredMatches)
    return ShardMatches(frozenset(body.matching), frozenset(body.clean))
