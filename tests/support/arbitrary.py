"""Hypothesis strategies for arbitrary entries: most of them nonsense, some of it almost right.

Names, partitions and keys are drawn from few, some of which there are, so that nonsense meets a
table that has something to lose; and from all there could be: of foreign types, huge, empty.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from dormouse.keys import Key, encode_key
from dormouse.schema.schema import MAX_KEY_BYTES
from dormouse.schema.types import Primitive
from dormouse.state.partitions import ROOT, NewShard, Shard
from dormouse.state.state import (
    AddShards,
    AdoptSegments,
    AssignJob,
    DeleteShards,
    DisputeReason,
    DisputeShards,
    ExtendTree,
    InitialisePartitions,
    ReleaseJob,
    ReplaceShards,
    ResetTable,
    ResolveDisputes,
    SealSources,
    SourceSegment,
    SplitPartition,
    Transaction,
)
from tests.support.trees import LEFT, RIGHT, part

_KNOWN_NAMES = ["s1", "s2", "s3", "j1", "j2", "source1"]
_ODD_NAMES = ["", "\0", "a/b", "\ud800", "é", "x" * 5000, "a\nb"]
_KNOWN_PARTITIONS = [ROOT, LEFT, RIGHT, part("", "d"), part("d", "m"), part("m", "t")]

names = st.sampled_from(_KNOWN_NAMES + _KNOWN_NAMES + _ODD_NAMES) | st.text(max_size=3)
partition_ids = st.sampled_from(_KNOWN_PARTITIONS * 2 + ["nowhere"]) | names
numbers = st.sampled_from([0, 1, 1, 2, 5, -1, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 2**200])
_letters = st.sampled_from([("a",), ("d",), ("f",), ("m",), ("q",), ("t",), ("z",)])
_odd_parts = st.sampled_from(
    [0, True, 2**63 - 1, b"", b"\0\xff", "", "\0", "\ud800", "k" * (MAX_KEY_BYTES + 1)]
)
keys: st.SearchStrategy[Key] = (
    _letters | _letters | _letters | st.lists(_odd_parts, max_size=3).map(tuple)
)
stored_keys = keys.map(encode_key) | st.binary(max_size=4)
"""The bytes of keys, and bytes that are of none."""


def _many(of: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    """Few, or none, or one of them many times."""
    repeated = st.tuples(of, st.sampled_from([2, 300])).map(lambda drawn: (drawn[0],) * drawn[1])
    return st.lists(of, max_size=3).map(tuple) | repeated


_counted = _many(st.tuples(names, numbers))


@st.composite
def _sound_shards(draw: st.DrawFn) -> NewShard:
    """A shard that may well be added."""
    low, high = sorted([draw(_letters), draw(_letters)])
    name = draw(st.sampled_from(_KNOWN_NAMES) | st.uuids().map(lambda drawn: drawn.hex))
    placed = draw(st.sampled_from([ROOT, ROOT, *_KNOWN_PARTITIONS]))
    return NewShard(Shard.of(name, 5, 100, low, high), ((placed, 5),))


_shards = _sound_shards() | st.builds(
    NewShard,
    st.builds(Shard, names, numbers, numbers, stored_keys, stored_keys),
    _many(st.tuples(partition_ids, numbers)),
)
_splits = st.sampled_from([(), (encode_key(("m",)),)]) | _many(stored_keys)
_segments = st.builds(SourceSegment, names, *[numbers] * 6)
_key_types = st.just((Primitive.STRING,)) | _many(st.sampled_from(Primitive))

transactions: st.SearchStrategy[Transaction] = st.one_of(
    st.builds(InitialisePartitions, _splits, _key_types),
    st.builds(AddShards, names, _many(names), _many(_shards), numbers),
    st.builds(SealSources, _segments, _many(names)),
    st.builds(AdoptSegments, _many(_segments)),
    st.builds(AddShards, st.uuids().map(str), st.just(()), st.tuples(_sound_shards())),
    st.builds(AssignJob, names, partition_ids, _many(names)),
    st.builds(ReleaseJob, names),
    st.builds(ReplaceShards, names, partition_ids, _many(names), _many(_shards), _counted, numbers),
    st.builds(SplitPartition, partition_ids, stored_keys, _counted),
    st.builds(ExtendTree, _many(st.tuples(partition_ids, stored_keys))),
    st.builds(DeleteShards, _many(names)),
    st.builds(DisputeShards, _many(names), st.sampled_from(DisputeReason), names),
    st.builds(ResolveDisputes, _counted),
    st.builds(ResetTable, numbers, _splits, st.just(()) | _key_types),
)
"""Of every kind."""
