"""Frames out: a result is read by every library, and shows its first rows without losing them."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from importlib.util import find_spec
from typing import Any
from uuid import UUID

import pandas as pd
import pyarrow as pa
import pytest

from dormouse.errors import InvalidRequestError, LimitExceededError, MissingPackageError
from dormouse.query import result as module
from dormouse.query.result import SHOWN_ROWS, PeekableBatches, QueryResult
from dormouse.shards.reading import ReadCounters

duckdb = pytest.importorskip("duckdb")

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
BATCHES = [
    pa.RecordBatch.from_pydict({"id": list(range(i, i + 4)), "name": ["<b>", None, "\x1b[1m", "x"]})
    for i in range(0, 40, 4)
]
IDS = list(range(40))


class Counted:
    """Batches, and how many were taken."""

    def __init__(self) -> None:
        self.taken = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in BATCHES:
            self.taken += 1
            yield batch


def result_of(batches: Any = BATCHES) -> QueryResult:
    return QueryResult(SCHEMA, PeekableBatches(batches), ReadCounters(), 7)


def test_every_library_reads_a_result() -> None:
    import polars as pl

    assert result_of().to_arrow().column("id").to_pylist() == IDS
    assert [batch.num_rows for batch in result_of().to_batches()] == [4] * 10
    assert result_of().to_pandas()["id"].tolist() == IDS
    assert result_of().to_polars()["id"].to_list() == IDS
    assert pl.DataFrame(result_of())["id"].to_list() == IDS
    assert pd.DataFrame.from_arrow(result_of())["id"].tolist() == IDS
    assert pa.table(result_of()).column("id").to_pylist() == IDS
    result = result_of()  # noqa: F841  # duckdb finds it by its name
    assert duckdb.sql("SELECT sum(id), count(name) FROM result").fetchall() == [(780, 30)]


LONG_TEXTS = [f"a text that does not fit a view {n}" for n in range(1000)]
COUNTS = list(range(1000))
SHARED = {
    "int": pa.array(COUNTS, pa.int32()),
    "long": pa.array(COUNTS),
    "double": pa.array(COUNTS, pa.float64()),
    "boolean": pa.array([True, False] * 500),
    "timestamp": pa.array(COUNTS, pa.timestamp("us", "UTC")),
    "timestamp_ntz_ns": pa.array(COUNTS, pa.timestamp("ns")),
    "date": pa.array(COUNTS, pa.date32()),
    "decimal": pa.array([Decimal("1.25")] * 1000, pa.decimal128(9, 2)),
}
"""Columns that Polars reads where they are."""
PARTLY = {
    "string": pa.array(LONG_TEXTS),
    "bytes": pa.array([text.encode() for text in LONG_TEXTS]),
    "uuid": pa.array([bytes([1]) * 16] * 1000, pa.uuid()),
    "list": pa.array([[n] for n in COUNTS]),
}
"""Columns of which it makes offsets or views of its own, and reads the content where it is."""


def result_of_column(column: pa.Array[Any]) -> QueryResult:
    batch = pa.RecordBatch.from_arrays([column], names=["c"])
    return QueryResult(batch.schema, PeekableBatches([batch]), ReadCounters(), 7)


def addresses(column: pa.Array[Any]) -> set[int]:
    return {buffer.address for buffer in column.buffers() if buffer is not None}


def read_by_polars(column: pa.Array[Any]) -> set[int]:
    import polars as pl

    read = result_of_column(column).to_polars()["c"]
    return addresses(read.to_arrow(compat_level=pl.CompatLevel.newest()))


@pytest.mark.parametrize("kind", SHARED)
def test_polars_reads_the_memory_of_the_batches_themselves(kind: str) -> None:
    assert read_by_polars(SHARED[kind]) == addresses(SHARED[kind])


@pytest.mark.parametrize("kind", PARTLY)
def test_polars_reads_content_where_it_is(kind: str) -> None:
    assert addresses(PARTLY[kind]) & read_by_polars(PARTLY[kind])


def test_polars_copies_times_of_day() -> None:
    clock = pa.array(COUNTS, pa.time64("us"))
    assert not addresses(clock) & read_by_polars(clock)  # Polars counts nanoseconds


def test_a_stream_has_the_memory_of_the_batches() -> None:
    for column in (*SHARED.values(), *PARTLY.values()):
        stream = pa.RecordBatchReader.from_stream(result_of_column(column))
        assert addresses(stream.read_next_batch().column(0)) == addresses(column)


def test_duckdb_reads_a_batch_that_is_larger_than_its_own_memory_may_be() -> None:
    result = result_of_column(pa.array(range(4_000_000)))  # 32 MB
    with duckdb.connect(config={"memory_limit": "8MB", "threads": 1}) as connection:
        connection.execute("SET temp_directory = ''")
        found = connection.sql("SELECT sum(c), count(*) FROM result").fetchall()
        assert found == [(7_999_998_000_000, 4_000_000)]
        result = result_of_column(pa.array(range(4_000_000)))  # noqa: F841  # found by its name
        with pytest.raises(duckdb.OutOfMemoryException):
            connection.execute("CREATE TABLE copied AS FROM result")


def test_uuids_are_of_their_own_type_for_every_library_that_has_one_at_any_depth() -> None:
    ids = [UUID(int=n) for n in (7, 8)]
    raw = pa.array([each.bytes for each in ids], pa.binary(16))
    stored = pa.record_batch(
        {
            "id": raw,
            "list": pa.array([[each.bytes] for each in ids], pa.list_(raw.type)),
            "map": pa.array([[(1, each.bytes)] for each in ids], pa.map_(pa.int64(), raw.type)),
            "in": pa.StructArray.from_arrays([raw], ["u"]),
        }
    )

    def read() -> QueryResult:
        batches = PeekableBatches([stored])
        return QueryResult(stored.schema, batches, ReadCounters(), 7).for_programs()

    first = read().to_arrow().to_pylist()[0]
    assert first == {"id": ids[0], "list": [ids[0]], "map": [(1, ids[0])], "in": {"u": ids[0]}}
    frame = read().to_pandas()
    assert frame["id"].tolist() == ids and frame["list"][0].tolist() == [ids[0].bytes]
    assert read().to_polars()["id"].to_list() == [each.bytes for each in ids]
    result = read()
    found = duckdb.sql("SELECT id, typeof(id), list FROM result").fetchall()
    assert found == [(each, "UUID", [each]) for each in ids]
    result = read()
    assert str(ids[0]) in repr(result) and str(ids[0]) in result._repr_html_()
    kept = addresses(read().to_arrow().column("id").chunk(0).storage)
    assert kept == addresses(raw)  # the type is another name of the same memory


def test_a_result_without_uuids_is_as_it_is() -> None:
    result = result_of()
    assert result.for_programs() is result


READS: dict[str, Any] = {
    "to_arrow": QueryResult.to_arrow,
    "to_batches": QueryResult.to_batches,
    "iter": iter,
    "to_pandas": QueryResult.to_pandas,
    "to_polars": QueryResult.to_polars,
    "reader": lambda result: result.reader,
    "C stream": pa.RecordBatchReader.from_stream,
}


@pytest.mark.parametrize("second", READS)
def test_a_result_that_was_begun_or_closed_is_not_read_again_as_empty(second: str) -> None:
    whole, partly, closed = result_of(), result_of(), result_of()
    whole.to_arrow()
    batches = partly.to_batches()
    next(batches)
    closed.close()
    empty = result_of([])
    assert empty.to_arrow().num_rows == 0
    for result in (whole, partly, closed, empty):
        with pytest.raises(InvalidRequestError, match="begun or closed before"):
            READS[second](result)
    assert sum(batch.num_rows for batch in batches) == 36  # who began it reads on


def test_of_two_streams_of_a_result_the_second_to_be_read_is_refused() -> None:
    result = result_of()
    first, second = result.to_batches(), result.to_batches()
    assert len(list(first)) == 10
    for _ in range(2):
        with pytest.raises(InvalidRequestError, match="begun or closed before"):
            list(second)


def test_what_is_missing_of_a_result_is_an_error_and_not_its_end() -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield BATCHES[0]
        raise LimitExceededError("too long")

    result = result_of(failing())
    for read in (repr, QueryResult.to_arrow):  # to show a result reads it
        with pytest.raises(LimitExceededError):
            read(result)
    batches = result_of(failing()).to_batches()
    next(batches)
    for _ in range(2):
        with pytest.raises(LimitExceededError):
            next(batches)
    closed = result_of()
    batches = closed.to_batches()
    next(batches)
    closed.close()
    with pytest.raises(InvalidRequestError, match="closed before it was read to its end"):
        next(batches)


def test_whole_numbers_are_exact_in_pandas_where_nulls_are_near() -> None:
    big = 2**53 + 1
    kinds = {"int64": pa.int64(), "uint64": pa.uint64()}
    columns = {name: pa.array([big, None], kind) for name, kind in kinds.items()}
    table = pa.table(
        {
            **columns,
            "id": [big, 2],
            "small": pa.array([1, None], pa.int32()),
            "list": [[big], [None]],
            "struct": [{"a": big}, {"a": None}],
            "map": pa.array([[("x", big)], [("x", None)]], pa.map_(pa.string(), pa.int64())),
            "deep": [[{"a": [big]}], [{"a": [None]}]],
        }
    )
    (batch,) = table.to_batches()
    frame = QueryResult(batch.schema, PeekableBatches([batch]), ReadCounters(), 7).to_pandas()
    assert frame.dtypes.astype(str).tolist()[:4] == ["Int64", "UInt64", "int64", "Int32"]
    assert frame["small"].sum() == 1 and frame["int64"].isna().tolist() == [False, True]
    again = pa.Table.from_pandas(frame.drop(columns="map"), preserve_index=False)
    assert again.to_pylist() == table.drop_columns("map").to_pylist()
    assert frame["map"].tolist() == [[("x", big)], [("x", None)]]


def test_batches_are_taken_while_they_are_read() -> None:
    counted = Counted()
    batches = result_of(counted).to_batches()
    assert counted.taken == 0
    next(batches)
    assert counted.taken == 1


def test_a_result_shows_its_first_rows_and_keeps_them() -> None:
    counted = Counted()
    result = result_of(counted)
    shown = repr(result)
    assert shown.splitlines()[0] == "rows of version 7"
    assert len(shown.splitlines()) == 3 + SHOWN_ROWS + 1 and shown.endswith("… more rows")
    assert counted.taken == 3  # no more than what is shown needs
    assert repr(result) == shown and counted.taken == 3
    assert result.to_arrow().column("id").to_pylist() == IDS
    assert repr(result).splitlines()[0].endswith("40 read: a result is read once")


def test_what_is_shown_is_escaped() -> None:
    text, html = repr(result_of()), result_of()._repr_html_()
    assert "\x1b" not in text + html and r"\x1b[1m" in text
    assert "<b>" in text and "<b>" not in html.replace("<p><b>rows of version 7</b></p>", "")
    assert "&lt;b&gt;" in html


def test_a_result_without_rows_shows_its_columns() -> None:
    assert repr(result_of([])).splitlines()[1:] == ["id  name", "──  ────"]


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    for read in (result_of().to_pandas, result_of().to_polars):
        with pytest.raises(MissingPackageError, match="is not installed") as caught:
            read()
        assert "to_arrow()" in caught.value.hint
    assert find_spec("pandas")


def test_columns_that_do_not_fit_a_line_are_counted() -> None:
    wide = pa.RecordBatch.from_pydict({f"column{n:02}": ["x" * n * 10] for n in range(30)})
    result = QueryResult(wide.schema, PeekableBatches([wide]), ReadCounters(), 7)
    lines = repr(result).splitlines()
    assert all(len(line) <= 102 for line in lines) and lines[1].split()[:2] == [
        "column00",
        "column01",
    ]
    assert lines[-1] == "… 26 more columns"
    html = result._repr_html_()
    assert "column19" in html and "column20" not in html and "… 10 more columns" in html


def test_uuids_and_times_are_shown_as_people_write_them() -> None:
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b"\1" * 16], pa.uuid()), pa.array([1], pa.timestamp("ns")), pa.array([b"a"])],
        names=["u", "at", "b"],
    )
    shown = repr(QueryResult(batch.schema, PeekableBatches([batch]), ReadCounters(), 7))
    assert shown.splitlines()[-1].split() == [
        "01010101-0101-0101-0101-010101010101",
        "1970-01-01",
        "00:00:00.000000001",
        "61",
    ]
