"""A uniform sample of the keys of rows that come in any order, of bounded size."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.key_forms.arrow import row_key
from dormouse.keys.ranges import Key
from dormouse.schema.schema import Schema

_LOT = "lot"


class KeySample:
    """Each row draws a lot; those with the least lots are kept."""

    def __init__(self, schema: Schema, most: int, seed: int) -> None:
        """Keep the row keys of at most `most` rows; the same `seed` draws the same lots."""
        self._schema = schema
        self._most = most
        self._seed = seed
        self._kept: pa.Table | None = None
        self.rows = 0

    def see(self, batch: pa.RecordBatch) -> None:
        """Let the rows of a batch, whose first columns are those of the schema, draw lots."""
        width = len(self._schema.row_keys)
        lots = pc.random(batch.num_rows, initializer=(self._seed << 40) + self.rows)
        self.rows += batch.num_rows
        drawn = pa.table([*batch.columns[:width], lots], names=[*map(str, range(width)), _LOT])
        self._kept = pa.concat_tables([self._kept, drawn]) if self._kept is not None else drawn
        if self._kept.num_rows > 2 * self._most:
            self._kept = self._thinned(self._kept)

    def sorted_keys(self) -> list[Key]:
        """Return the keys kept, in order, with repeats."""
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
        return table.take(pc.sort_indices(table[_LOT]).slice(0, self._most))
