"""Stored state: read back as it was written, refused when it is not ours or not whole."""

from __future__ import annotations

import io
import zlib

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.errors import CorruptDataError
from dormouse.keys.ranges import KeyRange
from dormouse.model.disputes import DisputeReason
from dormouse.model.partitions import Partition
from dormouse.model.shards import NewShard, Shard
from dormouse.model.source_segments import SourceSegment
from dormouse.model.transactions import (
    AddShards,
    AdoptSegments,
    AssignJob,
    DeleteShards,
    DisputeShards,
    Entry,
    ExtendTree,
    InitialisePartitions,
    RaiseRules,
    ReleaseJob,
    ReplaceShards,
    ResetTable,
    ResolveDisputes,
    RestoreVersion,
    SealSources,
    SplitPartition,
)
from dormouse.schema.schema import KEY_TYPES
from dormouse.statestore.delta import packed_codec
from dormouse.statestore.delta.codec import identity_of
from dormouse.statestore.delta.packed_codec import PACKED, pack_delta, unpack_delta
from dormouse.statestore.delta.parquet_codec import (
    FORMAT,
    KIND,
    PARQUET,
    decode_delta,
    encode_delta,
)
from dormouse.statestore.delta.segments import decode_segment, encode_segment
from dormouse.statestore.parquet_file import OWNER, write_file
from dormouse.statestore.snapshot.codec import FORMAT as SNAPSHOT_FORMAT
from dormouse.statestore.snapshot.codec import decode_snapshot, encode_snapshot
from tests.support.strategies import int64, keys_of_one_table, text
from tests.unit.statestore.histories import Delta, fold_all, histories
from tests.unit.statestore.samples import (
    DELTA,
    ENTRIES,
    GOLDEN,
    golden_files,
    sample_deltas,
    sample_state,
)

keys = keys_of_one_table(1).map(lambda drawn: drawn[0])
names = st.lists(text, max_size=4).map(tuple)
shards = st.builds(Shard, text, int64, int64, keys, keys)
counts = st.lists(st.tuples(text, int64), max_size=3).map(tuple)
new_shards = st.lists(st.builds(NewShard, shards, counts), max_size=3).map(tuple)
ranges = st.builds(KeyRange, keys, st.none() | keys)
children = st.none() | st.tuples(text, text)
partitions = st.lists(
    st.builds(Partition, text, ranges, st.none() | text, children, int64), max_size=3
).map(tuple)
key_types = st.lists(st.sampled_from(sorted(KEY_TYPES, key=str)), max_size=3).map(tuple)
segments = st.builds(SourceSegment, text, int64, int64, int64, int64, int64, int64)
transactions = st.one_of(
    st.builds(InitialisePartitions, partitions, key_types, int64),
    st.builds(RaiseRules, int64),
    st.builds(AddShards, text, names, new_shards, int64),
    st.builds(SealSources, segments, names),
    st.builds(AdoptSegments, st.lists(segments, max_size=3).map(tuple)),
    st.builds(AssignJob, text, text, names, st.none() | text, st.none() | text),
    st.builds(ReleaseJob, text),
    st.builds(ReplaceShards, text, text, names, new_shards, counts, int64),
    st.builds(DisputeShards, names, st.sampled_from(DisputeReason), text),
    st.builds(ResolveDisputes, counts),
    st.builds(SplitPartition, text, keys, counts),
    st.builds(DeleteShards, names),
    st.builds(ExtendTree, st.lists(st.tuples(text, keys), max_size=3).map(tuple)),
    st.builds(ResetTable, int64, partitions, key_types),
    st.builds(RestoreVersion, int64, int64),
)
entries = st.lists(st.builds(Entry, transactions, int64, int64), min_size=1, max_size=4).map(tuple)


@given(entries)
def test_any_entries_are_read_back_as_they_were_written(written: tuple[Entry, ...]) -> None:
    for codec in (PARQUET, PACKED):
        assert codec.decode(codec.encode(written, DELTA), DELTA, "x") == written


@given(histories())
def test_any_state_is_read_back_from_its_snapshot(history: list[Delta]) -> None:
    state = fold_all(history)
    body = encode_snapshot("t", state)
    assert decode_snapshot("t", body, "x") == state
    assert encode_snapshot("t", decode_snapshot("t", body, "x")) == body


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_what_was_stored_in_this_format_before_is_still_read(name: str) -> None:
    stored = (GOLDEN / f"{name}-{FORMAT}.parquet").read_bytes()
    assert decode_delta(stored, DELTA, name) == (ENTRIES[name],)


def test_a_delta_and_a_snapshot_stored_in_this_format_before_are_still_read() -> None:
    delta = GOLDEN / f"all-{FORMAT}.parquet"
    snapshot = GOLDEN / f"snapshot-{SNAPSHOT_FORMAT}.parquet"
    packed = GOLDEN / f"packed-{packed_codec.FORMAT}.delta"
    assert decode_delta(delta.read_bytes(), DELTA, "all") == tuple(ENTRIES.values())
    assert unpack_delta(packed.read_bytes(), DELTA, "packed") == tuple(ENTRIES.values())
    assert decode_snapshot("t", snapshot.read_bytes(), "snapshot") == sample_state()


def test_the_present_formats_have_their_golden_files() -> None:
    assert set(golden_files()) <= {path.stem for path in GOLDEN.iterdir()}


def test_any_parquet_reader_can_read_a_delta() -> None:
    body = encode_delta(list(ENTRIES.values()), DELTA)
    rows = pq.read_table(io.BytesIO(body), columns=["kind", "job", "sources"]).to_pylist()
    added = {"kind": "add_shards", "job": "job1", "sources": ["source1", "source2"]}
    assert added in rows


def test_a_delta_stays_small() -> None:
    assert len(encode_delta([ENTRIES["assign_job"]], DELTA)) < 1_500
    assert len(encode_delta([ENTRIES["replace_shards"]], DELTA)) < 4_000


def test_a_packed_delta_takes_less_than_a_write_unit() -> None:
    shards = tuple(ENTRIES["replace_shards"].transaction.inputs)  # type: ignore[union-attr]
    assert shards
    assert len(pack_delta([ENTRIES["replace_shards"]], DELTA)) < 500


@pytest.mark.parametrize(("step", "advice"), [(1, "upgrade"), (-1, "with that one")])
def test_a_packed_delta_of_another_format_is_refused_with_what_to_do(
    step: int, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(packed_codec, "FORMAT", packed_codec.FORMAT + step)
        other = pack_delta([ENTRIES["add_shards"]], DELTA)
    with pytest.raises(CorruptDataError, match="of format") as refused:
        unpack_delta(other, DELTA, "x")
    assert advice in refused.value.hint


def test_what_is_packed_without_being_rows_of_a_delta_is_refused() -> None:
    head = packed_codec._MAGIC + bytes([packed_codec.FORMAT])
    for packed in (b"no zlib", zlib.compress(b"\xc1"), zlib.compress(msgspec.msgpack.encode(7))):
        with pytest.raises(CorruptDataError, match="the/path"):
            digest = packed_codec._digest(head, packed, DELTA)
            unpack_delta(head + digest + packed, DELTA, "the/path")


def test_a_damaged_file_is_never_taken_for_another_state() -> None:
    for body in (
        encode_delta([ENTRIES["add_shards"]], DELTA),
        encode_snapshot("t", sample_state()),
    ):
        owner = DELTA if b"delta" in body else "t"
        for damaged in (b"", b"PAR1", body[: len(body) // 2], body[:-1], b"\0" * len(body)):
            with pytest.raises(CorruptDataError, match="the/path"):
                if owner == DELTA:
                    decode_delta(damaged, DELTA, "the/path")
                else:
                    decode_snapshot("t", damaged, "the/path")


@pytest.mark.parametrize("name", ["all", "packed", "segment", "snapshot"])
def test_no_flipped_bit_anywhere_is_taken_for_another_state(name: str) -> None:
    """Most flips within a compressed page are read as other values without an error."""
    (path,) = GOLDEN.glob(f"{name}-*.*")
    body = path.read_bytes()
    read = {
        "all": lambda stored, where: decode_delta(stored, DELTA, where),
        "packed": lambda stored, where: unpack_delta(stored, DELTA, where),
        "segment": lambda stored, where: decode_segment(stored, "t", where),
        "snapshot": lambda stored, where: decode_snapshot("t", stored, where),
    }[name]
    read(body, "the/path")
    for place in range(len(body)):
        damaged = bytearray(body)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(CorruptDataError, match="the/path"):
            read(bytes(damaged), "the/path")


def test_a_file_of_a_later_format_is_refused_with_what_to_do() -> None:
    later = write_file([], pa.schema([("kind", pa.string())]), KIND, FORMAT + 1, {})
    with pytest.raises(CorruptDataError, match=f"format {FORMAT + 1}") as refused:
        decode_delta(later, DELTA, "x")
    assert "upgrade" in refused.value.hint


def test_a_file_of_an_earlier_format_is_refused_with_what_to_do() -> None:
    earlier = write_file([], pa.schema([("kind", pa.string())]), KIND, FORMAT - 1, {})
    with pytest.raises(CorruptDataError, match=f"format {FORMAT - 1}") as refused:
        decode_delta(earlier, DELTA, "x")
    assert "with that one" in refused.value.hint


def test_an_unknown_transaction_is_refused_with_its_kind() -> None:
    rows = pa.table({"kind": ["merge_tables"], "time_ms": [1], "generation": [0]})
    with pytest.raises(CorruptDataError, match="merge_tables"):
        decode_delta(write_file([rows], rows.schema, KIND, FORMAT, {OWNER: DELTA}), DELTA, "x")


def test_a_transaction_that_lacks_a_part_or_has_one_too_many_is_refused() -> None:
    for rows in (
        pa.table({"kind": ["release_job"], "time_ms": [1], "generation": [0]}),
        pa.table({"kind": ["release_job"], "time_ms": [1], "job": ["j"]}),
        pa.table({"kind": ["release_job"], "time_ms": [1], "generation": [0], "job": [1]}),
        pa.table(
            {"kind": ["release_job"], "time_ms": [1], "generation": [0], "job": ["j"], "x": [1]}
        ),
    ):
        with pytest.raises(CorruptDataError):
            decode_delta(write_file([rows], rows.schema, KIND, FORMAT, {OWNER: DELTA}), DELTA, "x")


def test_a_snapshot_of_another_table_or_a_foreign_file_is_refused() -> None:
    with pytest.raises(CorruptDataError, match="table u"):
        decode_snapshot("u", encode_snapshot("t", sample_state()), "x")
    with pytest.raises(CorruptDataError, match="not a Dormouse snapshot"):
        decode_snapshot("t", encode_delta(list(ENTRIES.values()), DELTA), "x")
    foreign = io.BytesIO()
    pq.write_table(pa.table({"a": [1]}), foreign)
    with pytest.raises(CorruptDataError, match="not a Dormouse delta"):
        decode_delta(foreign.getvalue(), DELTA, "x")


def test_a_delta_of_another_table_or_another_delta_of_this_one_is_refused() -> None:
    for codec in (PARQUET, PACKED):
        body = codec.encode([ENTRIES["add_shards"]], DELTA)
        for other in (identity_of("u", "00" * 16), identity_of("t", "01" * 16)):
            with pytest.raises(CorruptDataError, match="the/path"):
                codec.decode(body, other, "the/path")
    segment = encode_segment(sample_deltas(), "t")
    with pytest.raises(CorruptDataError, match="the/path should hold u"):
        decode_segment(segment, "u", "the/path")
