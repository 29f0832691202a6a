"""Take the rows of small shards that the process has read from its cache, many at a time.

The cache has the rows of each such shard (`kept_shard`), and those that earlier scans took in one
batch, a pile: to find and convert the rows of a shard takes ten times as long as to find its place
in the pile.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dormouse.arrow.types import of_shard
from dormouse.ports import Cache
from dormouse.schema.schema import Field
from dormouse.shards.decoding import kept_shard
from dormouse.shards.reading import Slice
from dormouse.state.partitions import Shard

PILE_BYTES = 4 * 1024 * 1024
"""What a pile takes in memory, at most."""
_SHARD_BYTES = 400
"""What a shard and its place take of that, beside its rows."""


@dataclass(frozen=True, slots=True)
class Pile:
    """Some columns of all rows of some shards, and the number of the first row of each."""

    fields: Sequence[Field]
    rows: pa.RecordBatch
    places: Mapping[Shard, int]

    @property
    def size_bytes(self) -> int:
        """What it takes in memory, about."""
        return int(self.rows.nbytes) + _SHARD_BYTES * len(self.places)

    def rows_at(self, places: Mapping[int, int]) -> Iterator[pa.RecordBatch]:
        """Yield so many rows from each place on, in any order: those that touch as one batch."""
        start = end = 0
        for first in sorted(places):
            if first != end:
                yield self.rows.slice(start, end - start)
                start = first
            end = first + places[first]
        yield self.rows.slice(start, end - start)

    def with_others(self, others: Mapping[Shard, pa.RecordBatch]) -> "Pile":
        """Return it with the rows of other shards."""
        places, first = dict(self.places), self.rows.num_rows
        for shard in others:
            places[shard] = first
            first += shard.rows
        table = pa.Table.from_batches([self.rows, *others.values()])
        (rows,) = table.combine_chunks().to_batches()
        return Pile(self.fields, rows, places)


class SmallShards:
    """The shards of a table of which one scan takes some columns from the cache."""

    def __init__(
        self, cache: Cache, table_id: str, fields: Sequence[Field], schema: pa.Schema
    ) -> None:
        """Look for the columns `fields`; rows are taken with `schema`."""
        self._cache, self._table_id, self._schema = cache, table_id, schema
        self._path = f"{table_id}: {', '.join(schema.names)}"
        kinds: list[Any] = schema.types
        no_rows = [pa.nulls(0, kind) for kind in kinds]  # from_pylist imports pandas
        self._empty = Pile(fields, pa.RecordBatch.from_arrays(no_rows, schema=schema), {})
        pile = cache.get(self._path, Pile)
        is_ours = pile is not None and pile.fields == fields and pile.rows.schema.equals(schema)
        self._pile = pile if pile is not None and is_ours else self._empty
        self._others: dict[Shard, pa.RecordBatch] = {}
        self._other_bytes = self._used_rows = 0

    def taken(self, slices: Sequence[Slice]) -> tuple[list[pa.RecordBatch], list[Slice]]:
        """Return all rows of those shards that the cache has, and the slices of others."""
        batches, rest, places = list[pa.RecordBatch](), list[Slice](), dict[int, int]()
        for each in slices:
            shard = each.shard
            if not each.is_whole:
                rest.append(each)
            elif (first := self._pile.places.get(shard)) is not None:
                places[first] = shard.rows
            elif (rows := self._kept(shard)) is not None:
                batches.append(rows)
            else:
                rest.append(each)
        self._used_rows += sum(places.values())
        return [*self._pile.rows_at(places), *batches], rest

    def _kept(self, shard: Shard) -> pa.RecordBatch | None:
        rows = kept_shard(self._cache, self._table_id, shard, self._empty.fields)
        if rows is None:
            return None
        rows = of_shard(rows, self._schema, shard.constants)
        size_bytes = self._other_bytes + int(rows.nbytes) + _SHARD_BYTES
        if size_bytes <= PILE_BYTES:
            self._others[shard], self._other_bytes = rows, size_bytes
        return rows

    def pile_up(self) -> None:
        """Keep what was taken in one batch with what other scans took: in its place if that is too
        much and was mostly not needed.
        """
        pile = self._pile
        if pile.size_bytes + self._other_bytes > PILE_BYTES:
            pile = self._empty if 2 * self._used_rows < pile.rows.num_rows else pile
        if self._others and pile.size_bytes + self._other_bytes <= PILE_BYTES:
            more = pile.with_others(self._others)
            self._cache.put(self._path, more, more.size_bytes)
