"""Samples of a shard's keys with exact ranks, taken while its rows are written.

From the samples of its shards alone, a partition can be split near its median, at an existing key,
with a known number of rows on both sides. They are exact where a sketch would be approximate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from dormouse.arrow.order import rows_below
from dormouse.key_forms.arrow import row_keys
from dormouse.keys.histogram import KeyHistogram
from dormouse.keys.ranges import Key, stored_bytes
from dormouse.schema.schema import Schema

MAX_SAMPLES = 256
MAX_SAMPLES_BYTES = 32 * 1024
"""The largest size of the keys of the samples in a footer; fewer samples of long keys are kept."""


class _Sample(NamedTuple):
    row: int
    key: Key
    rank: int
    size_bytes: int


class KeySampler:
    """Samples the key of every n-th row of a sorted stream; n doubles
    whenever there are too many samples.

    The rank of a sample is the number of rows with a lesser key: the number of the first row with
    its key.

    For example, with at most 3 samples and the keys a b b c d e f g: rows 0, 1 and 2 are sampled
    with n = 1, as (a, 0) (b, 1) (b, 1). Row 3 would be a fourth sample, so n becomes 2 and the rows
    0, 2 remain; row 4 is added. At row 6, n becomes 4. The result is (a, 0) (d, 4).
    """

    def __init__(
        self, schema: Schema, most: int = MAX_SAMPLES, most_bytes: int = MAX_SAMPLES_BYTES
    ) -> None:
        """Sample the row keys of `schema`, which are the first columns of the batches.

        At most `most` samples are kept, and their keys take at most `most_bytes`.
        """
        self._schema = schema
        self._most = most
        self._most_bytes = most_bytes
        self._samples: list[_Sample] = []
        self._samples_bytes = 0
        self._step = 1
        self.rows = 0
        self._last: Key | None = None
        self._last_rank = 0

    def see(self, batch: pa.RecordBatch) -> None:
        """Sample the next batch."""
        if not batch.num_rows:
            return
        end = self.rows + batch.num_rows
        while -(-end // self._step) > self._most:  # skip what would be dropped in this batch
            self._double_step()
        first = self.rows + -self.rows % self._step
        sampled = range(first, end, self._step)
        places = [row - self.rows for row in sampled]
        *ranked, (self._last, self._last_rank) = self._ranked(batch, [*places, batch.num_rows - 1])
        for row, (key, rank) in zip(sampled, ranked, strict=True):
            self._samples.append(_Sample(row, key, rank, stored_bytes(key)))
            self._samples_bytes += self._samples[-1].size_bytes
        self._thin()
        self.rows = end

    @property
    def min_key(self) -> Key:
        """The least key so far. Requires: a row was sampled."""
        return self._samples[0].key

    @property
    def max_key(self) -> Key:
        """The greatest key so far. Requires: a row was sampled."""
        assert self._last is not None
        return self._last

    def samples(self) -> tuple[tuple[Key, int], ...]:
        """Return the sampled keys, strictly ascending, each with its rank."""
        ranks = {sample.key: sample.rank for sample in self._samples}
        return tuple(ranks.items())

    def keys(self) -> KeyHistogram:
        """Return the distribution of the keys."""
        return KeyHistogram(self.samples(), self.rows, self._last or ())

    def _ranked(self, batch: pa.RecordBatch, rows: Sequence[int]) -> list[tuple[Key, int]]:
        """Return the keys of some rows of `batch`, and their ranks in the stream."""
        keys = row_keys(batch, rows, self._schema)
        before = row_keys(batch, [max(0, row - 1) for row in rows], self._schema)
        return [
            # most keys are unique and need no search
            (key, self.rows + row if row and other != key else self._first_row_of(key, row, batch))
            for row, key, other in zip(rows, keys, before, strict=True)
        ]

    def _first_row_of(self, key: Key, row: int, batch: pa.RecordBatch) -> int:
        """Return the number in the stream of the first row with the key of a row of `batch`."""
        below = rows_below(batch, key, self._schema) if row else 0
        begun_before = below == 0 and key == self._last
        return self._last_rank if begun_before else self.rows + below

    def _thin(self) -> None:
        while len(self._samples) > 1 and (
            len(self._samples) > self._most or self._samples_bytes > self._most_bytes
        ):
            self._double_step()

    def _double_step(self) -> None:
        self._step *= 2
        self._samples = [s for s in self._samples if s.row % self._step == 0]
        self._samples_bytes = sum(s.size_bytes for s in self._samples)
