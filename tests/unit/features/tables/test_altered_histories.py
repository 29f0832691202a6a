"""Random alterations between ingests and compactions, held against rows kept by ids of fields.

What is nested in a column is altered, too: a kept row has the values of members by their ids.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dormouse.arrow.types import arrow_schema
from dormouse.rows.predicates import parse_predicate
from dormouse.schema.evolution import parts_of
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import DecimalType, ListType, MapType, Member, Primitive, StructType
from dormouse.tables.table import Table
from tests.support.batches import cells
from tests.support.depth import examples
from tests.support.queries import query_rows
from tests.support.world import World

KEY = Field("k", Primitive.LONG)
INNER = StructType((Member("x", Primitive.INT, True), Member("y", Primitive.FLOAT, True)))
KINDS = [
    Primitive.INT,
    Primitive.FLOAT,
    Primitive.STRING,
    DecimalType(4, 2),
    ListType(Primitive.INT),
    StructType((Member("m", Primitive.INT, nullable=True), Member("x", INNER, nullable=True))),
    ListType(INNER),
    MapType(Primitive.INT, INNER),
]
WIDER = {
    Primitive.INT: Primitive.LONG,
    Primitive.FLOAT: Primitive.DOUBLE,
    DecimalType(4, 2): DecimalType(20, 2),
    DecimalType(20, 2): DecimalType(38, 2),
}
NAMES = ["a", "b", "c"]
MEMBERS = ["m", "x", "y"]
Cells = Mapping[int, object]
"""The values of one row by the ids of their fields."""


def kept(value: object, field: Field) -> object:
    """Return a value with the ids of members in place of their names."""
    parts = parts_of(field)
    match field.type:
        case ListType() if isinstance(value, list):
            return [kept(each, parts[0]) for each in value]
        case MapType() if isinstance(value, list):
            return [(key, kept(each, parts[1])) for key, each in value]
        case StructType() if isinstance(value, dict):
            return {part.id: kept(value[part.name], part) for part in parts}
    return value


def shown(value: object, field: Field) -> object:
    """Return a kept value as the field shows it now."""
    parts = parts_of(field)
    match field.type:
        case ListType() if isinstance(value, list):
            return [shown(each, parts[0]) for each in value]
        case MapType() if isinstance(value, list):
            return [(key, shown(each, parts[1])) for key, each in value]
        case StructType() if isinstance(value, dict):
            return {part.name: shown(value.get(part.id), part) for part in parts}
    return value


def paths(fields: Sequence[Field], prefix: str = "") -> Iterator[tuple[str, Field]]:
    """Yield every column and what is nested in it, with its path."""
    for field in fields:
        yield prefix + field.name, field
        yield from paths(parts_of(field), f"{prefix}{field.name}.")


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
        everything = list(paths(self.table.schema.values))
        widening = [(p, f) for p, f in everything if f.type in WIDER]
        structs = [(p, f) for p, f in everything if isinstance(f.type, StructType)]
        steps = ["ingest", "ingest"] + ["add"] * bool(free) + ["drop", "rename"] * bool(names)
        steps += ["widen"] * bool(widening) + ["members"] * 2 * bool(structs)
        step = self.data.draw(st.sampled_from(steps))
        pick = self.data.draw
        match step:
            case "ingest":
                self.ingest()
            case "add":
                field = Field(pick(st.sampled_from(free)), pick(st.sampled_from(KINDS)), True)
                self.table = self.world.alter(self.table, add=[field])
            case "widen":
                path, field = pick(st.sampled_from(widening))
                wider = WIDER[field.type].to_json()
                self.table = self.world.alter(self.table, types={path: wider})
            case "members":
                self.alter_members(*pick(st.sampled_from(structs)))
            case "drop":
                self.table = self.world.alter(self.table, drop=[pick(st.sampled_from(names))])
            case "rename":  # any permutation of all names: swaps and rings too
                taken = pick(st.permutations(NAMES))
                renames = {old: new for old, new in zip(names, taken, strict=False) if old != new}
                if renames:
                    self.table = self.world.alter(self.table, rename=renames)

    def alter_members(self, path: str, struct: Field) -> None:
        pick, names = self.data.draw, [part.name for part in parts_of(struct)]
        free = [name for name in MEMBERS if name not in names]
        steps = ["rename"] + ["add"] * bool(free) + ["drop"] * (len(names) > 1)
        match pick(st.sampled_from(steps)):
            case "add":
                kind = pick(st.sampled_from([Primitive.INT, Primitive.STRING]))
                new = Field(f"{path}.{pick(st.sampled_from(free))}", kind, nullable=True)
                self.table = self.world.alter(self.table, add=[new])
            case "drop":
                name = pick(st.sampled_from(names))
                again = [Field(f"{path}.{name}", Primitive.INT, nullable=True)]
                add = again if pick(st.booleans()) else []
                self.table = self.world.alter(self.table, drop=[f"{path}.{name}"], add=add)
            case "rename":
                taken = pick(st.permutations(MEMBERS))
                pairs = zip(names, taken, strict=False)
                renames = {f"{path}.{old}": new for old, new in pairs if old != new}
                if renames:
                    self.table = self.world.alter(self.table, rename=renames)

    def ingest(self) -> None:
        schema = self.table.schema
        row = st.fixed_dictionaries(
            {f.name: cells(f.type) | st.none() for f in schema.values}
            | {KEY.name: st.integers(0, 9)}
        )
        rows = self.data.draw(st.lists(row, min_size=1, max_size=3))
        table = pa.Table.from_pylist(rows, arrow_schema(schema))
        # as Arrow has them: a float is rounded
        stored = table.to_pylist()
        self.rows += [{f.id: kept(row[f.name], f) for f in schema.fields} for row in stored]
        sink = io.BytesIO()
        pq.write_table(table, sink)
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
        fields = table.schema.fields
        expected = [{f.name: shown(row.get(f.id), f) for f in fields} for row in history.rows]
        for look_up_bytes in (0, 2**20):
            assert as_set(found(history.world, table, look_up_bytes)) == as_set(expected)
            for field in table.schema.values:
                there = found(history.world, table, look_up_bytes, f"{field.name} IS NOT NULL")
                those = [row for row in expected if row[field.name] is not None]
                assert as_set(there) == as_set(those)
