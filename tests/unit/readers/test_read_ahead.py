"""What a merge reads is fetched ahead of it: few rounds, bounded memory, nothing unverified."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.errors import DamagedShardError, NotFoundError, UnavailableError
from dormouse.features.compaction import compact
from dormouse.keys import KeyRange
from dormouse.messages.stages import CompactionJob
from dormouse.query.rows import count_slices
from dormouse.rows import merging
from dormouse.rows.merging import merge_slices
from dormouse.schema.schema import Schema
from dormouse.shards import local_copies, reading
from dormouse.shards.crcs import Section
from dormouse.shards.local_copies import reads_at_once
from dormouse.shards.reading import READS_AT_ONCE, Slice, stream_sections
from dormouse.state.state import AssignJob
from dormouse.storage import PIECE_BYTES, FolderStorage
from dormouse.stored.paths import shard_id_of
from dormouse.tables.table import Table
from tests.support.distant_folder import DistantFolder
from tests.support.small_blocks import write_small_blocks
from tests.support.tables import MEMORY_BYTES, ShardTable
from tests.support.world import World, letters

PATIENCE_SECONDS = 20
"""How long a read waits for others before the test fails; no test waits for it otherwise."""
INPUTS = 50
SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "k", "type": "LongType"}],
        "valueFields": [{"name": "text", "type": "StringType"}],
    }
)


class Rounds(DistantFolder):
    """A folder whose reads of shards are answered in rounds, as those of a slow storage would be.

    A round is answered when as many reads are in flight as the round should have. So a merge that
    sends fewer of them at once never ends, and the wait for the others fails.
    """

    is_remote = True

    def __init__(self, root: Path, rounds: Sequence[int]) -> None:
        super().__init__(root)
        self.expected = list(rounds)
        each = [threading.Barrier(reads) for reads in rounds]
        self.barriers = [barrier for barrier in each for _ in range(barrier.parties)]
        self.sent = 0
        self.lock = threading.Lock()

    def answer(self, path: str) -> None:
        if shard_id_of(path) is None:
            return
        with self.lock:
            number, self.sent = self.sent, self.sent + 1
        assert number < len(self.barriers), f"another read, of {path}"
        self.barriers[number].wait(PATIENCE_SECONDS)

    def open(self, path: str, size_bytes: int) -> BinaryIO:
        """Open an object; what is read at once is one read."""
        self.answer(path)
        return super().open(path, size_bytes)

    def stream(self, path: str, size_bytes: int, start: int, end: int) -> Iterator[bytes]:
        self.answer(path)
        body = (Path(self.uri) / path).read_bytes()
        yield body[start:end]


def table_with_inputs(world: World, inputs: int) -> tuple[Table, CompactionJob]:
    table = world.create(compaction_files=inputs)
    for number in range(inputs):
        world.drop(f"letters/{number}.parquet", letters("lazydog", at=10 * number))
    while world.queue:
        outgoing = world.queue.popleft()
        if outgoing.queue == "ingest-jobs":
            world.deliver(outgoing)
    store = world.new_store(table)
    shards = tuple(store.current().shards)
    assert len(shards) == inputs
    job = world.ids.new()
    store.commit(AssignJob(job, "root", shards), generation=0)
    return table, CompactionJob(table.id, 0, job)


def test_a_compaction_of_50_short_inputs_waits_for_two_rounds_of_reads(tmp_path: Path) -> None:
    """All footers, which are read once, and all rows."""
    world = World(tmp_path)
    table, job = table_with_inputs(world, INPUTS)
    expected = world.rows(table)
    storage = Rounds(tmp_path / "data", [INPUTS, INPUTS])
    compact(replace(world.services, storage=storage), job)
    assert storage.sent == sum(storage.expected)
    assert len(world.state(table).references) == 1
    assert world.rows(table) == expected


def test_the_rows_of_50_inputs_at_both_ends_of_a_range_are_counted_in_one_round(
    tmp_path: Path,
) -> None:
    """A leaf that was split: of each input, the rows on one side are merged."""
    world = World(tmp_path)
    table, _ = table_with_inputs(world, INPUTS)
    half = KeyRange(("d",), ("p",))
    slices = [Slice(shard, half) for shard in world.state(table).shards.values()]
    storage = Rounds(tmp_path / "data", [INPUTS, INPUTS])
    assert count_slices(storage, table, slices) == [len("ldog")] * INPUTS
    assert storage.sent == sum(storage.expected)


@pytest.fixture
def wide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ShardTable:
    """A table of four shards, which are merged in many windows."""
    write_small_blocks(monkeypatch, 16)
    monkeypatch.setattr(merging, "WINDOW_BYTES", 1)
    monkeypatch.setattr(merging, "GROUPS_PER_WINDOW", 1)
    table = ShardTable(FolderStorage(tmp_path / "data"), SCHEMA, tmp_path / "scratch")
    table.folder.mkdir()
    draws = random.Random(1)
    for start in range(4):
        table.add([{"k": k, "text": draws.randbytes(20).hex()} for k in range(start, 1600, 4)])
    return table


class Streams(DistantFolder):
    """A folder that calls `hook` before each stream with its number, and counts open streams."""

    def __init__(self, root: Path, hook: Callable[[int], object] = lambda number: None) -> None:
        super().__init__(root)
        self.hook = hook
        self.begun = self.open_now = self.most_open = self.largest_piece = 0
        self.lock = threading.Lock()

    def stream(self, path: str, size_bytes: int, start: int, end: int) -> Iterator[bytes]:
        with self.lock:
            number, self.begun = self.begun, self.begun + 1
            self.open_now += 1
            self.most_open = max(self.most_open, self.open_now)
        try:
            self.hook(number)
            for piece in super().stream(path, size_bytes, start, end):
                self.largest_piece = max(self.largest_piece, len(piece))
                yield piece
        finally:
            with self.lock:
                self.open_now -= 1


def merged(
    table: ShardTable,
    storage: FolderStorage,
    memory_bytes: int = MEMORY_BYTES,
    span: KeyRange = KeyRange(),  # noqa: B008  # it is immutable
) -> Iterator[int]:
    """Yield the keys of all rows in a range, merged."""
    slices = [Slice(shard, span) for shard in table.state.shards.values()]
    for batch in merge_slices(
        storage, "table", slices, SCHEMA, scratch=table.folder, memory_bytes=memory_bytes
    ):
        yield from batch["k"].to_pylist()


def test_the_next_windows_are_fetched_while_one_is_merged(wide: ShardTable) -> None:
    later = threading.Event()

    def note(number: int) -> None:
        if number >= 3 * len(wide.state.shards):
            later.set()

    storage = Streams(Path(wide.storage.uri), note)
    keys = merged(wide, storage)
    assert next(keys) == 0
    reached = [next(keys) for _ in range(400)]
    assert later.wait(PATIENCE_SECONDS), "only what is merged now was fetched"
    assert reached == list(range(1, 401))
    keys.close()  # type: ignore[attr-defined]
    assert not list(wide.folder.iterdir())


class OnceRead(Streams):
    """A distant folder of which no byte is read twice, but for gaps."""

    is_remote = True

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.read = set[tuple[str, int]]()

    def stream(self, path: str, size_bytes: int, start: int, end: int) -> Iterator[bytes]:
        places = {(path, at) for at in range(start, end)}
        with self.lock:
            assert not self.read & places
            self.read |= places
        return super().stream(path, size_bytes, start, end)


@pytest.mark.parametrize("keys", [(0, 1600), (100, 1300)], ids=["all", "a part"])
def test_windows_that_share_row_groups_read_each_byte_once(
    wide: ShardTable, keys: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_GAP_BYTES", 0)
    storage, span = OnceRead(Path(wide.storage.uri)), KeyRange(keys[:1], keys[1:])
    assert list(merged(wide, storage, span=span)) == list(range(*keys))
    assert storage.begun <= 2 * 4 * (400 // 48 + 1)  # columns are apart where a part is read


def test_little_is_fetched_ahead_of_a_merge_that_may_end_soon(wide: ShardTable) -> None:
    storage = Streams(Path(wide.storage.uri))
    keys = merged(wide, storage)
    assert next(keys) == 0
    assert len(list(wide.folder.iterdir())) == 2, "the window that is merged, and one"
    keys.close()  # type: ignore[attr-defined]


@given(st.integers(1, 2**40))
def test_what_is_in_flight_has_its_share_of_the_memory(memory_bytes: int) -> None:
    reads = reads_at_once(memory_bytes)
    assert local_copies.MIN_READS_AT_ONCE <= reads <= READS_AT_ONCE
    share_bytes = memory_bytes // local_copies.SHARE_OF_MEMORY
    assert reads * PIECE_BYTES <= max(share_bytes, local_copies.MIN_READS_AT_ONCE * PIECE_BYTES)


class DistantStreams(Streams):
    """The same, as if each read waited for a network."""

    @property
    def is_remote(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("kind", "memory_bytes", "most"),
    [
        (DistantStreams, 1, local_copies.MIN_READS_AT_ONCE),
        (DistantStreams, 2**40, READS_AT_ONCE),
        (Streams, 2**40, local_copies.READS_OF_FILES),
    ],
)
def test_no_more_pieces_are_in_flight_than_the_memory_has_room_for(
    wide: ShardTable,
    kind: type[Streams],
    memory_bytes: int,
    most: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[int] = []

    class Pool(ThreadPoolExecutor):
        def __init__(self, most: int) -> None:
            threads.append(most)
            super().__init__(most)

    monkeypatch.setattr(local_copies, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(local_copies, "MAX_GET_BYTES", 1)
    storage = kind(Path(wide.storage.uri))
    assert list(merged(wide, storage, memory_bytes)) == list(range(1600))
    assert threads == [most]
    assert storage.most_open <= most
    assert storage.largest_piece <= PIECE_BYTES


@pytest.mark.parametrize("number", [0, 1, 7, 20])
def test_a_read_that_fails_ends_the_merge_with_its_error_and_leaves_nothing(
    wide: ShardTable, number: int
) -> None:
    def fail(at: int) -> None:
        if at == number:
            raise UnavailableError("no answer")

    seen: list[int] = []
    with pytest.raises(UnavailableError, match="no answer"):
        for key in merged(wide, Streams(Path(wide.storage.uri), fail)):
            seen.append(key)  # noqa: PERF402  # what was seen before the error is compared
    assert seen == list(range(len(seen))), "only whole windows before it"
    assert len(seen) < 1600
    assert not list(wide.folder.iterdir())


def test_a_compaction_whose_inputs_cannot_be_read_commits_nothing_and_can_be_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "SMALL_BYTES", 0)  # they are streamed
    world = World(tmp_path)
    table, job = table_with_inputs(world, 3)
    before = world.state(table)

    def fail(number: int) -> None:
        raise UnavailableError("no answer")

    failing = Streams(tmp_path / "data", fail)
    with pytest.raises(UnavailableError):
        compact(replace(world.services, storage=failing), job)
    assert world.state(table) == before
    assert world.shard_objects(table) == set(before.shards)
    compact(world.services, job)
    assert len(world.state(table).references) == 1


BODY = random.Random(2).randbytes(300)


class Pieces:
    """An object that arrives in pieces of given lengths."""

    is_remote = True

    def __init__(self, body: bytes, lengths: Sequence[int]) -> None:
        self.body, self.lengths = body, lengths

    def open(self, path: str, size_bytes: int) -> BinaryIO:
        raise AssertionError("streamed, not opened")

    def stream(self, path: str, size_bytes: int, start: int, end: int) -> Iterator[bytes]:
        at = start
        for length in [*self.lengths, end]:
            stop = min(at + length, end, len(self.body))
            if at < stop:
                yield self.body[at:stop]
            at = stop


@st.composite
def sections_in(draw: st.DrawFn) -> list[Section]:
    ends = sorted(draw(st.lists(st.integers(0, len(BODY)), min_size=2, max_size=12)))
    spans = list(zip(ends[::2], ends[1::2], strict=False))
    made = [
        Section(low, high, crc32(BODY[:high]), n, "c", before=crc32(BODY[:low]))
        for n, (low, high) in enumerate(spans)
    ]
    return draw(st.permutations(made))


def collect(objects: Pieces, sections: Sequence[Section]) -> dict[Section, bytes]:
    found = {section: bytearray() for section in sections}
    for section, offset, part in stream_sections(objects, "a/b", len(BODY), sections):
        assert offset == section.start + len(found[section])
        found[section] += part
    return {section: bytes(body) for section, body in found.items()}


lengths = st.lists(st.integers(1, 80), max_size=20)


@given(sections_in(), lengths)
def test_sections_are_whole_however_their_bytes_arrive(
    sections: list[Section], lengths: list[int]
) -> None:
    found = collect(Pieces(BODY, lengths), sections)
    assert found == {section: BODY[section.start : section.end] for section in sections}


@given(sections_in(), lengths, st.data())
def test_a_wrong_or_a_missing_byte_of_a_section_is_damage(
    sections: list[Section], lengths: list[int], data: st.DataObject
) -> None:
    held = [at for section in sections for at in range(section.start, section.end)]
    if not held:
        return
    at = data.draw(st.sampled_from(held))
    flipped = BODY[:at] + bytes([BODY[at] ^ 1]) + BODY[at + 1 :]
    for body in (flipped, BODY[:at]):
        with pytest.raises(DamagedShardError, match="a/b is damaged"):
            collect(Pieces(body, lengths), sections)


def test_a_shard_that_is_gone_when_its_rows_are_read_is_not_found(wide: ShardTable) -> None:
    paths = sorted(Path(wide.storage.uri).rglob("*.parquet"))
    storage = Streams(Path(wide.storage.uri), lambda number: paths[0].unlink(missing_ok=True))
    with pytest.raises(NotFoundError):
        list(merged(wide, storage))
