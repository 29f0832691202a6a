"""Shards of a run are published side by side; the last, which ends the run, after all others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dormouse.errors import AlreadyExistsError, UnavailableError
from dormouse.schema.schema import Schema
from dormouse.shards import writer as publishing
from dormouse.shards.writer import ShardContext, ShardWriter, WrittenShard, write_shards
from dormouse.state.partitions import NewShard, Partition, PartitionTree
from tests.support.batches import Row
from tests.support.memory_storage import MemoryStorage
from tests.support.tables import batches_of

PATIENCE_SECONDS = 20
"""How long an upload waits for others before the test fails; no test waits for it otherwise."""
MANY = 50_000
"""So many batches that a thread which has failed is noticed long before the last."""
SCHEMA = Schema.from_json({"rowKeyFields": [{"name": "k", "type": "LongType"}]})
SHARDS = 6
LEAVES = list(PartitionTree.from_split_points([(n,) for n in range(1, SHARDS)]).leaves())
LAST = SHARDS - 1
ROWS: list[Row] = [{"k": number} for number in range(SHARDS)]


class Uploads(MemoryStorage):
    """Calls `before` with the number of a shard before it becomes an object, and `after` then."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[int], object] = lambda number: None
        self.after: Callable[[int], object] = lambda number: None

    def put(self, path: str, body: bytes) -> bool:
        self.before(number_of(path))
        done = super().put(path, body)
        self.after(number_of(path))
        return done

    @property
    def there(self) -> list[int]:
        """The numbers of the shards that are objects."""
        return sorted(number_of(stored.path) for stored in self.list(""))


def number_of(path: str) -> int:
    return int(path.removesuffix(".parquet").rpartition("-")[2])


@pytest.fixture
def storage() -> Uploads:
    return Uploads()


def run(
    storage: Uploads,
    scratch: Path,
    batches: Iterator[pa.RecordBatch] | None = None,
    part: int | None = None,
    at_the_end: Callable[[], object] | None = None,
) -> list[NewShard]:
    """Write a shard for each leaf."""
    rows = batches_of(ROWS, SCHEMA, 1) if batches is None else batches
    context = ShardContext("table", SCHEMA, "job", part=part)
    return write_shards(
        storage, rows, context, LEAVES, lambda n: f"job-{n}", scratch=scratch, at_the_end=at_the_end
    )


def test_shards_are_published_together_and_returned_in_their_order(
    storage: Uploads, tmp_path: Path
) -> None:
    together = threading.Barrier(SHARDS - 1)
    storage.before = lambda number: number == LAST or together.wait(PATIENCE_SECONDS)
    shards = run(storage, tmp_path)
    assert [new.shard.min_key for new in shards] == [(number,) for number in range(SHARDS)]
    assert storage.there == list(range(SHARDS))


def test_rows_of_the_next_shards_are_written_while_those_before_are_finished(
    storage: Uploads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish, write = ShardWriter.finish, ShardWriter.write
    has_last_row = threading.Event()

    def written(writer: ShardWriter, leaf: Partition, batch: pa.RecordBatch) -> None:
        write(writer, leaf, batch)
        if batch["k"][0].as_py() == LAST:
            has_last_row.set()

    def finished(writer: ShardWriter, *, last: bool) -> WrittenShard:
        assert has_last_row.wait(PATIENCE_SECONDS)
        return finish(writer, last=last)

    monkeypatch.setattr(ShardWriter, "write", written)
    monkeypatch.setattr(ShardWriter, "finish", finished)
    assert [new.shard.rows for new in run(storage, tmp_path)] == [1] * SHARDS


def test_a_shard_that_cannot_be_finished_stops_the_job_and_leaves_no_files(
    storage: Uploads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(writer: ShardWriter, *, last: bool) -> WrittenShard:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(ShardWriter, "finish", full)
    with pytest.raises(OSError, match="no space left"):
        run(storage, tmp_path)
    assert not list(tmp_path.iterdir())
    assert not storage.there


class _WhenAsked(Future[Any]):
    """Does its work when its result is asked for."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__()
        self._work = work

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            self.set_result(self._work())
        return super().result(timeout)


class Slow(Executor):
    """Threads as slow as can be: nothing is done before somebody asks for its result."""

    def __init__(self, _: int) -> None:
        """Have no threads."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return _WhenAsked(partial(fn, *args, **kwargs))


def test_the_shard_that_ends_the_run_is_an_object_after_all_others(
    storage: Uploads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "ThreadPoolExecutor", Slow)
    order: list[int] = []
    storage.after = order.append
    run(storage, tmp_path)
    assert order == list(range(SHARDS))


def test_all_shards_of_a_part_are_published_together_as_none_ends_the_run(
    storage: Uploads, tmp_path: Path
) -> None:
    together = threading.Barrier(SHARDS)
    storage.before = lambda number: together.wait(PATIENCE_SECONDS)
    assert len(run(storage, tmp_path, part=0)) == SHARDS


def test_what_is_done_at_the_end_is_done_beside_the_last_shard_and_after_all_others(
    storage: Uploads, tmp_path: Path
) -> None:
    together, found = threading.Barrier(2), []

    def at_the_end() -> None:
        found.append(storage.there)
        together.wait(PATIENCE_SECONDS)

    storage.before = lambda number: number < LAST or together.wait(PATIENCE_SECONDS)
    assert len(run(storage, tmp_path, at_the_end=at_the_end)) == SHARDS
    assert found == [list(range(LAST))]


def test_what_is_wrong_at_the_end_ends_the_run_and_a_part_has_no_end(
    storage: Uploads, tmp_path: Path
) -> None:
    def wrong() -> None:
        raise AlreadyExistsError("the run was written in parts")

    assert len(run(storage, tmp_path, part=0, at_the_end=wrong)) == SHARDS
    with pytest.raises(AlreadyExistsError, match="in parts"):
        run(Uploads(), tmp_path, at_the_end=wrong)


def fail(wanted: int) -> Callable[[int], None]:
    def failing(number: int) -> None:
        if number == wanted:
            raise UnavailableError("no network")

    return failing


@pytest.mark.parametrize("number", range(SHARDS))
def test_a_run_that_lacks_a_shard_is_never_ended(
    storage: Uploads, tmp_path: Path, number: int
) -> None:
    storage.before = fail(number)
    with pytest.raises(UnavailableError, match="no network"):
        run(storage, tmp_path)
    assert LAST not in storage.there
    assert not list(storage.list_uploads(""))
    assert not list(tmp_path.iterdir())


def test_an_upload_that_fails_ends_the_run_while_rows_still_come(
    storage: Uploads, tmp_path: Path
) -> None:
    def many() -> Iterator[pa.RecordBatch]:
        yield from batches_of(ROWS, SCHEMA, 1)
        for _ in range(MANY):
            yield from batches_of(ROWS[LAST:], SCHEMA, 1)
        pytest.fail("all rows are asked for although the first shard is not there")

    storage.before = fail(0)
    with pytest.raises(UnavailableError, match="no network"):
        run(storage, tmp_path, many())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("limit", "value"), [("WAITING_BYTES", 1), ("UPLOADS_AT_ONCE", 1)])
def test_files_of_complete_shards_take_a_bounded_part_of_the_scratch_space(
    storage: Uploads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(publishing, limit, value)
    waits, waited = publishing.wait, threading.Semaphore(0)
    most: list[int] = []

    def wait(*given: Any, **how: Any) -> object:
        waited.release()
        return waits(*given, **how)

    def upload(number: int) -> None:
        assert number >= LAST - 1 or waited.acquire(timeout=PATIENCE_SECONDS), "nobody waits for it"
        most.append(len(list(tmp_path.iterdir())))

    monkeypatch.setattr(publishing, "wait", wait)
    storage.before = upload
    assert len(run(storage, tmp_path)) == SHARDS
    assert max(most) <= 2, "one that is published, and one that is written"
