"""From what a caller wants ingested to local files, and the keys to drop them under."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.errors import InvalidRequestError, NotFoundError
from dormouse.model.sources import table_name_of

Rows = pa.Table | pa.RecordBatchReader
Ingestible = Rows | str | Path | Iterable[str | Path]
"""Rows, or the path of a Parquet, CSV or JSON lines file, or several paths."""


def write_rows(rows: Rows, local: Path) -> None:
    """Write rows to a Parquet file, batch by batch."""
    batches = rows.to_reader() if isinstance(rows, pa.Table) else rows
    with pq.ParquetWriter(local, batches.schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def files_to_drop(table_name: str, paths: Iterable[str | Path]) -> list[tuple[str, Path]]:
    """Give the key of each file in the ingest bucket: its own name in the table's folder.

    Raises:
        NotFoundError: there is no such file.
        InvalidRequestError: two files have one name, or one has a name that is refused as a key.
    """
    found = [Path(path) for path in paths]
    for path in found:
        if not path.is_file():
            raise NotFoundError(f"there is no file {str(path)!r}")
    names = Counter(path.name for path in found)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise InvalidRequestError(
            f"several files are called {', '.join(sorted(twice))}",
            hint="ingest them one after the other, or under different names",
        )
    return [(ingest_key(table_name, path.name), path) for path in found]


def ingest_key(table_name: str, name: str) -> str:
    """Give the key to drop a file of this name under.

    Raises:
        InvalidRequestError: the key would be refused, as one that climbs or has control characters.
    """
    key = f"{table_name}/{name}"
    table_name_of(key)
    return key
