"""Load the rows of an ingest job: whole files or nothing, then all rows sorted.

A file may be invalid in its last row. Its rows are therefore sorted separately, and added to those
of the job only when the file was read to its end.
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
"""At most this fraction (1/2) of the memory holds rows; the rest is
for reading, sorting and writing.
"""


class SourceLoader:
    """Collects the rows of valid files, in memory and then in `scratch`; `rows` counts them."""

    def __init__(
        self,
        schema: Schema,
        scratch: Path,
        *,
        memory_bytes: int,
        dialect: CsvDialect | None = None,
    ) -> None:
        """Start empty; the loader as a whole uses about `memory_bytes` of memory.

        `dialect` is the dialect of CSV files, by default comma-separated with a header.
        """
        self._schema = schema
        self._dialect = dialect
        self._scratch = scratch
        self._memory_bytes = memory_bytes
        self._loaded = self._sorter()

    @property
    def rows(self) -> int:
        """The number of loaded rows."""
        return self._loaded.rows

    @property
    def size_bytes(self) -> int:
        """The uncompressed size of the rows in memory, in bytes."""
        return self._loaded.size_bytes

    def add(self, local: Path, key: str) -> None:
        """Load a whole file; `key` is the object key under which it was dropped. On an
        error, none of its rows is loaded.

        Raises:
            RefusedSourceError: the file is invalid.
            OSError: the scratch space may be full.
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
        self._loaded.absorb(staged)

    def sampled_keys(self) -> Iterator[Key]:
        """Return the keys of a sample of rows: one in every few hundred KiB."""
        return self._loaded.sampled_keys()

    def sorted_rows(self) -> Iterator[pa.RecordBatch]:
        """Return all loaded rows, sorted by the keys; they can be read once."""
        return self._loaded.sorted_rows()

    def _sorter(self) -> Sorter:
        return Sorter(self._schema, self._scratch, memory_bytes=self._memory_bytes)

    def _make_room(self, staged: Sorter) -> None:
        if self._loaded.held_bytes + staged.held_bytes > self._memory_bytes // SHARE_HELD:
            max(self._loaded, staged, key=lambda sorter: sorter.held_bytes).spill()


def load_source(sources: Sources, loader: SourceLoader, source: Source, scratch: Path) -> None:
    """Download a source, load its rows, and remove the local copy. On an
    error, none of its rows is loaded.

    Raises:
        RefusedSourceError: the source is gone, or invalid.
        OSError: the scratch space may be full.
    """
    local = scratch / source.id
    try:
        sources.download(source, local)
        loader.add(local, source.key)
    finally:
        local.unlink(missing_ok=True)
