"""Keys of some rows, taken together, are those of each row alone."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dormouse.arrow.order import FEW_ROWS, sort_key, taken_keys
from dormouse.arrow.types import arrow_schema
from dormouse.schema.schema import Schema
from dormouse.schema.types import KEY_TYPES, DecimalType, KeyType
from tests.support.every_type import EVERY_TYPE, row_of_every_type

ROWS = FEW_ROWS + 5


@pytest.mark.parametrize("kind", [*sorted(KEY_TYPES, key=str), DecimalType(30, 5)], ids=str)
def test_keys_of_rows_taken_together_are_those_of_each_row(kind: KeyType) -> None:
    name = next(field.name for field in EVERY_TYPE.fields if field.type == kind)
    cells = (row_of_every_type(n)[name] for n in range(9 * ROWS))
    known = [cell for cell in cells if cell is not None][:ROWS]
    assert len(known) == ROWS
    schema = Schema.from_json(
        {
            "rowKeyFields": [{"name": "k", "type": kind.to_json()}],
            "sortKeyFields": [],
            "valueFields": [],
        }
    )
    column = pa.array(known, arrow_schema(EVERY_TYPE).field(name).type)
    batch = pa.RecordBatch.from_arrays([column], schema=arrow_schema(schema))
    for wanted in ([], [3], range(ROWS), [0, 0, 2, 2, ROWS - 1]):
        expected = [sort_key(batch, row, schema) for row in wanted]
        assert taken_keys(batch, list(wanted), schema.keys) == expected
        assert [list(map(type, k)) for k in taken_keys(batch, list(wanted), schema.keys)] == [
            list(map(type, k)) for k in expected
        ]
