"""A uniform random sample of row keys, of bounded size, over rows in any order."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.key_forms.arrow import row_key
from dormouse.keys.ranges import Key
from dormouse.schema.schema import Schema

_RANDOM = "random"


class KeySample:
    """A reservoir: each row gets a random number, and those with the least numbers are kept."""

    def __init__(self, schema: Schema, most: int, seed: int) -> None:
        """Sample at most `most` rows; the same `seed` gives the same sample of the same rows."""
        self._schema = schema
        self._most = most
        self._seed = seed
        self._kept: pa.Table | None = None
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Sample from the rows of a batch, whose first columns are those of the schema."""
        width = len(self._schema.row_keys)
        numbers = pc.random(batch.num_rows, initializer=(self._seed << 40) + self.rows)
        self.rows += batch.num_rows
        drawn = pa.table(
            [*batch.columns[:width], numbers], names=[*map(str, range(width)), _RANDOM]
        )
        self._kept = pa.concat_tables([self._kept, drawn]) if self._kept is not None else drawn
        if self._kept.num_rows > 2 * self._most:
            self._kept = self._thinned(self._kept)

    def sorted_keys(self) -> list[Key]:
        """Return the sampled keys in order; equal keys may be repeated."""
        if self._kept is None:
            return []
        width = len(self._schema.row_keys)
        kept = self._thinned(self._kept).sort_by([(str(i), "ascending") for i in range(width)])
        return [
            row_key(batch, row, self._schema)
            for batch in kept.to_batches()
            for row in range(batch.num_rows)
        ]

    def _thinned(self, table: pa.Table) -> pa.Table:
        if table.num_rows <= self._most:
            return table
        return table.take(pc.sort_indices(table[_RANDOM]).slice(0, self._most))
