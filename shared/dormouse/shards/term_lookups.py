"""Leave out blocks whose texts lack what a condition looks for, by the term indexes of shards.

All shards are asked at once, for the chunks that have the terms; small indexes are read whole.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import cast

from dormouse.arrow.words import parts_of
from dormouse.ports import Cache, Objects
from dormouse.schema.schema import Schema
from dormouse.shards import reading
from dormouse.shards.crcs import Section
from dormouse.shards.footer import raise_damaged
from dormouse.shards.index_objects import read_by_index_object, shift_at
from dormouse.shards.stored_index import StoredIndex, TermIndexPlace
from dormouse.shards.terms import block_numbers, blocks_in, chunk_of, chunk_spans, digests_in
from dormouse.sql.text_tests import Tests, TextTest
from dormouse.tables.term_index import Tokenizer

WHOLE_BYTES = 64 * 1024
"""A term index of up to so many bytes is read at once."""
MOST_TERMS, MOST_PARTS = 3, 6
"""So many terms of a text are looked for, the longest; with so many parts of terms all together."""

Digests = Mapping[TextTest, Sequence[int]]
"""The hashes that a shard must have of a test's column; none if it cannot tell."""


@dataclass(frozen=True, slots=True)
class _LookUp:
    """A shard of which some blocks are needed, and what is asked of its term index."""

    blocks: reading.Blocks
    numbers: Sequence[int]
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
            lookup = _LookUp(of_shard[0], numbers, place, _digests(tests, place, schema))
            lookups |= {shard_id: lookup} if lookup.all_digests else {}
    holders = _holders(objects, table_id, lookups, cache)
    excluded = {}
    for shard_id, lookup in lookups.items():
        passing = _passing(tests, lookup, holders[shard_id])
        if passing is not None:
            excluded[shard_id] = frozenset(lookup.numbers) - passing
    return reading.leave_out(blocks, excluded)


def _digests(tests: Tests, place: TermIndexPlace, schema: Schema) -> Digests:
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
