"""What the client's objects print: what a person wants to see, escaped, without asking AWS."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import Primitive
from dormouse.showing import Listing, show_table
from tests.support.instances import InMemory
from tests.support.world import World

NASTY = "<b>&\x1b[1m"


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return InMemory.over(World(tmp_path / "world")).instance


@pytest.fixture
def table(instance: Instance) -> TableHandle:
    schema = Schema(
        (Field("id", Primitive.LONG),),
        (Field("at", Primitive.TIMESTAMP),),
        (Field("<b>&", Primitive.STRING, nullable=True),),
    )
    return instance.create_table("users", schema)


def test_a_table_is_shown_in_one_line_and_its_columns_in_a_notebook(table: TableHandle) -> None:
    assert repr(table) == "table 'users' (row keys id; sort keys at; 3 columns)"
    html = table._repr_html_()
    assert "<td>timestamp</td><td>sort key</td>" in html
    assert "&lt;b&gt;&amp;" in html and "<td><b>" not in html


def test_a_schema_is_shown_in_short_form(table: TableHandle) -> None:
    assert repr(table.schema) == (
        "Schema(row_keys=[id:long], sort_keys=[at:timestamp], values=[<b>&:string?])"
    )
    assert "<td>&lt;b&gt;&amp;</td><td>string</td><td>value, nullable</td>" in (
        table.schema._repr_html_()
    )


def test_a_status_is_shown_as_named_numbers(table: TableHandle) -> None:
    table.ingest(pa.table({"id": [1], "at": pa.array([0], pa.timestamp("us", "UTC"))})).wait()
    assert repr(table.status()).splitlines()[:2] == ["status", "  rows             1"]
    assert "<th style='text-align:left'>rows</th><td>1</td>" in table.status()._repr_html_()


def test_jobs_are_a_list_that_is_shown_as_a_table(instance: Instance, table: TableHandle) -> None:
    table.ingest(pa.table({"id": [1], "at": pa.array([0], pa.timestamp("us", "UTC"))})).wait()
    jobs = table.jobs()
    lines = repr(jobs).splitlines()
    assert lines[0] == f"{len(jobs)} jobs" and lines[1].split()[:2] == ["state", "kind"]
    assert "<td>finished</td><td>ingest</td>" in jobs._repr_html_()
    assert list(jobs) == jobs and "create_table" not in repr(instance.jobs())


def test_an_instance_shows_its_bucket_and_in_a_notebook_its_tables(
    instance: Instance, table: TableHandle
) -> None:
    assert repr(instance) == f"instance whose files are dropped into {instance.bucket.name!r}"
    assert "<td>users</td><td>id</td><td>3</td>" in instance._repr_html_()
    assert repr(instance.tables()).splitlines()[0] == "1 tables"
    assert instance.tables() == [table]


def test_nothing_that_is_shown_is_acted_upon() -> None:
    text, html = show_table(NASTY, [NASTY], [[NASTY], [None], ["x" * 100], [1234], [True]])
    assert "\x1b" not in text + html and "<b>&" not in html.replace("<p><b>", "")
    assert "null" in text and "1234" in text and "yes" in text
    assert "x" * 59 + "…" in text and "x" * 61 not in text
    assert Listing([NASTY], NASTY, ["a"], lambda item: [item])._repr_html_().count(r"\x1b") == 2
