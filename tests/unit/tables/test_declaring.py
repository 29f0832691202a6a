"""Declarations add and change, never remove, and change nothing the second time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import Primitive
from dormouse.tables.declaring import DeclaredChange, TableDeclaration, plan_table_changes
from dormouse.tables.table import Alteration, Table, apply_alteration, merge_settings

KEY = Field("k", Primitive.LONG)
OLD = Field("old", Primitive.STRING)
NEW = Field("new", Primitive.LONG, nullable=True)
SCHEMA = Schema((KEY,), values=(OLD,))
TABLE = Table("1", "t", SCHEMA).with_settings({"compaction_files": 5}, {})


def planned(*declared: TableDeclaration, table: Table = TABLE) -> list[DeclaredChange]:
    return plan_table_changes(declared, [table], {"t": {(10,)}}, {})


def made(change: DeclaredChange, table: Table | None) -> Table:
    """The table after a change."""
    put = {name: value for name, value in change.properties.items() if value is not None}
    if change.schema is not None:
        table = Table("2", change.name, change.schema)
    assert table is not None
    if change.add:
        table = replace(
            table,
            schema=apply_alteration(table.schema, Alteration(add=change.add), table.properties),
        )
    own = merge_settings(table.settings, put, change.properties.keys() - put.keys())
    table = table.with_settings(own, {})
    return table if change.online is None else replace(table, online=change.online)


def test_what_is_not_said_stays() -> None:
    assert planned() == []
    assert planned(TableDeclaration("t")) == []
    assert planned(TableDeclaration("t", Schema((KEY,)))) == []
    assert planned(TableDeclaration("t", SCHEMA, {"compaction_files": 5}, online=True)) == []


def test_columns_are_added_properties_set_and_unset_and_the_table_taken_offline() -> None:
    wanted = TableDeclaration(
        "t",
        Schema((KEY,), values=(NEW,)),
        {"compaction_files": None, "gc_delay_seconds": 7},
        online=False,
    )
    (change,) = planned(wanted)
    assert change.schema is None
    assert [(item.name, item.id) for item in change.add] == [("new", 0)]
    assert change.properties == {"compaction_files": None, "gc_delay_seconds": 7}
    assert change.before == {"compaction_files": 5, "gc_delay_seconds": 900}
    assert change.online is False


def test_a_table_that_is_not_there_is_made_whole() -> None:
    (change,) = planned(
        TableDeclaration("u", SCHEMA, {"compaction_files": 3}, online=True, splits=((1,), (2,)))
    )
    assert change.schema == SCHEMA
    assert change.splits == ((1,), (2,))
    assert change.online is None


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (TableDeclaration("u"), "table 'u': it does not exist; a schema is needed"),
        (TableDeclaration("../u", SCHEMA), "cannot be called"),
        (TableDeclaration("u", SCHEMA, {"filters": "ageOff(nothing,1)"}), "nothing"),
        (
            TableDeclaration("t", Schema((Field("j", Primitive.LONG),))),
            r"its row keys \(k\) cannot be",
        ),
        (
            TableDeclaration("t", Schema((Field("k", Primitive.INT),))),
            r"its row keys \(k\) cannot be",
        ),
        (
            TableDeclaration("t", Schema((KEY,), (Field("at", Primitive.LONG),))),
            r"its sort keys \(none\) cannot be",
        ),
        (
            TableDeclaration("t", Schema((KEY,), values=(replace(NEW, name="old"),))),
            "another nullability",
        ),
        (TableDeclaration("t", Schema((KEY,), values=(replace(OLD, name="new"),))), "not nullable"),
        (TableDeclaration("t", splits=((10,), (11,))), r"not split at \(11\)"),
        (TableDeclaration("t", properties={"state_store": "dynamodb"}), "cannot change"),
        (TableDeclaration("t", properties={"aggregations": "sum(k)"}), "table 't': "),
    ],
)
def test_what_cannot_be_is_refused_with_the_table_and_the_reason(
    wanted: TableDeclaration, said: str
) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        planned(TableDeclaration("fine", SCHEMA), wanted)


def test_a_table_cannot_be_declared_twice_nor_while_it_is_deleted() -> None:
    with pytest.raises(InvalidRequestError, match="declared twice"):
        planned(TableDeclaration("t"), TableDeclaration("t"))
    with pytest.raises(InvalidRequestError, match="being deleted"):
        planned(TableDeclaration("t"), table=replace(TABLE, deleting=True))


@pytest.mark.parametrize(
    ("alteration", "fate"),
    [(Alteration(drop=("old",)), "dropped"), (Alteration(rename={"old": "o"}), "renamed to 'o'")],
)
def test_a_file_older_than_its_table_does_not_bring_columns_back(
    alteration: Alteration, fate: str
) -> None:
    table = replace(TABLE, schema=apply_alteration(SCHEMA, alteration, TABLE.properties))
    with pytest.raises(InvalidRequestError, match=fate):
        planned(TableDeclaration("t", SCHEMA), table=table)


SETTINGS = st.dictionaries(
    st.sampled_from(["compaction_files", "gc_delay_seconds", "split_threshold_rows"]),
    st.none() | st.integers(2, 5),
)
VALUES = st.sets(st.sampled_from("abcdef")).map(
    lambda names: tuple(Field(name, Primitive.LONG, nullable=True) for name in sorted(names))
)


@given(VALUES, VALUES, SETTINGS, SETTINGS, st.none() | st.booleans(), st.booleans())
def test_a_second_time_nothing_changes(
    before: tuple[Field, ...],
    after: tuple[Field, ...],
    own: dict[str, int | None],
    settings: dict[str, int | None],
    online: bool | None,
    exists: bool,
) -> None:
    kept = {name: value for name, value in own.items() if value is not None}
    table = Table("1", "t", Schema((KEY,), values=before)).with_settings(kept, {})
    wanted = TableDeclaration("t", Schema((KEY,), values=after), settings, online)
    tables = [table] if exists else []
    for change in plan_table_changes([wanted], tables, {}, {}):
        tables = [made(change, table)]
    assert plan_table_changes([wanted], tables, {}, {}) == []
    (result,) = tables
    assert {item.name for item in after} <= {item.name for item in result.schema.values}
    if exists:
        assert {item.name for item in before} <= {item.name for item in result.schema.values}


def test_units_that_are_said_are_set_and_others_stay() -> None:
    at = Field("at", Primitive.TIMESTAMP, nullable=True)
    seconds = replace(at, unit="seconds")
    plain, counted = Schema((KEY,), values=(at,)), Schema((KEY,), values=(seconds,))
    (change,) = planned(TableDeclaration("t", counted), table=replace(TABLE, schema=plain))
    assert change.units == {"at": "seconds"}
    assert planned(TableDeclaration("t", plain), table=replace(TABLE, schema=counted)) == []
    assert planned(TableDeclaration("t", counted), table=replace(TABLE, schema=counted)) == []
