"""Columns of JSON documents, from each way in to each way out, and conditions on their paths."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.arrow.documents import typed, values_at
from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.errors import InvalidRequestError, RefusedSourceError
from dormouse.features.http.calls import JSON
from dormouse.features.http.forms import RowPage, rows_response
from dormouse.files.variants import variant_texts
from dormouse.sql.operands import IN_DOCUMENTS

SCHEMA = "id:long, payload:dynamic?, name:string?"
LINES = """\
{"id": 1, "payload": {"user": {"id": 7, "name": "Ann"}, "kind": "a", "n": 1.50}}
{"id": 2, "payload": {"user": {"id": "7"}, "kind": null, "items": [1, {"x": 2}]}, "name": "b"}
{"id": 3, "payload": [1, 2.0, 9007199254740993]}
{"id": 4, "payload": "text"}
{"id": 5, "payload": null}
{"id": 6}
{"id": 7, "payload": {"user": {"id": 7.0}, "a.b": {"c": true}, "kind": "b"}}
{"id": 8, "payload": {"user": {"id": 8}, "n": 1e400, "kind": "a"}}
"""
TEXTS = {
    1: '{"user":{"id":7,"name":"Ann"},"kind":"a","n":1.50}',
    2: '{"user":{"id":"7"},"kind":null,"items":[1,{"x":2}]}',
    3: "[1,2.0,9007199254740993]",
    4: '"text"',
    5: None,
    6: None,
    7: '{"user":{"id":7.0},"a.b":{"c":true},"kind":"b"}',
    8: '{"user":{"id":8},"n":1e400,"kind":"a"}',
}


@pytest.fixture
def mice(tmp_path: Path) -> Iterator[Instance]:
    with Instance.open(tmp_path / "mice", background=False) as instance:
        yield instance


@pytest.fixture
def table(mice: Instance, tmp_path: Path) -> TableHandle:
    return ingested(mice, tmp_path, "docs", LINES)


def ingested(mice: Instance, folder: Path, name: str, text: str, **properties: str) -> TableHandle:
    table = mice.create_table(name, SCHEMA, row_keys=["id"], properties=properties)
    local = folder / f"{name}.json"
    local.write_text(text)
    table.ingest(local)
    mice.wait()
    return table


def documents(table: TableHandle, where: str | None = None) -> dict[int, str | None]:
    rows = table.query(where=where, columns=["id", "payload"]).to_arrow().to_pylist()
    return {row["id"]: row["payload"] for row in rows}


def ids(table: TableHandle, where: str) -> list[int]:
    return table.query(where=where, columns=["id"]).to_arrow().column("id").to_pylist()


def test_lines_of_json_come_back_as_they_were(table: TableHandle) -> None:
    found = table.query().to_arrow()
    assert found.schema.field("payload").type == pa.json_()
    assert documents(table) == TEXTS


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("payload.user.id = 7", [1, 7]),
        ("7 = payload.user.id", [1, 7]),
        ("payload['user']['id'] = 7.0", [1, 7]),
        ("payload.user.id = '7'", [2]),
        ("payload.user.id <> 7", [2, 8]),
        ("NOT (payload.user.id = 7)", [2, 8]),
        ("payload.user.id IN (7, '7')", [1, 2, 7]),
        ("payload.user.id BETWEEN 7 AND 7.5", [1, 7]),
        ("payload.user.id > 7", [8]),
        ("7 < payload.user.id", [8]),
        ("payload.user.id IS DISTINCT FROM 7", [2, 3, 4, 5, 6, 8]),
        ("payload.n = 1.5", [1]),
        ("payload.n > 1e300", [8]),
        ("payload.kind = 'a' AND payload.n < 2", [1]),
        ("payload.kind IS NULL", [3, 4, 5, 6]),
        ("payload.kind IS NOT NULL", [1, 2, 7, 8]),
        ("json_kind(payload.kind) = 'null'", [2]),
        ("json_kind(payload) = 'array'", [3]),
        ("payload IS NULL", [5, 6]),
        ("payload = 'text'", [4]),
        ("payload[2] = 9007199254740993", [3]),
        ("payload[2] = 9007199254740992", []),
        ("payload.items[1].x = 2", [2]),
        ("""payload."a.b".c = true""", [7]),
        ("payload['a.b'].c = true", [7]),
        ("payload.kind LIKE 'a%'", [1, 8]),
        ("upper(payload.user.name) = 'ANN'", [1]),
        ("CAST(payload.user.id AS BIGINT) + 1 = id + 7", [1]),
        ("CAST(payload.user.id AS TEXT) IS NULL AND payload.user.id IS NOT NULL", [1, 7, 8]),
    ],
)
def test_conditions_read_paths(table: TableHandle, where: str, expected: list[int]) -> None:
    assert ids(table, where) == expected
    assert table.count(where=where) == len(expected)
    from dormouse.sql.conditions import parse_condition

    condition = parse_condition(where, table.schema)
    assert parse_condition(condition.sql, table.schema) == condition


@pytest.mark.parametrize(
    "where",
    [
        "payload.user.id",
        "payload.user.id = id",
        "payload.a = payload.b",
        "coalesce(payload.a, payload.b) = 1",
        "payload[-1] = 1",
        "payload[1.5] = 1",
        "payload.n + 1 = 2",
        "payload.at > TIMESTAMP '2026-01-01'",
        "CAST(payload.at AS DATE) > DATE '2026-01-01'",
        "name.x = 1",
        "json_kind(name) = 'null'",
    ],
)
def test_a_condition_that_says_no_kind_is_refused(table: TableHandle, where: str) -> None:
    with pytest.raises(InvalidRequestError):
        table.query(where=where)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"id": 9, "payload": {"a": 1, "a": 2}}', "twice"),
        ('{"id": 9, "payload": NaN}', "JSON"),
        ('{"id": 9, "payload": ["\\ud800"]}', "(surrogate|truncated)"),
        ('{"id": 9, "payload": ' + "[" * 200 + "]" * 200 + "}", "deep"),
    ],
)
def test_a_line_without_a_document_is_refused_by_number(
    mice: Instance, tmp_path: Path, line: str, reason: str
) -> None:
    table = mice.create_table("docs", SCHEMA, row_keys=["id"])
    local = tmp_path / "bad.json"
    local.write_text('{"id": 1, "payload": {}}\n' + line + "\n")
    with pytest.raises(RefusedSourceError, match=f"line 2.*{reason}"):
        table.ingest(local)


def test_frames_text_and_nested_columns_become_documents(mice: Instance, tmp_path: Path) -> None:
    table = mice.create_table("docs", SCHEMA, row_keys=["id"])
    nested = pa.array(
        [{"a": 1, "b": [{"c": Decimal("1.50")}, None], "d": None}, None, {"a": None}],
        pa.struct(
            [
                ("a", pa.int64()),
                ("b", pa.list_(pa.struct([("c", pa.decimal128(5, 2))]))),
                ("d", pa.map_(pa.string(), pa.float64())),
            ]
        ),
    )
    table.ingest(pa.table({"id": [1, 2, 3], "payload": nested}))
    table.ingest(pa.table({"id": [4, 5], "payload": ['{"x" : 1}', None]}))
    table.ingest(pa.table({"id": [13, 14], "payload": pa.array([{}, None], pa.struct([]))}))
    marked = pa.array(["[1,  2]"], pa.json_())
    local = tmp_path / "marked.parquet"
    pq.write_table(pa.table({"id": [6], "payload": marked}), local)
    table.ingest(local)
    csv = tmp_path / "some.csv"
    csv.write_text('id,payload\n7,"{""a"": null}"\n8,null\n9,\n')
    table.ingest(csv)
    with table.writer() as writer:
        writer.write({"id": 10, "payload": {"a": Decimal("1.50"), "b": [None, 2**70]}})
        writer.write({"id": 11, "payload": '{"text": 1}'})
        writer.write({"id": 12, "payload": None})
    mice.wait()
    assert documents(table) == {
        1: '{"a":1,"b":[{"c":1.50},null]}',
        2: None,
        3: "{}",
        4: '{"x":1}',
        5: None,
        6: "[1,2]",
        7: '{"a":null}',
        8: "null",
        9: None,
        10: '{"a":1.50,"b":[null,1180591620717411303424]}',
        11: '{"text":1}',
        12: None,
        13: "{}",
        14: None,
    }


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], {1: 2}, object(), b"x", "{"])
def test_a_value_without_a_json_form_is_refused(mice: Instance, value: object) -> None:
    table = mice.create_table("docs", SCHEMA, row_keys=["id"])
    with pytest.raises(RefusedSourceError), table.writer() as writer:
        writer.write({"id": 1, "payload": value})


def test_documents_are_json_in_files_and_nested_in_lines(
    mice: Instance, table: TableHandle, tmp_path: Path
) -> None:
    found = mice.sql("SELECT id, payload FROM docs ORDER BY id").to_arrow()
    assert found.schema.field("payload").type == pa.json_()
    assert found.column("payload").to_pylist() == list(TEXTS.values())
    import io

    from dormouse.files.results import ResultFormat, write_rows

    result = table.query()
    sink = io.BytesIO()
    write_rows(ResultFormat.json, result, result.schema, sink)
    rows = [json.loads(line) for line in sink.getvalue().splitlines()]
    assert rows[0]["payload"]["user"] == {"id": 7, "name": "Ann"}
    assert b'"n":1.50' in sink.getvalue()
    result = table.query()
    sink = io.BytesIO()
    write_rows(ResultFormat.csv, result, result.schema, sink)
    assert b'"[1,2.0,9007199254740993]"' in sink.getvalue()
    result = table.query()
    sink = io.BytesIO()
    write_rows(ResultFormat.parquet, result, result.schema, sink)
    stored = pq.ParquetFile(pa.BufferReader(sink.getvalue()))
    assert stored.schema.column(1).logical_type.type == "JSON"


def test_dynamic_columns_are_refused_where_values_need_an_order(mice: Instance) -> None:
    with pytest.raises(InvalidRequestError, match="key"):
        mice.create_table("docs", "payload:dynamic", row_keys=["payload"])
    for inner in ("list<dynamic>", "struct<a:dynamic>", "map<string,dynamic>"):
        with pytest.raises(InvalidRequestError, match="whole column"):
            mice.create_table("docs", f"id:long, payload:{inner}", row_keys=["id"])
    for properties in (
        {"filters": "where(payload.a = 1)"},
        {"aggregations": "max(payload)"},
        {"keep": "latest", "latest_by": "payload"},
        {"bloom_columns": "payload"},
    ):
        with pytest.raises(InvalidRequestError, match="payload"):
            mice.create_table(
                "docs", "id:long, payload:dynamic", row_keys=["id"], properties=properties
            )


VARIANTS = """
    {'a': 1, 'b': [1, 2, 3], 'c': {'d': 'x', 'e': NULL}}
    {'a': 'text', 'b': [4], 'f': -5}
    {'a': 1.50::DECIMAL(9, 2), 'g': 123456789012345678901234567890.12::DECIMAL(38, 2)}
    {'a': DATE '2026-01-31', 'h': TIMESTAMPTZ '2026-01-31 12:00:00.5+00', 'i': true}
    {'a': UUID '123e4567-e89b-12d3-a456-426614174000', 'j': 2.5::DOUBLE, 'k': 'ab'::BLOB}
    'a longer text that does not fit the short form of texts in a variant, which has 63 bytes'
    -9223372036854775808
    NULL
    []
    '{"l": [{"m": 1}, {"m": "y"}, {"n": [[]]}]}'::JSON
""".strip().splitlines()


@pytest.mark.parametrize("shredding", ["", ", shredding {v: 'VARIANT'}"])
def test_variants_of_duckdb_are_read_as_the_json_that_they_are(
    mice: Instance, tmp_path: Path, shredding: str
) -> None:
    rows = " UNION ALL ".join(
        f"SELECT {n} AS id, ({each})::VARIANT AS v" for n, each in enumerate(VARIANTS)
    )
    local = tmp_path / "v.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({rows} ORDER BY 1) TO '{local}' (FORMAT parquet{shredding})")
    table = mice.create_table("docs", "id:long, v:dynamic?", row_keys=["id"])
    table.ingest(local).wait()
    found = [row["v"] for row in table.query().to_arrow().to_pylist()]
    values = [None if text is None else json.loads(text, parse_float=str) for text in found]
    assert values[0] == {"a": 1, "b": [1, 2, 3], "c": {"d": "x", "e": None}}
    assert values[1] == {"a": "text", "b": [4], "f": -5}
    assert values[2] == {"a": "1.50", "g": "123456789012345678901234567890.12"}
    assert values[3] == {"a": "2026-01-31", "h": "2026-01-31T12:00:00.500000Z", "i": True}
    uuid = "123e4567-e89b-12d3-a456-426614174000"
    assert values[4] == {"a": uuid, "j": "2.5", "k": "YWI="}
    assert values[5] == VARIANTS[5].strip().strip("'")
    assert values[6:] == [-(2**63), None, [], {"l": [{"m": 1}, {"m": "y"}, {"n": [[]]}]}]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("payload.user.id = 7", [1, 7]),
        ("docs.payload.user.id = 7.0", [1, 7]),
        ("7 = payload['user'].id", [1, 7]),
        ("PAYLOAD.user.id = '7'", [2]),
        ("payload.user.id = $seven", [1, 7]),
        ("payload.user.id = $text", [2]),
        ("payload.kind = $nothing", []),
        ("payload.user.id <> 7", [2, 8]),
        ("NOT payload.user.id = 7 AND id > 2", [8]),
        ("payload.user.id NOT IN (7, '7')", [8]),
        ("payload.user.id BETWEEN 7 AND 7.5", [1, 7]),
        ("payload.user.id NOT BETWEEN 7 AND 7.5", [2, 8]),
        ("payload.user.id IS DISTINCT FROM 7", [2, 3, 4, 5, 6, 8]),
        ("payload.n < -1.5 OR payload.kind = 'b'", [7]),
        ("payload.kind IS NULL", [3, 4, 5, 6]),
        ("json_type(payload.kind) = 'NULL'", [2]),
        ("json_kind(payload.kind) = 'null'", [2]),
        ("json_kind(payload.kind) = 'string'", [1, 7, 8]),
        ("json_kind(payload.kind) IS NULL", [3, 4, 5, 6]),
        ("json_kind(payload) NOT IN ('object', 'number')", [3, 4]),
        ("payload = 'text'", [4]),
        ("payload[2] = 9007199254740993", [3]),
        ("payload[2] = 9007199254740993e0", [3]),
        ("payload.n = 1e400 OR payload.n < 1.50e0", [8]),
        ("payload.n > 1e-400 AND payload.n < 1e399", [1]),
        ("payload.user < 1e400 OR payload.n = 0.5e-399", []),
        ("payload.n < $infinite OR payload.n = $infinite", [1, 8]),
        ("payload.n < $nan AND NOT payload.n > $nan", [1, 8]),
        ("payload.user.id < 0.75e1", [1, 7]),
        ("payload.items[1].x = 2", [2]),
        ("""payload."a.b".c = true""", [7]),
        ("payload.kind LIKE 'a%'", [1, 8]),
        ("payload.kind NOT LIKE 'a%'", [7]),
        ("payload.kind NOT LIKE '!a' ESCAPE '!'", [7]),
        ("payload.user.id LIKE '7%'", [2]),
        ("""payload."a.b".c ILIKE 'T%'""", []),
        ("payload.kind = 'A' COLLATE NOCASE", [1, 8]),
        ("'B' > payload.kind COLLATE NOCASE", [1, 8]),
        ("payload.kind IN ('B' COLLATE NOCASE, 'c')", [7]),
        ("payload = 'TEXT' COLLATE NOCASE", [4]),
        ("payload.kind IN ('a', NULL)", [1, 8]),
        ("payload.kind NOT IN ('a', $nothing)", []),
        ("payload.kind NOT BETWEEN NULL AND 'a'", [2, 7]),
        ("payload.kind IS DISTINCT FROM NULL", [1, 2, 7, 8]),
        ("payload.kind IS NOT DISTINCT FROM $nothing", [3, 4, 5, 6]),
        ("payload.user.id = 7::BIGINT OR payload.user.id = CAST('7' AS TEXT)", [1, 2, 7]),
        ("payload.user.id = +7", [1, 7]),
        ("has(payload.user.name, 'ANN')", [1]),
        ("NOT has(payload.kind, 'kind')", [1, 7, 8]),
        ("payload->>'$.user.name' = 'Ann'", [1]),
        ("id IN (SELECT id FROM docs d WHERE d.payload.kind = 'a')", [1, 8]),
    ],
)
def test_statements_compare_paths_as_conditions_do(
    mice: Instance, table: TableHandle, where: str, expected: list[int]
) -> None:
    values: dict[str, object] = {"seven": 7, "text": "7", "nothing": None}
    values |= {"infinite": float("inf"), "nan": float("nan")}
    parameters = {name: value for name, value in values.items() if f"${name}" in where}
    found = mice.sql(f"SELECT id FROM docs WHERE {where} ORDER BY id", parameters).to_arrow()
    assert found.column("id").to_pylist() == expected
    found = mice.sql(f"SELECT * FROM docs WHERE {where}", parameters).to_arrow()
    assert found.column_names == ["id", "payload", "name"]
    assert sorted(found.column("id").to_pylist()) == expected


@pytest.mark.parametrize(
    "name", ["0", " 1", "-1", "1e0", ".5", 'q"t', "b\\", "", "a.b", "$", "/", "*"]
)
def test_statements_find_names_that_their_engine_takes_for_places_or_not_at_all(
    mice: Instance, name: str
) -> None:
    odd = mice.create_table("odd", schema="id:long, payload:dynamic", row_keys=["id"])
    with odd.writer() as writer:
        writer.write({"id": 1, "payload": {name: "x", "x": {name: "y"}}})
        writer.write({"id": 2, "payload": ["x", "y"]})
    part, inner = f"payload['{name}']", f"payload.x['{name}']"
    found = mice.sql(f"SELECT {part}, {inner} LIKE 'y', {inner} FROM odd ORDER BY id").to_arrow()
    assert [column.to_pylist() for column in found.columns] == [
        ['"x"', None],
        [True, None],
        ['"y"', None],
    ]
    assert found.column_names == [part, f"({inner} ~~ 'y')", inner]
    found = mice.sql(f"SELECT id FROM odd WHERE {part} IS NOT NULL AND {part} LIKE 'x%'").to_arrow()
    assert found.column("id").to_pylist() == [1]


def test_statements_take_documents_apart(mice: Instance, table: TableHandle) -> None:
    found = mice.sql(
        "SELECT payload.kind AS kind, payload.kind = 'a' AS is_a, payload.user->>'$.name' AS name "
        "FROM docs ORDER BY id"
    ).to_arrow()
    assert found.column("kind").to_pylist()[:3] == ['"a"', "null", None]
    assert found.column("is_a").to_pylist()[:3] == [True, False, None]
    assert found.column("name").to_pylist()[:2] == ["Ann", None]
    rows = mice.sql("SELECT (payload.kind, id) AS r FROM docs ORDER BY id").to_arrow().column("r")
    assert [*rows[0].as_py().values()] == ['"a"', 1]
    named = mice.sql("SELECT payload.kind = 'a' FROM docs")
    assert named.to_arrow().column_names == ["(payload.kind = 'a')"]
    joined = "SELECT a.id FROM docs a JOIN docs b ON a.id = b.id WHERE b.payload.kind = 'b'"
    assert mice.sql(joined).to_arrow().column("id").to_pylist() == [7]
    one = "b.payload.kind = 'b' OR b.payload.n = 1.5 AND a.payload.user.id = 7"
    either = mice.sql(joined.replace("b.payload.kind = 'b'", one)).to_arrow()
    assert sorted(either.column("id").to_pylist()) == [1, 7]
    called = "SELECT a.id FROM docs a JOIN docs AS payload ON a.id = payload.id WHERE payload.id"
    assert mice.sql(f"{called} = 3").to_arrow().column("id").to_pylist() == [3]


@pytest.mark.parametrize(
    "text",
    [
        "WITH d AS (SELECT id, '{\"n\":-7}'::JSON AS payload FROM docs) SELECT count(*) AS n "
        "FROM d WHERE payload.n = -7",
        "WITH docs AS (SELECT id, '{\"n\":-7}'::JSON AS payload FROM docs) SELECT count(*) AS n "
        "FROM docs WHERE payload.n = -7",
    ],
)
def test_what_a_name_of_with_stands_for_is_no_document_of_the_table(
    mice: Instance, table: TableHandle, text: str
) -> None:
    assert mice.sql(text).to_arrow().to_pylist() == [{"n": 8}]


def test_every_door_hands_out_documents(mice: Instance, table: TableHandle, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from dormouse_cli.main import app

    folder = str(tmp_path / "mice")
    lines = ["--instance", folder, "query", "docs", "--where", "payload.user.id = 7"]
    shown = CliRunner().invoke(app, [*lines, "--format", "json"])
    assert shown.exit_code == 0, shown.output
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [row["id"] for row in rows] == [1, 7]
    assert rows[0]["payload"]["user"]["name"] == "Ann" and '"n":1.50' in shown.stdout
    for form in ("table", "csv"):
        assert CliRunner().invoke(app, [*lines, "--format", form]).exit_code == 0
    export = table.export(where="json_kind(payload) <> 'null' OR payload IS NULL")
    export.wait()
    export.download(tmp_path / "out")
    (path,) = (tmp_path / "out").rglob("*.parquet")
    assert pq.ParquetFile(path).schema.column(1).logical_type.type == "JSON"
    again = mice.create_table("again", SCHEMA, row_keys=["id"])
    again.ingest(path).wait()
    assert documents(again) == TEXTS
    remote = table.query(where="payload.kind = 'a'", run="remote")
    mice.wait()
    assert remote.to_arrow().column("payload").to_pylist() == [TEXTS[1], TEXTS[8]]


def test_frames_of_results_have_texts(mice: Instance, table: TableHandle) -> None:
    frame = table.query().to_pandas()
    assert frame["payload"][0] == TEXTS[1] and frame["payload"].isna()[4]
    assert table.query().to_polars()["payload"].to_list()[0] == TEXTS[1]
    with duckdb.connect() as connection:
        connection.register("result", table.query().to_arrow())
        found = connection.sql("SELECT payload.user.id FROM result WHERE id = 1").fetchall()
    assert found == [("7",)]


def test_files_infer_dynamic_columns(mice: Instance, tmp_path: Path) -> None:
    marked = pa.table({"id": [1], "v": pa.array(["{}"], pa.json_())})
    table = mice.create_table("marked", like=marked, row_keys=["id"])
    assert str(table.schema) == str(
        mice.create_table("same", "id:long, v:dynamic?", row_keys=["id"]).schema
    )


def test_change_data_has_documents_as_text(mice: Instance, tmp_path: Path) -> None:
    table = mice.create_table(
        "docs",
        "id:long, payload:dynamic?",
        row_keys=["id"],
        properties={"keep": "latest", "change_data": "debezium"},
    )
    local = tmp_path / "changes.json"
    body = {"id": 1, "payload": '{"a" : [1.50]}'}
    local.write_text(json.dumps({"op": "c", "before": None, "after": body, "source": {}}) + "\n")
    table.ingest(local).wait()
    assert documents(table) == {1: '{"a":[1.50]}'}


def variant(metadata: bytes, value: bytes) -> pa.Array:
    kind = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
    return pa.array([{"metadata": metadata, "value": value}], kind)


def test_a_damaged_variant_is_refused() -> None:
    names = b"\x01\x01\x00\x01a"
    value = b"\x02\x01\x00\x00\x0a\x21" + b"x" * 8  # {"a": "xxxxxxxx"}
    assert list(variant_texts(variant(names, value))) == [b'{"a":"xxxxxxxx"}']
    for at in range(len(value)):
        with pytest.raises(ValueError, match="VARIANT"):
            list(variant_texts(variant(names, value[:at])))
    for at in range(len(names)):
        with pytest.raises(ValueError, match="VARIANT"):
            list(variant_texts(variant(names[:at], value)))
    with pytest.raises(ValueError, match="VARIANT"):
        list(variant_texts(variant(b"\x02" + names[1:], value)))
    with pytest.raises(ValueError, match="VARIANT"):
        list(variant_texts(variant(names, _bomb(18))))


def _bomb(depth: int) -> bytes:
    """Return arrays of two elements each, which lie at one place."""
    inner = b"\x00"
    for _ in range(depth):
        inner = b"\x07\x02\x00\x00\x00\x00" + len(inner).to_bytes(2, "little") + inner
    return inner


def test_answers_over_http_nest_documents() -> None:
    schema = pa.schema([("id", pa.int64()), ("payload", pa.large_string())])
    texts = pa.array(['{"a":1.50}', None], pa.large_string())
    batch = pa.record_batch([[1, 2], texts], schema=schema)
    page = RowPage(schema, [batch], 3, lambda _: "")
    body = rows_response(JSON, page, can_continue=False).body
    assert b'"payload":{"a":1.50}' in body and b'"payload":null' in body


NUMBERS = ("7", "7.0", "7e0", '"7"', "true", "null", "1.5", "-0.0", "1e2", "1e400")
NUMBERS += ("9223372036854775808", "9007199254740993", "[7]", '"\\u0078"')


def test_statements_cast_what_is_in_documents_as_conditions_do(mice: Instance) -> None:
    odd = mice.create_table("odd", schema="id:long, payload:dynamic", row_keys=["id"])
    with odd.writer() as writer:
        for number, text in enumerate(NUMBERS):
            writer.write({"id": number, "payload": f'{{"n":{text}}}'})
    mice.wait()
    documents = [f'{{"n":{text}}}' for text in NUMBERS]
    for kind, name in zip(IN_DOCUMENTS, ("BIGINT", "double", "TEXT", "BOOL"), strict=True):
        expected = typed(values_at(documents, [("n",)])[0], kind).to_pylist()
        for cast in (
            f"CAST(payload.n AS {name})",
            f"payload.n::{name}",
            f"TRY_CAST(payload.n AS {name})",
        ):
            found = mice.sql(f"SELECT {cast} AS n FROM odd ORDER BY id").to_arrow()
            assert found.column("n").to_pylist() == expected
    for narrow, wide in (("INTEGER", "BIGINT"), ("REAL", "DOUBLE")):
        narrowed, cast = (
            f"TRY_CAST(payload.n AS {narrow})",
            f"TRY_CAST(payload.n::{wide} AS {narrow})",
        )
        found = mice.sql(f"SELECT {narrowed} AS a, {cast} AS b FROM odd ORDER BY id").to_arrow()
        assert found.column("a").to_pylist() == found.column("b").to_pylist()
    total = (
        "SELECT payload.n::BIGINT AS n, count(*) AS c FROM odd GROUP BY 1 ORDER BY c DESC LIMIT 2"
    )
    assert [row["c"] for row in mice.sql(total).to_arrow().to_pylist()] == [8, 3]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("regexp_matches(payload.kind, '^a$')", [1, 8]),
        ("payload.kind SIMILAR TO 'a|c'", [1, 8]),
        ("payload.kind GLOB 'a*'", [1, 8]),
        ("upper(payload.user.name) || '!' = 'ANN!'", [1]),
        ("starts_with(payload.kind, 'b') OR length(payload.user.id) = 1", [2, 7]),
        ("CASE payload.kind WHEN 'a' THEN 1 ELSE 2 END = 1", [1, 8]),
        ("payload.kind::TEXT IN (SELECT name FROM docs)", [7]),
        ("payload.user.id::BIGINT = id", [7, 8]),
        ("(payload->'$.user')->>'$.id' = '8'", [8]),
        ("name = 'b' AND docs.payload.user.id = '7'", [2]),
    ],
)
def test_statements_take_texts_of_documents_where_texts_are_needed(
    mice: Instance, table: TableHandle, where: str, expected: list[int]
) -> None:
    found = mice.sql(f"SELECT id FROM docs WHERE {where} ORDER BY id").to_arrow()
    assert found.column("id").to_pylist() == expected


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id FROM docs WHERE payload.kind IN (SELECT 'a')",
        "SELECT id FROM docs WHERE payload.kind = name",
        "SELECT id FROM docs WHERE payload.user.id = id",
        "SELECT id FROM docs WHERE (payload.user.id, id) = (7, 7)",
        "SELECT id FROM docs WHERE (payload.kind, id) IN (('a', 1), ('b', 7))",
        "SELECT max((payload.n, id)) FROM docs",
        "SELECT id FROM docs WHERE payload = payload",
        "SELECT id FROM docs WHERE payload.kind",
        "SELECT a.id FROM docs a JOIN docs b ON a.payload.kind = b.payload.kind",
        "SELECT count(*) FROM docs a JOIN docs b USING (payload)",
        "SELECT count(*) FROM docs a NATURAL JOIN docs b",
        "SELECT count(*) FROM docs GROUP BY payload.kind",
        "SELECT payload.kind, count(*) FROM docs GROUP BY 1",
        "SELECT payload.kind AS k, count(*) FROM docs GROUP BY ALL",
        "SELECT payload.kind FROM docs ORDER BY payload.kind",
        "SELECT id, payload.kind FROM docs ORDER BY 2",
        "SELECT payload.kind AS k FROM docs ORDER BY k, id",
        "SELECT payload.kind FROM docs ORDER BY ALL",
        "SELECT DISTINCT payload.kind FROM docs",
        "SELECT payload.kind FROM docs UNION SELECT payload.n FROM docs",
        "SELECT payload.kind FROM docs UNION ALL SELECT payload.n FROM docs ORDER BY 1",
        "SELECT max(payload.n), count(*) FROM docs",
        "SELECT count(DISTINCT payload.n) FROM docs",
        "SELECT arg_max(id, payload.n) FROM docs",
        "SELECT list(id ORDER BY payload.n) FROM docs",
        "SELECT rank() OVER (PARTITION BY payload.kind ORDER BY id) FROM docs",
        "SELECT CASE payload.kind WHEN name THEN 1 END FROM docs",
        "SELECT coalesce(payload.kind, 'none') FROM docs",
        "SELECT payload.n + 1 FROM docs",
        "SELECT id FROM docs WHERE payload.n IN [1.5]",
        "SELECT id FROM docs WHERE payload.kind IN $list",
        "SELECT id FROM docs WHERE payload.kind.upper() = 'A'",
        "SELECT k FROM (SELECT payload.kind AS k FROM docs) GROUP BY k",
        "WITH c AS (SELECT payload AS p FROM docs) SELECT max(p.n) FROM c",
        "WITH RECURSIVE c AS (SELECT payload.n AS n FROM docs UNION ALL SELECT n FROM c WHERE n) "
        "SELECT n FROM c",
        "SELECT id, name FROM docs WHERE (SELECT d.payload.n FROM docs d LIMIT 1) = 1",
        "SELECT any_value(payload.kind) = any_value(name) FROM docs",
        "SELECT max(any_value(payload.n)) OVER () FROM docs",
        "SELECT min(k) FROM (SELECT lag(payload.kind) OVER (ORDER BY id) AS k FROM docs)",
        "SELECT arg_max(payload.kind, id, 2)[1] = 'a' FROM docs",
        "SELECT list(payload.kind)[1] = 'a' FROM docs",
        "SELECT l[1] = 'a' FROM (SELECT list(payload.kind) AS l FROM docs)",
        "SELECT s.k = 'a' FROM (SELECT {'k': payload.kind} AS s FROM docs)",
        "SELECT [payload.kind] = ['a'] FROM docs",
        "SELECT [payload.kind, 'a'] FROM docs",
        "SELECT list_sort(list(payload.n)) FROM docs",
        "SELECT payload.n::SMALLINT FROM docs",
        "SELECT payload.n::DECIMAL(9, 2) FROM docs",
        "SELECT payload.items::JSON[] FROM docs",
        "SELECT json_extract(payload, '$.n') + 1 FROM docs",
        "SELECT payload->'$.kind' AS k, count(*) FROM docs GROUP BY k",
        "SELECT d.id FROM docs d, json_each(d.payload) j ORDER BY j.value",
        "SELECT payload.kind[1:1] FROM docs",
        "SELECT json_extract(payload, '$.items[*]')[1] = 1 FROM docs",
        "SELECT json_extract(payload, ['$.kind', '$.n'])[1] = 'a' FROM docs",
        "SELECT array(SELECT payload.kind FROM docs)[1] = 'a'",
        "SELECT max(#2) FROM docs",
        "SELECT id, payload.kind FROM docs ORDER BY #2",
        "SELECT DISTINCT * FROM docs",
        "SELECT DISTINCT ON (2) id, payload.kind FROM docs",
        "SELECT * FROM docs GROUP BY ALL",
        "SELECT * FROM docs UNION SELECT * FROM docs",
        "SELECT payload.kind FROM docs UNION ALL SELECT name FROM docs",
        "SELECT payload FROM docs UNION ALL BY NAME SELECT id, name AS payload FROM docs",
        "SELECT max(COLUMNS('p.*')) FROM docs",
        "SELECT docs = docs FROM docs",
        "SELECT count(DISTINCT docs) FROM docs",
        "PIVOT docs ON name IN ('b') USING count(*)",
    ],
)
def test_a_statement_that_says_no_kind_is_refused(
    mice: Instance, table: TableHandle, text: str
) -> None:
    parameters = {"list": ["a"]} if "$list" in text else {}
    with pytest.raises(InvalidRequestError, match="any kind") as refused:
        mice.sql(text, parameters)
    assert "CAST(" in refused.value.hint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT any_value(payload.kind) = 'a' FROM docs", [True]),
        ("SELECT any_value(payload.user).id = 7 FROM docs", [True]),
        ("SELECT upper(first(payload.kind ORDER BY id DESC)) FROM docs", ["A"]),
        ("SELECT max(payload.n::DOUBLE) FROM docs WHERE (payload->'$.user.id') = 7", [1.5]),
        ("SELECT id FROM docs WHERE json_extract(payload, '$.user.id') = 7", [1, 7]),
        ("SELECT id FROM docs QUALIFY lag(payload.kind) OVER (ORDER BY id) = 'b'", [8]),
        ("SELECT d.id FROM docs d, json_each(d.payload) j WHERE j.value = 'b'", [7]),
        ("SELECT d.id FROM docs d, LATERAL (SELECT d.payload AS p) b WHERE b.p.kind = 'b'", [7]),
        (
            "WITH c AS (SELECT id, last(payload) p FROM docs GROUP BY id) SELECT id FROM c "
            "WHERE p.kind = 'b'",
            [7],
        ),
        ("SELECT x = 1 FROM (SELECT unnest(payload->'$.items[*]') AS x FROM docs)", [True, False]),
        ("SELECT v FROM docs, unnest(docs.payload->'$.items[*]') AS u(v) WHERE v = 1", ["1"]),
        ("SELECT p.kind FROM (SELECT payload AS p FROM docs) p WHERE p.kind = 'b'", ['"b"']),
        ("SELECT #1 FROM docs WHERE #2 = 'text'", [4]),
        ("SELECT id, payload.kind FROM docs ORDER BY #1 LIMIT 1", [1]),
        ("SELECT any_value(d).payload FROM docs d WHERE id = 4", ['"text"']),
        ("SELECT DISTINCT ON (id) * FROM docs WHERE payload.kind = 'b'", [7]),
        ("SELECT id FROM (SELECT * RENAME (payload AS p) FROM docs) WHERE p.kind = 'b'", [7]),
        (
            "SELECT id FROM (SELECT * REPLACE (payload->>'$.kind' AS payload) FROM docs) "
            "WHERE payload = 'b'",
            [7],
        ),
        ("SELECT l[1] FROM (SELECT list(payload.kind ORDER BY id) AS l FROM docs)", ['"a"']),
        ("SELECT id, any_value(payload.kind) FROM docs WHERE id = 7 GROUP BY ALL", [7]),
        ("SELECT payload.kind::DATE FROM docs WHERE id = 3", [None]),
        (
            'SELECT p.d::DATE::TEXT FROM docs, (SELECT \'{"d":"2026-01-31"}\'::JSON AS p) '
            "WHERE id = 1",
            ["2026-01-31"],
        ),
        ("SELECT payload.n::UUID FROM docs WHERE id = 1", [None]),
    ],
)
def test_what_gives_documents_on_is_compared_and_cast_as_they_are(
    mice: Instance, table: TableHandle, text: str, expected: list[object]
) -> None:
    assert mice.sql(text).to_arrow().column(0).to_pylist() == expected


def test_parts_of_documents_are_shown_and_counted_as_they_are(
    mice: Instance, table: TableHandle
) -> None:
    shown = (
        "SELECT payload.kind FROM docs WHERE id < 3 UNION ALL "
        "SELECT any_value(payload.n) FROM docs WHERE id = 1"
    )
    assert mice.sql(shown).to_arrow().column(0).to_pylist() == ['"a"', "null", "1.5"]
    last = "SELECT count(payload.kind) AS n, arg_max(payload.kind, id) AS k FROM docs"
    assert mice.sql(last).to_arrow().to_pylist() == [{"n": 4, "k": '"a"'}]


def test_a_column_of_text_is_no_document_of_another_table_with_its_name(
    mice: Instance, table: TableHandle
) -> None:
    texts = mice.create_table("texts", "id:long, payload:string", row_keys=["id"])
    texts.ingest(pa.table({"id": [1, 2], "payload": ["a", "b"]})).wait()
    joined = "SELECT t.id FROM texts t JOIN docs d ON t.id = d.id WHERE t.payload = 'a'"
    for text in (joined, f"{joined} AND d.payload.kind = 'a'"):
        assert mice.sql(text).to_arrow().column("id").to_pylist() == [1]
    named = "SELECT d.i FROM docs AS d(i, p) JOIN texts t ON d.i = t.id WHERE d.p.kind = 'a'"
    assert mice.sql(named).to_arrow().column("i").to_pylist() == [1]


@pytest.mark.parametrize("value", [dt.time(12), dt.date(2026, 1, 31), b"a", UUID(int=1)])
def test_a_parameter_that_json_has_no_kind_for_is_refused(
    mice: Instance, table: TableHandle, value: object
) -> None:
    with pytest.raises(InvalidRequestError, match="JSON has no such values"):
        mice.sql("SELECT id FROM docs WHERE payload.kind < $at", {"at": value})


@pytest.mark.parametrize("levels", [60, 95])
def test_a_statement_nested_deeply_is_answered_or_refused(
    mice: Instance, table: TableHandle, levels: int
) -> None:
    text = f"SELECT {'upper(' * levels}payload.kind{')' * levels} AS k FROM docs WHERE id = 1"
    if levels < 90:
        assert mice.sql(text).to_arrow().column("k").to_pylist() == ["A"]
    else:
        with pytest.raises(InvalidRequestError, match="nested too deeply"):
            mice.sql(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "SELECT q FROM (SELECT payload.kind AS q, id FROM docs), (SELECT 1 AS o) WHERE q = 'b'",
            ['"b"'],
        ),
        ("SELECT id FROM texts WHERE payload = 'a' AND id IN (SELECT id FROM docs)", [1]),
        ("SELECT id FROM docs WHERE payload.kind = 'a' AND id IN (SELECT id FROM texts)", [1]),
        (
            "WITH c AS (SELECT id, name AS payload FROM docs) SELECT id FROM c WHERE payload = 'b'",
            [2],
        ),
        ("WITH c AS (SELECT name AS payload FROM docs) SELECT max(payload) FROM c", ["b"]),
        ("SELECT k FROM (SELECT id, payload.kind AS k FROM docs) q WHERE q.k = 'b'", ['"b"']),
        ("SELECT payload.user.id AS i FROM docs WHERE i = 8", ["8"]),
        ("SELECT payload.kind AS name FROM docs WHERE name = 'b'", ["null"]),
        ("WITH c(i, p) AS (SELECT id, payload FROM docs) SELECT i FROM c WHERE p.kind = 'b'", [7]),
        ("WITH c AS (SELECT * FROM docs) SELECT id FROM c d WHERE d.payload[0] = 1", [3]),
        ("SELECT id FROM (SELECT id, payload->'$.user' AS u FROM docs) WHERE u.id = '7'", [2]),
    ],
)
def test_what_a_name_means_is_found_where_it_stands(
    mice: Instance, table: TableHandle, text: str, expected: list[object]
) -> None:
    texts = mice.create_table("texts", "id:long, payload:string", row_keys=["id"])
    texts.ingest(pa.table({"id": [1, 2], "payload": ["a", "b"]})).wait()
    assert mice.sql(text).to_arrow().column(0).to_pylist() == expected
