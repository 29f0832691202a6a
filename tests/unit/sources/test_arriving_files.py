"""A large dropped file is read while it arrives: the same rows, the same refusals, and nothing is
loaded of a file that does not arrive.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from dormouse.errors import RefusedSourceError, UnavailableError
from dormouse.files import parquet_files, text_files
from dormouse.files.formats import read_source
from dormouse.files.loader import SourceLoader, load_sources
from dormouse.ports import Arrivals, Arrived, StoppedError
from dormouse.schema.schema import Schema
from dormouse.state.sources import Source
from tests.support.depth import in_turn

PATIENCE_SECONDS = 20
"""How long a test waits for rows before it fails; none waits for them otherwise."""
SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "k", "type": "LongType"}],
        "valueFields": [{"name": "v", "type": "StringType"}],
    }
)
GROUPS, GROUP_ROWS = 4, 20_000
COUNT = GROUPS * GROUP_ROWS
ROWS = pa.table({"k": range(COUNT), "v": [f"text {n * 7919 % 53}" for n in range(COUNT)]})
PART = 70_000
"""The size of the pieces in which files arrive, in bytes."""


def parquet() -> bytes:
    body = io.BytesIO()
    pq.write_table(ROWS, body, row_group_size=GROUP_ROWS)
    return body.getvalue()


def arrow() -> bytes:
    body = io.BytesIO()
    with pa.ipc.new_file(body, ROWS.schema) as writer:
        writer.write_table(ROWS, GROUP_ROWS)
    return body.getvalue()


def text() -> bytes:
    body = io.BytesIO()
    csv.write_csv(ROWS, body)
    return body.getvalue()


def lines() -> bytes:
    return b"".join(
        b'{"k":%d,"v":"%s"}\n' % (k, v.encode())
        for k, v in zip(ROWS["k"].to_pylist(), ROWS["v"].to_pylist(), strict=True)
    )


def zstd(body: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(body, asbytes=True))


FILES: dict[str, Callable[[], bytes]] = {
    "t/x.parquet": parquet,
    "t/x.arrow": arrow,
    "t/x.csv": text,
    "t/x.json": lines,
    "t/x.csv.gz": lambda: gzip.compress(text(), 1),
    "t/x.csv.bz2": lambda: bz2.compress(text(), 1),
    "t/x.csv.zst": lambda: zstd(text()),
    "t/x.parquet.gz": lambda: gzip.compress(parquet(), 1),
}
FILES = {key: cache(made) for key, made in FILES.items()}
STREAMED = [key for key in FILES if "arrow" not in key and key != "t/x.parquet.gz"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files have many blocks, and each row group be a run."""
    monkeypatch.setattr(text_files, "BLOCK_BYTES", 8192)
    monkeypatch.setattr(parquet_files, "RUN_BYTES", 1)


def in_order(body: bytes, key: str) -> list[int]:
    """Return where the pieces of a file begin, as they arrive: of Parquet the end first, and last
    one that has the dictionary of another row group than the first.
    """
    starts = list(range(0, len(body), PART))
    first = len(starts) - (3 if key.endswith(".parquet") else 0)
    return starts[first:] + starts[:first]


class Bucket:
    """A bucket with one file, which arrives in pieces.

    Before a piece arrives, `before` is called with its number; until then its bytes are garbage.
    """

    def __init__(self, body: bytes, before: Callable[[int], object] = lambda number: None) -> None:
        self.body, self.before = body, before
        self.ended: list[BaseException | None] = []

    def download(self, source: Source, local: Path, arrived: Arrived | None = None) -> None:
        assert arrived is not None
        local.write_bytes(b"\xee" * len(self.body))
        try:
            for number, start in enumerate(in_order(self.body, source.key)):
                self.before(number)
                piece = self.body[start : start + PART]
                with local.open("r+b") as file:
                    file.seek(start)
                    file.write(piece)
                arrived(start, start + len(piece))
        except BaseException as error:
            self.ended.append(error)
            raise
        self.ended.append(None)

    def list(self, prefix: str, *, since_ms: int) -> Iterator[Source]:
        raise AssertionError("the sources are named")


def arriving(bucket: Bucket, key: str, scratch: Path) -> tuple[Path, Arrivals, Future[None]]:
    """Begin to download a file."""
    local, arrivals = scratch / "local", Arrivals(len(bucket.body))
    threads = ThreadPoolExecutor(1)
    source = Source("ingest", key, "etag", len(bucket.body))
    download = threads.submit(bucket.download, source, local, arrivals.add)
    download.add_done_callback(arrivals.end)
    threads.shutdown(wait=False)
    assert arrivals.is_incomplete() or download.done()
    return local, arrivals, download


@pytest.mark.parametrize("key", FILES)
def test_rows_read_while_a_file_arrives_are_those_of_the_whole_file(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = FILES[key]()
    last = in_order(body, key)[-1]
    asked = asked_for(monkeypatch, last, last + PART)

    def hold(number: int) -> None:
        if number == len(body) // PART:
            asked.wait(PATIENCE_SECONDS)

    local, arrivals, _ = arriving(Bucket(body, hold), key, tmp_path)
    found = pa.Table.from_batches(read_source(local, key, SCHEMA, arrivals=arrivals))
    assert found.to_pydict() == ROWS.to_pydict()


@pytest.mark.parametrize("key", STREAMED)
def test_the_first_rows_are_read_before_all_of_the_file_is_there(key: str, tmp_path: Path) -> None:
    body, seen = FILES[key](), Future[Any]()

    def hold(number: int) -> None:
        if number == len(body) // PART:
            seen.result(PATIENCE_SECONDS)

    local, arrivals, download = arriving(Bucket(body, hold), key, tmp_path)
    batches = read_source(local, key, SCHEMA, arrivals=arrivals)
    first = next(batches)
    assert first["k"].to_pylist() == list(range(first.num_rows))
    assert not download.done()
    seen.set_result(None)
    assert first.num_rows + sum(batch.num_rows for batch in batches) == COUNT


class Loading:
    """The ingest of one file."""

    def __init__(self, bucket: Bucket, key: str, scratch: Path) -> None:
        self.loader = SourceLoader(SCHEMA, scratch, memory_bytes=1 << 26)
        self.bucket, self.scratch = bucket, scratch
        self.source = Source("ingest", key, "etag", len(bucket.body))

    def load(self) -> str:
        """Load the file; return why it is refused, or nothing."""
        with closing(load_sources(self.bucket, self.loader, [self.source], self.scratch)) as loaded:
            ((_, refusal),) = loaded
        assert not list(self.scratch.iterdir())
        return str(refusal or "")


def asked_for(monkeypatch: pytest.MonkeyPatch, low: int, high: int) -> threading.Event:
    """Return what is set when a reader waits for one of these bytes, or for all."""
    asked, wait, wait_for_all = threading.Event(), Arrivals.wait, Arrivals.wait_for_all

    def waiting(arrivals: Arrivals, start: int, end: int) -> int:
        if low <= start < high:
            asked.set()
        return wait(arrivals, start, end)

    def waiting_for_all(arrivals: Arrivals) -> None:
        asked.set()
        wait_for_all(arrivals)

    monkeypatch.setattr(Arrivals, "wait", waiting)
    monkeypatch.setattr(Arrivals, "wait_for_all", waiting_for_all)
    return asked


@pytest.mark.parametrize("key", FILES)
@pytest.mark.parametrize(
    "error",
    in_turn(
        [UnavailableError("no answer"), OSError(errno.ENOSPC, "no space"), MemoryError()], parts=3
    ),
    ids=repr,
)
@pytest.mark.parametrize("at", ["begin", "middle", "end"])
def test_a_file_that_does_not_arrive_is_neither_loaded_nor_refused(
    key: str, error: Exception, at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = FILES[key]()
    starts = in_order(body, key)
    fails_at = {"begin": 0, "middle": len(starts) * 2 // 3, "end": len(starts) - 1}[at]
    asked = asked_for(monkeypatch, starts[fails_at], starts[fails_at] + PART)

    def fail(number: int) -> None:
        if number == fails_at:
            assert not number or asked.wait(PATIENCE_SECONDS), "nobody waits for it"
            raise error

    loading = Loading(Bucket(body, fail), key, tmp_path)
    with pytest.raises(type(error)):
        loading.load()
    assert loading.loader.sorter.rows == 0
    assert not list(tmp_path.iterdir())


def test_a_file_that_was_overwritten_while_it_arrived_is_refused_for_that(tmp_path: Path) -> None:
    def overwritten(number: int) -> None:
        if number == 3:
            raise RefusedSourceError("'t/x.csv' was overwritten")

    loading = Loading(Bucket(text(), overwritten), "t/x.csv", tmp_path)
    assert loading.load() == "'t/x.csv' was overwritten"
    assert loading.loader.sorter.rows == 0


def test_bytes_that_no_reader_needs_must_arrive_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader of Parquet never sees what lies between the row groups and the footer."""
    body = parquet()
    footer = pq.read_metadata(io.BytesIO(body)).serialized_size + 8
    body = body[:-footer] + b"\xff" * 10 * PART + body[-footer:]

    assert Loading(Bucket(body), "t/x.parquet", tmp_path).load() == ""
    is_read = asked_for(monkeypatch, 0, 0)

    def fail(number: int) -> None:
        if number == len(body) // PART - 5:
            assert is_read.wait(PATIENCE_SECONDS), "nobody waits for it"
            raise UnavailableError("no answer")

    loading = Loading(Bucket(body, fail), "t/x.parquet", tmp_path)
    with pytest.raises(UnavailableError):
        loading.load()
    assert loading.loader.sorter.rows == 0


@pytest.mark.parametrize("key", ["t/x.csv", "t/x.csv.gz", "t/x.json"])
def test_a_refusal_names_the_line_and_ends_the_download(key: str, tmp_path: Path) -> None:
    body = lines() if key == "t/x.json" else text()
    wrong, place = body.replace(b"15,", b"no,", 1), body.index(b"15,")
    line = body.count(b"\n", 0, place) + 1
    packed = gzip.compress(wrong, 1) if key.endswith(".gz") else wrong
    refused = Future[None]()

    def hold(number: int) -> None:
        if number > 3 and number == len(packed) // PART:
            refused.result(PATIENCE_SECONDS)

    bucket = Bucket(packed, hold)
    loading = Loading(bucket, key, tmp_path)
    stop = Arrivals.stop

    def stopped(arrivals: Arrivals) -> None:
        stop(arrivals)
        refused.set_result(None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Arrivals, "stop", stopped)
        assert f"line {line}" in loading.load()
    assert [type(error) for error in bucket.ended] == [StoppedError]
    assert loading.loader.sorter.rows == 0
