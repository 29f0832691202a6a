"""Parts of a state that are read by keys: what they are, cost, and do if something is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from unittest.mock import patch

import pytest

from dormouse.errors import CorruptDataError, InvariantError, UnavailableError
from dormouse.keys import KeyRange, encode_key
from dormouse.log import compaction, key_index, pinning
from dormouse.log.key_index import without_key_index
from dormouse.log.log import Reader
from dormouse.log.snapshot import decode_snapshot, encode_snapshot
from dormouse.schema.types import Primitive
from dormouse.state.partitions import PartitionTree
from dormouse.state.state import (
    AddShards,
    AssignJob,
    DeleteShards,
    PartOfState,
    ReplaceShards,
    ResetTable,
    TableState,
    Transaction,
)
from tests.support.depth import in_turn
from tests.support.trees import initialise
from tests.unit.statestore.faults import Home, Rig, fail, made_once, small_pages
from tests.unit.statestore.histories import shard_of
from tests.unit.statestore.parts import indexed_early, plan
from tests.unit.statestore.samples import sample_state

LETTERS = "abcdefghijklmnop"
TREE = PartitionTree.from_split_points([(letter,) for letter in LETTERS])
HERE = KeyRange.exactly(("d",))


def leaf(letter: str) -> str:
    return TREE.leaf_containing(encode_key((letter,))).id


def ingest(number: int, letter: str, *others: str) -> AddShards:
    """An ingest of a shard for each letter, with one key in its leaf."""
    shards = tuple(
        shard_of(f"s{number}{each}", (each,), (each,), leaf(each)) for each in (letter, *others)
    )
    return AddShards(f"job{number}", (f"source{number}",), shards)


def wanted(*ranges: KeyRange) -> Callable[[], list[KeyRange]]:
    return lambda: list(ranges or (HERE,))


@made_once
def made(home: Home) -> Rig:
    """A table with a snapshot, an increment, and a segment and a delta since, none about `HERE`."""
    rig = Rig(home=home)
    writer = rig.store()
    changes: list[Transaction] = [initialise(TREE), ingest(0, *LETTERS), ingest(1, "d")]
    changes += [ingest(2, "e"), ingest(3, "d", "f"), ingest(4, "g"), ingest(5, "h")]
    for change in changes:
        writer.commit(change, generation=0)
        writer.maintain()
    with patch.object(compaction, "COMMITS_TO_INCREMENT", 99):
        for number in (6, 7, 8, 9):
            writer.commit(ingest(number, "m"), generation=0)
            writer.maintain()
    manifest = rig.head().manifest
    assert manifest.increments
    assert manifest.segments[-1].version > manifest.cuts[-1], "there is a segment since"
    assert len(rig.ids_in_log()) > manifest.segments[-1].version, "and a delta"
    rig.quiet()
    return rig


@pytest.fixture
def rig(home: Home) -> Iterator[Rig]:
    with small_pages(2), indexed_early():
        yield made(home)


def test_a_part_has_what_was_kept_in_the_snapshot_and_in_increments(rig: Rig) -> None:
    part = rig.store().part(wanted())
    assert isinstance(part, PartOfState)
    assert plan(part, HERE) == plan(rig.replay(), HERE)
    assert [shard.id for piece in part.pieces for shard in piece.shards] == ["s0d", "s1d", "s3d"]
    assert part.version == len(rig.ids_in_log()), "what was committed since is known not to matter"


def test_a_part_does_not_say_that_other_keys_have_no_rows(rig: Rig) -> None:
    part = rig.store().part(wanted())
    with pytest.raises(InvariantError, match="lacks"):
        plan(part, KeyRange.exactly(("e",)))


def test_a_commit_since_that_may_concern_the_keys_is_seen(rig: Rig) -> None:
    rig.store().commit(ingest(10, "d"), generation=0)
    found = rig.store().part(wanted())
    assert not isinstance(found, PartOfState)
    assert plan(found, HERE) == plan(rig.replay(), HERE)
    other = rig.store().part(wanted(KeyRange.exactly(("b",))))
    assert isinstance(other, PartOfState), "and readers of other keys need not care"


def test_a_commit_while_a_part_is_read_is_seen_if_it_ended_before(rig: Rig) -> None:
    rig.on("before page", lambda: _commit(rig, ingest(10, "d")))
    found = rig.store().part(wanted())
    assert any("s10d" in str(each) for each in plan(found, HERE))


@pytest.mark.parametrize("place", ["head", "page", "stream", "get", "batch_get_item"])
def test_a_part_is_right_whatever_happens_between_two_requests(home: Home, place: str) -> None:
    """Commits, maintenance and collection move all that the head named."""
    found = []
    with small_pages(2), indexed_early():
        for skip in range(20):
            rig = made(home)
            before = plan(rig.replay(), HERE)
            rig.on(f"before {place}", lambda rig=rig: _move_on(rig), skip=skip)
            read = rig.store().part(wanted())
            rig.quiet()
            after = plan(rig.replay(), HERE)
            assert plan(read, HERE) in (before, after)
            if after == before:  # it was passed less often
                break
            found.append(isinstance(read, PartOfState))
    is_used = place in {"head", "page"} | ({"batch_get_item"} if home == "items" else {"stream"})
    assert bool(found) == (is_used or bool(found))
    if place == "head":
        assert found[0], "all that the head names is there"
    if place == "page":
        assert not all(found), "what it named is gone"


def _move_on(rig: Rig) -> None:
    writer = rig.store()
    for number in range(40, 60):
        rig.clock.advance(seconds=3600)
        writer.commit(ingest(number, "m" if number % 10 else "d"), generation=0)
        writer.maintain()


def _commit(rig: Rig, change: Transaction) -> None:
    rig.store().commit(change, generation=0)


def test_a_process_that_has_the_state_brings_it_up_to_date_instead(rig: Rig) -> None:
    warm = rig.store()
    warm.current()
    rig.quiet()

    def never() -> list[KeyRange]:
        raise AssertionError("the ranges are not worked out")

    assert warm.part(never) is warm.current()
    assert rig.calls == ["before page", "after page"] * 2


def test_a_process_that_reads_many_parts_loads_the_state(rig: Rig) -> None:
    store = rig.store()
    parts = [store.part(wanted()) for _ in range(pinning.MOST_PARTS + 1)]
    assert [isinstance(part, PartOfState) for part in parts] == [True] * (len(parts) - 1) + [False]


def test_many_blocks_a_small_state_and_all_keys_are_read_whole(rig: Rig) -> None:
    store = rig.store()
    assert store.part(wanted(KeyRange())) == rig.replay()
    with patch.object(pinning, "MOST_BLOCKS", 1):
        assert rig.store().part(wanted(KeyRange(("a",), ("p",)))) == rig.replay()
    with patch.object(pinning, "LEAST_BYTES", 10**9):
        assert rig.store().part(wanted()) == rig.replay()


def test_a_table_whose_snapshots_have_no_key_index_is_read_whole(home: Home) -> None:
    with small_pages(2), indexed_early(), patch.object(compaction, "REFERENCES_TO_INDEX", 99):
        rig = made.__wrapped__(home)
        assert rig.store().part(wanted()) == rig.replay()


def test_a_key_index_of_a_later_format_is_left_alone(rig: Rig) -> None:
    newest = rig.head().manifest.snapshots[-1].id
    body = rig.blob("snapshots", newest)
    magic = b"DMbykey"
    assert body.count(magic) == 1
    before, _, after = body.partition(magic)
    assert before[-1] == key_index.FORMAT
    replace_blob(rig, newest, before[:-1] + bytes([key_index.FORMAT + 1]) + magic + after)
    assert rig.store().part(wanted()) == rig.replay()


def replace_blob(rig: Rig, blob_id: str, body: bytes) -> None:
    rig.lose_blob("snapshots", blob_id)
    rig.put_blob("snapshots", blob_id, body)


def test_no_flipped_bit_is_believed(rig: Rig) -> None:
    """Whatever is damaged, a reader of a key has the right answer or one typed error."""
    truth = plan(rig.replay(), HERE)
    manifest = rig.head().manifest
    refused = 0
    for blob_id in (manifest.snapshots[-1].id, manifest.increments[-1].id):
        body = rig.blob("snapshots", blob_id)
        start = _start_of_index(body)
        places = range(start, start + len(body) - len(without_key_index(body)), 13)
        for place in in_turn(places):
            flipped = bytearray(body)
            flipped[place] ^= 4
            replace_blob(rig, blob_id, bytes(flipped))
            try:
                assert plan(rig.store().part(wanted()), HERE) == truth
            except CorruptDataError as error:
                assert blob_id in str(error) or blob_id in error.hint or "state" in str(error)
                refused += 1
        replace_blob(rig, blob_id, body)
    assert refused > 10


def test_a_block_is_not_taken_for_another_one(rig: Rig) -> None:
    body = rig.blob("snapshots", rig.head().manifest.snapshots[-1].id)
    tail = key_index.without_footer(body)
    index = key_index.decode_key_index("t", tail, len(tail), "a snapshot")
    assert index and len(index) > 1
    first, second = (body[slice(*index.place(number))] for number in (0, 1))
    assert index.rows(0, first, "a snapshot").num_rows
    with pytest.raises(CorruptDataError, match="block 0 of the key index of a snapshot is damaged"):
        index.rows(0, second, "a snapshot")


def test_a_lost_or_cut_snapshot_is_named(rig: Rig) -> None:
    newest = rig.head().manifest.snapshots[-1].id
    body = rig.blob("snapshots", newest)
    rig.lose_blob("snapshots", newest)
    with pytest.raises(CorruptDataError, match=newest):
        rig.store().part(wanted())
    rig.put_blob("snapshots", newest, body[: _start_of_index(body)])
    with pytest.raises(CorruptDataError):
        rig.store().part(wanted())


@pytest.mark.parametrize("kind", ["segments", "snapshots"])
def test_a_reader_of_what_was_cut_learns_what_to_do(rig: Rig, kind: str) -> None:
    manifest = rig.head().manifest
    cut = manifest.segments[-1] if kind == "segments" else manifest.snapshots[-1]
    body = rig.blob(kind, cut.id)
    rig.lose_blob(kind, cut.id)
    rig.put_blob(kind, cut.id, body[: cut.size_bytes // 2])
    for read in (rig.store().current, lambda: rig.store().part(wanted())):
        with pytest.raises(CorruptDataError, match="table t") as refused:
            read()
        assert "dormouse rebuild" in refused.value.hint


def test_the_index_of_another_version_is_not_believed(rig: Rig) -> None:
    manifest = rig.head().manifest
    newest = manifest.snapshots[-1]
    wrong = replace(manifest, snapshots=(replace(newest, version=newest.version - 1),))
    with patch.object(Reader, "manifest", lambda _: wrong), pytest.raises(CorruptDataError):
        rig.store().part(wanted())


def test_a_request_that_fails_is_repeated(rig: Rig) -> None:
    call = "before stream" if rig.home == "objects" else "before batch_get_item"
    rig.on(call, fail(UnavailableError("refused")))
    assert isinstance(rig.store().part(wanted()), PartOfState)


def test_a_snapshot_with_an_index_is_the_state_as_one_without() -> None:
    for state in (TableState(), sample_state()):
        plain = encode_snapshot("t", state)
        indexed = encode_snapshot("t", state, has_key_index=True)
        assert decode_snapshot("t", indexed, "it") == decode_snapshot("t", plain, "it")
        assert without_key_index(indexed) == plain


def test_a_load_of_the_whole_state_does_not_fetch_the_key_index() -> None:
    with small_pages(2), indexed_early():
        rig = made("objects")
        body = rig.blob("snapshots", rig.head().manifest.snapshots[-1].id)
        fetched = []
        stream = rig.storage.stream

        def counted(path: str, size_bytes: int, start: int, end: int) -> Iterator[bytes]:
            if "/snapshots/" in path and size_bytes == len(body):
                fetched.append(range(start, end))
            return stream(path, size_bytes, start, end)

        with (
            patch.object(rig.storage, "stream", counted),
            patch.object(key_index, "_TAIL_BYTES", 14_000),
        ):
            assert rig.store().current() == rig.replay()
        end, front = fetched
        assert (front.start, end.stop) == (0, len(body))
        assert front.stop == _start_of_index(body), "blocks lie between"
        assert front.stop < end.start


def _start_of_index(body: bytes) -> int:
    alone = without_key_index(body)
    return next(n for n, (a, b) in enumerate(zip(alone, body, strict=False)) if a != b)


def test_a_reader_of_many_ranges_loads_the_state(rig: Rig) -> None:
    many = [KeyRange.exactly((f"d{n:03}",)) for n in range(pinning.MOST_RANGES + 1)]
    assert isinstance(rig.store().part(wanted(*many[:-1])), PartOfState)
    assert not isinstance(rig.store().part(wanted(*many)), PartOfState)


def test_blocks_of_many_bytes_are_not_read(rig: Rig) -> None:
    with patch.object(pinning, "MOST_BYTES", 1):
        assert not isinstance(rig.store().part(wanted()), PartOfState)


def test_a_reader_of_keys_of_other_types_loads_the_state(rig: Rig) -> None:
    """The registry is ahead of the state: a reset to other types of keys has begun."""
    found = rig.store().part(wanted(KeyRange.exactly((5,))))
    assert not isinstance(found, PartOfState)


def test_an_ingest_from_before_a_reset_to_keys_of_other_types_is_left_to_the_fold(
    home: Home,
) -> None:
    with small_pages(2), indexed_early():
        rig = made(home)
        stale, writer = rig.store(), rig.store()
        stale.current()
        tree = PartitionTree.from_split_points([(10,), (20,)])
        reset = ResetTable(1, tree.splits, (Primitive.LONG,))
        writer.commit(reset, generation=0)
        for number in range(12):
            key = (number % 3 * 10 + 1,)
            shard = shard_of(f"n{number}", key, key, tree.leaf_containing(encode_key(key)).id)
            writer.commit(AddShards(f"new{number}", (f"new{number}",), (shard,)), generation=1)
            writer.maintain()
        stale.commit(ingest(77, "d"), generation=0)
        here = KeyRange.exactly((11,))
        assert plan(rig.store().part(wanted(here)), here) == plan(rig.replay(), here)


def test_a_reader_knows_the_indexes_that_it_began_with_while_another_one_reads(rig: Rig) -> None:
    shared, writer = rig.store(), rig.store()
    assert isinstance(shared.part(wanted()), PartOfState)

    def commit(first: int, count: int) -> None:
        for number in range(first, first + count):
            writer.commit(ingest(number, "m"), generation=0)
            writer.maintain()

    def another_one() -> None:
        commit(40, 20)
        shared.part(wanted())

    commit(20, 3)
    place = "before batch_get_item" if rig.home == "items" else "before stream"
    rig.on(place, another_one)
    found = shared.part(wanted())
    assert plan(found, HERE) == plan(rig.replay(), HERE)


def test_rows_that_a_job_of_a_split_partition_removed_are_not_read_by_their_old_leaf(
    rig: Rig,
) -> None:
    """The job took the reference of the leaf to a partition above, and left nothing there."""
    (used, *_), writer = [r.shard for r in rig.replay().references_in(leaf("d"))], rig.store()
    above = next(TREE.ancestors(leaf("d")))
    rows = rig.replay().shards[used].rows
    drop = ReplaceShards("purging", above, (used,), (), ((used, rows),), rows)
    for change in (AssignJob("purging", above, (used,)), drop):
        writer.commit(change, generation=0)
        part = rig.store().part(wanted())
        assert plan(part, HERE) == plan(rig.replay(), HERE)
    assert used not in str(plan(part, HERE))


def test_a_shard_id_that_is_used_again_has_the_keys_of_the_new_shard(rig: Rig) -> None:
    writer = rig.store()
    used = "s0d"
    writer.commit(AssignJob("again", leaf("d"), (used,)), generation=0)
    rows = rig.replay().shards[used].rows
    drop = ReplaceShards("again", leaf("d"), (used,), (), ((used, rows),), rows)
    writer.commit(drop, generation=0)
    writer.commit(DeleteShards((used,)), generation=0)
    later = (shard_of(used, ("d1",), ("d9",), leaf("d")),)
    writer.commit(AddShards("later", ("later",), later), generation=0)
    for number in range(20, 26):
        writer.commit(ingest(number, "m"), generation=0)
        writer.maintain()
    here = KeyRange.exactly(("d5",))
    assert plan(rig.store().part(wanted(here)), here) == plan(rig.replay(), here)
