"""Footers: samples at exact ranks, and damage that is noticed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from dormouse.errors import CorruptDataError, DamagedShardError, NotFoundError
from dormouse.keys import Key, KeyRange
from dormouse.schema.schema import Schema
from dormouse.shards.crcs import index_of
from dormouse.shards.footer import (
    ShardFooter,
    check_index,
    decode_footer,
    encode_footer,
    read_footer,
    read_metadata,
)
from dormouse.shards.parquet import MAX_SAMPLES, MAX_SAMPLES_BYTES, KeySampler
from dormouse.state.versions import Lineage, Provenance
from dormouse.stored import checksums
from tests.support.batches import row_key_of, rows_of, schemas, sort_key_of
from tests.support.damage import footer_length
from tests.support.memory_storage import MemoryStorage
from tests.support.tables import ShardTable, batches_of

SCHEMA = Schema.from_json({"rowKeyFields": [{"name": "k", "type": "LongType"}]})
NAMES = Schema.from_json({"rowKeyFields": [{"name": "k", "type": "StringType"}]})


def sampled(keys: list[int], size: int, most: int = MAX_SAMPLES) -> KeySampler:
    sampler = KeySampler(SCHEMA, most)
    for batch in batches_of([{"k": key} for key in sorted(keys)], SCHEMA, size):
        sampler.see(batch)
    return sampler


def footer_of(sampler: KeySampler) -> ShardFooter:
    span = KeyRange((), (7,))
    superseded = (("b-0", span), ("b-1", KeyRange((2,), (4,))))
    return ShardFooter(
        table_id="t",
        shard_id="s",
        schema=SCHEMA,
        provenance=Provenance(
            span,
            "j",
            written_ms=5,
            number=3,
            last=False,
            lineage=Lineage(("one",), ("a-0",), superseded, ("c-4",)),
        ),
        rows=sampler.rows,
        min_key=sampler.min_key,
        max_key=sampler.max_key,
        samples=sampler.samples(),
    )


@given(
    keys=st.lists(st.integers(0, 30), min_size=1, max_size=60),
    size=st.integers(1, 20),
    kept=st.integers(1, 8),
)
def test_ranks_are_exact_at_samples_and_between_their_neighbours_elsewhere(
    keys: list[int], size: int, kept: int
) -> None:
    footer = footer_of(sampled(keys, size, kept))
    assert len(footer.samples) <= kept
    ordered = sorted((key,) for key in keys)
    for key, rank in footer.samples:
        assert rank == bisect_left(ordered, key)
    points: list[Key] = [(), *((n,) for n in range(-1, 32))]
    ranks = [footer.keys.rows_below(point) for point in points]
    assert ranks == sorted(ranks)
    for point, rank in zip(points, ranks, strict=True):
        exact = bisect_left(ordered, point)
        assert (rank == 0) == (exact == 0)
        assert rank == exact or point not in dict(footer.samples)
        assert (rank == len(keys)) == (exact == len(keys))
    assert decode_footer(encode_footer(footer), "path") == footer


@settings(deadline=None)
@given(data=st.data(), size=st.integers(1, 30))
def test_samples_of_keys_of_any_type_have_their_exact_keys_and_ranks(
    data: st.DataObject, size: int
) -> None:
    schema = data.draw(schemas())
    rows = data.draw(rows_of(schema).filter(bool))
    rows.sort(key=lambda row: sort_key_of(row, schema))
    sampler = KeySampler(schema, 10, 40)
    for batch in batches_of(rows, schema, size):
        sampler.see(batch)
    keys = [row_key_of(row, schema) for row in rows]
    for key, rank in sampler.samples():
        assert keys.index(key) == rank
    assert (sampler.min_key, sampler.max_key) == (keys[0], keys[-1])


@given(
    keys=st.lists(st.integers(0, 500), min_size=1, max_size=300),
    size=st.integers(1, 300),
    kept=st.integers(1, 8),
)
def test_samples_are_the_same_however_the_rows_come_in_batches(
    keys: list[int], size: int, kept: int
) -> None:
    one_by_one, batched = sampled(keys, 1, kept), sampled(keys, size, kept)
    assert batched.samples() == one_by_one.samples()
    assert (batched.rows, batched.max_key) == (one_by_one.rows, one_by_one.max_key)


def test_rows_of_which_no_sample_will_be_kept_are_not_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[int] = []
    plain = KeySampler._ranked

    def ranked(
        self: KeySampler, batch: pa.RecordBatch, rows: Sequence[int]
    ) -> list[tuple[Key, int]]:
        looked.extend(rows)
        return plain(self, batch, rows)

    monkeypatch.setattr(KeySampler, "_ranked", ranked)
    sampled(list(range(100_000)), 100_000)
    assert len(looked) <= MAX_SAMPLES + 1


def test_samples_stay_few_and_even_however_many_rows_there_are() -> None:
    sampler = sampled(list(range(100_000)), 8192)
    ranks = [rank for _, rank in sampler.samples()]
    assert MAX_SAMPLES // 2 <= len(ranks) <= MAX_SAMPLES
    assert len({b - a for a, b in zip(ranks, ranks[1:], strict=False)}) == 1


def test_long_keys_do_not_make_a_long_footer(tmp_path: Path) -> None:
    table = ShardTable(MemoryStorage(), NAMES, tmp_path)
    (new,) = table.add([{"k": f"{n:05}" + "x" * 3000} for n in range(100)])
    footer = read_footer(table.storage, f"table/data/{new.shard.id}.parquet", new.shard.size_bytes)
    assert 1 < sum(len(str(key)) for key, _ in footer.samples) <= MAX_SAMPLES_BYTES


@pytest.fixture
def shard(tmp_path: Path) -> bytes:
    table = ShardTable(MemoryStorage(), SCHEMA, tmp_path)
    (new,) = table.add([{"k": n} for n in range(100)])
    return table.storage.get(f"table/data/{new.shard.id}.parquet")


def test_damaged_footers_are_called_corrupt_never_misread(shard: bytes) -> None:
    foreign = b"PAR1 but not Parquet" + shard[-8:-4] + b"PAR1"
    unknown = shard.replace(b',"v":3,', b',"v":9,')
    nonsense = shard.replace(b'"rows":100', b'"rows":101')
    for body in (shard[:-1], shard[:-9], b"", b"PAR1", foreign, unknown, nonsense, b"x" * 500):
        storage = MemoryStorage()
        storage.put("p", body)
        with pytest.raises(CorruptDataError):
            read_footer(storage, "p", len(body))


def test_a_footer_read_with_the_wrong_size_is_corrupt(shard: bytes) -> None:
    storage = MemoryStorage()
    storage.put("p", shard)
    with pytest.raises(CorruptDataError):
        read_footer(storage, "p", len(shard) - 1)
    with pytest.raises(CorruptDataError):
        read_footer(storage, "p", len(shard) + 1)


def test_a_shard_that_is_gone_is_not_found() -> None:
    with pytest.raises(NotFoundError):
        read_footer(MemoryStorage(), "p", 100)


def test_a_checksum_covers_a_footer_without_its_own_digits(shard: bytes) -> None:
    footer = shard[-8 - footer_length(shard) :]
    before, _, rest = footer.rpartition(b"blake2b:")
    covered = before + b"blake2b:" + rest[32:]
    assert rest[:32].decode() == blake2b(covered, digest_size=16).hexdigest()


def proven(shard: bytes, stored: bytes, other: bytes) -> bytes:
    """Change what a footer says, and let its checksum agree: as another release would write it."""
    body = bytearray(shard.replace(stored, other))
    assert len(body) == len(shard) and body != shard
    footer = len(body) - footer_length(shard) - 8
    digits = body.rfind(b"blake2b:") + len(b"blake2b:")
    body[digits : digits + 32] = b"0" * 32
    place, right = checksums.compute_checksum(bytes(body[footer:]))
    body[footer + place : footer + place + len(right)] = right
    return bytes(body)


def test_an_intact_footer_of_an_unknown_version_or_of_other_rows_is_refused(shard: bytes) -> None:
    for stored, other, why in (
        (b',"v":3,', b',"v":9,', "unknown version 9"),
        (b'"rows":100', b'"rows":101', "has 100 rows, but its footer says 101"),
    ):
        storage = MemoryStorage()
        storage.put("p", proven(shard, stored, other))
        with pytest.raises(DamagedShardError, match=why):
            read_footer(storage, "p", len(shard))


def test_a_shard_of_other_rows_than_the_state_says_is_not_read(tmp_path: Path) -> None:
    table = ShardTable(MemoryStorage(), SCHEMA, tmp_path)
    (new,) = table.add([{"k": n} for n in range(100)])
    path = f"table/data/{new.shard.id}.parquet"
    metadata = read_metadata(table.storage, path, new.shard.size_bytes)
    index = index_of(metadata, path)
    check_index(index, path, "table", new.shard)
    with pytest.raises(DamagedShardError, match="has 100 rows, but the state says 99"):
        check_index(index, path, "table", structs.replace(new.shard, rows=99))
