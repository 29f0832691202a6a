"""Small states that are read by parts, and what a reader of some keys goes by."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from dormouse.keys import KeyRange
from dormouse.log import compaction, key_index, log, pinning
from dormouse.log.pages import Manifest
from dormouse.state.state import TableState


@contextmanager
def indexed_early() -> Iterator[None]:
    """Let small states have key indexes of several blocks, and be read by them.

    A snapshot is due after sixteen commits, an increment after three.
    """
    with (
        patch.multiple(compaction, REFERENCES_TO_INDEX=0, COMMITS_TO_INCREMENT=3),
        patch.multiple(compaction, is_snapshot_due=_is_snapshot_due),
        patch.multiple(key_index, BLOCK_ROWS=4, BLOCK_ROWS_OF_CHANGES=4, MOST_REACHING=2),
        patch.multiple(key_index, _TAIL_BYTES=500),
        patch.multiple(pinning, LEAST_BYTES=0),
        patch.multiple(log, LARGE_BYTES=0),
    ):
        yield


def _is_snapshot_due(manifest: Manifest, _: int) -> bool:
    covered = manifest.segments[-1].version if manifest.segments else 0
    return covered > 0 and (manifest.newest is None or covered - manifest.newest.version >= 16)


def plan(state: TableState, wanted: KeyRange) -> list[object]:
    """Return what a reader of some keys goes by."""
    return [
        (span, [(state.shards[r.shard], r.rows) for r in references])
        for span, references in state.partitions_to_read(wanted)
    ]
