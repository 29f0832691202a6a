"""Stored state: read back as it was written, refused when it is not ours or not whole."""

from __future__ import annotations

import io
import json
import zlib
from hashlib import blake2b

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.errors import CorruptDataError
from dormouse.keys import encode_key
from dormouse.log import blobs as codec
from dormouse.log.blobs import FORMAT, encode_delta, identity_of
from dormouse.log.blobs import Delta as StoredDelta
from dormouse.log.columns import write_file
from dormouse.log.snapshot import FORMAT as SNAPSHOT_FORMAT
from dormouse.log.snapshot import (
    OWNER,
    SEGMENT_FORMAT,
    SEGMENT_KIND,
    decode_segment,
    decode_snapshot,
    encode_segment,
    encode_snapshot,
)
from dormouse.state.partitions import NewShard, Shard
from dormouse.state.state import (
    AddShards,
    AdoptSegments,
    AssignJob,
    DeleteShards,
    Deletion,
    DisputeReason,
    DisputeShards,
    Entry,
    ExtendTree,
    ForgetDeletions,
    HideRows,
    InitialisePartitions,
    ReleaseJob,
    ReplaceShards,
    ResetTable,
    ResolveDisputes,
    RestoreTable,
    SealSources,
    SourceSegment,
    SplitPartition,
    transaction_id,
)
from tests.support.batches import KEY_TYPES
from tests.support.deltas import decode_delta
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

stored_keys = keys_of_one_table(1).map(lambda drawn: encode_key(drawn[0]))
names = st.lists(text, max_size=4).map(tuple)
shards = st.builds(Shard, text, int64, int64, stored_keys, stored_keys)
counts = st.lists(st.tuples(text, int64), max_size=3).map(tuple)
new_shards = st.lists(st.builds(NewShard, shards, counts), max_size=3).map(tuple)
splits = st.lists(stored_keys, max_size=3).map(tuple)
key_types = st.lists(KEY_TYPES, max_size=3).map(tuple)
ranges = st.lists(st.tuples(stored_keys, st.none() | stored_keys), max_size=3).map(tuple)
segments = st.builds(SourceSegment, text, int64, int64, int64, int64, int64, int64)
transactions = st.one_of(
    st.builds(InitialisePartitions, splits, key_types),
    st.builds(AddShards, text, names, new_shards, int64),
    st.builds(SealSources, segments, names),
    st.builds(AdoptSegments, st.lists(segments, max_size=3).map(tuple)),
    st.builds(AssignJob, text, text, names, st.none() | text, st.none() | text),
    st.builds(ReleaseJob, text),
    st.builds(ReplaceShards, text, text, names, new_shards, counts, int64),
    st.builds(DisputeShards, names, st.sampled_from(DisputeReason), text),
    st.builds(ResolveDisputes, counts),
    st.builds(SplitPartition, text, stored_keys, counts),
    st.builds(DeleteShards, names),
    st.builds(HideRows, st.builds(Deletion, text, text, names, ranges, int64, int64)),
    st.builds(ForgetDeletions, st.lists(int64, max_size=3).map(tuple)),
    st.builds(ExtendTree, st.lists(st.tuples(text, stored_keys), max_size=3).map(tuple)),
    st.builds(ResetTable, int64, splits, key_types),
    st.builds(RestoreTable, int64, int64),
)
entries = st.lists(st.builds(Entry, transactions, int64, int64), min_size=1, max_size=4).map(tuple)


@given(entries)
def test_any_entries_are_read_back_as_they_were_written(written: tuple[Entry, ...]) -> None:
    assert decode_delta(encode_delta(written, DELTA), DELTA, "x") == written
    (delta,) = decode_segment(encode_segment([StoredDelta("00" * 16, written)], "t"), "t", "x")
    assert delta.entries == written


def test_a_change_has_one_id_for_ever_and_another_one_has_another() -> None:
    """Writers of several releases may retry one change."""
    ids = {name: transaction_id(entry.transaction) for name, entry in ENTRIES.items()}
    assert len(set(ids.values())) == len(ids)
    for name, changed in ENTRIES.items():
        stored = msgspec.msgpack.encode(changed.transaction)
        if isinstance(changed.transaction, HideRows):
            stored = changed.transaction.deletion.id.encode()
        assert ids[name] == blake2b(stored, digest_size=16).hexdigest()
    again = msgspec.json.decode(msgspec.json.encode(ENTRIES["add_shards"]), type=Entry)
    assert (
        transaction_id(again.transaction) == ids["add_shards"] == "ce97766360e332b04de65de349330ddd"
    )


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
    texts = pq.read_table(io.BytesIO(body))["entries"].to_pylist()
    changes = [change for text in texts for change, _, _ in json.loads(text)]
    assert [change["kind"] for change in changes] == list(ENTRIES)
    assert ["source1", "source2"] in [change.get("sources") for change in changes]


def test_a_delta_takes_less_than_a_write_unit() -> None:
    shards = tuple(ENTRIES["replace_shards"].transaction.inputs)  # type: ignore[union-attr]
    assert shards
    assert len(encode_delta([ENTRIES["replace_shards"]], DELTA)) < 500


def test_a_delta_of_a_later_format_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(codec, "FORMAT", codec.FORMAT + 1)
        other = encode_delta([ENTRIES["add_shards"]], DELTA)
    with pytest.raises(CorruptDataError, match="of format") as refused:
        decode_delta(other, DELTA, "x")
    assert "upgrade" in refused.value.hint


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
    later = write_file([], pa.schema([("kind", pa.string())]), SEGMENT_KIND, SEGMENT_FORMAT + 1, {})
    with pytest.raises(CorruptDataError, match=f"format {SEGMENT_FORMAT + 1}") as refused:
        decode_segment(later, "t", "x")
    assert "upgrade" in refused.value.hint


def test_a_file_of_an_earlier_format_is_refused_with_what_to_do() -> None:
    earlier = write_file(
        [], pa.schema([("kind", pa.string())]), SEGMENT_KIND, SEGMENT_FORMAT - 1, {}
    )
    with pytest.raises(CorruptDataError, match=f"format {SEGMENT_FORMAT - 1}") as refused:
        decode_segment(earlier, "t", "x")
    assert "with that one" in refused.value.hint


def test_an_unknown_transaction_is_refused_with_its_kind_and_the_advice_to_upgrade() -> None:
    for read in (read_as_delta, read_as_segment):
        with pytest.raises(CorruptDataError, match="merge_tables") as refused:
            read({"kind": "merge_tables"}, 1, 0)
        assert "upgrade" in refused.value.hint


def test_a_transaction_that_lacks_a_part_or_has_one_too_many_is_refused() -> None:
    whole = {"kind": "release_job", "job": "j"}
    for read in (read_as_delta, read_as_segment):
        read(whole, 1, 0)
        for wrong in ({"job": None}, {"job": 1}, {"x": 1}, {"kind": 1}):
            with pytest.raises(CorruptDataError):
                read(whole | wrong, 1, 0)
        for entry in [(whole, 1), (whole, 1, 0, 0), (whole, None, 0), (whole, 1, "0"), ()]:
            with pytest.raises(CorruptDataError):
                read(*entry)


def read_as_delta(*entry: object) -> None:
    """Read a whole delta of an entry that no transaction needs to have."""
    head = codec._MAGIC + bytes([FORMAT])
    packed = zlib.compress(msgspec.msgpack.encode([[entry], []]))
    decode_delta(head + codec._digest(head, packed, DELTA) + packed, DELTA, "x")


def read_as_segment(*entry: object) -> None:
    """Read a whole segment of an entry that no transaction needs to have."""
    cells = {"delta": pa.array([b"0" * 16], pa.binary(16)), "entries": [json.dumps([entry])]}
    rows = pa.table(cells)
    stored = write_file([rows], rows.schema, SEGMENT_KIND, SEGMENT_FORMAT, {OWNER: "t"})
    decode_segment(stored, "t", "x")


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
