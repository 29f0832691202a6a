"""The partitions, shards and files that a table lists are those of its version."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq
import pytest

from dormouse.client.table import TableHandle
from dormouse.errors import NotFoundError
from dormouse.jobs import record
from dormouse.state.jobs import Failed, Refused, TrackedJob
from tests.support.instances import InMemory
from tests.support.world import LETTERS, World, letters


@pytest.fixture
def memory(tmp_path: Path) -> InMemory:
    return InMemory.over(World(tmp_path / "a world"))


@pytest.fixture
def table(memory: InMemory) -> TableHandle:
    table = memory.instance.create_table("letters", LETTERS, split_points=["m"])
    for name, text in (("1", "abz"), ("2", "yxyz")):
        memory.world.drop(f"letters/{name}.parquet", letters(text))
        memory.world.settle()
    return table


def test_ranges_of_leaves_tile_the_keys_and_find_the_rows_of_each(table: TableHandle) -> None:
    low, high = table.partitions()
    assert (low.min, low.max, high.min, high.max) == ((), ("m",), ("m",), None)
    assert (low.range, high.range) == ("..letter=m", "letter=m..")
    assert [table.count([(each.min, each.max)]) for each in (low, high)] == [2, 5]
    assert (low.rows, high.rows, low.is_leaf, low.depth) == (2, 5, True, 1)


def test_split_partitions_are_listed_if_asked_for_above_what_they_became(
    table: TableHandle,
) -> None:
    everything = table.partitions(everything=True)
    assert [each.id for each in everything][0] == "root"
    assert [each.depth for each in everything] == [0, 1, 1]
    assert [each.id for each in everything[1:]] == [each.id for each in table.partitions()]


def test_shards_have_their_keys_and_partitions(table: TableHandle) -> None:
    shards = table.shards()
    assert [each.min_key for each in shards] == sorted(each.min_key for each in shards)
    assert sum(each.live_rows for each in shards) == table.count() == 7
    assert {each.id for each in shards} == set(table.state().shards) - set(
        table.state().unreferenced
    )
    known = {each.id for each in table.partitions()}
    assert all(each.partitions and known.issuperset(each.partitions) for each in shards)
    first = shards[0]
    assert (first.first, first.min_key) == ("letter=a", ("a",))


def test_files_are_uris_at_which_the_rows_lie(table: TableHandle) -> None:
    files = table.files()
    rows = 0
    for each in files:
        assert each.uri.startswith("file:///") and " " not in each.uri
        path = Path(unquote(urlparse(each.uri).path))
        assert path.stat().st_size == each.size_bytes
        assert pq.read_metadata(path).num_rows == each.rows
        rows += each.live_rows
    assert rows == table.count()


def test_an_earlier_version_has_its_own_shards(memory: InMemory, table: TableHandle) -> None:
    version = table.state().version
    before = {each.id for each in table.shards()}
    memory.world.drop("letters/3.parquet", letters("q"))
    memory.world.settle()
    assert before < {each.id for each in table.shards()}
    assert before == {each.id for each in table.shards(as_of=version)}
    with pytest.raises(NotFoundError):
        table.files(as_of=table.state().version + 1)


def test_a_dropped_file_waits_until_it_is_ingested(memory: InMemory, table: TableHandle) -> None:
    source = memory.world.drop("letters/3.parquet", letters("q"))
    (waiting,) = [job for job in table.jobs() if job.state == "waiting"]
    assert (waiting.subject, waiting.size_bytes) == ("letters/3.parquet", source.size_bytes)
    assert not waiting.is_finished
    assert (table.status().files_waiting, table.status().pending > 0) == (1, True)
    memory.world.settle()
    assert [job for job in table.jobs() if job.state == "waiting"] == []
    assert table.status().files_waiting == 0


def test_a_refused_file_does_not_wait_and_one_that_failed_is_shown_once(
    memory: InMemory, table: TableHandle
) -> None:
    services = memory.world.services
    refused = memory.world.drop("letters/4.parquet", letters("r"))
    record(services, TrackedJob(table.table.id, refused.id, "ingest"), Refused("no"))
    failed = memory.world.drop("letters/5.parquet", letters("s"))
    record(services, TrackedJob(table.table.id, failed.id, "ingest"), Failed("throttled"))
    states = {job.job_id: job.state for job in table.jobs()}
    assert (states[refused.id], states[failed.id]) == ("refused", "failed")
    assert len({job.job_id for job in table.jobs()}) == len(table.jobs())
    assert table.status().files_waiting == 1
