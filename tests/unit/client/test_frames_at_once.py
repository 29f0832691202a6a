"""A frame that a process ingests itself, in a folder: once, whole, and as a file if that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from dormouse.arrow.types import arrow_schema
from dormouse.client import ingesting
from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.errors import (
    ContendedError,
    DiskFullError,
    DormouseError,
    InvariantError,
    OutcomeUnknownError,
    OutOfSpaceError,
    RefusedSourceError,
    UnavailableError,
)
from dormouse.features import ingest as stage
from dormouse.files import loader
from tests.support.every_type import EVERY_TYPE, row_of_every_type

ROWS = pa.table({"k": [3, 1, 2]})


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    with Instance.open(tmp_path / "mice", background=False) as opened:
        yield opened


@pytest.fixture
def handle(instance: Instance) -> TableHandle:
    return instance.create_table("words", "k:long", row_keys=["k"])


def files(handle: TableHandle) -> list[str]:
    return [source.key for source in handle.services.sources.list("", since_ms=0)]


def keys(handle: TableHandle) -> list[int]:
    return handle.query().to_arrow()["k"].to_pylist()


def failing(commit: Callable[..., object], *errors: DormouseError) -> Callable[..., object]:
    """Return a commit that fails: before it lands, or after it if the outcome is unknown."""
    left = list(errors)

    def fail(*arguments: object) -> object:
        error = left.pop() if left else None
        if error is None or isinstance(error, OutcomeUnknownError):
            done = commit(*arguments)
        if error is not None:
            raise error
        return done

    return fail


def test_its_rows_are_there_when_the_call_ends_and_no_file_is_left(handle: TableHandle) -> None:
    ingested = handle.ingest(ROWS, name="mine.parquet")
    assert keys(handle) == [1, 2, 3]
    assert not files(handle)
    assert [source.key for source in ingested.sources] == ["words/mine.parquet"]
    assert not ingested.known
    ingested.wait()
    (job,) = (job for job in handle.jobs() if job.kind == "ingest")
    assert (job.state, job.rows, job.subject) == ("finished", 3, "words/mine.parquet")
    assert handle.ingest(ROWS, name="mine.parquet").known == {ingested.sources[0].id}
    handle.ingest(ROWS, name="mine.parquet", again=True)
    assert keys(handle) == [1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(
    "error", [ContendedError, UnavailableError, OutcomeUnknownError, OutOfSpaceError]
)
@pytest.mark.parametrize("key", [None, "monday"])
def test_after_a_failure_that_may_pass_it_is_dropped_and_is_there_once(
    handle: TableHandle,
    error: type[DormouseError],
    key: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stage, "_commit", failing(stage._commit, error("it may pass")))
    handle.ingest(ROWS, idempotency_key=key)
    assert keys(handle) == [1, 2, 3]
    assert len(files(handle)) == 1
    handle.ingest(ROWS, idempotency_key=key)
    assert keys(handle) == ([1, 2, 3] if key else [1, 1, 2, 2, 3, 3])


def test_rows_whose_commit_alone_finds_room_on_the_disk_have_landed(
    handle: TableHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "_record_end", failing(stage._record_end, DiskFullError("full")))
    handle.ingest(ROWS)
    assert keys(handle) == [1, 2, 3]
    assert not files(handle)


def test_rows_whose_news_cannot_be_sent_after_the_commit_are_there_once(
    handle: TableHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, left = handle.queues.send, [UnavailableError("the queue does not answer")]

    def fail_once(*arguments: object, **named: object) -> object:
        if left:
            raise left.pop()
        return send(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(handle.queues, "send", fail_once)
    handle.ingest(ROWS)
    assert not left
    assert keys(handle) == [1, 2, 3]


def test_a_fault_of_ours_is_raised_and_nothing_is_dropped(
    handle: TableHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "_commit", failing(stage._commit, InvariantError("a bug")))
    with pytest.raises(InvariantError):
        handle.ingest(ROWS)
    assert not files(handle)
    handle.ingest(ROWS)
    assert keys(handle) == [1, 2, 3]


def test_it_waits_for_others_where_the_table_says_so(
    instance: Instance, handle: TableHandle
) -> None:
    patient = {"ingest_batch_min_files": 2, "ingest_batch_max_age_seconds": 1}
    instance.set_properties("words", patient)
    handle.ingest(ROWS)
    assert len(files(handle)) == 1
    assert keys(handle) == [1, 2, 3]


def test_a_frame_that_the_stage_refuses_is_told_and_recorded(
    handle: TableHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> Sequence[object]:
        raise RefusedSourceError("it does not fit")

    monkeypatch.setattr("dormouse.files.loader.read_source", refuse)
    with pytest.raises(RefusedSourceError, match="it does not fit"):
        handle.ingest(ROWS, name="bad.parquet")
    (refused,) = (job for job in handle.jobs() if job.kind == "ingest")
    assert (refused.state, refused.subject) == ("refused", "words/bad.parquet")
    assert not files(handle)


def test_a_table_that_was_reset_meanwhile_takes_the_rows_as_a_file_or_says_so(
    handle: TableHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = replace(handle.table, generation=handle.table.generation - 1)
    monkeypatch.setattr(TableHandle, "latest", lambda self: replace(self, table=old))
    handle.ingest(ROWS)
    assert len(files(handle)) == 1
    assert keys(handle) == [1, 2, 3]


def test_few_rows_need_no_file_and_are_the_same_as_from_one(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[object] = []
    read_source = loader.read_source

    def noted(*given: object) -> object:
        read.append(given)
        return read_source(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(loader, "read_source", noted)
    rows = pa.Table.from_pylist([*map(row_of_every_type, range(9))], arrow_schema(EVERY_TYPE))
    quick, slow = (instance.create_table(name, EVERY_TYPE) for name in ("quick", "slow"))
    assert quick.ingest(rows).done
    assert not read
    with monkeypatch.context() as patch:
        patch.setattr(ingesting, "FEW_BYTES", 0)
        assert slow.ingest(rows).done
    assert read
    found = quick.query().to_arrow()
    assert found.num_rows == 9
    assert found.equals(slow.query().to_arrow())


def test_a_frame_whose_batches_are_empty_is_no_source(handle: TableHandle) -> None:
    batch = pa.RecordBatch.from_pydict({"k": pa.array([], pa.int64())})

    class Empty:
        def __len__(self) -> int:
            return 0

        def __arrow_c_stream__(self, requested: object = None) -> object:
            reader = pa.RecordBatchReader.from_batches(batch.schema, [batch])
            return reader.__arrow_c_stream__(requested)

    assert handle.ingest(Empty()).sources == ()
    assert not list(handle.shards())
