"""A table is published only if its readers get what the table has."""

from __future__ import annotations

from pathlib import Path

import pytest

from dormouse.errors import InvalidRequestError
from dormouse.messages.requests import ReinitialiseTable, SetProperties
from dormouse.schema.schema import Field, Schema, parse_field
from dormouse.tables.declaring import TableDeclaration, plan_table_changes
from dormouse.tables.properties import parse_properties
from dormouse.tables.table import check_published
from tests.support.world import LETTERS, World


def with_value(name: str, kind: str = "StringType") -> Schema:
    return Schema(LETTERS.row_keys, LETTERS.sort_keys, (*LETTERS.values, field(name, kind)))


def field(name: str, kind: str = "StringType") -> Field:
    return parse_field({"name": name, "type": kind, "nullable": True}, name)


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ({"filters": "where(at > 3)"}, "stored rows that the filters hide"),
        ({"aggregations": "last(note)"}, "the stored parts of aggregated rows"),
    ],
)
def test_a_table_with_row_rules_is_refused_unless_its_readers_may_have_what_is_stored(
    rules: dict[str, object], reason: str
) -> None:
    on = {"iceberg": "on", **rules}
    with pytest.raises(InvalidRequestError, match=reason) as caught:
        check_published(LETTERS, parse_properties(on))
    assert "iceberg_parts=yes" in caught.value.hint
    check_published(LETTERS, parse_properties({**on, "iceberg_parts": "yes"}))
    check_published(LETTERS, parse_properties({**on, "iceberg": "off"}))


def test_names_that_differ_only_in_case_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="'Note'|'note'"):
        check_published(with_value("Note"), parse_properties({"iceberg": "on"}))
    check_published(with_value("Note"), parse_properties({}))


def test_a_type_that_the_format_lacks_is_refused() -> None:
    schema = with_value("exact", "TimestampNsType")
    with pytest.raises(InvalidRequestError, match="'exact'") as caught:
        check_published(schema, parse_properties({"iceberg": "on"}))
    assert "iceberg_format" in caught.value.hint
    check_published(schema, parse_properties({"iceberg": "on", "iceberg_format": "3"}))


def test_a_table_that_cannot_be_published_is_refused_wherever_it_becomes_one(
    tmp_path: Path,
) -> None:
    world = World(tmp_path / "world")
    bad = with_value("NOTE")
    on = {"iceberg": "on"}
    with pytest.raises(InvalidRequestError, match="NOTE"):
        world.create("created", bad, **on)
    with pytest.raises(InvalidRequestError, match="NOTE"):
        plan_table_changes([TableDeclaration("declared", bad, on)], [], {}, {})
    table = world.create("letters", **on)
    with pytest.raises(InvalidRequestError, match="NOTE"):
        world.alter(table, add=[field("NOTE")])
    with pytest.raises(InvalidRequestError, match="NOTE"):
        world.administer(ReinitialiseTable("r", "letters", schema=bad.to_json()))
    world.create("plain", bad)
    with pytest.raises(InvalidRequestError, match="NOTE"):
        world.administer(SetProperties("s", "plain", on))
