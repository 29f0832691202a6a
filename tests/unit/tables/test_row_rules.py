"""Filters and aggregations of a table: their notation, and which combinations are refused."""

from __future__ import annotations

import pytest

from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import Schema
from dormouse.schema.types import Primitive
from dormouse.sql.conditions import Column
from dormouse.tables.properties import Properties
from dormouse.tables.row_rules import AgeOff, Aggregation, RowRules, row_rules

MAP = {"MapType": {"keyType": "StringType", "valueType": "LongType"}}


def table(**values: object) -> Schema:
    return Schema.from_json(
        {
            "rowKeyFields": [{"name": "key", "type": "StringType"}],
            "sortKeyFields": [{"name": "at", "type": "LongType"}],
            "valueFields": [
                {"name": n, "type": t, "nullable": n.startswith("maybe")} for n, t in values.items()
            ],
        }
    )


VALUES = table(count="LongType", least="DoubleType", tags=MAP)
FOLDS = "sum(count), min(least), map_sum(tags)"


def filters(text: str, schema: Schema = VALUES) -> RowRules:
    return row_rules(schema, Properties(filters=text))


def aggregations(text: str, schema: Schema = VALUES) -> RowRules:
    return row_rules(schema, Properties(aggregations=text))


def test_a_table_without_rules_has_none() -> None:
    rules = row_rules(VALUES, Properties())
    assert rules.is_empty
    assert not rules.aggregates
    assert rules.filter_at(5) is None


@pytest.mark.parametrize(
    "text", ["ageOff(at,1000)", " AGEOFF ( at , 1000 ) ", 'ageoff("at", 1000)']
)
def test_age_off_is_read_as_the_original_reads_it(text: str) -> None:
    rules = filters(text)
    assert rules.age_off == AgeOff(Column("at", Primitive.LONG), 1000)
    assert rules.filter_columns == {"at"}
    condition = rules.filter_at(5000)
    assert condition is not None
    assert condition.sql == '("at" > 4000)'


def test_the_age_of_a_timestamp_is_in_microseconds_and_never_overflows() -> None:
    schema = table(seen="TimestampType")
    condition = filters("ageOff(seen, 1000)", schema).filter_at(1_000_001_000)
    assert condition is not None
    assert condition.sql == "(\"seen\" > TIMESTAMP '1970-01-12 13:46:40')"
    oldest = filters(f"ageOff(seen, {'9' * 18})", schema).age_off
    assert oldest is not None
    assert oldest.condition(0).expression.arguments[1].value == -(2**63)  # type: ignore[union-attr]


def test_age_off_and_a_condition_stand_side_by_side() -> None:
    rules = filters("where(key <> 'a, ) b' AND (count > 1)), ageOff(at, 1000)")
    condition = rules.filter_at(5000)
    assert condition is not None
    assert condition.sql == """(("at" > 4000) AND (("key" <> 'a, ) b') AND ("count" > 1)))"""
    assert rules.filter_columns == {"at", "key", "count"}


def test_aggregations_are_kept_in_the_order_of_the_fields() -> None:
    rules = aggregations(" MAP_SUM(tags), sum( count ),Min(least) ")
    folds = (("count", "sum"), ("least", "min"), ("tags", "map_sum"))
    assert rules.aggregation == Aggregation(folds)
    assert rules.aggregates


def test_keeping_rows_groups_by_the_row_keys_alone() -> None:
    rules = aggregations("last(count), last(least), last(tags)")
    assert rules.aggregation == Aggregation(kept="last")
    assert rules.aggregation.group_keys(VALUES) == VALUES.row_keys
    assert rules.needed(["count"], VALUES) == ["key", "at", "count", "least", "tags"]


def test_folding_needs_the_keys_the_requested_columns_and_those_of_filters() -> None:
    rules = row_rules(VALUES, Properties(aggregations=FOLDS, filters="where(key > 'a')"))
    assert rules.needed(["least"], VALUES) == ["key", "at", "least"]
    assert filters("where(count > 1)").needed(["key"], VALUES) == ["key", "count"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ageOff", "not of the form name(…)"),
        ("ageOff(at, 1000", "not of the form name(…)"),
        ("ageOff(at)", "not ageOff(field, milliseconds)"),
        ("ageOff(at, -5)", "not ageOff(field, milliseconds)"),
        ("ageOff(at, 0)", "not ageOff(field, milliseconds)"),
        ("ageOff(at, soon)", "not ageOff(field, milliseconds)"),
        ("ageOff(nobody, 5)", "no column 'nobody'; columns: key, at"),
        ("ageOff(key, 5)", "key, which is string; it takes a long"),
        ("ageOff(at, 5), ageOff(count, 5)", "ageOff is there twice"),
        ("where(count > 1), where(count < 5)", "twice; combine conditions with AND"),
        ("where(count > 'a')", "'a' is not a number"),
        ("where(at > now())", "has no present time; a table's rows age by the filter ageOff"),
        ("where(count > 1) ageOff(at, 5)", "a comma is expected before 'ageOff"),
        ("ageOff(at, 5),", "a comma is expected before ','"),
        ("keep(at)", "no filter 'keep'"),
    ],
)
def test_filters_that_make_no_sense_are_refused_with_why(text: str, reason: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        filters(text)
    assert str(refusal.value).startswith("filters: ")
    assert reason in refusal.value.explanation


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("sum(count)", "lack value fields: least, tags"),
        (FOLDS + ", max(count)", "name fields twice: count"),
        (FOLDS + ", sum(at)", "name key fields, which identify groups: at"),
        (FOLDS + ", sum(nobody)", "name unknown fields: nobody"),
        (FOLDS.replace("sum(count)", "mean(count)"), "no operation 'mean'"),
        (FOLDS.replace("min(least)", "sum(least)"), "depends on the order of adding"),
        (FOLDS.replace("map_sum", "sum"), "sum cannot add map<string,long>"),
        (FOLDS.replace("map_sum", "max"), "map<string,long> has no order"),
        (FOLDS.replace("sum(count)", "map_sum(count)"), "needs a map; count is long"),
        (FOLDS.replace("min(least)", "first(least)"), "mix first, map_sum, sum"),
        ("first(count), last(least), first(tags)", "mix first, last"),
    ],
)
def test_aggregations_that_make_no_sense_are_refused_with_why(text: str, reason: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        aggregations(text)
    assert str(refusal.value).startswith("aggregations: ")
    assert reason in refusal.value.explanation


@pytest.mark.parametrize(
    ("schema", "text", "reason"),
    [
        (table(maybe="LongType"), "sum(maybe)", "can be null"),
        (table(n={"DecimalType": {"precision": 9, "scale": 2}}), "sum(n)", "precision of 9"),
        (
            Schema.from_json(
                {
                    "rowKeyFields": [{"name": "key", "type": "StringType"}],
                    "valueFields": [{"name": "count", "type": "LongType"}],
                }
            ),
            "last(count)",
            "needs a sort key",
        ),
    ],
)
def test_aggregations_that_do_not_fit_the_schema_are_refused_with_why(
    schema: Schema, text: str, reason: str
) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        aggregations(text, schema)
    assert reason in refusal.value.explanation


@pytest.mark.parametrize(
    ("folds", "text", "allowed"),
    [
        (FOLDS, "where(key > 'a' AND at > 5)", True),
        (FOLDS, "where(count > 1)", False),
        (FOLDS, "ageOff(count, 5)", False),
        ("last(count), last(least), last(tags)", "where(key > 'a')", True),
        ("last(count), last(least), last(tags)", "ageOff(at, 5)", False),
    ],
)
def test_filters_beside_aggregations_look_only_at_what_rows_of_a_group_share(
    folds: str, text: str, allowed: bool
) -> None:
    properties = Properties(aggregations=folds, filters=text)
    if allowed:
        assert row_rules(VALUES, properties).filter_columns
        return
    with pytest.raises(InvalidRequestError, match="rows that are aggregated into one may differ"):
        row_rules(VALUES, properties)
