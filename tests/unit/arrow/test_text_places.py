"""Text and bytes are found among sorted cells, in whatever form Arrow has them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.arrow.order import row_span
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import Primitive

SCHEMA = Schema((Field("k", Primitive.STRING),))
TEXT = st.text(st.sampled_from("aé\U0001f600z\0"), max_size=4)
DICTIONARY = pa.dictionary(pa.int32(), pa.string())


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), DICTIONARY], ids=str
)
@given(st.lists(TEXT), TEXT, st.integers(0, 3))
def test_a_text_is_found_in_any_form_of_a_column(
    kind: pa.DataType, texts: list[str], wanted: str, first: int
) -> None:
    texts.sort()
    plain = pa.array(texts, pa.string())
    column = plain.dictionary_encode() if kind == DICTIONARY else plain.cast(kind)
    batch = pa.RecordBatch.from_arrays([column], names=["k"]).slice(first)
    there = texts[first:]
    span = bisect_left(there, wanted), bisect_right(there, wanted)
    assert row_span(batch, (wanted,), SCHEMA) == span
