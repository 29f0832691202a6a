"""A selection is validated once, and selects no more than was asked for; a result is a stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dormouse.access import EVERYTHING, Permission
from dormouse.errors import InvalidRequestError
from dormouse.features.export import EXPORT, ExportRequest
from dormouse.features.long_jobs import ReadTable
from dormouse.keys import KeyRange
from dormouse.query.rows import count_rows
from dormouse.query.selection import Selection, select
from dormouse.schema.schema import ASKED, Schema
from dormouse.sql.conditions import parse_condition
from dormouse.storage import FolderStorage
from dormouse.tables.table import Table
from tests.support.queries import Resources
from tests.support.tables import MEMORY_BYTES, NOW_MS, ShardTable

SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "k", "type": "IntType"}],
        "valueFields": [{"name": "v", "type": "LongType"}],
    }
)
NOTHING = KeyRange((5,), (5,))


@pytest.fixture
def table(tmp_path: Path) -> ShardTable:
    found = ShardTable(FolderStorage(tmp_path / "data"), SCHEMA, tmp_path)
    found.add([{"k": k, "v": k} for k in range(10)])
    return found


def test_no_ranges_select_the_whole_table_and_empty_ranges_no_rows(table: ShardTable) -> None:
    assert select(SCHEMA, 1, NOW_MS, permission=EVERYTHING).ranges == (KeyRange(),)
    assert len(table.rows()) == 10
    assert table.rows(NOTHING, KeyRange((2**40,), None)) == []
    resources = Resources(table.storage, table.folder, MEMORY_BYTES)
    nothing = select(SCHEMA, table.state.version, NOW_MS, [NOTHING], permission=EVERYTHING)
    assert count_rows(resources, table.table, table.state, nothing) == 0


def test_ranges_are_made_disjoint_and_ascending_and_columns_distinct() -> None:
    asked = [KeyRange((7,), (9,)), KeyRange((1,), (4,)), KeyRange((3,), (5,))]
    selection = select(
        SCHEMA, 3, NOW_MS, asked, columns=["v", "k", "v"], limit=0, permission=EVERYTHING
    )
    assert selection.ranges == (KeyRange((1,), (5,)), KeyRange((7,), (9,)))
    assert (selection.version, selection.columns, selection.limit) == (3, ("v", "k"), 0)
    assert selection.where == ""


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"columns": ["x"]}, "x"),
        ({"columns": []}, "no columns"),
        ({"limit": -1}, "a limit is a number of rows"),
        ({"limit": True}, "a limit is a number of rows"),
        ({"ranges": [KeyRange(("text",), None)]}, "not of type int"),
    ],
)
def test_a_selection_that_does_not_fit_the_table_is_refused(
    asked: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        select(SCHEMA, 1, NOW_MS, permission=EVERYTHING, **asked)  # type: ignore[arg-type]


def test_a_selection_has_no_hidden_column_wherever_it_was_parsed() -> None:
    seen = Permission(frozenset({"read"}), frozenset({"v"}))
    assert select(SCHEMA, 1, NOW_MS, permission=seen).columns == ("k",)
    hidden = parse_condition("k = 1 OR v > 2", SCHEMA)
    wrong: list[dict[str, Any]] = [{"columns": ["k", "v"]}, {"condition": hidden}]
    for asked in wrong:
        with pytest.raises(InvalidRequestError, match="no column 'v'") as caught:
            select(SCHEMA, 1, NOW_MS, permission=seen, **asked)
        named = caught.value.hint.removeprefix("columns: ").split(", ")
        assert set(named) - {field.name for field in ASKED} == {"k"}


@pytest.mark.parametrize("span", [KeyRange((1,), None), KeyRange((), (1,)), KeyRange.exactly((1,))])
def test_a_selection_has_no_bound_by_a_hidden_key(span: KeyRange) -> None:
    seen = Permission(frozenset({"read"}), frozenset({"k"}))
    selection = select(SCHEMA, 1, NOW_MS, permission=seen)
    assert (selection.columns, selection.ranges) == (("v",), (KeyRange(),))
    with pytest.raises(InvalidRequestError, match="0 key columns"):
        select(SCHEMA, 1, NOW_MS, [span], permission=seen)


def test_a_result_is_an_arrow_stream_for_any_library(table: ShardTable) -> None:
    result = table.query(KeyRange((3,), (6,)), columns=["v"])
    assert result.schema.names == ["v"]
    stream = pa.RecordBatchReader.from_stream(result)
    assert stream.read_all().to_pylist() == [{"v": 3}, {"v": 4}, {"v": 5}]
    assert result.version == table.state.version
    assert result.reads.requests
    assert sum(batch.num_rows for batch in table.query()) == 10


def test_a_selection_is_stored_with_its_export() -> None:
    condition = parse_condition("v > 3", SCHEMA)
    selection = Selection(7, ("v",), (KeyRange((1,), None),), condition, time_ms=9)
    export = ExportRequest("id", "to", ReadTable.of(Table("table", "name", SCHEMA), selection))
    found = EXPORT.decode(EXPORT.encode(export, "p"), "p").read
    assert found.selection == selection
    assert found.selection.where == condition.sql
