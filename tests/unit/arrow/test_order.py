"""The order of rows is checked, and the first row out of order is named."""

from __future__ import annotations

import pytest

from dormouse.arrow.order import OrderCheck
from dormouse.errors import UnsortedRowsError
from dormouse.schema.schema import Schema
from tests.support.tables import batches_of

SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "a", "type": "StringType"}, {"name": "b", "type": "LongType"}],
        "sortKeyFields": [{"name": "c", "type": "LongType"}],
        "valueFields": [],
    }
)


@pytest.mark.parametrize(
    ("place", "changed", "named"),
    [
        (40, ("039", 5, 0), None),
        (40, ("039", 0, 1), None),
        (40, ("039", 0, 0), None),
        (40, ("039", 0, -1), 40),
        (40, ("039", -1, 9), 40),
        (40, ("038", 9, 9), 40),
        (99, ("098", -1, 0), 99),
        (1, ("000", -1, 0), 1),
    ],
)
def test_one_row_out_of_order_among_many_is_named(
    place: int, changed: tuple[str, int, int], named: int | None
) -> None:
    """Of a hundred rows, each with a key of its own, one gets another key."""
    keys = [(f"{number:03}", 0, 0) for number in range(100)]
    keys[place] = changed
    (batch,) = batches_of([dict(zip("abc", key, strict=True)) for key in keys], SCHEMA, 100)
    if named is None:
        OrderCheck(SCHEMA).see(batch)
        return
    with pytest.raises(UnsortedRowsError, match=f"the key of row {named} is less"):
        OrderCheck(SCHEMA).see(batch)
