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
from dormouse.statestore.delta import codec
from dormouse.statestore.delta.codec import FORMAT, decode_delta, encode_delta, identity_of
from dormouse.statestore.delta.segments import FORMAT as SEGMENT_FORMAT
from dormouse.statestore.delta.segments import KIND, decode_segment, encode_segment
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
    assert decode_delta(encode_delta(written, DELTA), DELTA, "x") == written


@given(histories())
def test_any_state_is_read_back_from_its_snapshot(history: list[Delta]) -> None:
    state = fold_all(history)
    body = encode_snapshot("t", state)
    assert decode_snapshot("t", body, "x") == state
    assert encode_snapshot("t", decode_snapshot("t", body, "x")) == body


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_what_was_stored_in_this_format_before_is_still_read(name: str) -> None:
    stored = (GOLDEN / f"{name}-{FORMAT}.delta").read_bytes()
    assert decode_delta(stored, DELTA, name) == (ENTRIES[name],)


def test_a_delta_and_a_snapshot_stored_in_this_format_before_are_still_read() -> None:
    delta = GOLDEN / f"all-{FORMAT}.delta"
    snapshot = GOLDEN / f"snapshot-{SNAPSHOT_FORMAT}.parquet"
    assert decode_delta(delta.read_bytes(), DELTA, "all") == tuple(ENTRIES.values())
    assert decode_snapshot("t", snapshot.read_bytes(), "snapshot") == sample_state()


def test_the_present_formats_have_their_golden_files() -> None:
    assert set(golden_files()) <= {path.stem for path in GOLDEN.iterdir()}


def test_any_parquet_reader_can_read_a_segment() -> None:
    body = encode_segment(sample_deltas(), "t")
    rows = pq.read_table(io.BytesIO(body), columns=["kind", "job", "sources"]).to_pylist()
    added = {"kind": "add_shards", "job": "job1", "sources": ["source1", "source2"]}
    assert added in rows


def test_a_delta_takes_less_than_a_write_unit() -> None:
    shards = tuple(ENTRIES["replace_shards"].transaction.inputs)  # type: ignore[union-attr]
    assert shards
    assert len(encode_delta([ENTRIES["replace_shards"]], DELTA)) < 500


@pytest.mark.parametrize(("step", "advice"), [(2, "upgrade"), (-1, "with that one")])
def test_a_delta_of_another_format_is_refused_with_what_to_do(
    step: int, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(codec, "FORMAT", codec.FORMAT + step)
        other = encode_delta([ENTRIES["add_shards"]], DELTA)
    with pytest.raises(CorruptDataError, match="of format") as refused:
        decode_delta(other, DELTA, "x")
    assert advice in refused.value.hint


def test_what_is_packed_without_being_rows_of_a_delta_is_refused() -> None:
    head = codec._MAGIC + bytes([FORMAT])
    for packed in (b"no zlib", zlib.compress(b"\xc1"), zlib.compress(msgspec.msgpack.encode(7))):
        with pytest.raises(CorruptDataError, match="the/path"):
            digest = codec._digest(head, packed, DELTA)
            decode_delta(head + digest + packed, DELTA, "the/path")


def test_a_damaged_file_is_never_taken_for_another_state() -> None:
    for body in (
        encode_delta([ENTRIES["add_shards"]], DELTA),
        encode_snapshot("t", sample_state()),
    ):
        owner = DELTA if body.startswith(b"DMdelta") else "t"
        for damaged in (b"", b"PAR1", body[: len(body) // 2], body[:-1], b"\0" * len(body)):
            with pytest.raises(CorruptDataError, match="the/path"):
                if owner == DELTA:
                    decode_delta(damaged, DELTA, "the/path")
                else:
                    decode_snapshot("t", damaged, "the/path")


@pytest.mark.parametrize("name", ["all", "segment", "snapshot"])
def test_no_flipped_bit_anywhere_is_taken_for_another_state(name: str) -> None:
    """Most flips within a compressed page are read as other values without an error."""
    (path,) = GOLDEN.glob(f"{name}-*.*")
    body = path.read_bytes()
    read = {
        "all": lambda stored, where: decode_delta(stored, DELTA, where),
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
    later = write_file([], pa.schema([("kind", pa.string())]), KIND, SEGMENT_FORMAT + 1, {})
    with pytest.raises(CorruptDataError, match=f"format {SEGMENT_FORMAT + 1}") as refused:
        decode_segment(later, "t", "x")
    assert "upgrade" in refused.value.hint


def test_a_file_of_an_earlier_format_is_refused_with_what_to_do() -> None:
    earlier = write_file([], pa.schema([("kind", pa.string())]), KIND, SEGMENT_FORMAT - 1, {})
    with pytest.raises(CorruptDataError, match=f"format {SEGMENT_FORMAT - 1}") as refused:
        decode_segment(earlier, "t", "x")
    assert "with that one" in refused.value.hint


def test_an_unknown_transaction_is_refused_with_its_kind() -> None:
    row = {"kind": "merge_tables", "time_ms": 1, "generation": 0}
    with pytest.raises(CorruptDataError, match="merge_tables"):
        decode_delta(delta_of(row), DELTA, "x")


def test_a_transaction_that_lacks_a_part_or_has_one_too_many_is_refused() -> None:
    whole = {"kind": "release_job", "time_ms": 1, "generation": 0, "job": "j"}
    decode_delta(delta_of(whole), DELTA, "x")
    for wrong in ({"job": None}, {"generation": None}, {"job": 1}, {"x": 1}):
        row = whole | wrong
        rows = pa.Table.from_pylist([row | {"delta": b"0" * 16}])
        rows = rows.set_column(len(row), "delta", rows["delta"].cast(pa.binary(16)))
        stored = write_file([rows], rows.schema, KIND, SEGMENT_FORMAT, {OWNER: "t"})
        with pytest.raises(CorruptDataError):
            decode_segment(stored, "t", "x")
        with pytest.raises(CorruptDataError):
            decode_delta(delta_of(row), DELTA, "x")


def delta_of(row: dict[str, object]) -> bytes:
    """Return a whole delta of a row that no transaction needs to have."""
    head = codec._MAGIC + bytes([FORMAT])
    rows = zlib.compress(msgspec.msgpack.encode([row]))
    return head + codec._digest(head, rows, DELTA) + rows


def test_a_snapshot_of_another_table_or_a_foreign_file_is_refused() -> None:
    with pytest.raises(CorruptDataError, match="table u"):
        decode_snapshot("u", encode_snapshot("t", sample_state()), "x")
    with pytest.raises(CorruptDataError, match="not a Dormouse snapshot"):
        decode_snapshot("t", encode_segment(sample_deltas(), "t"), "x")
    with pytest.raises(CorruptDataError, match="x is not"):
        decode_snapshot("t", encode_delta(list(ENTRIES.values()), DELTA), "x")
    foreign = io.BytesIO()
    pq.write_table(pa.table({"a": [1]}), foreign)
    with pytest.raises(CorruptDataError, match="not a Dormouse segment"):
        decode_segment(foreign.getvalue(), "t", "x")
    with pytest.raises(CorruptDataError, match="not the Dormouse delta"):
        decode_delta(foreign.getvalue(), DELTA, "x")


def test_a_delta_of_another_table_or_another_delta_of_this_one_is_refused() -> None:
    body = encode_delta([ENTRIES["add_shards"]], DELTA)
    for other in (identity_of("u", "00" * 16), identity_of("t", "01" * 16)):
        with pytest.raises(CorruptDataError, match="the/path"):
            decode_delta(body, other, "the/path")
    segment = encode_segment(sample_deltas(), "t")
    with pytest.raises(CorruptDataError, match="the/path should hold u"):
        decode_segment(segment, "u", "the/path")
