"""The rows of an ingest job on their way in: whole files or nothing, then all of them sorted.

A file may turn out bad at its last row, so its rows are spooled to scratch, checked, and join the
job only when the file was read to its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from dormouse.model.schema import Schema
from dormouse.shards.arrow import arrow_schema
from dormouse.shards.formats import read_source
from dormouse.shards.sorting import sort_rows


class Intake:
    """Collects the rows of good files in `scratch`; `rows` counts them."""

    def __init__(self, schema: Schema, scratch: Path, *, memory_bytes: int) -> None:
        """Start empty; sorting will use `memory_bytes` of memory and then `scratch`."""
        self.rows = 0
        self._schema = schema
        self._scratch = scratch
        self._memory_bytes = memory_bytes
        self._spools: list[Path] = []

    def add(self, local: Path, key: str) -> None:
        """Take in a whole file; `key` is the name it was dropped under.

        Raises:
            RefusedSourceError: the file is bad; none of its rows was taken.
        """
        spool = self._scratch / f"spool-{len(self._spools)}.arrow"
        rows = 0
        options = pa.ipc.IpcWriteOptions(compression="lz4")  # scratch is small next to the files
        with pa.ipc.new_stream(str(spool), arrow_schema(self._schema), options=options) as stream:
            for batch in read_source(local, key, self._schema):
                stream.write_batch(batch)
                rows += batch.num_rows
        self._spools.append(spool)
        self.rows += rows

    def sorted_rows(self) -> Iterator[pa.RecordBatch]:
        """Give all rows taken in, sorted by the keys; can be read once."""
        return sort_rows(
            self._spooled(),
            self._schema,
            memory_bytes=self._memory_bytes,
            scratch=self._scratch,
        )

    def _spooled(self) -> Iterator[pa.RecordBatch]:
        for spool in self._spools:
            with pa.memory_map(str(spool)) as file, pa.ipc.open_stream(file) as stream:
                yield from stream
            spool.unlink()
