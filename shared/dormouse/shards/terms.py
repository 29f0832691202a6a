"""The term index of a shard: which blocks have which words of a column, or parts of words.

It lies between the row groups and the Bloom filters, and the index in the footer says how long it
is. Of each term, and of three bytes of one that follow each other, it has a hash of 32 bits and the
number of a block, so it may name a block too many, but leaves none out. These pairs are in chunks
by their hash, so that one chunk answers for a term, and are in no order within it. Behind the
chunks is a directory: how long each is, and its CRC. docs/shard-format.md describes the format.
"""

from __future__ import annotations

import struct
from array import array
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from math import isqrt
from pathlib import Path
from typing import Any, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.arrow.types import Array
from dormouse.arrow.words import terms_of
from dormouse.errors import CorruptDataError
from dormouse.schema.schema import Field
from dormouse.shards.stored_index import TermIndexPlace
from dormouse.stored.checksums import crc32
from dormouse.tables.term_index import Tokenizer

# Hashes. That of a term is the sum of its bytes, each times a power of `_BASE`, so that Arrow adds
# up many terms at once; that of three bytes are these, as a number. A column has a summand of its
# own, and what is multiplied by `_MIX` counts by its upper bits.

_MASK = 2**64 - 1
_BASE, _MIX = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93
_INVERSE = pow(_BASE, -1, 2**64)
MOST_TERM_BYTES = 128
"""Longer terms are one if they begin alike."""
_AT_ONCE = 4096
"""So many terms are hashed at once if they are long: there are powers for the bytes of these."""


def term_digest(term: bytes, column: int) -> int:
    """Return the hash of a term, which begins with a space, of the column with a field id."""
    total, power = 0, 1
    for byte in term[:MOST_TERM_BYTES]:
        power = power * _BASE & _MASK
        total += byte * power
    return _mixed(total + 2 * column + 1)


def trigram_digest(three: bytes, column: int) -> int | None:
    """Return the hash of three bytes of a word; None if they are not all of letters: of numbers
    hardly a block lacks one.
    """
    if min(three) < 0x40:
        return None
    return _mixed(int.from_bytes(three, "little") + ((2 * column) << 24))


def _mixed(number: int) -> int:
    return (number * _MIX & _MASK) >> 32


@cache
def _powers(base: int) -> Array:
    most = _AT_ONCE * MOST_TERM_BYTES + 1
    return pc.cumulative_prod(pa.array([1, *[base] * most], pa.uint64()))


def _u64(number: int) -> Any:
    return pa.scalar(number & _MASK, pa.uint64())


def _u32(number: int) -> Any:
    return pa.scalar(number, pa.uint32())


def _digests(terms: Array, column: int) -> Array:
    """Return the `term_digest` of each term."""
    short: Any = terms
    if pc.max(pc.binary_length(short)).as_py() > MOST_TERM_BYTES:
        short = pc.binary_slice(short, 0, MOST_TERM_BYTES)
    found = []
    step = len(short) if short.nbytes <= _AT_ONCE * MOST_TERM_BYTES else _AT_ONCE
    for start in range(0, len(short), step):
        some = pa.concat_arrays([short.slice(start, step), short.slice(0, 0)])
        ends = pa.Array.from_buffers(pa.int32(), len(some) + 1, [None, some.buffers()[1]])
        data = pa.Array.from_buffers(pa.uint8(), ends[-1].as_py(), [None, some.buffers()[2]])
        parts = pc.multiply(data.cast(pa.uint64()), _powers(_BASE).slice(1, len(data)))
        sums = pa.concat_arrays([pa.array([0], pa.uint64()), pc.cumulative_sum(parts)]).take(ends)
        of_terms = pc.subtract(sums.slice(1), sums.slice(0, len(some)))
        found.append(pc.multiply(of_terms, _powers(_INVERSE).take(ends.slice(0, len(some)))))
    return _all_mixed(pa.concat_arrays(found), 2 * column + 1)


def _trigram_digests(terms: Sequence[Array], column: int) -> tuple[Array, Array]:
    """Return the `trigram_digest` of all three letters that follow each other in up to 256 arrays
    of terms, and the number of the array.
    """
    bodies = []
    for each in terms:
        some: Any = pa.concat_arrays([each, each.slice(0, 0)])
        body = some.buffers()[2].to_pybytes()
        bodies.append(body + b" " * (-len(body) % 4))  # and the next term begins with a space
    data = b"".join(bodies)
    of_which = [pa.repeat(_u32(n << 24), len(body) // 4) for n, body in enumerate(bodies)]
    found = []
    for shift in range(4):  # the three bytes from each one of four on, and the next
        body = pa.py_buffer(data[shift:] + b" " * shift)
        found.append(pa.Array.from_buffers(pa.uint32(), len(data) // 4, [None, body]))
    three: Any = pa.concat_arrays(found)
    # that a byte is of a letter, its two highest bits show: the second, or the first shifted to it
    letters = pc.bit_wise_or(three, pc.shift_right(three, _u32(1)))
    is_part = pc.equal(pc.bit_wise_and(letters, _u32(0x404040)), _u32(0x404040))
    three = pc.bit_wise_and(three.filter(is_part), _u32(0xFFFFFF))
    three = pc.unique(pc.bit_wise_or(three, pa.concat_arrays(of_which * 4).filter(is_part)))
    digests = _all_mixed(
        pc.bit_wise_and(three, _u32(0xFFFFFF)).cast(pa.uint64()), (2 * column) << 24
    )
    return digests, pc.shift_right(three, _u32(24))


def _all_mixed(numbers: Array, summand: int) -> Array:
    mixed: Any = pc.multiply(pc.add(numbers, _u64(summand)), _u64(_MIX))
    mixed = pc.shift_right(mixed, _u64(32)).cast(pa.uint32())
    return cast(Array, mixed)


# Writing.

RUN_PAIRS = 4 * 1024 * 1024
"""So many pairs are sorted at once, and are in a file until the shard ends if there are more."""
LEAST_TERMS, MOST_WAITING = 32 * 1024, 256
"""So many terms, or those of so many blocks, are hashed at once."""
_MOST_BLOCK = 2**16 - 1
"""The greatest number of a block; later ones have it, too."""
_HALF = pa.uint16()
PAIR_BYTES = 6
_HEAD = struct.Struct("<I")

Pairs: TypeAlias = tuple[Array, Array]
"""Hashes of 32 bits, and numbers of blocks of 16."""


class TermIndexWriter:
    """Collects the terms of a shard's columns, block by block; end it with `discard`."""

    def __init__(self, columns: Sequence[tuple[Field, Tokenizer]], spill: Path) -> None:
        """Collect the terms of some columns; `spill` names a file that there may be."""
        self._columns, self._spill = columns, spill
        self._waiting: defaultdict[int, list[tuple[Array, int]]] = defaultdict(list)
        self._collected: list[Pairs] = []
        self._runs: list[Pairs] = []
        self._sink: pa.OSFile | None = None

    def add(self, block: int, rows: pa.Table) -> None:
        """Collect the terms in the rows of a block."""
        for field, tokenizer in self._columns:
            texts: Any = rows.column(field.name).combine_chunks()
            terms = terms_of(texts, tokenizer)
            if len(terms):
                waiting = self._waiting[field.id]
                waiting.append((terms, min(block, _MOST_BLOCK)))
                if len(waiting) == MOST_WAITING or sum(len(t) for t, _ in waiting) >= LEAST_TERMS:
                    self._hash(field.id)

    def _hash(self, column: int) -> None:
        """Hash the terms of some blocks, together, which costs less than block by block."""
        if not (waiting := self._waiting.pop(column, [])):
            return
        terms = [each for each, _ in waiting]
        numbers: Any = pa.array([number for _, number in waiting], _HALF)
        blocks = [pa.repeat(number, len(t)) for t, number in zip(terms, numbers, strict=True)]
        parts, of_which = _trigram_digests(terms, column)
        self._collected.append(
            (_digests(pa.concat_arrays(terms), column), pa.concat_arrays(blocks))
        )
        self._collected.append((parts, numbers.take(of_which)))
        if sum(len(digests) for digests, _ in self._collected) >= RUN_PAIRS:
            self._end_run()
            self._move_to_file()

    def write(self, sink: pa.NativeFile) -> TermIndexPlace:
        """Write the term index of what was collected."""
        for field, _ in self._columns:
            self._hash(field.id)
        self._end_run()
        count = sum(len(digests) for digests, _ in self._runs)
        chunks = max(1, min(count // _chunk_pairs(count), 2**16))
        sizes, crcs, total, crc = array("I"), array("I"), 0, 0
        ends = [_ends(digests, chunks) for digests, _ in self._runs]
        for number in range(chunks):
            parts = [
                (digests.slice(low, high - low), blocks.slice(low, high - low))
                for (digests, blocks), places in zip(self._runs, ends, strict=True)
                for low, high in [places[number : number + 2]]
            ]
            body = _encoded(parts)
            sizes.append(len(body))
            crcs.append(crc32(body))
            total, crc = total + len(body), crc32(body, crc)
            sink.write(body)
        directory = _words(sizes) + _words(crcs)
        sink.write(directory)
        return TermIndexPlace(
            tuple((field.id, tokenizer) for field, tokenizer in self._columns),
            total + len(directory),
            crc32(directory, crc),
            len(directory),
            crc32(directory),
        )

    def discard(self) -> None:
        """Forget all, and remove the file, if there is one."""
        self._runs = []
        if self._sink is not None:
            self._sink.close()
            self._spill.unlink(missing_ok=True)

    def _end_run(self) -> None:
        """Sort what was collected by the upper half of hashes: by two bytes, one after the other,
        which Arrow counts in place of comparing.
        """
        if not self._collected:
            return
        digests, blocks = map(pa.concat_arrays, zip(*self._collected, strict=True))
        for shift in (16, 24):
            byte = pc.shift_right(digests, _u32(shift))
            byte = pc.bit_wise_and(byte, _u32(0xFF)).cast(pa.uint8())
            order = pc.sort_indices(byte)
            digests, blocks = digests.take(order), blocks.take(order)
        self._runs.append((digests, blocks))
        self._collected = []

    def _move_to_file(self) -> None:
        """Keep the last run in the file, of which memory is a view."""
        if self._sink is None:
            self._sink = pa.OSFile(str(self._spill), "wb")
        start, run = self._sink.tell(), self._runs.pop()
        count = len(run[0])
        for column, width in zip(run, (4, 2), strict=True):
            values: Any = column.buffers()[1]
            self._sink.write(values.slice(0, width * count))
        self._sink.flush()
        with pa.memory_map(str(self._spill)) as mapped:
            mapped.seek(start)
            first, second = mapped.read_buffer(4 * count), mapped.read_buffer(2 * count)
        digests = pa.Array.from_buffers(pa.uint32(), count, [None, first])
        self._runs.append((digests, pa.Array.from_buffers(_HALF, count, [None, second])))


def _chunk_pairs(count: int) -> int:
    """Return about how many of `count` pairs a chunk has: the directory and one chunk, which a
    look-up reads, are least together where both grow with the square root.
    """
    return max(8192, isqrt(2 * count))


def _ends(digests: Array, chunks: int) -> list[int]:
    """Return where each chunk begins in sorted hashes, and the end."""
    upper = pc.shift_right(digests, _u32(16))
    firsts = pa.array([-(-n * 2**16 // chunks) for n in range(chunks)], pa.uint32())
    kernels: Any = pc  # the type stubs lack this one
    return [*kernels.search_sorted(upper, firsts).to_pylist(), len(digests)]


def chunk_of(digest: int, chunks: int) -> int:
    """Return the number of the chunk that has a hash."""
    return (digest >> 16) * chunks // 2**16


def _encoded(parts: Sequence[Pairs]) -> bytes:
    """Return a chunk: the upper halves of hashes, which hardly differ, apart from the lower."""
    if not any(len(digests) for digests, _ in parts):
        return b""
    digests, blocks = map(pa.concat_arrays, zip(*parts, strict=True))
    upper = pc.shift_right(digests, _u32(16)).cast(_HALF)
    lower = pc.bit_wise_and(digests, _u32(0xFFFF)).cast(_HALF)
    plain = b"".join(
        column.buffers()[1].slice(2 * column.offset, 2 * len(column)).to_pybytes()
        for column in (upper, lower, blocks)
    )
    return _HEAD.pack(len(digests)) + pa.Codec("zstd").compress(plain, asbytes=True)


def decode_chunk(body: bytes | memoryview) -> Callable[[int], set[int]]:
    """Return what says which blocks a chunk has for a hash.

    Raises:
        CorruptDataError: it is no chunk.
    """
    if not body:
        return lambda digest: set()
    (count,) = _HEAD.unpack_from(body)
    try:
        plain = pa.Codec("zstd").decompress(body[_HEAD.size :], PAIR_BYTES * count)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptDataError(f"a chunk of the term index is damaged: {error}") from error
    upper, lower, blocks = (
        pa.Array.from_buffers(_HALF, count, [None, plain.slice(2 * count * n, 2 * count)])
        for n in range(3)
    )

    def found(digest: int) -> set[int]:
        is_same: Any = pc.and_(
            pc.equal(upper, pa.scalar(digest >> 16, _HALF)),
            pc.equal(lower, pa.scalar(digest & 0xFFFF, _HALF)),
        )
        numbers: list[Any] = blocks.filter(is_same).to_pylist()
        return set(numbers)

    return found


def decode_directory(body: bytes | memoryview) -> list[tuple[int, int, int]]:
    """Return where each chunk begins and ends in the term index, and its CRC."""
    numbers = struct.unpack(f"<{len(body) // 4}I", body)
    sizes, crcs = numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]
    ends = [0]
    for size in sizes:
        ends.append(ends[-1] + size)
    return list(zip(ends, ends[1:], crcs, strict=False))


def _words(numbers: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def block_numbers(found: set[int], blocks: int) -> set[int]:
    """Return the blocks of a shard with so many that the numbers in pairs mean."""
    if _MOST_BLOCK not in found:
        return found
    return found | set(range(_MOST_BLOCK, blocks))
