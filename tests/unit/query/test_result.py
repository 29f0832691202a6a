"""Frames out: a result is read by every library, and shows its first rows without losing them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from dormouse.errors import MissingPackageError
from dormouse.query import result as module
from dormouse.query.result import SHOWN_ROWS, PeekableBatches, QueryResult
from dormouse.readers.read_counters import ReadCounters

duckdb = pytest.importorskip("duckdb")
pl = pytest.importorskip("polars")

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
    assert result_of().to_arrow().column("id").to_pylist() == IDS
    assert [batch.num_rows for batch in result_of().to_batches()] == [4] * 10
    assert result_of().to_pandas()["id"].tolist() == IDS
    assert result_of().to_polars()["id"].to_list() == IDS
    assert pl.DataFrame(result_of())["id"].to_list() == IDS
    assert pd.DataFrame.from_arrow(result_of())["id"].tolist() == IDS
    assert pa.table(result_of()).column("id").to_pylist() == IDS
    result = result_of()  # noqa: F841  # duckdb finds it by its name
    assert duckdb.sql("SELECT sum(id), count(name) FROM result").fetchall() == [(780, 30)]


def test_polars_and_duckdb_read_the_memory_of_the_batches_themselves() -> None:
    """Fixed-width values are not copied on the way: their address stays."""
    big = pa.RecordBatch.from_pydict({"id": list(range(10_000)), "name": ["x"] * 10_000})
    address = big.column(0).buffers()[1].address
    read = result_of([big]).to_polars()
    assert read["id"].to_arrow().buffers()[1].address == address
    stream = pa.RecordBatchReader.from_stream(result_of([big]))
    assert stream.read_next_batch().column(0).buffers()[1].address == address


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
        [
            pa.array([b"\1" * 16], pa.binary(16)),
            pa.array([1], pa.timestamp("ns")),
            pa.array([b"a"]),
        ],
        names=["u", "at", "b"],
    )
    shown = repr(QueryResult(batch.schema, PeekableBatches([batch]), ReadCounters(), 7))
    assert shown.splitlines()[-1].split() == [
        "01010101-0101-0101-0101-010101010101",
        "1970-01-01",
        "00:00:00.000000001",
        "61",
    ]
