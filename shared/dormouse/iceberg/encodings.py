"""Which shards of a table are encoded as old releases of Spark do not read at their defaults."""

from __future__ import annotations

from dormouse.model.state import TableState
from dormouse.stored.paths import is_plain


def quick_shards(state: TableState) -> list[str]:
    """Return the live shards that were written before the table was published, by id.

    Compactions rewrite them. Until then Spark with Iceberg 1.10 or older reads the table row by
    row, as its metadata asks.
    """
    counts = state.reference_counts.items()
    return sorted(shard for shard, count in counts if count and not is_plain(shard))
