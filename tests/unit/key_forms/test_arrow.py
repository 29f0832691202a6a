"""Key parts as columns of Arrow: as Arrow itself makes them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.arrow.order import key_column, key_part
from dormouse.arrow.types import COUNTS, arrow_type
from dormouse.keys import INT64_MAX, INT64_MIN, KeyPart
from dormouse.schema.types import (
    MAX_TIME,
    TIMESTAMPS,
    DecimalType,
    Primitive,
    from_decimal_count,
    show_type,
)
from tests.support.batches import DECIMAL_KEYS

INT64 = st.integers(INT64_MIN, INT64_MAX)
PARTS: dict[Primitive, st.SearchStrategy[KeyPart]] = {
    Primitive.INT: st.integers(-(2**31), 2**31 - 1),
    Primitive.DATE: st.integers(-(2**31), 2**31 - 1),
    Primitive.LONG: INT64,
    Primitive.TIME: st.integers(0, MAX_TIME),
    **dict.fromkeys(TIMESTAMPS, INT64),
    Primitive.STRING: st.text(st.characters(exclude_categories=["Cs"])),
    Primitive.BYTES: st.binary(),
    Primitive.UUID: st.binary(min_size=16, max_size=16),
}


@pytest.mark.parametrize("kind", sorted(PARTS, key=str))
@given(data=st.data())
def test_a_column_of_key_parts_is_the_one_that_arrow_makes(
    kind: Primitive, data: st.DataObject
) -> None:
    parts = data.draw(st.lists(PARTS[kind]))
    column = key_column(parts, kind)
    column.validate(full=True)
    wanted = pa.array(parts, COUNTS.get(kind, arrow_type(kind))).cast(arrow_type(kind))
    assert column.equals(wanted)


@pytest.mark.parametrize("kind", DECIMAL_KEYS, ids=show_type)
@given(data=st.data())
def test_a_column_of_decimal_keys_is_the_one_that_arrow_makes(
    kind: DecimalType, data: st.DataObject
) -> None:
    most = 10**kind.precision - 1
    parts = data.draw(st.lists(st.integers(-most, most)))
    column = key_column(parts, kind)
    column.validate(full=True)
    numbers = [from_decimal_count(part, kind) for part in parts]
    assert column.equals(pa.array(numbers, arrow_type(kind)))
    assert [key_part(cell, kind) for cell in column] == parts
