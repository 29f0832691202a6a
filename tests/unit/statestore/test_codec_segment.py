"""Segments: the deltas that were put in come out, each under its id."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.errors import CorruptDataError
from dormouse.log import snapshot
from dormouse.log.blobs import Delta, encode_delta
from dormouse.log.columns import write_file
from dormouse.log.snapshot import (
    FORMAT,
    OWNER,
    StoredSegment,
    decode_segment,
    encode_segment,
    join_segments,
)
from tests.unit.statestore.samples import DELTA, ENTRIES, GOLDEN, sample_deltas
from tests.unit.statestore.test_codec import entries


@given(st.lists(entries, max_size=6))
def test_any_deltas_are_read_back_each_under_its_id(several: list[tuple[object, ...]]) -> None:
    deltas = [Delta(f"{number:032x}", held) for number, held in enumerate(several)]
    assert decode_segment(encode_segment(deltas, "t"), "t", "x") == deltas


def test_a_reader_that_knows_the_first_deltas_reads_only_row_groups_of_others() -> None:
    deltas = [Delta(f"{n:032x}", (ENTRIES["release_job"],) * (1 + n % 3)) for n in range(7)]
    with patch.multiple(snapshot, _DELTAS_OF_A_GROUP=2):
        body, whole = encode_segment(deltas, "t"), pq.ParquetFile.read_row_groups
        for known in range(8):
            numbers: list[int] = []

            def counting(file: Any, groups: list[int], numbers: Any = numbers, **how: Any) -> Any:
                numbers += groups
                return whole(file, groups, **how)

            with patch.object(pq.ParquetFile, "read_row_groups", counting):
                assert decode_segment(body, "t", "x", without=known) == deltas[known:]
            assert numbers == [*range(known // 2, 4)]
    assert decode_segment(encode_segment(deltas, "t"), "t", "x", without=3) == deltas[3:]


def test_a_segment_stored_once_can_be_read_for_ever() -> None:
    assert (
        decode_segment((GOLDEN / f"segment-{FORMAT}.parquet").read_bytes(), "t", "x")
        == sample_deltas()
    )


def test_a_delta_or_a_damaged_segment_is_refused_by_name() -> None:
    whole = encode_segment(sample_deltas(), "t")
    for body in (encode_delta(list(ENTRIES.values()), DELTA), whole[:-9], b""):
        with pytest.raises(CorruptDataError, match="segment 7"):
            decode_segment(body, "t", "segment 7")


def test_entries_that_are_no_utf_8_are_refused_by_name() -> None:
    cells = [pa.array([bytes(16)], pa.binary(16)), pa.array([b"\x9d"]).view(pa.string())]
    rows = pa.table(cells, ["delta", "entries"])
    body = write_file(
        [rows], rows.schema, snapshot.SEGMENT_KIND, snapshot.SEGMENT_FORMAT, {OWNER: "t"}
    )
    with pytest.raises(CorruptDataError, match="segment 7"):
        decode_segment(body, "t", "segment 7")


@given(st.lists(st.lists(entries, max_size=5), min_size=1, max_size=4))
def test_joined_segments_are_the_segment_of_all_their_deltas(
    several: list[list[tuple[object, ...]]],
) -> None:
    """Byte for byte, so that a reader skips row groups by the same count of deltas."""
    ids = count()
    parts = [[Delta(f"{next(ids):032x}", held) for held in part] for part in several]
    with patch.multiple(snapshot, _DELTAS_OF_A_GROUP=2):
        stored = [StoredSegment(encode_segment(part, "t"), "x", len(part)) for part in parts]
        whole = [delta for part in parts for delta in part]
        assert join_segments(stored, "t") == encode_segment(whole, "t")


def test_a_segment_that_is_damaged_or_lacks_deltas_or_is_another_tables_is_not_joined() -> None:
    deltas = sample_deltas()
    whole = encode_segment(deltas, "t")
    good = StoredSegment(whole, "segment 7", len(deltas))
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for bad in (
        replace(good, body=bytes(flipped)),
        replace(good, deltas=len(deltas) + 1),
        replace(good, body=encode_segment(deltas, "other")),
        replace(good, body=encode_delta(list(ENTRIES.values()), DELTA)),
    ):
        with pytest.raises(CorruptDataError, match="segment 7"):
            join_segments([StoredSegment(whole, "good", len(deltas)), bad], "t")
