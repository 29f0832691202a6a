"""Leave out blocks whose texts lack what a condition looks for, by the term indexes of shards.

All shards are asked at once, in two rounds: the directories first, which the ends of their indexes
hold, then the chunks that have the terms. Small indexes are read whole in the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, cast

import pyarrow as pa

from dormouse.arrow.words import parts_of, terms_of
from dormouse.ports import Cache, Objects
from dormouse.schema.schema import Schema
from dormouse.shards.crcs import Section
from dormouse.shards.footer import raise_damaged
from dormouse.shards.index_objects import behind_rows, read_by_index_object
from dormouse.shards.reading import (
    MIN_ROW_GROUPS,
    Blocks,
    coalesce,
    read_sections,
    reading_threads,
)
from dormouse.shards.stored_index import StoredIndex, TermIndexPlace
from dormouse.shards.terms import (
    block_numbers,
    chunk_of,
    decode_chunk,
    decode_directory,
    term_digest,
    trigram_digest,
)
from dormouse.sql.text_tests import Tests, TextTest
from dormouse.stored.paths import shard_path
from dormouse.tables.term_index import Tokenizer

TAIL_BYTES = 64 * 1024
"""So much of the end of a term index is read at once: the directory, and chunks before it."""
GAP_BYTES = 16 * 1024
"""Chunks with a gap of so many bytes at most are read together."""
MOST_TERMS, MOST_PARTS = 3, 6
"""So many terms of a text are looked for, the longest; with so many parts of terms all together."""

Digests = Mapping[TextTest, Sequence[int]]
"""The hashes that a shard must have of a test's column; none if it cannot tell."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A shard and what is asked of its term index."""

    blocks: Blocks
    place: TermIndexPlace
    digests: Digests

    @property
    def stored(self) -> StoredIndex:
        return self.blocks.index.stored

    @property
    def start(self) -> int:
        """The offset of the term index."""
        return self.stored.starts[-1]

    @property
    def wanted(self) -> set[int]:
        return {digest for each in self.digests.values() for digest in each}


def without_terms(
    objects: Objects,
    table_id: str,
    blocks: Sequence[Blocks],
    tests: Tests,
    schema: Schema,
    cache: Cache,
) -> list[Blocks]:
    """Return `blocks` without those of which no row can pass `tests`, as far as the term indexes of
    their shards say; all if these are less than half, so that most must be read anyway.

    Raises:
        NotFoundError: a shard is gone.
        DamagedShardError: its term index is damaged.
    """
    shards: dict[str, list[Blocks]] = {}
    for groups in blocks:
        shards.setdefault(groups.slice.shard.id, []).append(groups)
    asked = {}
    for shard_id, of_shard in shards.items():
        numbers = {number for groups in of_shard for number in groups.numbers}
        place = of_shard[0].index.stored.terms
        if place is not None and len(numbers) >= MIN_ROW_GROUPS:
            asked[shard_id] = _Asked(of_shard[0], place, _digests(tests, place, schema))
    asked = {shard_id: each for shard_id, each in asked.items() if each.wanted}
    found = _found(objects, table_id, asked, cache)
    rest = []
    for groups in blocks:
        shard_id = groups.slice.shard.id
        kept = _passing(tests, asked[shard_id], found[shard_id]) if shard_id in asked else None
        excluded = frozenset() if kept is None else frozenset(groups.numbers) - kept
        rest.append(groups.without(excluded))
    before, after = (sum(len(groups.numbers) for groups in each) for each in (blocks, rest))
    return rest if 2 * after <= before else list(blocks)


def _digests(tests: Tests, place: TermIndexPlace, schema: Schema) -> Digests:
    """Return what to look for in a term index for each test of a column that it has."""
    ids = {field.name: field.id for field in schema.fields}
    tokenizers = dict(place.columns)
    found: dict[TextTest, Sequence[int]] = {}

    def see(each: Tests) -> None:
        if not isinstance(each, TextTest):
            for inner in each.tests:
                see(inner)
        elif (column := ids.get(each.column)) in tokenizers and column is not None:
            found[each] = _of_test(each, column, cast(Tokenizer, tokenizers[column]))

    see(tests)
    return found


def _of_test(test: TextTest, column: int, tokenizer: Tokenizer) -> list[int]:
    whole, pieces = parts_of(test.text, is_begun=test.is_begun, is_ended=test.is_ended)
    terms: list[Any] = terms_of(pa.array([whole], pa.string()), tokenizer).to_pylist()
    terms = sorted(terms, key=len, reverse=True)[:MOST_TERMS]
    digests = [term_digest(term, column) for term in terms]
    found = (trigram_digest(part, column) for piece in pieces for part in _trigrams(piece.encode()))
    parts = [digest for digest in found if digest is not None]
    step = max(1, -(-len(parts) // (MOST_PARTS - len(terms))))
    return digests + parts[::step]


def _trigrams(piece: bytes) -> list[bytes]:
    return [piece[n : n + 3] for n in range(len(piece) - 2)]


def _passing(tests: Tests, asked: _Asked, found: Mapping[int, set[int]]) -> set[int] | None:
    """Return the blocks that can have rows which pass; None if all can."""
    if isinstance(tests, TextTest):
        sets = [found[digest] for digest in asked.digests.get(tests, ())]
        return reduce(set.intersection, sets) if sets else None
    each = [_passing(test, asked, found) for test in tests.tests]
    known = [some for some in each if some is not None]
    if tests.needs_all:
        return reduce(set.intersection, known) if known else None
    return {n for some in known for n in some} if len(known) == len(each) else None


def _found(
    objects: Objects, table_id: str, asked: Mapping[str, _Asked], cache: Cache
) -> dict[str, dict[int, set[int]]]:
    """Return the blocks of each shard that have each hash that it is asked for."""
    paths = {shard_id: shard_path(table_id, shard_id) for shard_id in asked}
    kept = {shard_id: cache.get(path, _Tail) for shard_id, path in paths.items()}
    tails = {shard_id: tail for shard_id, tail in kept.items() if tail is not None}
    unread = [shard_id for shard_id in asked if shard_id not in tails]
    with reading_threads(objects, len(unread)) as start:
        started = {
            shard_id: start(partial(_read_tail, objects, table_id, asked[shard_id]))
            for shard_id in unread
        }
        for shard_id, wait in started.items():
            tails[shard_id] = tail = wait()
            cache.put(paths[shard_id], tail, tail.size_bytes)
    chunks = {shard_id: _chunks(tails[shard_id], each) for shard_id, each in asked.items()}
    groups = []
    for shard_id, of_shard in chunks.items():
        start_of_tail = tails[shard_id].start
        others = [each for each in dict.fromkeys(of_shard.values()) if each.start < start_of_tail]
        groups += [(shard_id, group) for group in coalesce(others, gap_bytes=GAP_BYTES)]
    bodies: dict[tuple[str, Section], memoryview] = {}
    with reading_threads(objects, len(groups)) as start:
        reads = [
            start(partial(_read_chunks, objects, table_id, asked[shard_id], group))
            for shard_id, group in groups
        ]
        for (shard_id, group), read in zip(groups, reads, strict=True):
            body = memoryview(read())
            for each in group:
                first = group[0].start
                bodies[shard_id, each] = body[each.start - first : each.end - first]
    return {
        shard_id: {
            digest: _decoded(
                tails[shard_id], bodies.get((shard_id, section)), section, digest, each
            )
            for digest, section in chunks[shard_id].items()
        }
        for shard_id, each in asked.items()
    }


def _size(asked: _Asked) -> int:
    return asked.blocks.slice.shard.size_bytes


@dataclass(frozen=True, slots=True)
class _Tail:
    """The end of a term index, which begins at the offset `start`; and all of its chunks."""

    path: str
    start: int
    body: bytes
    chunks: Sequence[Section]

    @property
    def size_bytes(self) -> int:
        """What it takes in memory, about."""
        return len(self.body) + 150 * len(self.chunks)


def _read_chunks(
    objects: Objects, table_id: str, asked: _Asked, sections: Sequence[Section]
) -> bytes:
    def read(path: str) -> bytes:
        there = behind_rows(objects, path, asked.start)
        return read_sections(there, path, _size(asked), sections)

    return read_by_index_object(read, table_id, asked.blocks.slice.shard.id)


def _read_tail(objects: Objects, table_id: str, asked: _Asked) -> _Tail:
    read = partial(_tail_at, objects, asked)
    return read_by_index_object(read, table_id, asked.blocks.slice.shard.id)


def _tail_at(objects: Objects, asked: _Asked, path: str) -> _Tail:
    objects, place = behind_rows(objects, path, asked.start), asked.place
    end = asked.start + place.size_bytes
    start = max(asked.start, end - max(TAIL_BYTES, place.directory_bytes))
    name = "the term index"
    body = read_sections(objects, path, _size(asked), [Section(start, end, None, name=name)])
    directory = Section(end - place.directory_bytes, end, place.directory_crc, name=name)
    view = memoryview(body)[directory.start - start :]
    directory.check(path, view)
    chunks = [
        Section(asked.start + low, asked.start + high, crc, name=name)
        for low, high, crc in decode_directory(view)
    ]
    for chunk in chunks:
        if chunk.start >= start:
            chunk.check(path, memoryview(body)[chunk.start - start : chunk.end - start])
    return _Tail(path, start, body, chunks)


def _chunks(tail: _Tail, asked: _Asked) -> dict[int, Section]:
    """Return the chunk that has each hash."""
    return {digest: tail.chunks[chunk_of(digest, len(tail.chunks))] for digest in asked.wanted}


def _decoded(
    tail: _Tail, body: memoryview | None, section: Section, digest: int, asked: _Asked
) -> set[int]:
    """Return the blocks that a chunk has for a hash: one that was read, or one in the tail."""
    if body is None:
        body = memoryview(tail.body)[section.start - tail.start : section.end - tail.start]
    with raise_damaged(tail.path):
        return block_numbers(decode_chunk(body)(digest), len(asked.stored.rows))
