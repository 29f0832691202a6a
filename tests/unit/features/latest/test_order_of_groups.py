"""One row of each key, in the order of the keys, however many keys have several rows."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from dormouse.rows.aggregation import aggregate_groups, latest_rows
from dormouse.schema.schema import SEQUENCE, parse_schema
from dormouse.tables.row_rules import Aggregation

STORED = parse_schema("id:long, v:long", ["id"]).with_values(SEQUENCE)
LAST = parse_schema("id:long, s:long, v:long", ["id"], ["s"])


def rows_of(seed: int) -> list[tuple[int, int, int]]:
    """Return rows of ascending ids, of which some have several, in any order."""
    draw = random.Random(seed)
    found = [(n, n, draw.randrange(1000)) for n in range(2000)]
    found += [(n, n, draw.randrange(1000)) for n in draw.choices(range(2000), k=200)]
    return sorted(found, key=lambda row: (row[0], draw.random()))


@pytest.mark.parametrize("seed", range(10))
def test_the_latest_rows_come_in_the_order_of_their_keys(seed: int) -> None:
    rows = rows_of(seed)
    columns = [pa.array(column, pa.int64()) for column in zip(*rows, strict=True)]
    batch = pa.RecordBatch.from_arrays(columns, names=["id", "v", "_sequence"])
    found = pa.Table.from_batches(latest_rows([batch], STORED, Aggregation(kept="latest")))
    wanted = {row[0]: max(r[2] for r in rows if r[0] == row[0]) for row in rows}
    assert dict(zip(found["id"].to_pylist(), found["_sequence"].to_pylist(), strict=True)) == wanted
    assert found["id"].to_pylist() == list(wanted)


NAN = float("nan")


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("values", [[-0.0, 0.0, 1.5, NAN], ["", "a", "ä", "b"]])
def test_of_keys_of_any_number_of_rows_the_greatest_counts_and_of_equals_the_last(
    seed: int, values: list[float | str]
) -> None:
    draw = random.Random(seed)
    rows = [(n, draw.choice(values)) for n in range(200) for _ in range(draw.choice((1, 2, 3, 20)))]
    kind = "string" if isinstance(values[0], str) else "double"
    numbers = draw.sample(range(10_000), len(rows))
    schema = parse_schema(f"id:long, o:{kind}", ["id"]).with_values(SEQUENCE)
    columns = [*zip(*rows, strict=True), numbers]
    types = [pa.int64(), pa.float64() if kind == "double" else pa.string(), pa.int64()]
    arrays = [pa.array(*each) for each in zip(columns, types, strict=True)]
    table = pa.table(arrays, names=["id", "o", "_sequence"])
    batches = table.to_batches(max_chunksize=draw.choice((1, 7, 10_000)))
    rule = Aggregation(kept="latest", by="o")
    found = pa.Table.from_batches(latest_rows(batches, schema, rule))

    def rank(at: int) -> tuple[bool, float | str, int]:
        o = rows[at][1]
        return o != o, "" if o != o else o + 0.0 if isinstance(o, float) else o, numbers[at]

    best: dict[int, int] = {}
    for at, (key, _) in enumerate(rows):
        best[key] = max(best.get(key, at), at, key=rank)
    assert found["_sequence"].to_pylist() == [numbers[at] for at in best.values()]


@pytest.mark.parametrize("seed", range(10))
def test_so_do_the_last_rows_of_which_some_tie_in_their_sort_keys(seed: int) -> None:
    rows = rows_of(seed)
    columns = [pa.array(column, pa.int64()) for column in zip(*rows, strict=True)]
    batch = pa.RecordBatch.from_arrays(columns, names=["id", "s", "v"])
    found = pa.Table.from_batches(aggregate_groups([batch], LAST, Aggregation(kept="last")))
    wanted = {row[0]: max(r[2] for r in rows if r[0] == row[0]) for row in rows}
    assert dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)) == wanted
    assert found["id"].to_pylist() == list(wanted)
