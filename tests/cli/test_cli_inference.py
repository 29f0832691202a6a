"""`table add --like`, short schemas and `ingest --create`: tables without writing JSON."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest

from tests.cli.conftest import ROWS, Dormouse
from tests.support.instances import InMemory


@pytest.fixture
def files(dormouse: Dormouse) -> Dormouse:
    Path("rows.csv").write_text(ROWS)
    return dormouse


def refused(dormouse: Dormouse, *arguments: str) -> str:
    result = dormouse(*arguments)
    assert result.exit_code != 0
    return result.stderr


def test_a_table_like_a_file_shows_what_each_column_was_taken_for(files: Dormouse) -> None:
    keys = ("--row-keys", "carrier,flight", "--sort-keys", "at")
    added = files("table", "add", "flights", "--like", "rows.csv", *keys, "--type", "delay:float")
    assert [
        line.split() for line in added.stdout.splitlines() if "─" not in line and line.strip()
    ] == [
        ["column", "in", "the", "file", "type", "role"],
        ["carrier", "text", "string", "row", "key"],
        ["flight", "whole", "numbers", "long", "row", "key"],
        ["at", "times", "with", "a", "zone", "timestamp", "sort", "key"],
        ["delay", "numbers", "float", "value,", "nullable"],
    ]
    assert "table flights was created" in added.stderr
    assert files("ingest", "flights", "rows.csv", "--wait").exit_code == 0
    assert files("query", "flights", "--count").stdout == "5\n"


@pytest.mark.parametrize("make", [pa.ipc.new_file, pa.ipc.new_stream])
def test_a_table_like_an_arrow_file_has_the_types_that_the_file_says(
    make: Callable[..., pa.ipc.RecordBatchStreamWriter], dormouse: Dormouse
) -> None:
    rows = pa.table({"id": pa.array([bytes(16)], pa.uuid()), "n": pa.array([7], pa.int16())})
    with make("rows.arrow", rows.schema) as writer:
        writer.write_table(rows)
    added = dormouse("table", "add", "t", "--like", "rows.arrow", "--row-keys", "id")
    assert [
        line.split()[-4:] for line in added.stdout.splitlines() if line[:2] in ("id", "n ")
    ] == [["extension<arrow.uuid>", "uuid", "row", "key"], ["int16", "int", "value,", "nullable"]]
    assert dormouse("ingest", "t", "rows.arrow", "--wait").exit_code == 0
    shown = dormouse("query", "t", "--format", "csv").stdout.splitlines()
    assert shown[1:] == [f'"{UUID(int=0)}",7']


def test_a_schema_is_written_in_short_form_as_text_or_in_a_file(files: Dormouse) -> None:
    text = "carrier:string, flight:long, at:timestamp, delay:decimal(12,2)?"
    Path("schema.txt").write_text(text.replace(", ", "\n"))
    for name, given in (("a", text), ("b", "schema.txt")):
        assert (
            files("table", "add", name, "--schema", given, "--row-keys", "carrier").exit_code == 0
        )
    shown = [files("table", "show", name).stdout.splitlines()[4:12] for name in "ab"]
    assert shown[0] == shown[1] and "decimal(12,2)" in "\n".join(shown[0])


def test_a_column_with_a_colon_in_its_name_gets_the_type_that_is_asked_for(files: Dormouse) -> None:
    Path("dc.csv").write_text("dc:id,dc:title\n7,a\n")
    create = ("ingest", "dc", "dc.csv", "--create", "--row-keys", "dc:id", "--wait")
    assert files(*create, "--type", "dc:id:int").exit_code == 0
    for change in (("--type", "dc:id:long"), ("--add-field", "dc:by:struct<a:int, b:list<long>?>")):
        shown = files("table", "alter", "dc", *change, "--format", "json")
        assert shown.exit_code == 0, shown.output
    columns = files("table", "show", "dc").stdout
    assert re.search(r"dc:id +long", columns) and re.search(r"dc:by +struct<a:int", columns)


def test_ingest_creates_the_table_once(files: Dormouse) -> None:
    create = ("ingest", "flights", "rows.csv", "--create", "--row-keys", "carrier", "--wait")
    assert "table flights was created" in files(*create).stderr
    again = files(*create)
    assert "created" not in again.stderr and "already ingested" in again.stderr
    assert files("query", "flights", "--count").stdout == "5\n"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (("--row-keys", "flight"), "with --row-keys=carrier, not flight"),
        (("--row-keys", "carrier,flight"), "with --row-keys=carrier, not carrier,flight"),
        (("--row-keys", "carrier", "--sort-keys", "flight"), "with --sort-keys=none, not flight"),
        (("--row-keys", "carrier", "--property", "keep=latest"), "with keep=all, not latest"),
    ],
)
def test_rows_meant_for_a_table_of_other_keys_are_not_added_to_the_one_there_is(
    files: Dormouse, given: tuple[str, ...], reason: str
) -> None:
    create = ("ingest", "flights", "rows.csv", "--create", "--wait")
    assert files(*create, "--row-keys", "carrier").exit_code == 0
    assert reason in refused(files, *create, "--again", *given)
    assert files("query", "flights", "--count").stdout == "5\n"


def test_standard_input_is_a_file_that_its_content_names(files: Dormouse) -> None:
    create = ("--create", "--row-keys", "id", "--property", "csv_separator=;")
    arguments = ("ingest", "t", "-", "--format", "csv", "--wait")
    assert "table t was created" in files(*arguments, *create, input="id;v\n1;a\n").stderr
    assert "already ingested" in files(*arguments, input="id;v\n1;a\n").stderr
    assert "1 file ingested" in files(*arguments, input="id;v\n2;b\n").stderr
    assert files("query", "t", "--format", "csv").stdout == '"id","v"\n1,"a"\n2,"b"\n'
    assert "add --format" in refused(files, "ingest", "t", "-")


def test_a_file_that_would_be_refused_creates_no_table(files: Dormouse, memory: InMemory) -> None:
    Path("bad.csv").write_text("id,v\n1,x\n,y\n")
    reason = refused(files, "ingest", "t", "bad.csv", "--create", "--row-keys", "id")
    assert "line 3, column 'id'" in reason
    Path("empty.csv").write_text("id,v\n1,\n")
    reason = refused(files, "ingest", "t", "empty.csv", "--create", "--row-keys", "id")
    assert "column 'v' is empty in every row" in reason and "--type NAME:TYPE" in reason
    assert memory.instance.tables() == [] and memory.bucket.dropped == []


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("table", "add", "t"), "give --schema FILE"),
        (("table", "add", "t", "--like", "rows.csv", "--schema", "x"), "or --like FILE"),
        (("table", "add", "t", "--like", "rows.csv"), "of: carrier, flight, at"),
        (("table", "add", "t", "--like", "none.csv", "--row-keys", "a"), "no file 'none.csv'"),
        (("table", "add", "t", "--schema", "none.json"), "cannot read 'none.json'"),
        (("table", "add", "t", "--schema", "id:lng", "--row-keys", "id"), "no type 'lng'"),
        (("table", "add", "t", "--schema", "id:long", "--type", "id:int"), "goes with --like"),
        (("table", "add", "t", "--schema", "data.bin"), "--like data.bin --row-keys"),
        (("table", "add", "t", "--like", "rows.csv", "--type", "delay"), "is no column"),
        (("ingest", "t", "rows.csv", "--row-keys", "a"), "add --create"),
        (("ingest", "t", "--prefix", "x", "--create"), "needs files from here"),
    ],
)
def test_arguments_that_fit_no_table_say_what_to_give(
    arguments: tuple[str, ...], reason: str, files: Dormouse, memory: InMemory
) -> None:
    Path("data.bin").write_bytes(b"PAR1\xff\xfe")
    assert reason in refused(files, *arguments)
    assert memory.instance.tables() == []
