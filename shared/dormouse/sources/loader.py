"""The rows of an ingest job on their way in: whole files or nothing, then all of them sorted.

A file may turn out bad at its last row, so its rows are sorted apart, and join those of the job
only when the file was read to its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa

from dormouse.engine.sorting import Sorter
from dormouse.keys.ranges import Key
from dormouse.model.sources import Source
from dormouse.ports import Sources
from dormouse.readahead import read_ahead
from dormouse.schema.schema import Schema
from dormouse.sources.formats import read_source
from dormouse.tables.csv_dialect import CsvDialect

SHARE_HELD = 2
"""Rows are held in up to this part of the memory; the rest is for reading, sorting and writing."""


class SourceLoader:
    """Collects the rows of good files, in memory and then in `scratch`; `rows` counts them."""

    def __init__(
        self,
        schema: Schema,
        scratch: Path,
        *,
        memory_bytes: int,
        dialect: CsvDialect | None = None,
    ) -> None:
        """Start empty; all together will stay near `memory_bytes` of memory.

        `dialect` is that of CSV files, by default the usual one.
        """
        self._schema = schema
        self._dialect = dialect
        self._scratch = scratch
        self._memory_bytes = memory_bytes
        self._taken = self._sorter()

    @property
    def rows(self) -> int:
        """How many rows were taken in."""
        return self._taken.rows

    @property
    def size_bytes(self) -> int:
        """What the rows take in memory, uncompressed."""
        return self._taken.size_bytes

    def add(self, local: Path, key: str) -> None:
        """Take in a whole file; `key` is the name it was dropped under.

        Raises:
            RefusedSourceError: the file is bad.
            OSError: the scratch space may be full, of this file's rows or of what else is there.

        None of its rows was taken then.
        """
        staged = self._sorter()
        try:
            with closing(
                read_ahead(read_source(local, key, self._schema, self._dialect))
            ) as batches:
                for batch in batches:
                    staged.add(batch)
                    self._make_room(staged)
        except BaseException:
            staged.discard()
            raise
        self._taken.absorb(staged)

    def sampled_keys(self) -> Iterator[Key]:
        """Return the keys of some rows, of one in every few hundred KiB."""
        return self._taken.sampled_keys()

    def sorted_rows(self) -> Iterator[pa.RecordBatch]:
        """Return all rows taken in, sorted by the keys; can be read once."""
        return self._taken.sorted_rows()

    def _sorter(self) -> Sorter:
        return Sorter(self._schema, self._scratch, memory_bytes=self._memory_bytes)

    def _make_room(self, staged: Sorter) -> None:
        if self._taken.held_bytes + staged.held_bytes > self._memory_bytes // SHARE_HELD:
            max(self._taken, staged, key=lambda sorter: sorter.held_bytes).spill()


def load_source(sources: Sources, intake: SourceLoader, source: Source, scratch: Path) -> None:
    """Download a source, take in its rows, and remove the local copy.

    Raises:
        RefusedSourceError: it is gone, or bad; none of its rows was taken.
        OSError: the scratch space may be full; none of its rows was taken.
    """
    local = scratch / source.id
    try:
        sources.download(source, local)
        intake.add(local, source.key)
    finally:
        local.unlink(missing_ok=True)
