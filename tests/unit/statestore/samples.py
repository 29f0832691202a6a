"""One entry of each kind of transaction, as the golden files hold them.

A golden file is never written again: it stands for what is stored somewhere. A changed format gets
a new number and new files, ``python -m tests.unit.statestore.samples`` writes those that are
missing, and the old ones must still be read.
"""

from __future__ import annotations

from pathlib import Path

from dormouse.keys import KeyRange, encode_key
from dormouse.log.blobs import FORMAT, Delta, encode_delta, identity_of
from dormouse.log.increments import FORMAT as INCREMENT_FORMAT
from dormouse.log.increments import StateChanges, changes_between, encode_increment, rebased
from dormouse.log.log import fold_delta, packed
from dormouse.log.snapshot import FORMAT as SNAPSHOT_FORMAT
from dormouse.log.snapshot import SEGMENT_FORMAT, encode_segment, encode_snapshot
from dormouse.schema.types import Primitive
from dormouse.state.partitions import NewShard, Shard, partition_id_of
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
    TableState,
)

DELTA = identity_of("t", "00" * 16)
"""The identity of the deltas in golden files."""
GOLDEN = Path(__file__).parent / "golden"

_KEY_TYPES = (Primitive.STRING, Primitive.LONG, Primitive.BYTES)
_AT = ("m", 7, b"\x00\xff")
_LEFT, _RIGHT = partition_id_of(KeyRange((), _AT)), partition_id_of(KeyRange(_AT))
_SHARD = Shard.of("s1", 12, 3456, ("a", -1, b""), ("\U0001f42d", 2**63 - 1, b"\xff"))
_OUTPUT_AGAIN = Shard.of("s3", 5, 789, ("a", -1, b""), ("b", 0, b""))
_OUTPUT = Shard.of("s2", 5, 789, ("a", -1, b""), ("b", 0, b""))

_DELETION = Deletion(
    "deletion1",
    """("name" = 'Hazel')""",
    ('{"id": 3, "name": "name", "type": "StringType"}',),
    ((encode_key(("a",)), encode_key(("b", 4))), (encode_key(("m",)), None)),
)
_ADOPTED = SourceSegment("g0", 0, 77, 5000, 95_000, 80_039, 1055)
_SEALED = SourceSegment("g1", 0, 1, 2, 436, 71, 2)

ENTRIES = {
    "initialise_partitions": Entry(InitialisePartitions((encode_key(_AT),), _KEY_TYPES), 1_000, 0),
    "adopt_segments": Entry(AdoptSegments((_ADOPTED,)), 1_600, 0),
    "add_shards": Entry(
        AddShards("job1", ("source1", "source2"), (NewShard(_SHARD, ((_LEFT, 5), (_RIGHT, 7))),)),
        2_000,
        0,
    ),
    "delete_rows": Entry(HideRows(_DELETION), 2_500, 0),
    "assign_job": Entry(AssignJob("job2", _LEFT, ("s1",), "purge1", "request1"), 3_000, 0),
    "release_job": Entry(ReleaseJob("job3"), 4_000, 0),
    "replace_shards": Entry(
        ReplaceShards("job2", _LEFT, ("s1",), (NewShard(_OUTPUT, ((_LEFT, 5),)),), (("s1", 6),), 1),
        5_000,
        0,
    ),
    "split_partition": Entry(SplitPartition(_RIGHT, encode_key(("z",)), (("s1", 3),)), 6_000, 0),
    "dispute_shards": Entry(
        DisputeShards(("s1", "s2"), DisputeReason.BYTES_DAMAGED, "job2"), 6_200, 0
    ),
    "resolve_disputes": Entry(ResolveDisputes((("s2", 6_200),)), 6_400, 0),
    "delete_shards": Entry(DeleteShards(("s0", "s9")), 7_000, 0),
    "forget_deletions": Entry(ForgetDeletions((2, 3)), 7_200, 0),
    "extend_tree": Entry(
        ExtendTree(
            (
                (_LEFT, encode_key(("c",))),
                (partition_id_of(KeyRange((), ("c",))), encode_key(("b", 0))),
            )
        ),
        7_500,
        0,
    ),
    "seal_sources": Entry(SealSources(_SEALED), 7_800, 0),
    "reset_table": Entry(ResetTable(1, (), (Primitive.LONG, Primitive.STRING)), 8_000, 0),
    "restore_version": Entry(RestoreTable(2, 4), 9_500, 0),
}
"""In an order in which most of them hold."""


def sample_state() -> TableState:
    """The state after most entries, then a sealing, and then another source."""
    later = ("extend_tree", "seal_sources", "reset_table")
    entries = [e for name, e in ENTRIES.items() if name not in later]
    state, _ = fold_delta(TableState(), entries)
    for entry in (ENTRIES["seal_sources"], Entry(AddShards("job4", ("source3",), (), 1), 9_000, 0)):
        state, _ = fold_delta(state, [entry])
    return state


def sample_increment() -> StateChanges:
    """What a sealing, a source and an assignment change in the state before them."""
    later = ("extend_tree", "seal_sources", "reset_table", "resolve_disputes")
    entries = [e for name, e in ENTRIES.items() if name not in later]
    earlier, _ = fold_delta(TableState(), entries)
    state = earlier
    added = AddShards("job4", ("source3",), (NewShard(_OUTPUT_AGAIN, ((_LEFT, 5),)),), 1)
    for entry in (ENTRIES["seal_sources"], Entry(added, 9_000, 0), ENTRIES["resolve_disputes"]):
        state, _ = fold_delta(state, [entry])
    laid_over = rebased(state, earlier)
    assert laid_over is not None
    return changes_between("t", earlier, laid_over)


def sample_deltas() -> list[Delta]:
    """The entries in deltas of two."""
    entries = list(ENTRIES.values())
    pairs = [tuple(entries[start : start + 2]) for start in range(0, len(entries), 2)]
    return [Delta(f"{number:032x}", pair) for number, pair in enumerate(pairs)]


def golden_files() -> dict[str, bytes]:
    """The golden files of the present formats by name."""
    files = {f"{name}-{FORMAT}": encode_delta([entry], DELTA) for name, entry in ENTRIES.items()}
    files[f"all-{FORMAT}"] = encode_delta(list(ENTRIES.values()), DELTA)
    others = [Delta(f"{n:032x}", (ENTRIES[name],)) for n, name in enumerate(sorted(ENTRIES)[:3])]
    files[f"carrying-{FORMAT}"] = encode_delta([ENTRIES["release_job"]], DELTA, packed(others))
    files[f"segment-{SEGMENT_FORMAT}"] = encode_segment(sample_deltas(), "t")
    files[f"increment-{INCREMENT_FORMAT}"] = encode_increment(sample_increment())
    files[f"snapshot-{SNAPSHOT_FORMAT}"] = encode_snapshot("t", sample_state())
    return files


def main() -> None:
    """Write the golden files that are missing."""
    GOLDEN.mkdir(exist_ok=True)
    for name, body in golden_files().items():
        kinds = ("segment", "increment", "snapshot")
        path = GOLDEN / f"{name}{'.parquet' if name.startswith(kinds) else '.delta'}"
        if not path.exists():
            path.write_bytes(body)


if __name__ == "__main__":
    main()
