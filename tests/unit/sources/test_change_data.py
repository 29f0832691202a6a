"""Change data of Debezium and AWS DMS becomes rows, nothing, or a refusal that names the line."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dormouse.errors import InvalidRequestError, RefusedSourceError
from dormouse.files.change_data import ChangeData, Emptied, FileChanges, operations
from dormouse.files.formats import read_source
from dormouse.files.rejects import Rejects
from dormouse.schema.schema import Field, Schema, parse_schema
from dormouse.schema.types import Primitive, parse_type_text
from dormouse.tables.properties import check_change_data, parse_properties
from tests.support.depth import examples

TABLE = parse_schema("id:long, n:long?, name:string?, position:string?", ["id"], [])
SOURCE = {
    "version": "3.6.1.Final",
    "connector": "postgresql",
    "name": "wood",
    "ts_ms": 1_764_000_000_000,
    "snapshot": "false",
    "db": "postgres",
    "sequence": '["24502840","24502944"]',
    "schema": "public",
    "table": "mice",
    "txId": 745,
    "lsn": 24_502_944,
}
MARIADB = {"connector": "mariadb", "gtid": "0-7-59", "sequence": None}
NULL_BEFORE_FULL_IDENTITY = {"id": 1, "n": None, "name": None}
FLAT = {"id": 1, "n": 1, "name": "", "__source_sequence": '["1","2"]'}
PLACEHOLDER = "__debezium_unavailable_value"


def event(op: str, after: object = None, before: object = None, **source: object) -> dict[str, Any]:
    """Return an envelope as Debezium writes it without the schema part."""
    return {
        "before": before,
        "after": after,
        "source": SOURCE | source,
        "transaction": None,
        "op": op,
        "ts_ms": 1_764_000_000_500,
    }


def flat(
    *messages: object, table: Schema = TABLE, form: str = "debezium", by: str = "position"
) -> list[dict[str, Any]]:
    """Return the rows that messages become, one message on each line."""
    lines = [(at, json.dumps(message).encode()) for at, message in enumerate(messages, start=1)]
    return [json.loads(row) for _, row in ChangeData(form, table, by).lines(lines)]


def refusal(*messages: object, **how: Any) -> RefusedSourceError:
    with pytest.raises(RefusedSourceError) as refused:
        flat(*messages, **how)
    assert f"line {len(messages)}" in str(refused.value)
    return refused.value


def part(kind: str, name: str | None = None, **more: object) -> dict[str, object]:
    """Return what a schema part says of one value."""
    return {"type": kind, "optional": True, "name": name, "version": 1, **more}


def described(message: dict[str, Any], columns: dict[str, dict[str, object]]) -> dict[str, object]:
    """Return a message with its schema part."""
    row = [value | {"field": name} for name, value in columns.items()]
    fields = [
        {"type": "struct", "fields": row, "optional": True, "name": "Value", "field": side}
        for side in ("before", "after")
    ]
    fields.append({"type": "string", "optional": False, "field": "op"})
    schema = {"type": "struct", "fields": fields, "optional": False, "name": "Envelope"}
    return {"schema": schema, "payload": message}


# What a message becomes.


def test_each_operation_becomes_a_row_with_the_position_of_its_change() -> None:
    row = {"id": 1, "n": 9, "name": "Hazel"}
    at = "00000000000024502840-00000000000024502944"
    for op, change, rank in (("c", "insert", 2), ("r", "insert", 0), ("u", "update", 2)):
        assert flat(event(op, row)) == [{"_change": change, "position": f"{at}-{rank}"} | row]


def test_a_delete_has_the_key_alone_whatever_the_source_says_of_the_row_before() -> None:
    deleted = {
        "_change": "delete",
        "position": "00000000000024502840-00000000000024502944-1",
        "id": 1,
    }
    for before in ({"id": 1}, NULL_BEFORE_FULL_IDENTITY, {"id": 1, "n": 9, "name": PLACEHOLDER}):
        assert flat(event("d", before=before)) == [deleted]


def test_messages_that_are_no_changes_become_nothing() -> None:
    messages = [
        None,
        {"schema": None, "payload": None},
        {"ts_ms": 1_764_000_000_000},
        {"schema": {"type": "struct"}, "payload": {"ts_ms": 1_764_000_000_000}},
        {"status": "BEGIN", "id": "745:24502944", "event_count": None, "data_collections": None,
         "ts_ms": 1},
        {"status": "END", "id": "745:24502944", "event_count": 1, "ts_ms": 1,
         "data_collections": [{"data_collection": "public.mice", "event_count": 1}]},
        {"op": "m", "ts_ms": 1, "source": SOURCE, "message": {"prefix": "p", "content": "AA=="}},
        {"source": SOURCE, "ts_ms": 1, "databaseName": "wood", "schemaName": None,
         "ddl": "CREATE TABLE mice (id INT)", "tableChanges": []},
    ]  # fmt: skip
    assert flat(*messages) == []


def test_the_schema_part_changes_nothing_but_how_values_are_read() -> None:
    columns = {"id": part("int64"), "n": part("int64"), "name": part("string")}
    messages = [
        event("c", {"id": 1, "n": 9, "name": "Hazel"}),
        event("u", {"id": 1, "n": None, "name": "X"}),
        event("d", before={"id": 1, "n": None, "name": None}),
    ]
    assert flat(*(described(m, columns) for m in messages)) == flat(*messages)


def test_a_flattened_row_is_the_row_of_its_envelope() -> None:
    row = {"id": 1, "n": 9, "name": "Hazel"}
    added = {"__source_sequence": SOURCE["sequence"], "__table": "mice", "__source_lsn": 24502944}
    kept = row | added | {"__deleted": "false"}
    for op in "cru":
        assert flat(kept | {"__op": op}) == flat(event(op, row))
    gone = {"id": 1, "n": None, "name": None} | added | {"__deleted": "true", "__op": "d"}
    assert flat(gone) == flat(event("d", before={"id": 1}))
    binlog = {"__source_file": "bin.000010", "__source_pos": 4, "__source_row": 2}
    found = flat(row | binlog | {"__deleted": "false", "__op": "u"})
    assert found == flat(event("u", row, **MARIADB, file="bin.000010", pos=4, row=2))


def test_columns_may_have_the_names_of_parts_of_messages() -> None:
    """A row with a null payload is no tombstone, and one with a time there no heartbeat."""
    names = "schema", "payload", "op", "before", "after", "source"
    columns = ", ".join(f"{name}:dynamic?" for name in names)
    table = parse_schema(f"id:long, {columns}, __op:string, __deleted:string", ["id"], [])
    for value in (None, {"ts_ms": 5}):
        row = dict.fromkeys(names, value) | {"id": 1, "__op": "u", "__deleted": "false"}
        assert flat(row, table=table, by="") == [{"_change": "update"} | row]


def test_the_schema_part_of_a_flattened_row_tells_of_a_column_called_after() -> None:
    columns = [part("int64", field="id"), SCALED | {"field": "after"}, SCALED | {"field": "v"}]
    table = parse_schema("id:long, after:decimal(9,4), v:decimal(9,4)", ["id"], [])
    row = {"id": 1, "after": decimal(150), "v": decimal(150), "__op": "c", "__deleted": "false"}
    message = {"schema": {"type": "struct", "fields": columns}, "payload": row}
    assert flat(message, table=table, by="") == [
        {"_change": "insert", "id": 1, "after": 1.5, "v": 1.5}
    ]


def test_a_flattened_stream_whose_deletes_are_null_lines_is_refused() -> None:
    """Without `rewrite`, a null line is the only trace of a delete, and it has no key."""
    refused = refusal(None, {"id": 1, "n": 9, "name": "Hazel", "__op": "c"})
    assert "rewrite" in refused.hint


def test_a_changed_row_key_is_a_delete_of_the_old_one_and_a_row() -> None:
    """Row keys may be other columns than the source's primary key, whose changes are two events."""
    table = parse_schema("owner:string, id:long, position:string", ["owner", "id"], [])
    found = flat(event("u", {"owner": "b", "id": 1}, {"owner": "a", "id": 1}), table=table)
    assert [(row["_change"], row["owner"]) for row in found] == [("delete", "a"), ("update", "b")]
    assert found[0]["position"] < found[1]["position"]
    same = flat(event("u", {"owner": "b", "id": 1}, {"owner": "b", "id": 1}), table=table)
    assert [row["_change"] for row in same] == ["update"]


# The order of changes.


def position(**source: object) -> str:
    return str(flat(event("u", {"id": 1, "n": 1, "name": ""}, **source))[0]["position"])


def test_positions_of_postgresql_are_compared_as_two_numbers() -> None:
    assert position(sequence='["9999999","9999999"]') < position(sequence='["24502840","24502840"]')
    incremental = position(sequence='["24236080","24236080"]', lsn=None)
    assert incremental < position(sequence='["24237192","24235328"]', lsn=24_235_328)


def test_a_snapshot_that_is_taken_again_is_later_than_what_was_before_it() -> None:
    first, change = position(sequence='[null,"100"]'), position(sequence='["150","140"]')
    again = position(sequence='[null,"200"]')
    assert first < change < again < position(sequence='["250","220"]')


def test_positions_of_a_binlog_are_compared_as_file_position_and_row() -> None:
    places = [("bin.000009", 900, 0), ("bin.000010", 4, 0), ("bin.000010", 4, 1),
              ("bin.000010", 10, 0), ("bin.999999", 4, 0), ("bin.1000000", 4, 0)]  # fmt: skip
    found = [position(**MARIADB, file=file, pos=pos, row=row) for file, pos, row in places]
    assert found == sorted(set(found))


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(*[st.integers(0, 2**64 - 1)] * 2), min_size=2, max_size=5))
def test_the_order_of_texts_is_the_order_of_positions(pairs: list[tuple[int, int]]) -> None:
    texts = {pair: position(sequence=json.dumps([*map(str, pair)])) for pair in pairs}
    assert sorted(texts, key=lambda pair: texts[pair]) == sorted(texts)
    binlog = {
        pair: position(**MARIADB, file=f"b.{pair[0] % 2**31:06d}", pos=pair[1], row=pair[0] % 7)
        for pair in pairs
    }
    keys = {pair: (pair[0] % 2**31, pair[1], pair[0] % 7) for pair in pairs}
    assert sorted(binlog.values()) == [binlog[p] for p in sorted(binlog, key=lambda p: keys[p])]


def test_at_one_position_a_row_is_later_than_a_delete() -> None:
    """Delete and create of a changed key have one position, and may have one key: 1 and 1.00."""
    gone, new = flat(event("d", before={"id": 1}), event("c", {"id": 1, "n": 1, "name": ""}))
    assert gone["position"] < new["position"]
    assert gone["position"][:-1] == new["position"][:-1]


def test_at_one_position_a_delete_is_later_than_the_row_of_a_snapshot() -> None:
    """The first change after a snapshot can have the position where that was taken."""
    sequence = '[null,"24245424"]'
    row = {"id": 1, "n": 1, "name": ""}
    read, gone = flat(
        event("r", row, sequence=sequence, snapshot="last"),
        event("d", before={"id": 1}, sequence=sequence),
    )
    assert read["position"] < gone["position"]
    assert read["position"] < flat(event("u", row, sequence=sequence))[0]["position"]


@pytest.mark.parametrize(
    "source",
    [
        {"sequence": None},
        {"sequence": None, "file": "", "pos": 0},
        {"sequence": None, "file": "bin.000010"},
        {"sequence": "24502840"},
        {"sequence": '["24502840"]'},
        {"sequence": '["24502840",null]'},
        {"sequence": '["-1","7"]'},
        {"sequence": '["' + "9" * 21 + '","7"]'},
        {"sequence": None, "file": "bin.000010", "pos": -1},
        {"sequence": None, "file": "bin.000010", "pos": 10**30},
    ],
)
def test_a_change_without_a_position_is_refused_unless_commits_order_changes(
    source: dict[str, object],
) -> None:
    change = event("u", {"id": 1, "n": 1, "name": ""}, **source)
    refusal(event("c", {"id": 1, "n": 1, "name": ""}), change)
    assert flat(change, table=parse_schema("id:long, n:long, name:string", ["id"], []), by="")


# Rows that are not whole.


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", PLACEHOLDER),
        ("bytes", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="),
        ("string", PLACEHOLDER.encode().hex()),
        ("list<string>", [PLACEHOLDER]),
        ("string", json.dumps({PLACEHOLDER: PLACEHOLDER}, separators=(",", ":"))),
        ("map<string,string>", {PLACEHOLDER: PLACEHOLDER}),
        ("list<int>", list(PLACEHOLDER.encode())),
        ("list<date>", list(PLACEHOLDER.encode())),
        ("list<uuid>", ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]),
    ],
)
def test_a_value_that_the_source_left_out_is_refused(kind: str, value: object) -> None:
    table = parse_schema(f"id:long, v:{kind}?", ["id"], [])
    refused = refusal(None, event("u", {"id": 1, "v": value}), table=table, by="")
    assert "column 'v'" in str(refused)
    assert "REPLICA IDENTITY FULL" in refused.hint
    row = {"id": 1, "v": value, "__deleted": "false", "__op": "u"}
    assert "column 'v'" in str(refusal(row, table=table, by=""))


def test_a_text_that_mentions_the_placeholder_is_a_value() -> None:
    row = {"id": 1, "n": 1, "name": f"what is {PLACEHOLDER}?"}
    assert flat(event("u", row))[0]["name"] == row["name"]


@pytest.mark.parametrize("op", ["c", "r", "u"])
def test_a_change_that_lacks_a_column_is_refused(op: str) -> None:
    """As generated columns do in a log: the value would become null."""
    refused = refusal(event(op, {"id": 1, "name": "Hazel"}))
    assert "column 'n'" in str(refused)


# FileChanges that cannot be read.


@pytest.mark.parametrize(
    "message",
    [
        event("x", {"id": 1, "n": 1, "name": ""}),
        event("", {"id": 1, "n": 1, "name": ""}),
        event("u", before={"id": 1, "n": 1, "name": ""}),
        event("c"),
        event("d"),
        event("d", before={"n": 1}),
        event("d", before={"id": None, "n": 1}),
        event("u", {"id": None, "n": 1, "name": ""}),
        event("u", {"id": 1, "n": 1, "name": "", "position": "x"}),
        event("u", {"id": 1, "n": 1, "name": "", "_change": "delete"}),
        event("u", [1]),
        FLAT | {"__deleted": "maybe", "__op": "u"},
        FLAT | {"__deleted": "false"},
        FLAT | {"__deleted": None, "__op": "u"},
        FLAT | {"__deleted": "true", "__op": "t"},
        FLAT | {"__deleted": "true", "__op": "u"},
        FLAT | {"__deleted": "false", "__op": "d"},
        {"id": 1, "n": 1, "name": ""},
        {"id": 1, "status": "open"},  # no begin of a transaction
        {"id": "1", "status": "END", "ts_ms": 1},
        {"id": 1, "op": "m", "source": "a text"},
        {"data": {"id": 1}, "metadata": {"record-type": "data", "operation": "load"}},
        {},
        [],
        7,
        "text",
    ],
)
def test_a_line_that_is_no_change_or_lacks_a_part_is_refused(message: object) -> None:
    refusal(None, event("c", {"id": 1, "n": 1, "name": ""}), message)


def test_a_truncate_tells_of_the_rows_and_positions_before_it() -> None:
    lines = [event("c", {"id": 1, "n": 1, "name": ""}), event("t"), event("d", before={"id": 1})]
    found = list[Emptied]()
    for table, by in (
        (TABLE, "position"),
        (parse_schema("id:long, n:long, name:string", ["id"], []), ""),
    ):
        messages = [(at, json.dumps(line).encode()) for at, line in enumerate(lines, start=1)]
        rows = ChangeData("debezium", table, by, (), found.append).lines(messages)
        assert [number for number, _ in rows] == [1, 3]
        with pytest.raises(RefusedSourceError, match="line 2: .*folder"):
            list(ChangeData("debezium", table, by, {"name"}).lines(messages))
    assert found == [Emptied("00000000000024502840-00000000000024502944-1", 1), Emptied("", 1)]
    with pytest.raises(RefusedSourceError, match="no position"):
        flat(event("t", sequence=None))


def test_a_truncate_of_dms_has_no_position() -> None:
    message = {"metadata": {"record-type": "control", "operation": "truncate-table"}}
    assert not of_dms(message, by="")
    with pytest.raises(RefusedSourceError, match="line 1: .*TRUNCATE"):
        of_dms(message)


def test_a_name_that_is_there_twice_is_refused() -> None:
    line = json.dumps(event("u", {"id": 1, "n": 1, "name": "a:b"})).encode()
    compact = json.dumps(json.loads(line), separators=(",", ":")).encode()
    wrapped = b'{"schema":null,"payload":%b}\n' % compact
    for whole, *edits in (
        (line, (b'"n": 1', b'"n": 1, "n": 2'), (b'{"before"', b'{"after": null, "before"')),
        (compact, (b'"op":"u"', b'"op":"d","op":"u"'), (b'"op"', b'"\\u006fp":"d","op"')),
        (wrapped, (b'"payload"', b'"payload":null,"payload"'), (b'"op"', b'"source":{},"op"')),
    ):
        assert list(ChangeData("debezium", TABLE, "position").lines([(1, whole)]))
        for edit in edits:
            with pytest.raises(RefusedSourceError, match="line 1"):
                list(ChangeData("debezium", TABLE, "position").lines([(1, whole.replace(*edit))]))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("struct<x:long>", '{"x":1,"x":2}'),
        ("map<string,date>", '{"x":1,"x":2}'),
        ("decimal(9,2)", '{"scale":1,"scale":0,"value":"AQ=="}'),
    ],
)
def test_a_name_that_is_twice_within_a_value_is_refused(
    kind: str, value: str, tmp_path: Path
) -> None:
    path, changes = tmp_path / "a.jsonl", FileChanges(of_type(kind), "", "debezium")
    path.write_text(json.dumps(event("u", {"id": 1, "v": 7})).replace("7}", value + "}"))
    with pytest.raises(RefusedSourceError, match="line 1, column 'v'"):
        list(read_source(path, "t/a.jsonl", changes.schema, changes=changes))


# Values.


def decimal(number: int) -> str:
    size = number.bit_length() // 8 + 1
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


SCALED = part("bytes", "org.apache.kafka.connect.data.Decimal", parameters={"scale": "2"})
VARIABLE = part("struct", "io.debezium.data.VariableScaleDecimal")
TIMES = "io.debezium.time."
CONNECT = "org.apache.kafka.connect.data."
INFINITY_US = 9_223_372_036_825_200_000
VALUES: list[tuple[str, dict[str, object], object, object]] = [
    ("decimal(10,2)", SCALED, decimal(150), 1.50),
    ("decimal(10,2)", SCALED, decimal(-5), -0.05),
    ("string", SCALED, decimal(100), "1.00"),
    ("double", SCALED, decimal(150), 1.5),
    ("long", SCALED, decimal(700), 7),
    ("decimal(10,2)", VARIABLE, {"scale": 2, "value": "MDk="}, 123.45),
    ("long", VARIABLE, {"scale": 0, "value": "AQ=="}, 1),
    ("string", VARIABLE, {"scale": 0, "value": "AQ=="}, "1"),
    ("decimal(5,0)", VARIABLE, {"scale": 2046, "value": decimal(12300 * 10**2046)}, 12300),
    ("decimal(10,2)", VARIABLE, {"scale": -2, "value": "AQ=="}, 100),
    ("decimal(10,2)", part("string"), "1.50", "1.50"),
    ("double", part("double"), "NaN", "NaN"),
    ("string", part("string", "io.debezium.data.Json"), '{"a": 1}', '{"a": 1}'),
    ("date", part("int32", TIMES + "Date"), 20_000, "2024-10-04"),
    ("date", part("int32", CONNECT + "Date"), -1, "1969-12-31"),
    ("date", part("string", TIMES + "IsoDate"), "2024-10-04Z", "2024-10-04"),
    ("timestamp_ntz", part("int64", TIMES + "Timestamp"), 1_500, "1970-01-01T00:00:01.500000"),
    ("timestamp_ntz", part("int64", CONNECT + "Timestamp"), 1_500, "1970-01-01T00:00:01.500000"),
    ("timestamp_ntz", part("int64", TIMES + "MicroTimestamp"), 15, "1970-01-01T00:00:00.000015"),
    ("timestamp", part("int64", TIMES + "MicroTimestamp"), 15, "1970-01-01T00:00:00.000015+00:00"),
    ("timestamp_ntz_ns", part("int64", TIMES + "NanoTimestamp"), 1,
     "1970-01-01T00:00:00.000000001"),
    ("timestamp", part("string", TIMES + "ZonedTimestamp"), "2024-01-01T10:30:45.120000Z",
     "2024-01-01T10:30:45.120000Z"),
    ("timestamp_ntz", part("string", TIMES + "IsoTimestamp"), "2024-01-01T10:30:45Z",
     "2024-01-01T10:30:45"),
    ("time", part("int64", TIMES + "MicroTime"), 1_000_001, "00:00:01.000001"),
    ("time", part("int32", TIMES + "Time"), 1_500, "00:00:01.500000"),
    ("time", part("string", TIMES + "ZonedTime"), "10:30:45.5Z", "10:30:45.5"),
    ("boolean", part("int16"), 1, True),
    ("list<decimal(10,2)>", part("array", items=VARIABLE), [{"scale": 1, "value": "DA=="}, None],
     [1.2, None]),
    ("list<date>", part("array", items=part("int32", TIMES + "Date")), [0, None],
     ["1970-01-01", None]),
    ("map<string,date>", part("map", values=part("int32", TIMES + "Date")), {"a": 0},
     {"a": "1970-01-01"}),
    ("struct<on:date,x:long>", part("struct", fields=[part("int32", TIMES + "Date", field="on")]),
     {"on": 0, "x": 1}, {"on": "1970-01-01", "x": 1}),
    ("bytes", part("bytes"), "AP8=", "AP8="),
    ("bytes", part("bytes"), "00ff", "00ff"),
    ("long", part("int64", TIMES + "MicroDuration"), 2_629_800_000_000, 2_629_800_000_000),
]  # fmt: skip


def of_type(kind: str, unit: str = "") -> Schema:
    key = Field("id", Primitive.LONG)
    return Schema((key,), (), (Field("v", parse_type_text(kind), nullable=True, unit=unit),))


@pytest.mark.parametrize(("kind", "described_as", "value", "expected"), VALUES)
def test_a_value_is_read_as_its_schema_part_says(
    kind: str, described_as: dict[str, object], value: object, expected: object, tmp_path: Path
) -> None:
    columns = {"id": part("int64"), "v": described_as}
    message = described(event("u", {"id": 1, "v": value}), columns)
    assert flat(message, table=of_type(kind), by="")[0]["v"] == expected
    assert len(rows_of([message], of_type(kind), tmp_path)) == 1


@pytest.mark.parametrize(
    ("kind", "described_as", "value"),
    [
        ("date", part("int32", TIMES + "Date"), -622_191_234),
        ("date", part("int32", TIMES + "Date"), -2_147_472_692),
        ("date", part("int32"), 7),
        ("date", part("string"), "infinity"),
        ("timestamp_ntz", part("int64", TIMES + "MicroTimestamp"), INFINITY_US),
        ("timestamp_ntz", part("int64", TIMES + "MicroTimestamp"), -9_223_372_036_832_400_000),
        ("timestamp_ntz", part("int32", TIMES + "Date"), 1),
        ("timestamp_ntz", part("int64", TIMES + "NanoTimestamp"), 1),
        ("timestamp", part("string", TIMES + "ZonedTimestamp"), "infinity"),
        ("timestamp", part("string", TIMES + "ZonedTimestamp"), "-infinity"),
        ("time", part("int64", TIMES + "MicroTime"), 86_400_000_000),
        ("time", part("int64", TIMES + "MicroTime"), -3_020_399_000_000),
        ("bytes", part("string"), "00ff"),
        ("dynamic", part("string"), "no JSON"),
        ("dynamic", part("string"), '{"a":1,"a":2}'),
        ("string", VARIABLE, {"scale": -4000, "value": base64.b64encode(b"1" * 999).decode()}),
        ("list<string>", part("array", items=part("string")), ["[Ljava.lang.String;@2acb825"]),
        ("decimal(10,2)", SCALED, "not base64"),
        ("decimal(10,2)", part("bytes", CONNECT + "Decimal"), "AQ=="),
        ("decimal(10,2)", VARIABLE, {"scale": 10**9, "value": "AQ=="}),
        ("decimal(10,2)", VARIABLE, {"scale": 0, "value": base64.b64encode(b"1" * 2000).decode()}),
    ],
)
def test_a_value_that_no_column_can_hold_is_refused_with_line_and_column(
    kind: str, described_as: dict[str, object], value: object
) -> None:
    columns = {"id": part("int64"), "v": described_as}
    message = described(event("u", {"id": 1, "v": value}), columns)
    assert "column 'v'" in str(refusal(None, message, table=of_type(kind), by=""))


@pytest.mark.parametrize(
    ("kind", "unit", "value", "expected"),
    [
        ("decimal(10,2)", "", decimal(10_000), 100),
        ("decimal(10,2)", "", "1.50", "1.50"),
        ("decimal(10,2)", "", {"scale": 1, "value": "AQ=="}, 0.1),
        ("date", "", 20_000, "2024-10-04"),
        ("timestamp_ntz", "milliseconds", 1_500, "1970-01-01T00:00:01.500000"),
        ("timestamp", "", "2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
    ],
)
def test_without_a_schema_part_a_value_is_read_by_the_type_of_its_column(
    kind: str, unit: str, value: object, expected: object
) -> None:
    found = flat(event("u", {"id": 1, "v": value}), table=of_type(kind, unit), by="")
    assert found[0]["v"] == expected


@pytest.mark.parametrize(
    ("kind", "unit", "value"),
    [
        ("decimal(10,2)", "", "1234"),  # or three bytes, a negative number
        ("bytes", "", "00ff"),  # or hexadecimal
        ("long", "", "ZA=="),
        ("string", "", {"scale": 0, "value": "AQ=="}),
        ("timestamp_ntz", "", 1_500),
        ("timestamp_ntz", "microseconds", INFINITY_US),
        ("time", "", 1_500),
        ("date", "", -2_147_472_692),
    ],
)
def test_without_a_schema_part_a_value_with_two_meanings_is_refused(
    kind: str, unit: str, value: object, tmp_path: Path
) -> None:
    with pytest.raises(RefusedSourceError, match="line 2, column 'v'"):
        rows_of([None, event("u", {"id": 1, "v": value})], of_type(kind, unit), tmp_path)


def test_base64_of_digits_alone_is_never_a_positive_number() -> None:
    """So amounts are not refused for that, and only one in hundreds of negative ones is."""
    for number in range(0, 2**23, 997):
        assert not decimal(number).isdigit()


def test_each_schema_part_counts_for_its_own_message() -> None:
    """A column's precision can change in mid-stream."""
    row = event("u", {"id": 1, "v": 1_500})
    found = flat(
        described(row, {"v": part("int64", TIMES + "Timestamp")}),
        described(row, {"v": part("int64", TIMES + "MicroTimestamp")}),
        table=of_type("timestamp_ntz"),
        by="",
    )
    assert [r["v"] for r in found] == ["1970-01-01T00:00:01.500000", "1970-01-01T00:00:00.001500"]


# AWS DMS.

DMS_TABLE = parse_schema("id:long, age:long?, attributes:string?, seq:string", ["id"], [])
SEQUENCE = "20240729005817980000000000000000007"


def dms(operation: str, data: object, **more: object) -> dict[str, object]:
    """Return a message as AWS DMS writes it for Kinesis and Kafka."""
    metadata = {
        "timestamp": "2024-07-29T00:58:17.983670Z",
        "record-type": "data",
        "operation": operation,
        "partition-key-type": "schema-table",
        "schema-name": "public",
        "table-name": "mice",
        "transaction-id": 1139,
        "transaction-record-id": 1,
        "commit-timestamp": "2024-07-29T00:58:17.974340Z",
        "stream-position": "00000002/7C007178.3.00000002/7C007178",
    }
    return {"data": data, "metadata": metadata} | more


def of_dms(*messages: object, **how: Any) -> list[dict[str, Any]]:
    return flat(*messages, **({"table": DMS_TABLE, "form": "dms", "by": "seq"} | how))


def test_messages_of_dms_become_rows() -> None:
    row = {"id": 42, "age": 33, "attributes": '{"foo": "bar"}'}
    with_order = row | {"seq": SEQUENCE}
    at = {"seq": f"{SEQUENCE}-2"}
    assert of_dms(dms("insert", with_order)) == [{"_change": "insert"} | at | row]
    image = {"before-image": {}}
    assert of_dms(dms("update", with_order, **image)) == [{"_change": "update"} | at | row]
    gone = {"id": 42, "age": None, "attributes": None, "seq": SEQUENCE}
    assert of_dms(dms("delete", gone)) == [{"_change": "delete", "seq": f"{SEQUENCE}-1", "id": 42}]


def test_a_full_load_of_dms_is_before_all_changes() -> None:
    for order in ({"seq": ""}, {"seq": None}, {}):
        row = {"id": 42, "age": 1, "attributes": None} | order
        (found,) = of_dms(dms("load", row))
        assert found["_change"] == "insert"
        assert found["seq"] < f"{SEQUENCE}-0"


def test_a_key_that_dms_changed_is_a_delete_of_the_old_one_and_a_row() -> None:
    row = {"id": 45, "age": 31, "attributes": None, "seq": SEQUENCE}
    found = of_dms(dms("update", row, **{"before-image": {"id": 46}}))
    assert [(r["_change"], r["id"], r["seq"][-2:]) for r in found] == [
        ("delete", 46, "-1"),
        ("update", 45, "-2"),
    ]


def test_control_messages_of_dms_become_nothing() -> None:
    metadata = {"record-type": "control", "operation": "create-table", "table-name": "mice"}
    assert of_dms({"control": {"table-def": {}}, "metadata": metadata}, None) == []


def test_values_of_dms_are_read_by_the_type_of_their_column() -> None:
    for kind, value, expected in (
        ("boolean", "true", True),
        ("bytes", "0x00ff", "AP8="),
        ("timestamp_ntz", "2020-01-09T04:13:38Z", "2020-01-09T04:13:38"),
        ("timestamp", "2020-01-09T04:13:38Z", "2020-01-09T04:13:38Z"),
        ("decimal(10,2)", 36.5, 36.5),
    ):
        message = dms("insert", {"id": 1, "v": value})
        assert of_dms(message, table=of_type(kind), by="")[0]["v"] == expected


@pytest.mark.parametrize(
    "message",
    [
        dms("merge", {"id": 1, "age": 1, "attributes": "", "seq": SEQUENCE}),
        dms("update", None),
        dms("update", {"id": None, "age": 1, "attributes": "", "seq": SEQUENCE}),
        dms("delete", {"id": None, "seq": SEQUENCE}),
        dms("delete", {"age": 1, "seq": SEQUENCE}),
        dms("update", {"id": 1, "age": 1, "attributes": ""}),
        dms("update", {"id": 1, "age": 1, "attributes": "", "seq": "7"}),
        dms("insert", {"id": 1, "attributes": "", "seq": SEQUENCE}),  # null or empty: left out
        {"data": {}, "metadata": {"operation": "load"}},
        {"data": {}, "metadata": {"record-type": "other", "operation": "load"}},
        {"metadata": {"record-type": "control", "operation": "truncate-table"}},
        event("c", {"id": 1}),
    ],
)
def test_a_message_of_dms_that_lacks_a_part_is_refused(message: object) -> None:
    with pytest.raises(RefusedSourceError, match="line 2"):
        of_dms(None, message)


def test_bytes_of_dms_without_a_prefix_are_refused() -> None:
    """As base64, CAFE would be three other bytes."""
    with pytest.raises(RefusedSourceError, match="line 1, column 'v'"):
        of_dms(dms("insert", {"id": 1, "v": "CAFE"}), table=of_type("bytes"), by="")


def test_the_operations_in_files_of_dms_are_read() -> None:
    def place(row: int) -> str:
        return f"row {row + 1}"

    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        found = operations(pa.array(["I", "U", "D", "I"]).cast(kind), place)
        assert found.to_pylist() == ["insert", "update", "delete", "insert"]
    for wrong in ("X", "i", "", None):
        with pytest.raises(RefusedSourceError, match="row 2"):
            operations(pa.array(["I", wrong, "D"]), place)


# Files and tables.


def rows_of(
    messages: Sequence[object], table: Schema, folder: Path, key: str = "t/a.jsonl", **how: Any
) -> list[dict[str, Any]]:
    """Return the rows of a file of messages, with their changes; `table` is without that column."""
    path = folder / "messages"
    path.write_bytes(b"".join(json.dumps(m).encode() + b"\n" for m in messages))
    by = "position" if any(f.name == "position" for f in table.fields) else ""
    batches = read_source(path, key, table, changes=FileChanges(table, by, "debezium"), **how)
    return [row for batch in batches for row in batch.to_pylist()]


def test_a_file_of_messages_is_read_as_rows(tmp_path: Path) -> None:
    messages = [event("c", {"id": 1, "n": 9, "name": "Hazel"}), None, event("d", before={"id": 1})]
    found = rows_of(messages, TABLE, tmp_path)
    assert [(row["id"], row["n"], row["_tombstone"]) for row in found] == [
        (1, 9, None),
        (1, None, 0),
    ]


def test_a_column_in_the_name_of_a_folder_may_be_missing_from_messages(tmp_path: Path) -> None:
    table = parse_schema("id:long, n:long", ["id"], [])
    found = rows_of([event("d", before={"n": 1})], table, tmp_path, "t/id=7/a.jsonl")
    assert [(row["id"], row["_tombstone"]) for row in found] == [(7, 0)]
    for other in (event("d", before={"id": 8}), event("u", {"id": 7, "n": 1}, {"id": 8, "n": 1})):
        with pytest.raises(RefusedSourceError, match="column 'id'"):
            rows_of([other], table, tmp_path, "t/id=7/a.jsonl")


def test_a_column_that_the_table_does_not_have_is_refused_with_its_line(tmp_path: Path) -> None:
    row = {"id": 1, "n": 1, "name": ""}
    with pytest.raises(RefusedSourceError, match="line 2.*'added'"):
        rows_of([event("c", row), event("c", row | {"added": 1})], TABLE, tmp_path)


def test_no_change_is_left_out_of_a_file(tmp_path: Path) -> None:
    """The row before it would stay."""
    with pytest.raises(RefusedSourceError):
        rows_of([event("x")], TABLE, tmp_path, rejects=Rejects("t/a.jsonl"))
    skipping = parse_properties({"change_data": "debezium", "ingest_on_error": "skip"})
    with pytest.raises(InvalidRequestError):
        check_change_data(TABLE, skipping)
    check_change_data(TABLE, parse_properties({"ingest_on_error": "skip"}))


@pytest.mark.parametrize("form", ["wal2json", "Debezium", "debezium\n"])
def test_a_form_that_is_not_known_is_refused(form: str) -> None:
    with pytest.raises(InvalidRequestError):
        parse_properties({"change_data": form})


# Any line at all.

_SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["c", "u", "d", "t", "true", "BEGIN", PLACEHOLDER, '["1","2"]', "AQ==", "D"])
)  # fmt: skip
_NAMES = st.sampled_from(
    ["id", "n", "name", "at", "v", "position", "op", "before", "after", "source", "payload",
     "schema", "ts_ms", "status", "data", "metadata", "before-image", "record-type", "operation",
     "__deleted", "__op", "sequence", "file", "pos", "row", "scale", "value", "fields", "field"]
)  # fmt: skip
_JSON = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=5),
    max_leaves=12,
)
_WIDE = parse_schema(
    "id:long, n:decimal(10,2)?, name:list<string>?, at:timestamp?, v:time?, file:dynamic?, "
    "row:bytes?, fields:map<string,struct<id:long>>?, position:string?",
    ["id"],
    [],
)


def check_any_line(form: str, line: bytes) -> None:
    try:
        for _, row in ChangeData(form, _WIDE, "position").lines([(7, line)]):
            text = row.decode(errors="replace")  # the reader of rows refuses what is no UTF-8
            assert json.loads(text)["_change"] in ("insert", "update", "delete")
    except RefusedSourceError as error:
        assert "line 7" in str(error)


@settings(max_examples=examples(200))
@given(form=st.sampled_from(["debezium", "dms"]), value=_JSON, row=_JSON, op=_JSON)
def test_any_line_of_json_becomes_rows_or_a_refusal(
    form: str, value: object, row: object, op: object
) -> None:
    columns = ("n", "name", "at", "v", "file", "row", "fields")
    whole = {"id": 1, **dict.fromkeys(columns, value)}
    parts = described({"op": "u", "source": SOURCE, "after": whole}, {"n": {"type": "x"}})
    for message in (
        value,
        {"op": op, "source": SOURCE, "after": row, "before": value},
        {"op": "u", "source": SOURCE, "after": whole},
        {"op": "u", "source": value, "after": whole},
        {"schema": row, "payload": {"op": "u", "source": SOURCE, "after": whole}},
        parts,
        whole | {"__deleted": op, "__op": row, "__source_sequence": value},
        whole | {"__deleted": "false", "__op": op, "__source_sequence": '["1","2"]'},
        dms("update", row, **{"before-image": value}),
        dms("insert", whole | {"position": SEQUENCE}),
        {"data": whole, "metadata": row},
    ):
        check_any_line(form, json.dumps(message).encode())


@settings(max_examples=examples(200))
@given(form=st.sampled_from(["debezium", "dms"]), line=st.binary(max_size=40), cut=st.integers(0))
def test_any_bytes_become_rows_or_a_refusal(form: str, line: bytes, cut: int) -> None:
    good = json.dumps(event("u", {"id": 1, "n": "AQ==", "name": ["a"], "at": None, "v": "10:00"}))
    at = cut % len(good)
    check_any_line(form, line)
    check_any_line(form, good[:at].encode() + line + good[at:].encode())
    check_any_line(form, b"[" * 100_000)
