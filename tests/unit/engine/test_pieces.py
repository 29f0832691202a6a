"""Pieces: sorted by the first key column, ties put in order by the others."""

from __future__ import annotations

import random
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dormouse.arrow.order import sort_key
from dormouse.arrow.types import arrow_schema
from dormouse.rows import datafusion as engine
from dormouse.rows import sorting
from dormouse.rows.sorting import sort_piece
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import Primitive
from tests.support.batches import rows_of, schemas
from tests.support.depth import examples
from tests.support.tables import batches_of
from tests.unit.query.test_oracle import assert_same_rows

THREE_KEYS = Schema(
    (Field("a", Primitive.STRING), Field("b", Primitive.LONG)),
    (Field("c", Primitive.UUID),),
    (Field("n", Primitive.LONG),),
)


def sorted_by_all_keys(batches: list[pa.RecordBatch], schema: Schema) -> list[object]:
    """Return the keys in DataFusion's order by all of them at once."""
    (piece,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    frame = engine.frame_from_batches(engine.session(), [piece]).sort(*engine.key_order(schema))
    return keys_of(list(engine.batches_of(frame.execute_stream())), schema)


def keys_of(batches: list[pa.RecordBatch], schema: Schema) -> list[object]:
    return [sort_key(batch, row, schema) for batch in batches for row in range(batch.num_rows)]


@settings(deadline=None, max_examples=examples(60))
@given(data=st.data())
def test_a_piece_is_in_the_order_of_all_keys_of_every_type(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    rows = data.draw(rows_of(schema).filter(bool))
    batches = list(batches_of(rows, schema, 3))
    with patch.object(sorting, "FEW_ROWS", data.draw(st.sampled_from([0, sorting.FEW_ROWS]))):
        found = list(sort_piece(batches, schema))
    assert [batch.schema for batch in found] == [arrow_schema(schema)]
    assert_same_rows([row for batch in found for row in batch.to_pylist()], rows, schema)
    assert keys_of(found, schema) == sorted_by_all_keys(batches, schema)


@pytest.mark.parametrize("texts", [1, 3, 40, 4000])
def test_few_and_many_ties_are_in_the_order_of_the_other_keys(texts: int) -> None:
    chance = random.Random(texts)
    rows: list[dict[str, object]] = [
        {
            "a": chance.choice("a\0é") * chance.randrange(3) + str(chance.randrange(texts)),
            "b": chance.choice([-(2**63), -1, 0, 1, 2**63 - 1]),
            "c": bytes([chance.randrange(2)]) * 16,
            "n": n,
        }
        for n in range(400)
    ]
    batches = list(batches_of(rows, THREE_KEYS, 90))
    found = list(sort_piece(batches, THREE_KEYS))
    assert keys_of(found, THREE_KEYS) == sorted_by_all_keys(batches, THREE_KEYS)
    assert sorted(row["n"] for batch in found for row in batch.to_pylist()) == list(range(400))
    assert list(sort_piece(batches, THREE_KEYS)) == found


def test_no_rows_make_no_piece() -> None:
    assert not list(sort_piece([], THREE_KEYS))
    empty = pa.RecordBatch.from_pylist([], schema=arrow_schema(THREE_KEYS))
    assert not list(sort_piece([empty], THREE_KEYS))
