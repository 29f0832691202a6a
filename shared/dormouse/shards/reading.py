"""Find the blocks of shards that can hold the rows of key ranges.

A look-up needs one read of the index at the end of the shard, which is cached, and one round of
reads of the blocks that may have keys of the range. The size of a shard is known from the state, so
no request is needed to find its end.
"""

import os
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from functools import cache, partial
from itertools import accumulate
from math import inf
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar, cast

import pyarrow.parquet as pq

from dormouse.arrow.order import fit_range
from dormouse.errors import damaged_shard
from dormouse.keys import KeyPart, KeyRange
from dormouse.ports import Cache, Objects, StreamedObjects
from dormouse.schema.evolution import earlier_part
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import FieldType
from dormouse.shards import crcs, footer
from dormouse.shards.stored_index import MAGIC, read_by_index_object, shift_at
from dormouse.state.partitions import Shard
from dormouse.state.state import Deletion
from dormouse.storage import WrappedFile, read_pieces
from dormouse.stored.checksums import crc32
from dormouse.stored.paths import shard_path


@dataclass(slots=True)
class ReadCounters:
    """What has been read so far.

    `shards` are the shards whose footers or rows were read, `row_groups` counts the row groups
    whose rows were read. `requests` counts ranged reads, `size_bytes` the bytes they returned.
    `scans` counts the ranges that were merged as streams.
    """

    shards: set[str] = dataclass_field(default_factory=set)
    row_groups: int = 0
    requests: int = 0
    size_bytes: int = 0
    scans: int = 0
    lock: threading.Lock = dataclass_field(default_factory=threading.Lock, repr=False)

    def add_request(self, size_bytes: int) -> None:
        """Count a read."""
        with self.lock:
            self.requests += 1
            self.size_bytes += size_bytes

    def add(self, shards: Iterable[str] = (), row_groups: int = 0, scans: int = 0) -> None:
        """Count what was not read by a request of its own."""
        with self.lock:
            self.shards.update(shards)
            self.row_groups += row_groups
            self.scans += scans


class _CountedFile(WrappedFile):
    def __init__(self, file: BinaryIO, reads: ReadCounters) -> None:
        super().__init__(file)
        self._reads = reads

    def read(self, size: int = -1) -> bytes:
        body = self._file.read(size)
        self._reads.add_request(len(body))
        return body


@dataclass(frozen=True, slots=True)
class CountedObjects:
    """A `ports.StreamedObjects` that counts its reads."""

    objects: StreamedObjects
    reads: ReadCounters

    @property
    def is_remote(self) -> bool:
        """Whether a read waits for a network."""
        return self.objects.is_remote

    def open(self, path: str, size_bytes: int) -> BinaryIO:
        """Open an object. Raises NotFoundError, at the latest when it is read."""
        return cast(BinaryIO, _CountedFile(self.objects.open(path, size_bytes), self.reads))

    def link(self, path: str, local: Path) -> bool:
        """Make `local` a second name of an object's file, if that can be."""
        return self.objects.link(path, local)

    def stream(self, path: str, size_bytes: int, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes of an object from `start` up to `end`. Raises NotFoundError."""
        read_bytes = 0
        for piece in self.objects.stream(path, size_bytes, start, end):
            read_bytes += len(piece)
            yield piece
        self.reads.add_request(read_bytes)


# Tasks of queries, in threads that all queries of the process share: so many queries and scans as
# there may be, so many reads are in flight, and so many shards are decoded.
#
# A read of a local disk takes less time than to hand it to another thread and back. So only reads
# that wait for a network are in threads of their own. No task waits for another of its pool.

_T = TypeVar("_T")

READ_THREADS = 8
"""How many shards a query looks up at once."""
READS_AT_ONCE = 64
"""How many storage reads are in flight at once, at most: the inputs of a compaction are opened, and
the row groups of a look-up are fetched, in the time of one read."""
DECODE_THREADS = max(2, os.cpu_count() or 1)
"""How many shards are decoded at once."""


class Start(Protocol):
    """Starts a task."""

    def __call__(self, task: Callable[[], _T], /) -> Callable[[], _T]:
        """Return a function that waits for the task, and returns or raises what it did."""


def in_threads(tasks: int, most: int) -> AbstractContextManager[Start]:
    """Let the block start up to `tasks` tasks, of which at most `most` run at once, in threads that
    the process has for this number. Tasks that are not done when the block ends are not begun.

    A single one runs in the thread that asks for its result, when it does so: to hand it to another
    thread takes longer than to read a row group from a local disk.
    """
    return nullcontext(when_asked) if tasks < 2 else _in_threads(most)


@contextmanager
def _in_threads(most: int) -> Iterator[Start]:
    threads, started = _threads(most, os.getpid()), list[Future[Any]]()

    def submit(task: Callable[[], _T], /) -> Callable[[], _T]:
        future = threads.submit(task)
        started.append(future)
        return future.result

    try:
        yield submit
    finally:
        for future in started:
            future.cancel()
        wait(started)


def when_asked(task: Callable[[], _T], /) -> Callable[[], _T]:
    """Return a function that does a task once; `functools.cache` takes several times as long."""
    results: list[_T] = []

    def result() -> _T:
        if not results:
            results.append(task())
        return results[0]

    return result


@cache
def _threads(most: int, process: int) -> ThreadPoolExecutor:
    """Return threads of a process: a fork has its own."""
    return ThreadPoolExecutor(most, f"dormouse-{process}")


def reading_threads(objects: Objects, reads: int) -> AbstractContextManager[Start]:
    """Let the block start up to `reads` reads of `objects`, which are in flight at once if they
    wait for a network; otherwise, each runs when its result is asked for.
    """
    return in_threads(reads if objects.is_remote else 1, READS_AT_ONCE)


@dataclass(frozen=True, slots=True)
class Slice:
    """The rows of a shard whose keys are in a range.

    `deletions` are those that may hide rows of its version in what is read, the same for all slices
    of one query. Queries leave these rows out; what merges or counts slices does not.
    """

    shard: Shard
    range: KeyRange
    deletions: tuple[Deletion, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Return whether the slice contains all rows of the shard."""
        return self.range.contains_span(self.shard.low, self.shard.high)

    @property
    def is_hidden(self) -> bool:
        """Return whether a deletion hides all rows of the shard, as far as their tags say."""
        return any(each.hides_all(self.shard) for each in self.deletions)


JOINED_BLOCKS = 2
"""So many blocks are decoded as one row group: each takes time, whatever its size, and a merge
holds one of each input.
"""


@dataclass(frozen=True, slots=True)
class Blocks:
    """The row groups of a shard that can hold the rows of a slice.

    Those `excluded` hold no row that a query wants, and are not among `numbers`.
    """

    slice: Slice
    index: footer.ShardIndex
    numbers: Sequence[int]
    excluded: frozenset[int] = frozenset()

    def without(self, excluded: frozenset[int]) -> "Blocks":
        """Return these row groups without some."""
        rest = tuple(number for number in self.numbers if number not in excluded)
        return replace(self, numbers=rest, excluded=self.excluded | excluded)

    @property
    def row_groups(self) -> list[int]:
        """The Parquet row groups of its blocks."""
        return self.index.row_groups_of(self.numbers)

    def expanded(self) -> "Blocks":
        """Return all blocks of its row groups, as a scan or a merge reads them."""
        blocks_of = self.index.stored.layout.blocks_of
        return replace(self, numbers=[n for group in self.row_groups for n in blocks_of(group)])

    @property
    def joined(self) -> list[range]:
        """Its blocks as a merge decodes them: those that follow each other in a row group as one,
        up to `JOINED_BLOCKS`.
        """
        row_group_of, joined = self.index.stored.layout.row_group_of, list[range]()
        for number in self.numbers:
            last = joined[-1] if joined else range(0)
            if (
                0 < len(last) < JOINED_BLOCKS
                and number == last.stop
                and row_group_of(number) == row_group_of(last.start)
            ):
                joined[-1] = range(last.start, number + 1)
            else:
                joined.append(range(number, number + 1))
        return joined

    @property
    def first_bytes(self) -> range:
        """The first bytes of its row groups are in this range, and of no others beyond them.

        Requires: there are blocks.
        """
        groups = self.row_groups
        return range(self.index.start(groups[0]), self.index.start(groups[-1]) + 1)

    def within(self, span: KeyRange, schema: Schema) -> "Blocks":
        """Return it with the row groups that can hold rows in `span`, too, of the same slice."""
        return replace(self, numbers=narrow(self, span, schema).numbers)


def narrow(groups: Blocks, span: KeyRange, schema: Schema) -> Blocks:
    """Return the row groups of the part of a slice within `span`, without reading anything."""
    part = replace(groups.slice, range=groups.slice.range.intersection(span))
    blocks = _blocks(part, groups.index, schema)
    return blocks.without(groups.excluded) if groups.excluded else blocks


def _blocks(slice: Slice, index: footer.ShardIndex, schema: Schema) -> Blocks:
    if slice.is_whole:
        return Blocks(slice, index, index.blocks)
    return Blocks(slice, index, index.stored.keys.overlapping(fit_range(slice.range, schema)))


def find_blocks(
    objects: Objects,
    table_id: str,
    slices: Sequence[Slice],
    schema: Schema,
    cache: Cache | None = None,
    *,
    footers: bool = False,
) -> list[Blocks]:
    """Return the row groups that can hold rows of each slice, with the whole `footers` of the
    shards if they are needed; several are read at once.

    Raises:
        NotFoundError: a shard is gone.
        CorruptDataError: a shard is damaged, or is not the shard that the state names.
    """
    shards = {slice.shard.id: slice.shard for slice in slices}
    cached = Cache(0) if cache is None else cache
    indexes = read_indexes(
        objects, table_id, list(shards.values()), schema, cached, footers=footers
    )
    by_shard = dict(zip(shards, indexes, strict=True))
    return [_blocks(slice, by_shard[slice.shard.id], schema) for slice in slices]


def with_footers(
    objects: Objects, table_id: str, blocks: Sequence[Blocks], schema: Schema, cache: Cache
) -> list[Blocks]:
    """Return row groups that were found without the footers of their shards with these. Raises as
    `find_blocks`.
    """
    shards = {g.slice.shard.id: g.slice.shard for g in blocks if g.index.footer is None}
    indexes = read_indexes(objects, table_id, list(shards.values()), schema, cache, footers=True)
    by_shard = dict(zip(shards, indexes, strict=True))
    return [replace(g, index=by_shard.get(g.slice.shard.id, g.index)) for g in blocks]


def read_indexes(
    objects: Objects,
    table_id: str,
    shards: Sequence[Shard],
    schema: Schema,
    cache: Cache,
    *,
    footers: bool = False,
) -> list[footer.ShardIndex]:
    """Return the index of each shard, from the cache or by reading the end of the shard, and its
    whole footer if that is needed; many at once. Raises as `find_blocks`.
    """
    indexes = [footer.cached_index(table_id, shard.id, cache, footer=footers) for shard in shards]
    with reading_threads(objects, indexes.count(None)) as start:
        reads = [
            start(
                partial(footer.read_index, objects, table_id, shard, schema, cache, footer=footers)
            )
            for shard, index in zip(shards, indexes, strict=True)
            if index is None
        ]
        unread = iter(reads)
        return [next(unread)() if index is None else index for index in indexes]


def read_own_footers(
    objects: Objects, table_id: str, shards: Sequence[Shard], schema: Schema, cache: Cache
) -> list[footer.ShardFooter]:
    """Return what each shard says about itself, many read at once. Their indexes are in the cache
    then, if it has room for them. Raises as `find_blocks`.
    """
    with reading_threads(objects, len(shards)) as start:
        reads = [
            start(partial(footer.read_own_footer, objects, table_id, shard, schema, cache))
            for shard in shards
        ]
        return [wait() for wait in reads]


# Fetch sections of a shard in few ranged reads, by threads of our own, and verify their CRCs.
#
# Arrow has readahead of its own, but its threads would call into Python, and a thread that does so
# while the process exits aborts the process. Used by `reading`.

_START, _END = attrgetter("start"), attrgetter("end")
MAX_GAP_BYTES = 64 * 1024
"""Sections with at most this gap between them are read together: reading the gap takes
no longer than another request."""


def read_sections(
    objects: Objects, path: str, size_bytes: int, sections: Sequence[crcs.Section]
) -> bytes:
    """Read some sections of a shard in one ranged read, and verify each of them.
    Raises NotFoundError: the shard is gone; DamagedShardError: it is damaged.
    """
    with footer.raise_damaged(path), objects.open(path, size_bytes) as file:
        return read_from(file, path, sections)


def read_from(file: BinaryIO, path: str, sections: Sequence[crcs.Section]) -> bytes:
    """Read sections of an open shard in one read, and verify each. Raises DamagedShardError."""
    start, end = byte_span(sections)
    file.seek(start)
    body = file.read(end - start)
    view = memoryview(body)
    for section in sections:
        section.check(path, view[section.start - start : section.end - start])
    return body


def check_sections(
    objects: Objects, path: str, size_bytes: int, sections: Iterable[crcs.Section]
) -> bytes:
    """Verify some sections of a shard that is a file of this machine; return nothing of them.
    Raises NotFoundError: the shard is gone; DamagedShardError: it is damaged.
    """
    with footer.raise_damaged(path), objects.open(path, size_bytes) as file:
        for section in sections:
            read_bytes, crc = 0, section.before
            for piece in read_pieces(file, section.start, section.end):
                read_bytes, crc = read_bytes + len(piece), crc32(piece, crc)
            section.check_read(path, read_bytes, crc)
    return b""


def stream_sections(
    objects: StreamedObjects, path: str, size_bytes: int, sections: Sequence[crcs.Section]
) -> Iterator[tuple[crcs.Section, int, memoryview]]:
    """Yield the bytes of some sections as they arrive by one ranged read: section, offset, bytes.

    A section is verified when all its bytes were yielded, so none may be used before the last.
    Bytes between sections are left out.
    Raises NotFoundError: the shard is gone; DamagedShardError: it is damaged.
    """
    rest = deque(sorted(sections, key=attrgetter("start", "end")))
    at, end = byte_span(sections)
    read_bytes, crc = 0, rest[0].before
    with footer.raise_damaged(path):
        for piece in objects.stream(path, size_bytes, at, end):
            arrived = memoryview(piece)
            stop = at + len(arrived)
            while rest and rest[0].start < stop:
                section = rest[0]
                low = section.start if section.start > at else at  # max takes several times as long
                high = section.end if section.end < stop else stop
                part = arrived[low - at : high - at]
                read_bytes, crc = read_bytes + len(part), crc32(part, crc)
                yield section, low, part
                if stop < section.end:
                    break
                section.check_read(path, read_bytes, crc)
                rest.popleft()
                read_bytes, crc = 0, rest[0].before if rest else 0
            at = stop
    while rest:  # empty ones at the very end, or what the response lacked
        rest.popleft().check_read(path, read_bytes, crc)
        read_bytes, crc = 0, rest[0].before if rest else 0


def byte_span(sections: Sequence[crcs.Section]) -> footer.ByteSpan:
    """Return the span from the first to the last byte of `sections`, of which there is one."""
    return min(map(_START, sections)), max(map(_END, sections))


def coalesce(
    sections: Iterable[crcs.Section], most_bytes: float = inf, *, gap_bytes: int | None = None
) -> list[list[crcs.Section]]:
    """Return sections in groups that are read together, which ascend: neighbours with gaps of at
    most `gap_bytes`, by default `MAX_GAP_BYTES`, up to `most_bytes`.

    A section is never divided, so a group of one section may be larger.

    For example, with gaps of at most 64 KiB: the sections [4, 100 K), [100 K, 150 K) and [900 K, 1
    M) are read in two requests, [4, 150 K) and [900 K, 1 M).
    """
    result: list[list[crcs.Section]] = []
    start = end = 0
    gap = MAX_GAP_BYTES if gap_bytes is None else gap_bytes
    for section in sorted(sections, key=_START):
        if result and section.start - end <= gap and section.end - start <= most_bytes:
            result[-1].append(section)
            end = max(end, section.end)
        else:
            result.append([section])
            start, end = section.start, section.end
    return result


# Decide what a query reads at once and what it streams, while it goes on.
#
# A look-up reads whole row groups at once, of as many ranges and shards as fit into a memory
# budget. Anything larger is scanned by DataFusion. A query with a limit starts with a small budget
# and doubles it with each step, because it may not need more.

FIRST_BYTES = 256 * 1024
"""The first budget of a query with a limit, in memory: about one row group."""

LeafBlocks = list[Blocks]
"""What is read for one range of keys within one leaf: the row groups of each
shard that can hold rows of it."""


@dataclass(frozen=True, slots=True)
class LookUp:
    """Row groups in key order, few enough to be read at once."""

    blocks: list[Blocks]


@dataclass(frozen=True, slots=True)
class Scan:
    """The row groups of one range, to be merged as a stream."""

    blocks: list[Blocks]


@dataclass
class _Pending:
    """Row groups collected for the next look-up; one that several ranges need counts once."""

    blocks: list[Blocks] = dataclass_field(default_factory=list)
    groups: set[tuple[str, int]] = dataclass_field(default_factory=set)
    size_bytes: int = 0

    def takes(self, part: LeafBlocks, fields: Collection[Field], budget: int) -> bool:
        """Add those row groups of a range that are new, if they fit; return whether they do."""
        more: set[tuple[str, int]] = set()
        size_bytes = self.size_bytes
        for groups in part:
            shard = groups.slice.shard.id
            for number in groups.numbers:
                if (shard, number) not in self.groups:
                    more.add((shard, number))
                    size_bytes += groups.index.column_bytes(number, fields)
                    if size_bytes > budget:
                        return False
        self.blocks += part
        self.groups |= more
        self.size_bytes = size_bytes
        return True


def plan_reads(
    windows: Iterable[Sequence[LeafBlocks]],
    schema: Schema,
    columns: Collection[str],
    *,
    look_up_bytes: int,
    is_limited: bool,
) -> Iterator[LookUp | Scan]:
    """Yield the steps that read all ranges in key order; `windows` are
    lists of ranges found together.

    A look-up needs at most `look_up_bytes` of memory. Ranges of which row groups are excluded are
    not scanned: a scan would read these, too.

    For example, with ranges that need 1, 1, 9 and 1 MB and a budget of 4 MB: the first two are one
    look-up, the third is a scan, the fourth is another look-up. With a limit, the budgets are 256
    KiB, 512 KiB, 1 MiB and so on: the first range is divided at the starts of its row groups, and
    its first row groups are the first look-up.
    """
    fields = [schema.field_named(name) for name in columns]
    budget = min(FIRST_BYTES, look_up_bytes) if is_limited else look_up_bytes
    for window in windows:
        pending = _Pending()
        for part in window:
            rest: LeafBlocks | None = part
            while rest is not None and not pending.takes(rest, fields, budget):
                if pending.blocks:
                    yield LookUp(pending.blocks)
                    pending = _Pending()
                elif budget < look_up_bytes or any(groups.excluded for groups in rest):
                    head, rest = _cut(rest, schema, fields, budget)
                    yield LookUp(head)
                else:
                    yield Scan(rest)
                    rest = None
                budget = min(2 * budget, look_up_bytes)
        if pending.blocks:
            yield LookUp(pending.blocks)
            budget = min(2 * budget, look_up_bytes)


def _cut(
    part: LeafBlocks, schema: Schema, fields: Collection[Field], budget: int
) -> tuple[LeafBlocks, LeafBlocks | None]:
    """Return the first row groups of a range, of about `budget` bytes in
    memory, and the rest if there is any.

    A range is divided where a row group begins, so all rows with one key are in one part.
    """
    starts = sorted(
        (
            (g.index.stored.keys.first_key(number), at, number)
            for at, g in enumerate(part)
            for number in g.numbers
        )
    )
    least = max(groups.slice.range.min for groups in part)
    taken_bytes = 0
    for low, at, number in starts:
        size_bytes = part[at].index.column_bytes(number, fields)
        if taken_bytes and taken_bytes + size_bytes > budget and low > least:
            head = [narrow(groups, KeyRange((), low), schema) for groups in part]
            rest = [narrow(groups, KeyRange(low, None), schema) for groups in part]
            return head, rest
        taken_bytes += size_bytes
    return part, None


# Leave out row groups whose Bloom filters show that they lack all values that a column may have.
#
# The filters of a shard follow its row groups, and are fetched by one read. They may be larger than
# what a look-up should hold, so of each only the block for each value is kept.

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
    objects: StreamedObjects, table_id: str, blocks: Sequence[Blocks], values: Values
) -> list[Blocks]:
    """Return `blocks` without the row groups that the filters of their shards exclude; all if these
    are less than half, so that most must be read anyway.
    Raises NotFoundError: a shard is gone; DamagedShardError: its filters are damaged.
    """
    tasks = {}
    for shard_id, of_shard in blocks_by_shard(blocks).items():
        path, numbers = shard_path(table_id, shard_id), numbers_of(of_shard)
        index, size_bytes = of_shard[0].index, of_shard[0].slice.shard.size_bytes
        _, section = crcs.sections_behind(index.metadata, index.stored, path, size_bytes)
        tests = _tests(index, numbers, values)
        if section is not None and tests and len(numbers) >= MIN_ROW_GROUPS:
            read = partial(_excluded, objects, of_shard[0], section, tests)
            tasks[shard_id] = partial(read_by_index_object, read, table_id, shard_id)
    with reading_threads(objects, len(tasks)) as start:
        started = {shard_id: start(task) for shard_id, task in tasks.items()}
        return leave_out(blocks, {shard_id: wait() for shard_id, wait in started.items()})


def blocks_by_shard(blocks: Iterable[Blocks]) -> dict[str, list[Blocks]]:
    """Return row groups by the ids of their shards."""
    shards: dict[str, list[Blocks]] = {}
    for groups in blocks:
        shards.setdefault(groups.slice.shard.id, []).append(groups)
    return shards


def numbers_of(blocks: Iterable[Blocks]) -> list[int]:
    """Return the row groups that slices of one shard need, in order."""
    return sorted({number for groups in blocks for number in groups.numbers})


def leave_out(blocks: Sequence[Blocks], excluded: Mapping[str, frozenset[int]]) -> list[Blocks]:
    """Return row groups without those `excluded`, by the ids of their shards; all if these are less
    than half, so that most must be read anyway.
    """
    none: frozenset[int] = frozenset()
    rest = [groups.without(excluded.get(groups.slice.shard.id, none)) for groups in blocks]
    before, after = (sum(len(groups.numbers) for groups in each) for each in (blocks, rest))
    return rest if 2 * after <= before else list(blocks)


def with_others_of_keys(
    some: Sequence[Blocks], every: Sequence[Blocks], schema: Schema
) -> list[Blocks]:
    """Return `every` without those that can hold no row with a row key of `some`."""
    parts = len(schema.row_keys)
    spans = sorted(
        groups.index.stored.keys.span(n, parts) for groups in some for n in groups.numbers
    )
    lows, highs = [low for low, _ in spans], list(accumulate((high for _, high in spans), max))

    def is_of_none(groups: Blocks, number: int) -> bool:
        low, high = groups.index.stored.keys.span(number, parts)
        before = bisect_left(lows, high)
        return not before or highs[before - 1] <= low

    return [g.without(frozenset(n for n in g.numbers if is_of_none(g, n))) for g in every]


def _tests(index: footer.ShardIndex, numbers: Sequence[int], values: Values) -> list[_Test]:
    """Return what to ask of the filters of some row groups."""
    tests = []
    for field, each in values.items():
        if field.id not in index.stored.columns:
            continue
        column, at = index.stored.columns[field.id]
        digests = [_digest_of(value, field.type, column.field.type) for value in each]
        for number in index.row_groups_of(numbers):
            place = crcs.filter_of(index.metadata.row_group(number).column(at))
            if place is None:
                continue
            tests += [
                _Test(number, field, digest, place.block_of(digest))
                for digest in digests
                if digest is not None
            ]
    return tests


def _digest_of(value: KeyPart, kind: FieldType, stored: FieldType) -> int | None:
    """Return the hash of a value in a column's stored type; None if no cell can have it."""
    part = earlier_part(value, kind, stored)
    return None if part is None else crcs.digest_of(part, stored)


def _excluded(
    objects: StreamedObjects,
    groups: Blocks,
    section: crcs.Section,
    tests: Sequence[_Test],
    path: str,
) -> frozenset[int]:
    """Return the blocks of row groups of which a column lacks all values that it may have."""
    index, size_bytes = groups.index, groups.slice.shard.size_bytes
    by = shift_at(path, index.stored.starts[-1])
    offsets = {test.block - by for test in tests}
    blocks = _read_blocks(objects, path, size_bytes - by, section.moved(by), offsets)
    can_match: dict[tuple[int, Field], bool] = {}
    for test in tests:
        place = test.group, test.field
        can_match[place] = can_match.get(place, False) or crcs.can_hold(
            blocks[test.block - by], test.digest
        )
    excluded = {number for (number, _), can in can_match.items() if not can}
    blocks_of = index.stored.layout.blocks_of
    return frozenset(block for number in excluded for block in blocks_of(number))


def _read_blocks(
    objects: StreamedObjects, path: str, size_bytes: int, section: crcs.Section, offsets: set[int]
) -> dict[int, bytes]:
    """Return the blocks at some offsets in the filters, which are verified as a whole."""
    starts = sorted(offsets)
    blocks = {start: bytearray() for start in starts}
    for _, offset, part in stream_sections(objects, path, size_bytes, [section]):
        stop = offset + len(part)
        for start in starts[bisect_left(starts, offset - crcs.BLOCK_BYTES + 1) :]:
            if start >= stop:
                break
            blocks[start] += part[max(0, start - offset) : start + crcs.BLOCK_BYTES - offset]
    return {start: bytes(block) for start, block in blocks.items()}


READ_BYTES = 4 * 1024 * 1024
"""About how much of a shard is in memory at a time."""


def verify_shard(objects: Objects, path: str, table_id: str, shard: Shard) -> pq.FileMetaData:
    """Verify each byte of an object, and that it is a shard of a state; return its Parquet footer.
    Raises NotFoundError: it is gone; DamagedShardError: it is damaged, or another shard.
    """
    metadata = audit_shard(objects, path, shard.size_bytes)
    footer.check_index(crcs.index_of(metadata, path), path, table_id, shard)
    return metadata


def audit_shard(objects: Objects, path: str, size_bytes: int) -> pq.FileMetaData:
    """Read the whole shard at `path`, and verify each byte of it; return its Parquet footer.
    Raises NotFoundError: it is gone; DamagedShardError: it is damaged; the message says where.
    """
    metadata = footer.read_metadata(objects, path, size_bytes)
    index = crcs.index_of(metadata, path)
    with footer.raise_damaged(path), objects.open(path, size_bytes) as file:
        start = file.read(len(MAGIC))
    if start != MAGIC:
        raise damaged_shard(path, "it does not begin with the magic bytes of a Parquet file")
    sections = crcs.all_sections(metadata, index, path, size_bytes)
    for together in coalesce(sections, READ_BYTES):
        read_sections(objects, path, size_bytes, together)
    return metadata
