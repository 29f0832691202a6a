"""The first rows of a stream, for tables that people read."""

from __future__ import annotations

import pyarrow as pa

from dormouse.files.results import Cells, json_cells


def first_rows(rows: pa.RecordBatchReader, limit: int) -> tuple[list[Cells], bool]:
    """Return the first `limit` rows in the types that JSON has, and whether there are more."""
    shown: list[Cells] = []
    for batch in rows:
        few = batch.slice(0, limit + 1 - len(shown))
        shown += zip(*(json_cells(column) for column in few.columns), strict=True)
        if len(shown) > limit:
            break
    return shown[:limit], len(shown) > limit
