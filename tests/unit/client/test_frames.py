"""Frames in: of every library that speaks Arrow, whole or refused, once for each key."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.client.inferring import infer_schema
from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.errors import DormouseError, InvalidRequestError, NotFoundError, RefusedSourceError
from dormouse.query.result import QueryResult
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import ListType, Member, Primitive, StructType, show_type
from tests.support.instances import InMemory
from tests.support.world import World

duckdb = pytest.importorskip("duckdb")

ROWS = [{"id": 2, "name": None}, {"id": 1, "name": "a"}]
SORTED = [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
ARROW = pa.Table.from_pylist(ROWS, pa.schema([("id", pa.int64()), ("name", pa.string())]))


class ArrayOnly:
    """A batch that speaks the C data interface alone, as arrays of nanoarrow do."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: object | None = None) -> object:
        return self._batch.__arrow_c_array__(requested_schema)


class StreamOnly:
    """A frame, or stream, of a library that nobody here knows."""

    def __init__(self, rows: pa.Table | pa.RecordBatchReader) -> None:
        self._rows = rows

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._rows.__arrow_c_stream__(requested_schema)


class Slotted:
    """A stream to which no weak reference can be held."""

    __slots__ = ("_rows",)
    __arrow_c_stream__ = StreamOnly.__arrow_c_stream__
    __init__ = StreamOnly.__init__


class Released(StreamOnly):
    """A stream that raises an error when it is read again, as those of nanoarrow and arro3 do."""

    __module__ = "nanoarrow.array_stream"

    def __init__(self, rows: pa.RecordBatchReader) -> None:
        super().__init__(rows)
        self._is_released = False

    @property
    def schema(self) -> SchemaOnly:
        if self._is_released:
            raise RuntimeError("array stream is released")
        return SchemaOnly(self._rows.schema)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        if self._is_released:
            raise RuntimeError("array stream is released")
        self._is_released = True
        return super().__arrow_c_stream__(requested_schema)


class SchemaOnly:
    """A schema of a library that nobody here knows."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()


def polars_frame() -> Any:
    import polars as pl

    return pl.DataFrame(ARROW)


FRAMES: dict[str, Callable[[], Any]] = {
    "pandas": ARROW.to_pandas,
    "polars": polars_frame,
    "duckdb": lambda: duckdb.from_arrow(ARROW),
    "table": lambda: ARROW,
    "batch": lambda: ARROW.to_batches()[0],
    "reader": ARROW.to_reader,
    "dataset of chunks": lambda: pa.concat_tables([ARROW.slice(0, 1), ARROW.slice(1)]),
    "an array": lambda: ArrayOnly(ARROW.to_batches()[0]),
    "a stream": lambda: StreamOnly(ARROW),
}


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return InMemory.over(World(tmp_path / "world")).instance


@pytest.fixture
def table(instance: Instance) -> TableHandle:
    return instance.create_table("users", "id:long, name:string?", row_keys=["id"])


def rows_of(table: TableHandle) -> list[dict[str, Any]]:
    return table.query().to_arrow().to_pylist()


@pytest.mark.parametrize("library", FRAMES)
def test_a_frame_of_any_library_becomes_a_table_and_its_rows(
    library: str, instance: Instance
) -> None:
    table = instance.create_table("t", like=FRAMES[library](), row_keys=["id"])
    assert [show_type(field.type) for field in table.schema.fields] == ["long", "string"]
    table.ingest(FRAMES[library]()).wait()
    assert rows_of(table) == SORTED


STREAMS: dict[str, Callable[[pa.RecordBatchReader], Any]] = {
    "a reader": lambda reader: reader,
    "a stream that ends silently": StreamOnly,
    "a stream that cannot be remembered": Slotted,
    "a stream that is released": Released,
}
"""Rows that can be read once, however their library answers who reads them again."""


@pytest.mark.parametrize("kind", STREAMS)
def test_to_infer_a_schema_does_not_read_a_stream(kind: str, instance: Instance) -> None:
    stream = STREAMS[kind](ARROW.to_reader())
    instance.create_table("t", like=stream, row_keys=["id"]).ingest(stream).wait()
    assert instance.table("t").count() == 2


@pytest.mark.parametrize("kind", STREAMS)
def test_a_stream_is_read_once_whole_or_not_at_all(kind: str, instance: Instance) -> None:
    table = instance.create_table("t", "id:int", row_keys=["id"])
    batches = [pa.record_batch({"id": pa.array([n], pa.int64())}) for n in (1, 2**40, 3)]
    stream = STREAMS[kind](pa.RecordBatchReader.from_batches(batches[0].schema, iter(batches)))
    with pytest.raises(RefusedSourceError, match="row 2"):
        table.ingest(stream, idempotency_key="day 1")
    for arguments in ({"idempotency_key": "day 1"}, {}):  # 3 alone is left in it
        with pytest.raises(InvalidRequestError) as caught:
            table.ingest(stream, **arguments)
        assert "a stream is read once" in caught.value.hint
    if kind == "a stream that is released":
        with pytest.raises(InvalidRequestError, match="cannot be read"):
            infer_schema(stream, ["id"])
    with table.writer() as writer, pytest.raises(InvalidRequestError):
        writer.write(stream)
    good = STREAMS[kind](pa.table({"id": [4, 5]}).to_reader())
    table.ingest(good, idempotency_key="day 1").wait()
    with pytest.raises(InvalidRequestError):
        table.ingest(good, idempotency_key="day 2")
    table.ingest(pa.table({"id": [6]}), idempotency_key="day 2").wait()
    assert [row["id"] for row in rows_of(table)] == [4, 5, 6]


def test_a_stream_that_fails_by_itself_is_not_read_on(table: TableHandle) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield ARROW.to_batches()[0]
        raise ConnectionResetError

    stream = pa.RecordBatchReader.from_batches(ARROW.schema, failing())
    with pytest.raises(InvalidRequestError, match="failed after row 2 with Conn") as caught:
        table.ingest(stream, idempotency_key="k")
    assert isinstance(caught.value.__cause__, ConnectionResetError)
    with pytest.raises(InvalidRequestError, match="was begun"):
        table.ingest(stream, idempotency_key="k")
    table.ingest(ARROW, idempotency_key="k").wait()
    assert rows_of(table) == SORTED


def test_what_can_be_read_again_is_after_it_was_refused(instance: Instance) -> None:
    import polars as pl

    frame = pl.DataFrame({"id": [1, 2**40]})
    for n, each in enumerate(
        (frame, frame.to_pandas(), frame.to_arrow(), duckdb.sql("FROM frame"))
    ):
        table = instance.create_table(f"t{n}", "id:int", row_keys=["id"])
        with pytest.raises(RefusedSourceError):
            table.ingest(each)
        wide = instance.create_table(f"u{n}", "id:long", row_keys=["id"])
        wide.ingest(each).wait()
        assert wide.count() == 2


def test_rows_of_another_table_are_taken_once(table: TableHandle, instance: Instance) -> None:
    table.ingest(ARROW).wait()
    copy = instance.create_table("copy", table.schema)
    copy.ingest(table.query(exact=7), idempotency_key="k").wait()  # without rows by right
    found = table.query()
    copy.ingest(found, idempotency_key="k").wait()
    with pytest.raises(InvalidRequestError, match="begun or closed"):
        copy.ingest(found, idempotency_key="other")
    assert rows_of(copy) == SORTED


def test_an_iterator_of_paths_that_was_used_up_is_refused(
    table: TableHandle, tmp_path: Path
) -> None:
    paths = iter([tmp_path / "rows.parquet"])
    with pytest.raises(NotFoundError):
        table.ingest(paths)
    with pytest.raises(InvalidRequestError, match="has no paths: it was read before"):
        table.ingest(paths)


def test_python_objects_that_polars_exports_as_addresses_are_refused_by_name(
    instance: Instance,
) -> None:
    import polars as pl

    ids = [UUID(int=5), UUID(int=6)]
    frame = pl.DataFrame({"id": [1, 2], "u": pl.Series(ids, dtype=pl.Object)})
    table = instance.create_table("t", "id:long, u:bytes?", row_keys=["id"])
    for like in (frame, frame.schema):
        with pytest.raises(InvalidRequestError, match="Python objects in column 'u'"):
            instance.create_table("other", like=like, row_keys=["id"])
    for take in (table.ingest, table.writer().write):
        with pytest.raises(InvalidRequestError, match="Python objects in column 'u'"):
            take(frame)
    bytes_of_8 = pa.table({"id": [1], "u": pa.array([b"12345678"], pa.binary(8))})
    table.ingest(bytes_of_8).wait()
    assert rows_of(table) == bytes_of_8.to_pylist()


def test_uuids_come_back_from_every_library_or_are_refused_by_name(instance: Instance) -> None:
    schema = "id:long, u:uuid?, l:list<uuid>?, s:struct<m:uuid?>?"
    table = instance.create_table("t", schema, row_keys=["id"])
    rows: list[dict[str, Any]] = [
        {"id": 1, "u": UUID(int=5), "l": [UUID(int=6), None], "s": {"m": UUID(int=7)}},
        {"id": 2, "u": None, "l": None, "s": None},
    ]
    with table.writer() as writer:
        for row in rows:
            writer.write(row)
    writer.ingested.wait()
    for n, frame in enumerate((table.query().to_polars(), table.query().to_arrow())):
        again = instance.create_table(f"again{n}", schema, row_keys=["id"])
        again.ingest(frame).wait()
        assert rows_of(again) == rows
    text = {"l": [[str(UUID(int=6)), None]], "s": [{"m": str(UUID(int=7))}]}  # as DuckDB writes
    copy = instance.create_table("of_text", schema, row_keys=["id"])
    copy.ingest(
        pa.table(
            {
                "id": [1, 2],
                "u": [str(UUID(int=5)), None],
                **{name: [values[0], None] for name, values in text.items()},
            }
        )
    ).wait()
    assert rows_of(copy) == rows
    for column, values in {"u": [b"8 bytes!"], "l": [["0123456789abcdef"]]}.items():
        with pytest.raises(RefusedSourceError, match=f"column '{column}'"):
            table.ingest(pa.table({"id": [3], column: values}))


def test_a_schema_is_inferred_from_arrow_schemas_and_files(
    instance: Instance, tmp_path: Path
) -> None:
    import polars as pl

    path = tmp_path / "rows.parquet"
    pq.write_table(ARROW, path)
    for n, like in enumerate((ARROW.schema, pl.DataFrame(ARROW).schema, path, str(path))):
        table = instance.create_table(
            f"t{n}", like=like, row_keys=["id"], sort_keys=["name"], types={"id": "int"}
        )
        assert table.schema.key_types == (Primitive.INT,)
        assert [field.name for field in table.schema.sort_keys] == ["name"]


@pytest.mark.parametrize(
    ("arguments", "error", "reason"),
    [
        ({}, InvalidRequestError, "needs a schema"),
        ({"schema": "id:long", "like": ARROW}, InvalidRequestError, "needs a schema"),
        ({"like": ARROW}, InvalidRequestError, "no row keys are named"),
        ({"like": ARROW, "row_keys": "id"}, InvalidRequestError, "row_keys is a list"),
        ({"like": ARROW, "row_keys": ["ID"]}, InvalidRequestError, "no column 'ID'"),
        ({"like": "nothing.csv", "row_keys": ["id"]}, NotFoundError, "there is no file"),
        ({"like": 5, "row_keys": ["id"]}, InvalidRequestError, "int has no Arrow schema"),
        (
            {"like": pd.DataFrame({"id": [1], "n": [None]}), "row_keys": ["id"]},
            InvalidRequestError,
            "column 'n' is null in every row",
        ),
        (
            {"like": pd.DataFrame({"id": [1, "x"]}), "row_keys": ["id"]},
            InvalidRequestError,
            "column .id. of type object",
        ),
        (
            {"like": pd.DataFrame([[1, 2]], columns=["id", "id"]), "row_keys": ["id"]},
            InvalidRequestError,
            "columns of one name: .id.",
        ),
        (
            {"like": pa.schema([("id", pa.int64())] * 2), "row_keys": ["id"]},
            InvalidRequestError,
            "columns of one name: 'id'",
        ),
        (
            {"schema": "id:long", "row_keys": ["id"], "types": {"id": "int"}},
            InvalidRequestError,
            "names the keys and types itself",
        ),
        (
            {"schema": {"id": "long"}, "row_keys": ["id"]},
            InvalidRequestError,
            "a schema is a dormouse.Schema, text or a pyarrow.Schema, not dict",
        ),
        (
            {"schema": Schema((Field("id", Primitive.LONG),)), "row_keys": ["id"]},
            InvalidRequestError,
            "names the keys and types itself",
        ),
    ],
)
def test_a_schema_that_cannot_be_inferred_makes_no_table(
    arguments: dict[str, Any], error: type[DormouseError], reason: str, instance: Instance
) -> None:
    with pytest.raises(error, match=reason):
        instance.create_table("t", **arguments)
    assert instance.tables() == []


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        ({"id": [1], "other": ["x"]}, "no column 'other' of the frame"),
        ({"name": ["x"]}, "the frame has no column 'id'"),
        ({"id": ["SECRET"]}, "column 'id' is string in the frame; the table wants long"),
        ({"id": [1.0]}, "column 'id' is double in the frame"),
        ({"id": [1, None]}, "row 2, column 'id': there is no value"),
        ({"id": [1], "name": [7]}, "column 'name' is int64 in the frame"),
        ({"id": pa.array([2**63], pa.uint64())}, "row 1, column 'id'"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused_before_anything_is_uploaded(
    frame: dict[str, Any], reason: str, table: TableHandle
) -> None:
    with pytest.raises(RefusedSourceError, match=reason) as caught:
        table.ingest(pa.table(frame))
    assert "SECRET" not in caught.value.explanation
    assert table.pending() == 0


def test_two_columns_of_one_name_are_refused(table: TableHandle) -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
    with pytest.raises(RefusedSourceError, match="column 'id' more than once"):
        table.ingest(twice)


def test_an_index_is_a_column_by_its_name_and_not_by_the_rows_that_are_left(
    instance: Instance,
) -> None:
    frame = pd.DataFrame({"id": [1, 2, 3, 4]})
    named = pd.DataFrame({"name": ["a", "b", "c", "d"]}, pd.RangeIndex(1, 5, name="id"))
    for n, left in enumerate(([0, 2], [0, 1, 3], [])):
        table = instance.create_table(f"t{n}", like=frame.iloc[left], row_keys=["id"])
        table.ingest(frame.iloc[left]).wait()
        assert [row["id"] for row in rows_of(table)] == sorted(at + 1 for at in left)
        table = instance.create_table(f"u{n}", like=named.iloc[left], row_keys=["id"])
        table.ingest(named.iloc[left]).wait()
        assert rows_of(table) == [{"id": at + 1, "name": "abcd"[at]} for at in sorted(left)]


def test_what_a_result_gave_to_a_library_comes_back(instance: Instance) -> None:
    columns = (
        "id:long, n:long?, l:list<long>?, m:map<string,long>?, mm:map<long,list<long>>?, "
        "u:uuid?, lu:list<uuid>?, mu:map<string,uuid>?, su:struct<u:uuid?>?, d:decimal(38,0)?, "
        "lt:list<timestamp>?, md:map<date,decimal(5,1)>?, ms:map<string,struct<a:long?>>?"
    )
    large, unique = 2**53 + 1, UUID(int=5)
    row = {
        "id": 1,
        "n": large,
        "l": [large, None],
        "m": [("x", large), ("y", None)],
        "mm": [(large, [large, None])],
        "u": unique,
        "lu": [unique, None],
        "mu": [("x", unique)],
        "su": {"u": unique},
        "d": Decimal(2**80),
        "lt": [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)],
        "md": [(dt.date(2024, 1, 1), Decimal("1.5"))],
        "ms": [("x", {"a": large}), ("y", None)],
    }
    empty = {name: [] if name[0] in "lm" else None for name in row}
    table = instance.create_table("t", columns, row_keys=["id"])
    with table.writer() as writer:
        for each in (row, {"id": 2}, {**empty, "id": 3}):
            writer.write(each)
    writer.ingested.wait()
    wanted = rows_of(table)
    assert wanted[0] == row
    duck: Callable[[Any], Any] = lambda result: duckdb.from_arrow(result.to_arrow())  # noqa: E731
    for n, get in enumerate((QueryResult.to_pandas, QueryResult.to_polars, duck)):
        again = instance.create_table(f"again{n}", columns, row_keys=["id"])
        again.ingest(get(table.query())).wait()
        assert rows_of(again) == wanted


ZONE = dt.timezone(dt.timedelta(hours=2))
NOON = dt.datetime.fromisoformat("2024-01-01T12:00")
CHANGED = {
    "date": [NOON.date(), NOON],
    "timestamp_ntz": [NOON, NOON.replace(tzinfo=ZONE)],
    "timestamp": [NOON.replace(tzinfo=ZONE), NOON],
    "time": [dt.time(1, tzinfo=ZONE)],
    "bytes": [b"a", "b"],
    "uuid": [UUID(int=1), "0123456789abcdef"],
    "list<date>": [[NOON.date(), NOON]],
    "list<timestamp_ntz>": [[pd.Timestamp("2024-01-01T00:00:00.000000001")]],
    "struct<a:bytes?>": [{"a": b"a"}, {"a": "b"}],
    "long": [1, 2**63],
    "string": ["a", 1],
    "map<string,long>": [[("x", 1)], "x"],
}
"""Columns of Python objects, some of which Arrow would take as other values of the type."""


def test_no_python_object_is_taken_for_another_value(instance: Instance) -> None:
    for n, (kind, values) in enumerate(CHANGED.items()):
        table = instance.create_table(f"t{n}", f"id:long, v:{kind}?", row_keys=["id"])
        objects = pd.Series(values, dtype=object)
        with pytest.raises(RefusedSourceError, match=r"row \d, column 'v'"):
            table.ingest(pd.DataFrame({"id": range(len(values)), "v": objects}))


@pytest.mark.parametrize("bits", [32, 64])
def test_a_whole_number_that_is_too_large_is_refused_with_the_bounds(
    bits: int, instance: Instance
) -> None:
    kind = {32: "int", 64: "long"}[bits]
    table = instance.create_table("t", f"id:long, v:{kind}?", row_keys=["id"])
    for value in (2 ** (bits - 1), -(2 ** (bits - 1)) - 1):
        objects = pd.Series([1, value], dtype=object)
        with pytest.raises(RefusedSourceError, match="row 2, column 'v'") as caught:
            table.ingest(pd.DataFrame({"id": [1, 2], "v": objects}))
        assert f"{2 ** (bits - 1) - 1}" in caught.value.hint
    ends = [2 ** (bits - 1) - 1, -(2 ** (bits - 1))]
    table.ingest(pd.DataFrame({"id": [1, 2], "v": pd.Series(ends, dtype=object)})).wait()
    assert [row["v"] for row in rows_of(table)] == ends


def test_numbers_of_a_database_that_come_as_text_are_decimals(instance: Instance) -> None:
    def frame(*texts: str | None) -> pa.Table:
        opaque = pa.opaque(pa.string(), "numeric", "PostgreSQL")
        numbers = pa.ExtensionArray.from_storage(opaque, pa.array(texts, pa.string()))
        return pa.table({"id": pa.array(range(len(texts)), pa.int64()), "n": numbers})

    types = {"n": "decimal(9,2)"}
    with pytest.warns(UserWarning, match="opaque"):
        table = instance.create_table("t", like=frame(), row_keys=["id"], types=types)
    table.ingest(frame("1.50", None, "-2")).wait()
    assert [row["n"] for row in rows_of(table)] == [Decimal("1.5"), None, Decimal(-2)]
    for wrong in ("NaN", "1.005", "1e9"):
        with pytest.raises(RefusedSourceError, match="row 1, column 'n'"):
            table.ingest(frame(wrong))


def test_what_cannot_be_read_is_named_with_the_call_that_helps(table: TableHandle) -> None:
    import polars as pl

    class Cursor:
        def __iter__(self) -> Iterator[Any]:
            raise RuntimeError

        def fetch_record_batch(self) -> None: ...

    broken = StreamOnly(ARROW)
    broken.__arrow_c_stream__ = None  # type: ignore[assignment,method-assign]  # a TypeError
    for frame, reason, call in (
        (pl.LazyFrame({"id": [1]}), "LazyFrame is no frame", "collect()"),
        (Cursor(), "Cursor is no frame", "fetch_record_batch()"),
        (duckdb.connect(), "is no frame", "to_arrow_table()"),
        (pl.Series("id", [1]), "Series cannot be read", "to_frame()"),
        (pd.Series([1], name="id"), "Series cannot be read", "to_frame()"),
        (pl.Series("s", [{"id": 1}, None]), "Series failed after row 0", "to_frame()"),
        (pd.DataFrame({"id": [1j]}), "column 'id' of type complex", ""),
        (pd.DataFrame({"id": pd.arrays.SparseArray([0])}), "column 'id' of type Sparse", ""),
        (pl.DataFrame({"id": pl.Series([1], dtype=pl.Int128)}), "column 'id' has integers", ""),
        (pd.DataFrame({"id": [1.0]}), "column 'id' is double", "convert_dtypes()"),
        (broken, "StreamOnly cannot be read", ""),
    ):
        with pytest.raises(InvalidRequestError, match=reason) as caught:
            table.ingest(frame, idempotency_key="day")
        assert call in caught.value.hint


def test_an_index_without_a_name_is_explained(table: TableHandle) -> None:
    frame = pd.DataFrame({"id": [1]}, index=["x"])
    with pytest.raises(RefusedSourceError) as caught:
        table.ingest(frame)
    assert "reset_index(drop=True)" in caught.value.hint
    with pytest.raises(InvalidRequestError, match="__index_level_0__") as like:
        infer_schema(frame, ["id"])
    assert like.value.hint == caught.value.hint
    table.ingest(frame.rename_axis("name")).wait()
    assert rows_of(table) == [{"id": 1, "name": "x"}]


def test_a_null_deep_inside_is_refused(instance: Instance) -> None:
    member = Member("a", Primitive.LONG)
    kind = ListType(StructType((member,)))
    schema = Schema((Field("id", Primitive.LONG),), values=(Field("v", kind, nullable=True),))
    table = instance.create_table("t", schema)
    arrow = pa.schema([("id", pa.int64()), ("v", pa.list_(pa.struct([("a", pa.int64())])))])
    good = pa.Table.from_pylist([{"id": 1, "v": None}, {"id": 2, "v": [None, {"a": 1}]}], arrow)
    table.ingest(good).wait()
    bad = pa.Table.from_pylist([{"id": 1, "v": []}, {"id": 2, "v": [{"a": None}]}], arrow)
    with pytest.raises(RefusedSourceError, match="row 2, column 'v'") as caught:
        table.ingest(bad)
    assert "'a' has no value in it" in caught.value.hint
    assert table.count() == 2


def test_a_frame_without_rows_adds_none(table: TableHandle) -> None:
    for arguments in ({}, {"idempotency_key": "k"}):
        ingested = table.ingest(ARROW.schema.empty_table(), **arguments)
        ingested.wait()
        assert ingested.sources == ()
    assert table.pending() == 0
    table.ingest(ARROW, idempotency_key="k").wait()
    assert rows_of(table) == SORTED


def test_a_frame_with_an_idempotency_key_is_ingested_once_whatever_it_holds(
    table: TableHandle,
) -> None:
    import polars as pl

    first = table.ingest(ARROW, idempotency_key="load 1/ü")
    for frame in (ARROW.slice(0, 1), ARROW, ARROW.slice(0, 1), pl.DataFrame(ARROW)):
        table.ingest(frame, idempotency_key="load 1/ü").wait()
        assert table.count() == 2
    first.wait()
    table.ingest(ARROW, idempotency_key="load 2").wait()
    assert table.count() == 4
    table.ingest(ARROW).wait()
    table.ingest(ARROW).wait()
    assert table.count() == 8


@pytest.mark.parametrize(
    ("what", "arguments", "reason"),
    [
        (ARROW, {"idempotency_key": "k", "name": "x.parquet"}, "decides what the file is called"),
        (ARROW, {"idempotency_key": "k", "again": True}, "ingested once"),
        (ARROW, {"idempotency_key": ""}, "1 to 1,024 characters"),
        (ARROW, {"name": "rows.csv"}, "cannot be called 'rows.csv'"),
        ("rows.csv", {"idempotency_key": "k"}, "files need no idempotency key"),
        ([{"id": 1}], {}, "values of type dict cannot be ingested"),
        ({"id": 1}, {}, "values of type dict cannot be ingested"),
        (7, {}, "values of type int cannot be ingested"),
    ],
)
def test_what_cannot_be_ingested_is_refused_with_what_to_do(
    what: Any, arguments: dict[str, Any], reason: str, table: TableHandle
) -> None:
    with pytest.raises(InvalidRequestError, match=reason) as caught:
        table.ingest(what, **arguments)
    assert caught.value.hint or "files need no" in reason


def test_rows_are_written_one_by_one_in_files_of_a_sensible_size(table: TableHandle) -> None:
    with table.writer(file_bytes=20_000) as writer:
        for n in range(5000):
            writer.write({"id": n})
        writer.write(ARROW.to_pandas())
    assert 2 < len(writer.ingested.sources) < 20
    writer.ingested.wait()
    assert table.count() == 5002


def test_a_writer_drops_nothing_of_what_came_before_an_error(table: TableHandle) -> None:
    mistyped = pytest.raises(RefusedSourceError, match="row 2, column 'id': .* not of type long")
    with mistyped, table.writer() as writer:
        writer.write({"id": 1})
        writer.write({"id": "x"})
    with pytest.raises(RefusedSourceError, match="no column 'idd'"), table.writer() as writer:
        writer.write({"idd": 1})
    with pytest.raises(KeyError), table.writer() as writer:
        writer.write({"id": 1})
        raise KeyError
    assert table.pending() == table.count() == 0
    with pytest.raises(InvalidRequestError, match="the writer is closed"):
        writer.write({"id": 1})
    with pytest.raises(InvalidRequestError, match="a int is no row"), table.writer() as writer:
        writer.write(5)  # type: ignore[arg-type]


def test_a_writer_has_no_row_of_a_frame_that_it_refused(instance: Instance) -> None:
    table = instance.create_table("t", "id:int", row_keys=["id"])
    parts = [pa.table({"id": pa.array([n], pa.int64())}) for n in (2, 2**40, 3)]
    with table.writer(file_bytes=1) as writer:
        writer.write({"id": 1})
        for frame in (pa.concat_tables(parts), pa.concat_tables(parts).to_reader()):
            with pytest.raises(RefusedSourceError, match="row 2"):
                writer.write(frame)
        writer.write(pa.concat_tables(parts[::2]))
        writer.write({"id": 4})
    writer.ingested.wait()
    assert [row["id"] for row in rows_of(table)] == [1, 2, 3, 4]


def test_a_writer_that_refused_rows_after_others_is_closed(table: TableHandle) -> None:
    with table.writer() as writer:
        with pytest.raises(RefusedSourceError, match="row 1,"):
            for n in range(5000):  # checked together: the good ones of them are lost with it
                writer.write({"id": n or "x"})
        with pytest.raises(InvalidRequestError, match="the writer is closed"):
            writer.write({"id": 1})
    assert table.count() == 0


def test_a_writer_that_is_repeated_with_its_key_adds_what_was_missing(table: TableHandle) -> None:
    rows = [{"id": n} for n in range(5000)]
    with pytest.raises(KeyError), table.writer(file_bytes=20_000, idempotency_key="w") as writer:
        for row in rows[:3000]:
            writer.write(row)
        raise KeyError
    begun = writer.ingested
    begun.wait()
    assert 0 < table.count() < 3000
    for _ in range(2):
        with table.writer(file_bytes=20_000, idempotency_key="w") as writer:
            for row in rows:
                writer.write(row)
        writer.ingested.wait()
        assert [row["id"] for row in rows_of(table)] == list(range(5000))
    assert {source.id for source in begun.sources} < writer.ingested.known


def test_a_writer_without_rows_drops_no_file(table: TableHandle) -> None:
    with table.writer() as writer:
        pass
    assert writer.ingested.sources == ()


def test_a_row_key_that_is_too_large_is_refused(instance: Instance) -> None:
    table = instance.create_table("t", "k:string", row_keys=["k"])
    with pytest.raises(RefusedSourceError, match="the row key takes"):
        table.ingest(pa.table({"k": ["x" * 5000]}))
    with pytest.raises(RefusedSourceError, match="the row key takes"), table.writer() as writer:
        writer.write({"k": "x" * 5000})


def test_times_and_nested_values_are_written_as_they_are(instance: Instance) -> None:
    table = instance.create_table("t", "at:timestamp, tags:list<string>?", row_keys=["at"])
    at = dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1)))
    with table.writer() as writer:
        writer.write({"at": at, "tags": ["a", None]})
    writer.ingested.wait()
    assert rows_of(table) == [{"at": at, "tags": ["a", None]}]


@pytest.mark.parametrize("kind", [pa.ListViewArray, pa.LargeListViewArray])
def test_views_of_lists_keep_their_items_in_whatever_order_they_lie(
    kind: Any, instance: Instance
) -> None:
    view = kind.from_arrays([3, 0, 0, 1], [1, 0, 2, 2], pa.array([1, 2, 3, None]))
    lists = [[None], [], [1, 2], [2, 3]]
    assert view.to_pylist() == lists
    frame = pa.table({"id": [0, 1, 2, 3], "v": view})
    table = instance.create_table("t", like=frame, row_keys=["id"])
    table.ingest(frame.slice(1)).wait()
    assert [row["v"] for row in rows_of(table)] == lists[1:]


def test_views_of_lists_and_dictionaries_are_read_at_any_depth(instance: Instance) -> None:
    import polars as pl

    words = pl.Series([["a", None], None, [], ["b", "a"]], dtype=pl.List(pl.Categorical))
    inner = pa.array([[[1], None], None, [], [[2, None]]], pa.list_(pa.list_view(pa.int64())))
    given = pa.table({"id": [0, 1, 2, 3], "v": inner, "w": words.to_arrow()})
    table = instance.create_table("t", like=given, row_keys=["id"])
    table.ingest(given.slice(1)).wait()
    assert rows_of(table) == given.to_pylist()[1:]


def test_a_column_without_a_value_is_taken_whatever_its_type(table: TableHandle) -> None:
    no_names = [pd.Series([None], dtype=kind) for kind in ("float64", "category", "int64[pyarrow]")]
    for number, names in enumerate(no_names):
        table.ingest(pd.DataFrame({"id": [number], "name": names})).wait()
    table.ingest(pd.DataFrame({"id": [], "name": []})).wait()
    assert rows_of(table) == [{"id": number, "name": None} for number in range(3)]
    with pytest.raises(RefusedSourceError, match="column 'name' is double in the frame"):
        table.ingest(pd.DataFrame({"id": [1, 2], "name": [None, 0.5]}))


def test_a_null_in_a_dictionary_or_a_run_is_a_null(table: TableHandle) -> None:
    nothing = pa.array([None], pa.int64())
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), nothing)
    for ids in (pa.DictionaryArray.from_arrays(pa.array([0]), nothing), runs):
        with pytest.raises(RefusedSourceError, match="row 1, column 'id': there is no value"):
            table.ingest(pa.table({"id": ids}))


def test_values_of_new_tables_can_be_null_unless_a_schema_says_otherwise(
    instance: Instance,
) -> None:
    inner = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    required = [("id", pa.int64()), ("v", pa.int64()), ("s", inner)]
    schema = pa.schema([pa.field(*each, nullable=False) for each in required])
    table = instance.create_table("t", like=schema.empty_table(), row_keys=["id"])
    assert show_type(table.schema.field_named("s").type) == "struct<a:long?>"
    assert [field.nullable for field in table.schema.fields] == [False, True, True]
    written = instance.create_table("u", like=schema, row_keys=["id"])
    assert not any(field.nullable for field in written.schema.fields)


def test_what_a_column_was_is_said_if_its_type_does_not_show_it(instance: Instance) -> None:
    for name, frame, remark in (
        ("p", pd.DataFrame({"id": [1], "v": pd.period_range("2024", periods=1)}), "pandas.period"),
        ("g", pa.table({"id": [1], "v": pa.array([b"x"])}), "geoarrow.wkb"),
    ):
        given = pa.table(frame) if isinstance(frame, pd.DataFrame) else frame
        if name == "g":
            kind = given.schema.field("v").with_metadata({"ARROW:extension:name": remark})
            given = given.cast(given.schema.set(1, kind))
        with pytest.warns(UserWarning, match=f"column 'v' is {remark} .* the table has"):
            instance.create_table(name, like=given, row_keys=["id"])


def test_objects_that_a_library_would_change_are_refused(instance: Instance) -> None:
    import polars as pl

    fine = pd.Timestamp("2024-01-01T00:00:00.000000001")
    table = instance.create_table("t", "id:long, v:timestamp_ntz?", row_keys=["id"])
    for given in (
        pl.DataFrame({"id": [1], "v": pl.Series([object()], dtype=pl.Object)}),
        pd.DataFrame({"id": [1], "v": pd.Series([fine], dtype=object)}),
    ):
        for attempt in (
            lambda given=given: table.ingest(given),
            lambda given=given: instance.create_table("u", like=given, row_keys=["id"]),
        ):
            with pytest.raises(InvalidRequestError, match="column 'v'"):
                attempt()


def test_a_struct_with_more_than_a_variant_is_a_struct(instance: Instance) -> None:
    given = pa.table({"id": [1], "v": [{"value": b"", "metadata": b"", "more": 1}]})
    table = instance.create_table("t", like=given, row_keys=["id"])
    assert isinstance(table.schema.field_named("v").type, StructType)


def test_a_variant_makes_documents(instance: Instance) -> None:
    given = duckdb.sql("SELECT 1 AS id, {'n': 1, 'x': [1.50, NULL], 's': 'é'}::VARIANT AS v")
    table = instance.create_table("t", like=given, row_keys=["id"])
    table.ingest(given).wait()
    (found,) = table.query().to_arrow().column("v").to_pylist()
    assert json.loads(found, parse_float=str) == {"n": 1, "x": ["1.50", None], "s": "é"}
    with pytest.raises(RefusedSourceError, match="row 1, column 'v'"):
        table.ingest(pa.table({"id": [1], "v": [{"value": b"", "metadata": b""}]}))


def test_times_that_cannot_be_written_are_refused(instance: Instance) -> None:
    table = instance.create_table("t", "id:long, d:date?, at:timestamp?", row_keys=["id"])
    for value in (
        "'infinity'::DATE AS d",
        "'0001-12-31 (BC)'::DATE AS d",
        "'0001-12-31 (BC)'::TIMESTAMP AS at",
        "'infinity'::TIMESTAMP AS at",
    ):
        with pytest.raises(RefusedSourceError, match="row 1, column '(d|at)'") as caught:
            table.ingest(duckdb.sql(f"SELECT 1 AS id, {value}").to_arrow_table())
        assert "years 1 to 9999" in caught.value.hint
    zone = dt.timezone(dt.timedelta(hours=-1))
    with pytest.raises(RefusedSourceError, match="column 'at'"), table.writer() as writer:
        writer.write({"id": 1, "at": dt.datetime.max.replace(tzinfo=zone)})
    ends = ["0001-01-01", "9999-12-31"]
    table.ingest(duckdb.sql(f"SELECT 1 AS id, unnest({ends})::DATE AS d")).wait()
    assert [table.count(where=f"d = '{day}'") for day in ends] == [1, 1]
