"""No value that was added to a Bloom filter, which pyarrow writes, is missed by code that asks."""

from __future__ import annotations

import io
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.arrow.order import key_column
from dormouse.arrow.types import arrow_type
from dormouse.keys import KeyPart
from dormouse.schema.types import KEY_TYPES, MAX_TIME, DecimalType, KeyType, Primitive
from dormouse.shards.crcs import BLOCK_BYTES, can_hold, digest_of, filter_of, xxh64

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
VALUES: dict[KeyType, st.SearchStrategy[KeyPart]] = {
    Primitive.INT: INT32,
    Primitive.DATE: INT32,
    Primitive.TIME: st.integers(0, MAX_TIME),
    Primitive.STRING: st.text(max_size=40),
    Primitive.BYTES: st.binary(max_size=100),
    Primitive.UUID: st.binary(min_size=16, max_size=16),
}
for digits in (1, 2, 9, 10, 18, 19, 38):
    most = 10**digits - 1
    VALUES[DecimalType(digits, digits // 2)] = st.integers(-most, most) | st.just(most)
KINDS: list[KeyType] = sorted({*KEY_TYPES, *VALUES}, key=str)


def held(kind: KeyType, stored: list[KeyPart], asked: list[KeyPart]) -> list[bool]:
    """Return of some values whether the filter of a column may hold them."""
    integers = pa.int32() if kind in (Primitive.INT, Primitive.DATE) else pa.int64()
    if isinstance(kind, DecimalType):
        column = key_column(stored, kind)
    else:
        column = pa.array(stored, integers if isinstance(stored[0], int) else arrow_type(kind))
    sink = io.BytesIO()
    rows = pa.table({"v": column.cast(arrow_type(kind))})
    pq.write_table(rows, sink, bloom_filter_options={"v": {"ndv": 2000, "fpp": 0.01}})
    place = filter_of(pq.read_metadata(sink).row_group(0).column(0))
    assert place is not None
    answers = []
    for value in asked:
        digest = digest_of(value, kind)
        assert digest is not None
        at = place.block_of(digest)
        assert place.start < at <= place.end - BLOCK_BYTES
        answers.append(can_hold(sink.getvalue()[at : at + BLOCK_BYTES], digest))
    return answers


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_each_value_that_was_added_is_held(kind: KeyType, data: st.DataObject) -> None:
    stored = data.draw(st.lists(VALUES.get(kind, INT64), min_size=1, max_size=20))
    assert all(held(kind, stored, stored))


def test_few_values_that_were_not_added_are_held() -> None:
    chance = random.Random(3)
    stored: list[KeyPart] = [chance.randbytes(12) for _ in range(2000)]
    others: list[KeyPart] = [chance.randbytes(12) for _ in range(2000)]
    assert sum(held(Primitive.BYTES, stored, others)) < 100


@pytest.mark.parametrize(
    ("body", "digest"),
    [(b"", 0xEF46DB3751D8E999), (b"a", 0xD24EC4F1A98C6E5B), (b"abc", 0x44BC2CF5AD770999)],
)
def test_hashes_are_those_that_the_specification_names(body: bytes, digest: int) -> None:
    assert xxh64(body) == digest


def test_a_number_that_no_cell_can_have_has_no_hash() -> None:
    assert digest_of(2**31, Primitive.INT) is None
    assert digest_of(2**31, Primitive.LONG) is not None
    assert digest_of(10**38 * 2, DecimalType(38, 0)) is None
    assert digest_of(-(2**63) - 1, Primitive.LONG) is None
