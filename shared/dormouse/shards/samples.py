"""Samples of a shard's keys at exact ranks, taken while its rows are written.

They replace a sketch: from the samples of its shards alone, a partition is split near its middle
at a key that exists, with the rows on both sides known.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from dormouse.arrow.order import rows_below
from dormouse.arrow.types import row_key
from dormouse.keys.histogram import KeyHistogram
from dormouse.keys.ranges import Key, encode_key
from dormouse.schema.schema import Schema

MAX_SAMPLES = 256
MAX_SAMPLES_BYTES = 32 * 1024
"""What the keys of the samples may take of a footer; of long keys, fewer are kept."""


@dataclass(frozen=True, slots=True)
class _Sample:
    row: int
    key: Key
    rank: int
    size_bytes: int


class KeySampler:
    """Samples the key of every n-th row of a sorted stream; n doubles as samples grow too many.

    The rank of a sample is the number of rows with a lesser key: the row at which its key begins.
    """

    def __init__(
        self, schema: Schema, most: int = MAX_SAMPLES, most_bytes: int = MAX_SAMPLES_BYTES
    ) -> None:
        """Sample the row keys of `schema`, which are the first columns of the batches.

        At most so many samples are kept, and their keys take at most `most_bytes`.
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
        while -(-end // self._step) > self._most:  # what would be thinned by then is not looked at
            self._double_step()
        row = self._next(self.rows)
        while row < end:
            key, rank = self._ranked(batch, row - self.rows)
            sample = _Sample(row, key, rank, len(encode_key(key)))
            self._samples.append(sample)
            self._samples_bytes += sample.size_bytes
            self._thin()
            row = self._next(row + 1)
        self._last, self._last_rank = self._ranked(batch, batch.num_rows - 1)
        self.rows = end

    @property
    def min_key(self) -> Key:
        """The least key seen. Requires: a row was seen."""
        return self._samples[0].key

    @property
    def max_key(self) -> Key:
        """The greatest key seen. Requires: a row was seen."""
        assert self._last is not None
        return self._last

    def samples(self) -> tuple[tuple[Key, int], ...]:
        """Return the sampled keys, strictly ascending, each with its rank."""
        ranks = {sample.key: sample.rank for sample in self._samples}
        return tuple(ranks.items())

    def keys(self) -> KeyHistogram:
        """Return what is known of where the rows lie."""
        return KeyHistogram(self.samples(), self.rows, self._last or ())

    def _next(self, row: int) -> int:
        return row + -row % self._step

    def _ranked(self, batch: pa.RecordBatch, row: int) -> tuple[Key, int]:
        """Return the key of a row of `batch`, and its rank in the stream."""
        key = row_key(batch, row, self._schema)
        if row and row_key(batch, row - 1, self._schema) != key:
            return key, self.rows + row  # most keys are alone, and need no search
        below = rows_below(batch, key, self._schema)
        begun_before = below == 0 and key == self._last
        return key, self._last_rank if begun_before else self.rows + below

    def _thin(self) -> None:
        while len(self._samples) > 1 and (
            len(self._samples) > self._most or self._samples_bytes > self._most_bytes
        ):
            self._double_step()

    def _double_step(self) -> None:
        self._step *= 2
        self._samples = [s for s in self._samples if s.row % self._step == 0]
        self._samples_bytes = sum(s.size_bytes for s in self._samples)
