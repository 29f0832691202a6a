"""A view over stored rows has the rows that Dormouse reads."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
import sqlglot

from dormouse.iceberg.views import view_of, view_result, why_no_view
from dormouse.schema.schema import Schema
from dormouse.tables.properties import parse_properties
from dormouse.tables.table import Table, published_name
from tests.support.ruled_tables import (
    CASES,
    ODD,
    SUMMED,
    SUMS,
    Case,
    comparable,
    field,
    stored_and_read,
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_sql_of_a_view_means_what_the_rules_do(case: Case, tmp_path: Path) -> None:
    table, stored, read = stored_and_read(case, tmp_path)
    view = view_of(table)
    assert view is not None, why_no_view(table)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register(view.parts, stored)
        (query,) = sqlglot.transpile(view.sql["trino"], read="trino", write="duckdb")
        query = query.replace("LENGTH(ENCODE(", "OCTET_LENGTH(ENCODE(")
        found = connection.execute(query).to_arrow_table().to_pylist()
    assert 0 < len(read) < len(case.rows)
    assert comparable(found) == comparable(read)


def ruled(schema: Schema, name: str = "users", **rules: str) -> Table:
    return Table("t" * 16, name, schema, parse_properties(rules))


def with_map(kind: str) -> Schema:
    counts = field("counts", f"map<string, {kind}>")
    return Schema(SUMMED.row_keys, SUMMED.sort_keys, (counts,))


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        (""" "back`tick" ILIKE 'a%' """, "ILIKE"),
        (""" lower("back`tick") = 'a' """, "lower"),
        (""" NOT (upper("back`tick") = 'a' AND ok IS TRUE) """, "upper"),
        (""" EXTRACT(HOUR FROM at) = 3 """, "EXTRACT"),
        (""" date_trunc('day', at) = '2026-01-31' """, "date_trunc"),
        (""" CAST(at AS DATE) = '2026-01-31' """, "CAST"),
        (""" at + INTERVAL '1 month' > '2026-01-31' """, "SHIFT"),
        (""" CASE WHEN "back`tick" = 'a' THEN TRUE END """, "CASE"),
        (""" substr("back`tick", 2) = 'a' """, "substr"),
        (""" ("back`tick" || 'a') = 'aa' """, "||"),
        (""" f > "ünï.dot" """, "> of two floating columns"),
        (""" "back`tick" LIKE 'a\\b' """, "LIKE with a backslash"),
        (""" f IN (1, 'NaN') """, "NaN or infinity"),
    ],
)
def test_a_filter_that_engines_understand_differently_has_no_view(rule: str, named: str) -> None:
    table = ruled(ODD, filters=f"where({rule})")
    assert view_of(table) is None
    assert named in why_no_view(table)
    assert published_name(table) == "users__parts"


@pytest.mark.parametrize("how", ["map_sum", "map_min", "map_max"])
def test_aggregated_maps_have_no_view_and_are_named(how: str) -> None:
    table = ruled(with_map("long"), aggregations=f"{how}(counts)")
    assert view_of(table) is None
    assert f"{how}(counts)" in why_no_view(table)


def test_a_table_without_rules_is_a_table_alone() -> None:
    table = ruled(ODD)
    assert (published_name(table), view_of(table), why_no_view(table)) == ("users", None, "")


@pytest.mark.parametrize("text", ["it''s", "back\\slash", "two\nlines"])
def test_no_text_ends_a_literal(text: str) -> None:
    view = view_of(ruled(ODD, filters=f"""where("back`tick" = '{text}')"""))
    assert view is not None
    stored = text.replace("''", "'").encode().hex()
    assert f"CAST(X'{stored}' AS STRING)" in view.sql["spark"]
    assert f"'{text}'" in view.sql["trino"]


def test_no_name_ends_an_identifier() -> None:
    view = view_of(ruled(ODD, filters="where(ok)"))
    assert view is not None
    assert "`back``tick`" in view.sql["spark"]
    assert '"we""ird"' in view.sql["trino"]


def test_the_rank_of_rows_has_no_name_of_a_column() -> None:
    schema = Schema(
        SUMMED.row_keys, SUMMED.sort_keys, (field("RANK", "long"), field("rank_", "int"))
    )
    view = view_of(ruled(schema, aggregations="last(RANK), last(rank_)"))
    assert view is not None
    assert 'AS "rank__"' in view.sql["trino"]


def test_a_view_is_loaded_as_the_specification_has_it() -> None:
    table = ruled(SUMMED, aggregations=SUMS)
    view = view_of(table)
    assert view is not None
    found = view_result(table, view, "s3://bucket", "dormouse", "my_catalog")
    metadata = found["metadata"]
    (version,) = metadata["versions"]
    assert metadata["current-version-id"] == version["version-id"] > 0
    assert version["default-catalog"] == "my_catalog"
    assert version["default-namespace"] == ["dormouse"]
    assert {item["dialect"]: item["sql"] for item in version["representations"]} == view.sql
    (schema,) = metadata["schemas"]
    assert [item["name"] for item in schema["fields"]] == [f.name for f in SUMMED.fields]
    assert found["metadata-location"].startswith(metadata["location"] + "/")
    assert "default-catalog" not in str(view_result(table, view, "s3://bucket", "dormouse", ""))


def test_another_query_or_schema_is_another_version_of_the_view() -> None:
    rules = [{"filters": "where(k > 1)"}, {"filters": "where(k > 2)"}]
    numbers = [version_of(ruled(SUMMED, **each)) for each in rules]
    added = Schema(SUMMED.row_keys, SUMMED.sort_keys, (*SUMMED.values, field("new", "long")))
    numbers.append(version_of(ruled(added, **rules[0])))
    assert len(set(numbers)) == 3
    assert version_of(ruled(SUMMED, **rules[0])) == numbers[0]


def version_of(table: Table) -> int:
    view = view_of(table)
    assert view is not None
    found = view_result(table, view, "s3://bucket", "dormouse", "")
    return int(found["metadata"]["current-version-id"])


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ("f > 1", '("f" > CAST(\'1.0\' AS DOUBLE)) OR is_nan("f")'),
        ("f >= 1", 'is_nan("f")'),
        ("1 < f", 'is_nan("f")'),
        ("1 <= f", 'is_nan("f")'),
        ("f < 1", ""),
        ("1 > f", ""),
        ("f = 1", ""),
    ],
)
def test_nan_is_compared_by_a_test_of_its_own(rule: str, wanted: str) -> None:
    view = view_of(ruled(ODD, filters=f"where({rule})"))
    assert view is not None
    assert wanted in view.sql["trino"]
    assert ("is_nan" in view.sql["trino"]) == bool(wanted)
    assert "nan" not in view.sql["spark"]
