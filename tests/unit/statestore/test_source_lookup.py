"""Segments of sources: found by small reads, refused when a bit is wrong, read by any reader."""

from __future__ import annotations

import io
from dataclasses import replace
from hashlib import blake2b

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.errors import CorruptDataError, InvariantError, NotFoundError
from dormouse.log import sources as sources_module
from dormouse.log.sources import (
    Cover,
    decode_sources,
    digest_of,
    digests_of,
    encode_sources,
    ingested_of,
    read_segment,
)
from dormouse.shards.reading import CountedObjects, ReadCounters
from dormouse.state.state import SourceSegment, TableState
from dormouse.stored.paths import SOURCES
from tests.support.memory_storage import MemoryStorage

COVER = Cover("t", "log", 2, 5, 9)


def name(number: int) -> str:
    return blake2b(str(number).encode(), digest_size=16).hexdigest()


def stored(storage: MemoryStorage, segment_id: str, sources: list[str]) -> SourceSegment:
    segment, body = encode_sources(segment_id, COVER, [digests_of(sources)])
    storage.put(SOURCES.path("t", segment_id), body)
    return segment


def state_of(*segments: SourceSegment) -> TableState:
    return replace(TableState(), source_segments=segments)


@given(st.sets(st.text(max_size=8) | st.integers(0, 50).map(name), min_size=1, max_size=60))
def test_just_what_is_in_a_segment_is_found(sources: set[str]) -> None:
    storage = MemoryStorage()
    segment = stored(storage, "g", sorted(sources))
    others = {name(number) for number in range(100)} | {"x", ""}
    assert ingested_of(storage, "t", state_of(segment), sources | others) == sources


def test_a_large_segment_and_many_small_ones_are_searched_alike() -> None:
    storage = MemoryStorage()
    batches = [range(0, 30_000), range(30_000, 30_010), range(30_010, 34_000)]
    segments = [
        stored(storage, f"g{number}", [name(i) for i in batch])
        for number, batch in enumerate(batches)
    ]
    asked = [name(i) for i in range(0, 60_000, 7)]
    found = ingested_of(storage, "t", state_of(*segments), asked)
    assert found == {name(i) for i in range(0, 34_000, 7)}


def test_one_source_costs_a_small_read_a_segment_and_one_more_where_it_is() -> None:
    storage, count = MemoryStorage(), 50_000
    segments = [
        stored(storage, f"g{n}", [name(i) for i in range(n * count, (n + 1) * count)])
        for n in range(3)
    ]
    absent, present = ReadCounters(), ReadCounters()
    found = ingested_of(CountedObjects(storage, absent), "t", state_of(*segments), [name(-1)])
    assert (found, absent.requests) == (frozenset(), 3)
    assert absent.size_bytes < 3 * 3000
    asked = [name(count + 1)]
    found = ingested_of(CountedObjects(storage, present), "t", state_of(*segments), asked)
    assert (len(found), present.requests) == (1, 4)
    assert present.size_bytes < 3 * 3000 + 24_000


def test_a_thousand_sources_are_looked_up_by_few_reads() -> None:
    storage, reads = MemoryStorage(), ReadCounters()
    segment = stored(storage, "g", [name(i) for i in range(200_000)])
    asked = [name(-i) for i in range(1, 1001)]
    assert not ingested_of(CountedObjects(storage, reads), "t", state_of(segment), asked)
    assert reads.requests <= 30, "records that lie close together come together"


def test_a_source_takes_at_most_twenty_bytes() -> None:
    for count in (4096, 40_960, 100_000):
        segment, body = encode_sources("g", COVER, [digests_of(map(name, range(count)))])
        assert len(body) == segment.size_bytes <= 20 * count


def test_any_parquet_reader_reads_the_sources() -> None:
    sources = [name(i) for i in range(5000)]
    _, body = encode_sources("g", COVER, [digests_of(sources)])
    column = pq.read_table(io.BytesIO(body), use_threads=False)["source"].to_pylist()
    assert column == sorted(map(digest_of, sources))


def test_a_segment_says_what_it_is() -> None:
    segment, body = encode_sources("g", COVER, [digests_of(["a"]), digests_of(["b"])])
    named, cover, ids = decode_sources("g", body, "x")
    assert (named, cover, len(ids)) == (segment, COVER, 2)


def test_a_source_that_was_ingested_twice_is_not_sealed() -> None:
    with pytest.raises(InvariantError):
        encode_sources("g", COVER, [digests_of(["a", "b"]), digests_of(["b"])])


def test_no_flipped_bit_says_that_an_ingested_source_is_new() -> None:
    """Each byte of the ids and the index is flipped: the answer is right, or an error."""
    storage = MemoryStorage()
    sources = [name(i) for i in range(40)]
    segment = stored(storage, "g", sources)
    path = SOURCES.path("t", "g")
    body = storage.get(path)
    refused = 0
    for place in range(len(body)):
        damaged = bytearray(body)
        damaged[place] ^= 1 << place % 8
        storage.delete([path])
        storage.put(path, bytes(damaged))
        try:
            found = ingested_of(storage, "t", state_of(segment), [*sources, name(-1)])
        except CorruptDataError as error:
            assert path in str(error)
            refused += 1
        else:
            assert found == set(sources)
        with pytest.raises(CorruptDataError):
            read_segment(storage, "t", "g")
    assert refused >= 16 * 40 + 2 * 40


def test_a_segment_that_is_gone_or_cut_off_is_an_error() -> None:
    storage = MemoryStorage()
    segment = stored(storage, "g", ["a", "b"])
    body = storage.get(SOURCES.path("t", "g"))
    storage.delete([SOURCES.path("t", "g")])
    with pytest.raises(NotFoundError):
        ingested_of(storage, "t", state_of(segment), ["a"])
    storage.put(SOURCES.path("t", "g"), body[: segment.index_at + 3])
    with pytest.raises(CorruptDataError, match="cut off"):
        ingested_of(storage, "t", state_of(segment), ["a"])


def test_a_segment_of_another_table_is_refused() -> None:
    storage = MemoryStorage()
    _, body = encode_sources("g", replace(COVER, table_id="u"), [digests_of(["a"])])
    storage.put(SOURCES.path("t", "g"), body)
    with pytest.raises(CorruptDataError, match="segment of table u"):
        read_segment(storage, "t", "g")


def test_sources_are_found_in_all_reads_that_a_look_up_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sources_module, "READ_BYTES", 1)  # each bucket by itself
    storage, reads = MemoryStorage(), ReadCounters()
    asked = [name(i) for i in range(5000)]
    segment = stored(storage, "g", asked)
    found = ingested_of(CountedObjects(storage, reads), "t", state_of(segment), asked)
    assert found == set(asked)
    assert reads.requests > 4
