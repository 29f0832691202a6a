"""Random alterations between ingests and compactions, held against rows kept by ids of fields."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dormouse.arrow.types import arrow_schema
from dormouse.rows.predicates import parse_predicate
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import ListType, Member, Primitive, StructType
from dormouse.tables.table import Table
from tests.support.batches import cells
from tests.support.depth import examples
from tests.support.queries import query_rows
from tests.support.world import World

KEY = Field("k", Primitive.LONG)
KINDS = [
    Primitive.LONG,
    Primitive.STRING,
    ListType(Primitive.LONG),
    StructType((Member("m", Primitive.LONG, nullable=True),)),
]
NAMES = ["a", "b", "c"]
Cells = Mapping[int, object]
"""The values of one row by the ids of their fields."""


class History:
    """A table and what its rows must be."""

    def __init__(self, data: st.DataObject, folder: Path) -> None:
        self.data = data
        self.world = World(folder, has_spark=False)
        schema = Schema((KEY,), values=(Field("a", Primitive.LONG, nullable=True),))
        self.table = self.world.create(
            "t", schema, compaction_files=3, compaction_strategy="batch", gc_delay_seconds=0
        )
        self.rows: list[Cells] = []
        self.files = 0

    def step(self) -> None:
        names = [field.name for field in self.table.schema.values]
        free = [name for name in NAMES if name not in names]
        steps = ["ingest", "ingest"] + ["add"] * bool(free) + ["drop", "rename"] * bool(names)
        step = self.data.draw(st.sampled_from(steps))
        pick = self.data.draw
        match step:
            case "ingest":
                self.ingest()
            case "add":
                field = Field(pick(st.sampled_from(free)), pick(st.sampled_from(KINDS)), True)
                self.table = self.world.alter(self.table, add=[field])
            case "drop":
                self.table = self.world.alter(self.table, drop=[pick(st.sampled_from(names))])
            case "rename":  # any permutation of all names: swaps and rings too
                taken = pick(st.permutations(NAMES))
                renames = {old: new for old, new in zip(names, taken, strict=False) if old != new}
                if renames:
                    self.table = self.world.alter(self.table, rename=renames)

    def ingest(self) -> None:
        schema = self.table.schema
        row = st.fixed_dictionaries(
            {f.name: cells(f.type) | st.none() for f in schema.values}
            | {KEY.name: st.integers(0, 9)}
        )
        rows = self.data.draw(st.lists(row, min_size=1, max_size=3))
        self.rows += [{f.id: row[f.name] for f in schema.fields} for row in rows]
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows, arrow_schema(schema)), sink)
        self.world.drop(f"t/{self.files}.parquet", sink.getvalue())
        self.files += 1
        # before or after the next alteration
        if self.data.draw(st.booleans()):
            self.settle()

    def settle(self) -> None:
        self.world.settle()


def as_set(rows: list[dict[str, object]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


def found(
    world: World, table: Table, look_up_bytes: int, where: str = ""
) -> list[dict[str, object]]:
    result = query_rows(
        world.storage,
        table,
        world.state(table),
        [],
        where=parse_predicate(where, table.schema) if where else None,
        now_ms=0,
        scratch=world.services.scratch,
        memory_bytes=2**26,
        look_up_bytes=look_up_bytes,
    )
    return result.reader.read_all().to_pylist()


@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_value_is_found_under_the_name_its_field_has_now(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        history = History(data, Path(folder))
        for _ in range(data.draw(st.integers(2, 8))):
            history.step()
            history.settle()
        table = history.table
        expected = [{f.name: row.get(f.id) for f in table.schema.fields} for row in history.rows]
        for look_up_bytes in (0, 2**20):
            assert as_set(found(history.world, table, look_up_bytes)) == as_set(expected)
            for field in table.schema.values:
                there = found(history.world, table, look_up_bytes, f"{field.name} IS NOT NULL")
                kept = [row for row in expected if row[field.name] is not None]
                assert as_set(there) == as_set(kept)
