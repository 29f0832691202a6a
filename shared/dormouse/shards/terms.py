"""The term index of a shard: which blocks have which words of a column, or parts of words.

It lies between the row groups and the Bloom filters, and the index in the footer says how long each
of its chunks is. Of each term, and of three letters of a word that follow each other, it has a hash
of 32 bits and the number of a block, so it may name a block too many, but leaves none out. These
pairs are in chunks by their hash, so that one chunk answers for a term. docs/shard-format.md
describes the format.
"""

from __future__ import annotations

import struct
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial, reduce
from itertools import accumulate, pairwise
from math import isqrt
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.arrow.documents import Pieces, characters, cut, parts_of, places
from dormouse.arrow.types import Array
from dormouse.errors import CorruptDataError
from dormouse.ports import Cache, Objects
from dormouse.schema.schema import Field, Schema
from dormouse.shards import reading
from dormouse.shards.crcs import Section
from dormouse.shards.footer import raise_damaged
from dormouse.shards.stored_index import (
    StoredIndex,
    TermIndexPlace,
    read_by_index_object,
    shift_at,
    words,
)
from dormouse.sql.conditions import Tests, TextTest
from dormouse.stored.checksums import crc32
from dormouse.tables.indexing import Tokenizer

# Hashes. What is hashed are numbers of up to 64 bits, each the little-endian bytes at some place of
# a text, so that Arrow takes many at once. Each counts times another power of `_BASE`.

_MASK = 2**64 - 1
_BASE = 0x9E3779B97F4A7C15
_WORD, _ADDRESS, _PART = range(3)
"""The kinds of what is hashed."""
_LONG = 8
"""Of longer words, so many bytes at the beginning and at the end are hashed."""
ADDRESS_BYTES = 15
"""What an address counts as its length."""


@dataclass(frozen=True, slots=True)
class Digests:
    """Hashes of words, and of the nothing between separators that follow each other, and of
    addresses, each with the length of what it is of; and hashes of the parts of words.
    """

    terms: Array
    lengths: Array
    parts: Array


def digests_of(pieces: Pieces, tokenizer: Tokenizer, column: int) -> Digests:
    """Return the hashes of what is in pieces of texts."""
    buffers = [None, pieces.spaces.buffers()[1], pa.py_buffer(pieces.letters)]
    every: Any = pa.Array.from_buffers(pa.binary(), len(pieces.spaces) - 1, buffers)
    if tokenizer == "log":
        coded = every.dictionary_encode()  # which takes longer
        words = _Words(coded.dictionary)
        addresses = _addresses(pieces, coded.indices, words.first)
        others = pc.unique(_digests(addresses, _ADDRESS, column))
    else:
        words, others = _Words(pc.unique(every)), pa.array([], pa.uint32())
    lengths = [words.lengths, pa.repeat(_i32(ADDRESS_BYTES), len(others))]
    terms = [_digests([words.first, words.last], _WORD, column), others]
    parts = pc.unique(_digests([words.threes()], _PART, column))
    return Digests(pa.concat_arrays(terms), pa.concat_arrays(lengths), parts)


def digests_in(text: str, tokenizer: Tokenizer, column: int) -> tuple[list[int], list[int]]:
    """Return the hashes of the terms in a text, the longest first, and of the parts of words."""
    terms, parts = set[Any](), list[Any]()
    for pieces in cut(pa.array([text], pa.string())):
        digests = digests_of(pieces, tokenizer, column)
        terms |= set(zip(digests.lengths.to_pylist(), digests.terms.to_pylist(), strict=True))
        parts += digests.parts.to_pylist()
    return [digest for length, digest in sorted(terms, reverse=True) if length], parts


class _Words:
    """Words of a column, each behind a space, as numbers of eight bytes: `first` has those that a
    word begins with, and no other byte; `last` those that it ends with, 0 if it has no more.
    """

    def __init__(self, words: Any) -> None:
        _, offsets, self._body = words.buffers()
        edges: Any = pa.Array.from_buffers(pa.int32(), len(words) + 1, [None, offsets])
        self._step = self._body.size // 8 + 1
        longer = pa.concat_arrays([characters(self._body), characters(pa.py_buffer(bytes(16)))])
        from_each = pa.concat_arrays([longer.slice(n, 8 * self._step) for n in range(8)])
        self._all: Any = pa.Array.from_buffers(pa.uint64(), 8 * self._step, from_each.buffers())
        starts, ends = pc.add(edges.slice(0, len(words)), _i32(1)), edges.slice(1)
        self.lengths: Any = pc.subtract(ends, starts)
        masks = _masks().take(pc.min_element_wise(self.lengths, _i32(_LONG)))
        self.first: Any = pc.bit_wise_and(self._numbers(starts), masks)
        is_long = pc.greater(self.lengths, _i32(_LONG))
        last = self._numbers(pc.subtract(ends.filter(is_long), _i32(_LONG)))
        self.last: Any = pc.replace_with_mask(pa.repeat(_u64(0), len(words)), is_long, last)

    def _numbers(self, starts: Any) -> Any:
        """Return the eight bytes from some places on, as numbers."""
        rows = pc.multiply(pc.bit_wise_and(starts, _i32(7)), _i32(self._step))
        return self._all.take(pc.add(rows, pc.shift_right(starts, _i32(3))))

    def threes(self) -> Any:
        """Return each three letters that follow each other."""
        letters = pc.greater_equal(characters(self._body), pa.scalar(64, pa.uint8()))
        starts = places(_all_from(letters, letters, letters))
        return pc.bit_wise_and(self._numbers(starts), _u64(0xFFFFFF))


def _addresses(pieces: Pieces, words: Any, first: Any) -> list[Any]:
    """Return the first, second, third and fourth numbers of all IPv4 addresses: of four words of up
    to three digits, with one dot between. So 1.2.3.4.5 has two. `words` are the words by their
    places in `first`, which has their bytes.
    """
    is_digits = pc.equal(pc.bit_wise_and(first, _u64(0xC0C0C0)), _u64(0))
    is_number = pc.and_(is_digits, pc.less(pc.subtract(first, _u64(1)), _u64(0xFFFFFF))).take(words)
    separators = characters(pa.py_buffer(pieces.text)).take(pieces.spaces.slice(0, len(words)))
    goes_on = pc.and_(is_number, pc.equal(separators, pa.scalar(ord("."), pa.uint8())))
    is_address = _all_from(is_number, goes_on, goes_on, goes_on)
    return [first.take(words.slice(n, len(is_address)).filter(is_address)) for n in range(4)]


def _all_from(*masks: Any) -> Any:
    """Return for each place whether the first mask is true there, the second at the next place, and
    so on.
    """
    count = max(0, len(masks[0]) - len(masks) + 1)
    return reduce(pc.and_, [mask.slice(n, count) for n, mask in enumerate(masks)])


def _digests(numbers: Sequence[Any], kind: int, column: int) -> Any:
    total = _u64((3 * column + kind) * pow(_BASE, 5))
    for power, each in enumerate(numbers, 1):
        total = pc.add(total, pc.multiply(each, _u64(pow(_BASE, power))))
    return pc.shift_right(total, _u64(32)).cast(pa.uint32())


@cache
def _masks() -> Any:
    return pa.array([2 ** (8 * length) - 1 for length in range(_LONG + 1)], pa.uint64())


def _i32(number: int) -> Any:
    return pa.scalar(number, pa.int32())


def _u32(number: int) -> Any:
    return pa.scalar(number, pa.uint32())


def _u64(number: int) -> Any:
    return pa.scalar(number & _MASK, pa.uint64())


# Writing.

MOST_BEGUN = 8
"""So many blocks may wait for their terms to be collected."""
RUN_PAIRS = 512 * 1024
"""So many pairs are sorted at once, which is quick in a processor's cache."""
_MOST_BLOCK = 2**16 - 1
"""The greatest number of a block; later ones have it, too."""
SORTED_BITS = 12
"""Arrow counts up to 4,096 values, in place of comparing. The number of chunks is a power of two,
so that no chunk begins between hashes whose upper bits are these."""
_PLANES = (pa.uint8(), pa.uint8(), pa.uint16(), pa.uint16())
"""What is stored of all pairs, one after the other: of hashes the upper two bytes, which are the
same or few in a chunk, and the lower half; and blocks."""
_WIDTHS = [plane.bit_width // 8 for plane in _PLANES]
_HEAD, _SIZES = struct.Struct("<II"), struct.Struct("<4I")


class _Run(NamedTuple):
    """Sorted pairs in a file, from `start` on; `ends` has where those begin whose upper bits are
    0, 1 and so on, and how many there are.
    """

    start: int
    ends: array[int]


class TermIndexWriter:
    """Collects the terms of a shard's columns, block by block; end it with `discard`."""

    def __init__(self, columns: Sequence[tuple[Field, Tokenizer]], spill: Path) -> None:
        """Collect the terms of some columns; `spill` names a file that there may be."""
        self._columns, self._spill = columns, spill
        self._pending: list[tuple[Array, int]] = []
        self._pending_pairs = 0
        self._runs: list[_Run] = []
        self._sink: BinaryIO | None = None
        self._thread, self._begun = ThreadPoolExecutor(1), deque[Future[None]]()

    def add(self, block: int, rows: pa.Table) -> None:
        """Begin to collect the terms in the rows of a block, beside what the caller does next."""
        self._begun.append(self._thread.submit(self._collect, block, rows))
        if len(self._begun) > MOST_BEGUN:
            self._begun.popleft().result()

    def _collect(self, block: int, rows: pa.Table) -> None:
        for field, tokenizer in self._columns:
            texts: Any = rows.column(field.name).combine_chunks()
            for pieces in cut(texts):
                digests = digests_of(pieces, tokenizer, field.id)
                for each in (digests.terms, digests.parts):
                    self._pending.append((each, min(block, _MOST_BLOCK)))
                    self._pending_pairs += len(each)
                if self._pending_pairs >= RUN_PAIRS:
                    self._end_run()

    def write(self, sink: pa.NativeFile) -> TermIndexPlace:
        """Write the term index of what was collected."""
        while self._begun:
            self._begun.popleft().result()
        self._end_run()
        count = sum(run.ends[-1] for run in self._runs)
        chunks = 2 ** min(max(1, count // _chunk_pairs(count)).bit_length() - 1, SORTED_BITS)
        sizes, crc = array("I"), 0
        for body in self._chunks(chunks):
            sizes.append(len(body))
            crc = crc32(body, crc)
            sink.write(body)
        columns = tuple((field.id, tokenizer) for field, tokenizer in self._columns)
        packed: bytes = pa.Codec("zstd").compress(words(sizes), asbytes=True)
        return TermIndexPlace(columns, sum(sizes), crc, chunks, packed)

    def discard(self) -> None:
        """Forget all, and remove the file, if there is one."""
        self._thread.shutdown(cancel_futures=True)
        self._runs = []
        if self._sink is not None:
            self._sink.close()
            self._spill.unlink(missing_ok=True)

    def _end_run(self) -> None:
        """Sort what was collected by the upper bits of hashes, and write it to the file."""
        if not self._pending_pairs:
            return
        self._sink = self._sink or self._spill.open("wb")
        digests: Any = pa.concat_arrays([each for each, _ in self._pending])
        numbers = [pa.repeat(pa.scalar(n, pa.uint16()), len(each)) for each, n in self._pending]
        upper = pc.shift_right(digests, _u32(32 - SORTED_BITS)).cast(pa.uint16())
        order = pc.sort_indices(upper)
        digests, blocks = digests.take(order), pa.concat_arrays(numbers).take(order)
        ends = _search(upper.take(order), range(2**SORTED_BITS))
        self._runs.append(_Run(self._sink.tell(), array("I", [*ends, len(digests)])))
        shifted = [pc.shift_right(digests, _u32(by)) for by in (24, 16, 0)]
        for values, kind, width in zip([*shifted, blocks], _PLANES, _WIDTHS, strict=True):
            self._sink.write(values.cast(kind, safe=False).buffers()[1][: width * len(digests)])
        self._pending, self._pending_pairs = [], 0

    def _chunks(self, chunks: int) -> Iterator[bytes]:
        """Yield all chunks, which are so many."""
        if self._sink is None:
            yield from [b""] * chunks
            return
        self._sink.flush()
        with pa.memory_map(str(self._spill)) as mapped:
            pairs, step = memoryview(mapped.read_buffer()), 2**SORTED_BITS // chunks
            for first in range(0, 2**SORTED_BITS, step):
                spans = [(run, run.ends[first], run.ends[first + step]) for run in self._runs]
                yield _encoded(pairs, [span for span in spans if span[1] < span[2]])


def _encoded(pairs: memoryview, spans: Sequence[tuple[_Run, int, int]]) -> bytes:
    """Return the chunk of the pairs of runs, in each those from one on and before another."""
    count = sum(high - low for _, low, high in spans)
    if not count:
        return b""
    planes, before = list[bytes](), 0
    for width in _WIDTHS:
        starts = [(run.start + before * run.ends[-1], low, high) for run, low, high in spans]
        parts = [pairs[start + low * width : start + high * width] for start, low, high in starts]
        planes.append(pa.Codec("zstd").compress(b"".join(parts), asbytes=True))
        before += width
    body = b"".join([_SIZES.pack(*map(len, planes)), *planes])
    return _HEAD.pack(count, crc32(body, count)) + body


def _search(ascending: Any, values: Sequence[int]) -> list[int]:
    """Return where each of some values begins in numbers that ascend."""
    kernels: Any = pc  # the type stubs lack this one
    places: list[int] = kernels.search_sorted(ascending, pa.array(values, pa.uint16())).to_pylist()
    return places


def _chunk_pairs(count: int) -> int:
    """Return how many of `count` pairs a chunk has at least, and half of what it has at most: the
    sizes of all and one of them, which a look-up reads, are least together where both grow with the
    square root.
    """
    return max(6144, isqrt(count))


# Reading.


def chunk_spans(place: TermIndexPlace) -> list[tuple[int, int]]:
    """Return where each chunk begins and ends in the term index."""
    sizes = array("I", pa.Codec("zstd").decompress(place.sizes, 4 * place.chunks, asbytes=True))
    return [*pairwise(accumulate(sizes, initial=0))]


def chunk_of(digest: int, chunks: int) -> int:
    """Return the number of the chunk that has a hash."""
    return (digest >> 16) * chunks // 2**16


def blocks_in(body: bytes | memoryview, digest: int) -> set[int]:
    """Return the blocks that a chunk has for a hash. Raises CorruptDataError."""
    if not body:
        return set()
    try:
        count, crc = _HEAD.unpack_from(body)
        if crc32(body[_HEAD.size :], count) != crc:
            raise CorruptDataError("the CRC-32 of a chunk of the term index differs")
        sizes = accumulate(_SIZES.unpack_from(body, _HEAD.size), initial=_HEAD.size + _SIZES.size)
        planes = [
            pa.Array.from_buffers(
                kind, count, [None, pa.Codec("zstd").decompress(body[low:high], width * count)]
            )
            for kind, width, (low, high) in zip(_PLANES, _WIDTHS, pairwise(sizes), strict=True)
        ]
    except (pa.ArrowException, OSError, ValueError, struct.error) as error:
        raise CorruptDataError(f"a chunk of the term index is damaged: {error}") from error
    parts = zip(planes, (digest >> 24, digest >> 16 & 0xFF, digest & 0xFFFF), strict=False)
    is_same = [pc.equal(plane, pa.scalar(part, plane.type)) for plane, part in parts]
    numbers: list[Any] = planes[-1].filter(reduce(pc.and_, is_same)).to_pylist()
    return set(numbers)


def block_numbers(numbers: set[int], blocks: int) -> set[int]:
    """Return the blocks of a shard with so many that the numbers in pairs mean."""
    if _MOST_BLOCK not in numbers:
        return numbers
    return numbers | set(range(_MOST_BLOCK, blocks))


# Leave out blocks whose texts lack what a condition looks for, by the term indexes of shards.
#
# All shards are asked at once, for the chunks that have the terms; small indexes are read whole.


WHOLE_BYTES = 64 * 1024
"""A term index of up to so many bytes is read at once."""
MOST_TERMS, MOST_PARTS = 3, 6
"""So many terms of a text are looked for, the longest; with so many parts of terms all together."""

LookedUp = Mapping[TextTest, Sequence[int]]
"""The hashes that a shard must have of a test's column; none if it cannot tell."""


@dataclass(frozen=True, slots=True)
class _LookUp:
    """A shard of which some blocks are needed, and what is asked of its term index."""

    blocks: reading.Blocks
    numbers: Sequence[int]
    place: TermIndexPlace
    digests: LookedUp

    @property
    def stored(self) -> StoredIndex:
        return self.blocks.index.stored

    @property
    def start(self) -> int:
        """The offset of the term index."""
        return self.stored.starts[-1]

    @property
    def size_bytes(self) -> int:
        return self.blocks.slice.shard.size_bytes

    @property
    def all_digests(self) -> set[int]:
        return {digest for each in self.digests.values() for digest in each}

    def chunks(self) -> dict[int, Section]:
        """Return the chunk of each hash, if it has pairs."""
        spans, chunks = chunk_spans(self.place), self.place.chunks
        placed = {digest: spans[chunk_of(digest, chunks)] for digest in self.all_digests}
        return {
            digest: self._section(*span) for digest, span in placed.items() if span[0] < span[1]
        }

    def spans(self, chunks: Iterable[Section]) -> list[Section]:
        """Return what is read for chunks."""
        if self.place.size_bytes <= WHOLE_BYTES:
            return [self._section(0, self.place.size_bytes)]
        groups = reading.coalesce({*chunks})
        return [self._section(g[0].start - self.start, g[-1].end - self.start) for g in groups]

    def _section(self, low: int, high: int) -> Section:
        return Section(self.start + low, self.start + high, None, name="the term index")


def without_terms(
    objects: Objects,
    table_id: str,
    blocks: Sequence[reading.Blocks],
    tests: Tests,
    schema: Schema,
    cache: Cache,
) -> list[reading.Blocks]:
    """Return `blocks` without those of which no row can pass `tests`, as far as the term indexes of
    their shards say; all if these are less than half, so that most must be read anyway.
    Raises NotFoundError: a shard is gone; DamagedShardError: its term index is damaged.
    """
    lookups: dict[str, _LookUp] = {}
    for shard_id, of_shard in reading.blocks_by_shard(blocks).items():
        numbers, place = reading.numbers_of(of_shard), of_shard[0].index.stored.terms
        if place is not None and len(numbers) >= reading.MIN_ROW_GROUPS:
            lookup = _LookUp(of_shard[0], numbers, place, _looked_up(tests, place, schema))
            lookups |= {shard_id: lookup} if lookup.all_digests else {}
    holders = _holders(objects, table_id, lookups, cache)
    excluded = {}
    for shard_id, lookup in lookups.items():
        passing = _passing(tests, lookup, holders[shard_id])
        if passing is not None:
            excluded[shard_id] = frozenset(lookup.numbers) - passing
    return reading.leave_out(blocks, excluded)


def _looked_up(tests: Tests, place: TermIndexPlace, schema: Schema) -> LookedUp:
    """Return what to look for in a term index for each test of a column that it has."""
    ids = {field.name: field.id for field in schema.fields}
    tokenizers = dict(place.columns)
    digests: dict[TextTest, Sequence[int]] = {}

    def see(each: Tests) -> None:
        if not isinstance(each, TextTest):
            for inner in each.tests:
                see(inner)
        elif (column := ids.get(each.column)) in tokenizers and column is not None:
            digests[each] = _of_test(each, column, cast(Tokenizer, tokenizers[column]))

    see(tests)
    return digests


def _of_test(test: TextTest, column: int, tokenizer: Tokenizer) -> list[int]:
    whole, pieces = parts_of(test.text, is_begun=test.is_begun, is_ended=test.is_ended)
    terms, _ = digests_in(whole, tokenizer, column)
    parts = [each for piece in pieces for each in digests_in(piece, tokenizer, column)[1]]
    step = max(1, -(-len(parts) // (MOST_PARTS - len(terms[:MOST_TERMS]))))
    return terms[:MOST_TERMS] + parts[::step]


def _passing(tests: Tests, lookup: _LookUp, blocks: Mapping[int, set[int]]) -> set[int] | None:
    """Return the blocks that can have rows which pass; None if all can."""
    if isinstance(tests, TextTest):
        sets = [blocks[digest] for digest in lookup.digests.get(tests, ())]
        return reduce(set.intersection, sets) if sets else None
    each = [_passing(test, lookup, blocks) for test in tests.tests]
    choices = [some for some in each if some is not None]
    if tests.needs_all:
        return reduce(set.intersection, choices) if choices else None
    return {n for some in choices for n in some} if len(choices) == len(each) else None


def _holders(
    objects: Objects, table_id: str, lookups: Mapping[str, _LookUp], cache: Cache
) -> dict[str, dict[int, set[int]]]:
    """Return the blocks of each shard that have each hash that it is asked for."""
    tasks = []
    for shard_id, lookup in lookups.items():
        chunks = lookup.chunks()
        for span in lookup.spans(chunks.values()):
            inside = {d: each for d, each in chunks.items() if span.start <= each.start < span.end}
            read = partial(_blocks_of, objects, lookup, span, inside, cache)
            tasks.append((shard_id, partial(read_by_index_object, read, table_id, shard_id)))
    holders: dict[str, dict[int, set[int]]] = {
        shard_id: {digest: set() for digest in each.all_digests}
        for shard_id, each in lookups.items()
    }
    with reading.reading_threads(objects, len(tasks)) as start:
        started = [(shard_id, start(task)) for shard_id, task in tasks]
        for shard_id, wait in started:
            holders[shard_id] |= wait()
    return holders


def _blocks_of(
    objects: Objects,
    lookup: _LookUp,
    span: Section,
    chunks: Mapping[int, Section],
    cache: Cache,
    path: str,
) -> dict[int, set[int]]:
    """Return the blocks of a shard that have each of some hashes, by its chunks in a span of it, or
    of its index object.
    """
    by, key = shift_at(path, lookup.start), f"{path}:{span.start}-{span.end}"
    body = cache.get(key, bytes)
    if body is None:
        body = reading.read_sections(objects, path, lookup.size_bytes - by, [span.moved(by)])
    view, count = memoryview(body), len(lookup.stored.rows)
    with raise_damaged(path):
        blocks = {
            digest: block_numbers(
                blocks_in(view[each.start - span.start : each.end - span.start], digest), count
            )
            for digest, each in chunks.items()
        }
    cache.put(key, body, len(body))
    return blocks
