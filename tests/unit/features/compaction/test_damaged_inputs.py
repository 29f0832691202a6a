"""compact over inputs that are not as they were written: what comes of it is a disputed shard."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow.parquet as pq
import pytest

from dormouse.errors import DamagedShardError
from dormouse.features.checking import is_sound
from dormouse.features.compaction import compact
from dormouse.messages.stages import CompactionJob, OutboundMessage
from dormouse.rows import merging
from dormouse.state.state import AssignJob, DisputeReason
from dormouse.storage import FolderStorage, read_pieces
from dormouse.stored.paths import run_of_shard, shard_id_of, shard_path
from dormouse.tables.table import Table
from tests.support.damage import flipped, last_row_group, rewrite
from tests.support.depth import in_turn
from tests.support.made_once import made_once
from tests.support.small_blocks import write_small_blocks
from tests.support.world import World, letters

WORDS = "thequickbrownfoxjumps"
ONE_OUTPUT, MANY_OUTPUTS = 10**9, 1


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut a merge of a few rows into several steps."""
    write_small_blocks(monkeypatch, 4)
    monkeypatch.setattr(merging, "WINDOW_BYTES", 1)
    monkeypatch.setattr(merging, "GROUPS_PER_WINDOW", 1)


@made_once
def table_with_job(world: World, files: int = 2, **properties: object) -> tuple[Table, str]:
    table = world.create(compaction_files=4, **properties)
    for i in range(files):
        world.drop(f"letters/{i}.parquet", letters(WORDS, at=100 * i))
    while world.queue:
        outgoing = world.queue.popleft()
        if outgoing.queue == "ingest-jobs":
            world.deliver(outgoing)
    store = world.new_store(table)
    job = world.ids.new()
    store.commit(AssignJob(job, "root", tuple(store.current().shards)), generation=0)
    return table, job


def run(world: World, table: Table, job: str) -> list[OutboundMessage]:
    return compact(world.services, CompactionJob(table.id, 0, job))


def file_of(world: World, table: Table, shard: str) -> Path:
    return world.folder / "data" / shard_path(table.id, shard)


def damaged(world: World, table: Table, damage: str) -> str:
    """Damage a shard of the table, and return which."""
    first, second, *_ = sorted(world.state(table).shards)
    file = file_of(world, table, first)
    body = file.read_bytes()
    rewrite(
        file,
        {
            "truncated": body[:-20],
            "one bit": flipped(body, last_row_group(body)[-1]),
            "a page header": flipped(body, last_row_group(body)[0] + 2),
            "overwritten": b"PAR1" + b"\xff" * 60 + body[64:],
            "foreign": b"not a Parquet file at all".ljust(len(body)),
            "another shard": file_of(world, table, second).read_bytes(),
        }[damage],
    )
    return first


DAMAGES = ("truncated", "one bit", "a page header", "overwritten", "foreign", "another shard")


@pytest.mark.parametrize("outputs", [ONE_OUTPUT, MANY_OUTPUTS])
@pytest.mark.parametrize("damage", DAMAGES)
def test_the_job_is_taken_back_and_the_shard_disputed(
    world: World, damage: str, outputs: int
) -> None:
    table, job = table_with_job(world, shard_target_bytes=outputs)
    before = world.state(table)
    shard = damaged(world, table, damage)
    found = run(world, table, job)
    state = world.state(table)
    assert [outgoing.queue for outgoing in found] == ["table-changes"]
    assert not state.jobs
    assert state.shards == before.shards
    assert {s: d.reason for s, d in state.disputed.items()} == {shard: DisputeReason.BYTES_DAMAGED}
    assert world.shard_objects(table) == set(before.shards), "nothing of the job is left"
    assert not list((world.folder / "scratch").iterdir())
    record = world.tracker.get(table.id, job)
    assert record is not None
    assert record.state == "failed"
    assert shard_path(table.id, shard) in record.reason


class DamagedOnTheWay:
    """A storage whose read of that number gives a wrong byte; what is stored is sound."""

    def __init__(self, inner: FolderStorage, number: int, place: float) -> None:
        self._inner, self._place, self.left = inner, place, number

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def open(self, path: str, size_bytes: int) -> BinaryIO:
        with self._inner.open(path, size_bytes) as file:
            body = file.read()
        return Wire(body, self) if shard_id_of(path) else io.BytesIO(body)

    def link(self, path: str, local: Path) -> bool:
        return False

    def stream(self, path: str, size_bytes: int, start: int, end: int) -> Iterator[bytes]:
        return read_pieces(self.open(path, size_bytes), start, end)

    def arrived(self, read: bytes) -> bytes:
        self.left -= 1
        return read if self.left or not read else flipped(read, int(len(read) * self._place))


class Wire(io.BytesIO):
    def __init__(self, body: bytes, storage: DamagedOnTheWay) -> None:
        super().__init__(body)
        self._storage = storage

    def read(self, size: int | None = -1, /) -> bytes:
        return self._storage.arrived(super().read(size))


@pytest.mark.parametrize("place", in_turn([0.0, 0.5, 0.99], parts=3))
def test_what_was_damaged_on_its_way_is_read_again_and_never_disputed(
    tmp_path: Path, place: float
) -> None:
    outcomes = []
    for number in range(1, 30):
        world = World(tmp_path / str(number))
        table, job = table_with_job(world)
        rows = world.rows(table)
        storage = DamagedOnTheWay(world.storage, number, place)
        world.services = replace(world.services, storage=storage)
        with suppress(DamagedShardError):
            run(world, table, job)
        outcomes.append(bool(world.state(table).jobs))
        run(world, table, job)
        state = world.state(table)
        assert not state.jobs
        assert not state.disputed
        assert len(state.shards) - len(state.unreferenced) == 1
        assert world.rows(table) == rows
        if storage.left > 0:
            break
    assert storage.left > 0, "each read was wrong once"
    assert True in outcomes, "a job is left to be run again"


def test_it_is_neither_planned_again_nor_collected_and_the_others_are_merged(world: World) -> None:
    table, job = table_with_job(world, files=5)
    shard = damaged(world, table, "one bit")
    world.queue += run(world, table, job)
    world.settle(limit=50)  # a plan that took it again would go on for ever
    state = world.state(table)
    assert not state.jobs
    assert len(state.shards) - len(state.unreferenced) == 2, "the four others became one"
    assert state.reference_counts[shard] == 1
    world.clock.advance(seconds=10**6)
    world.sweep(audit=True)
    world.settle(limit=50)
    assert shard in world.shard_objects(table)


def test_a_restored_shard_is_merged_when_its_dispute_is_resolved(world: World) -> None:
    table, job = table_with_job(world)
    file = file_of(world, table, min(world.state(table).shards))
    body = file.read_bytes()
    rewrite(file, flipped(body, last_row_group(body)[0]))
    run(world, table, job)
    rewrite(file, body)
    assert len(world.rows(table)) == 2 * len(WORDS)


@pytest.mark.parametrize("outputs", [ONE_OUTPUT, MANY_OUTPUTS])
def test_no_output_is_visible_before_all_row_groups_it_came_from_are_proven(
    world: World, monkeypatch: pytest.MonkeyPatch, outputs: int
) -> None:
    """Else the redelivery of the job adopts what a dying run wrote from damaged bytes."""
    monkeypatch.setattr(merging, "SMALL_BYTES", 0)  # no rows are sorted in memory
    table, job = table_with_job(world, shard_target_bytes=outputs)
    expected = world.rows(table)
    upload, put = world.storage.upload, dict[int, list[dict[str, object]]]()

    def seen(path: str, local: Path) -> bool:
        _, number = run_of_shard(shard_id_of(path) or "")
        put[number] = pq.read_table(local).to_pylist()
        return upload(path, local)

    monkeypatch.setattr(world.storage, "upload", seen)
    file = file_of(world, table, max(world.state(table).shards))
    body = file.read_bytes()
    rewrite(file, flipped(body, last_row_group(body)[0]))
    run(world, table, job)
    rows = [row for number in sorted(put) for row in put[number]]
    assert rows == expected[: len(rows)]
    assert len(rows) < len(expected)
    assert bool(rows) == (outputs == MANY_OUTPUTS)


def test_another_shard_of_the_same_size_is_no_sound_one(world: World) -> None:
    table = world.create()
    for number in (1, 2):
        world.drop(f"letters/{number}.parquet", letters("abc", at=100 * number))
    world.settle()
    first, second = sorted(world.state(table).shards.values(), key=lambda shard: shard.id)
    assert first.size_bytes == second.size_bytes
    assert is_sound(world.services, table, first)
    rewrite(file_of(world, table, first.id), file_of(world, table, second.id).read_bytes())
    assert not is_sound(world.services, table, first)
