"""rebuild, after a purge that rewrote leaves together: what lies between them is not lost."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle


@pytest.mark.parametrize("between", [True, False])
def test_rows_between_leaves_that_a_purge_joined_are_there_once(
    tmp_path: Path, between: bool
) -> None:
    with Instance.open(tmp_path / "mice", background=False) as instance:
        handle = instance.create_table("t", "k:long, n:long?", row_keys=["k"])
        handle.ingest(pa.table({"k": [*range(40)], "n": [0] * 40})).wait()
        for _ in range(2):
            instance.split("t", forced=True)
            instance.wait()
        merge(instance, handle, 1, 39)
        purge = handle.purge("n = 7")
        purge.wait()
        if between:
            merge(instance, handle, 15)
        rows = handle.query().to_arrow().sort_by("k")
        handle.rebuild()
        assert handle.query().to_arrow().sort_by("k") == rows
        assert not handle.check().findings


def merge(instance: Instance, handle: TableHandle, *keys: int) -> None:
    """Merge a leaf's part of the first shard with a new row, for each key."""
    for key in keys:
        handle.ingest(pa.table({"k": [key], "n": [7]})).wait()
    instance.compact("t", everything=True)
    instance.wait()
