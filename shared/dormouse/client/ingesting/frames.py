"""Rows of a program on their way into a table: checked and converted here, dropped as one file.

A frame is one file and so one commit: all of its rows or none. It is validated before anything is
uploaded, so what does not fit is refused at once, with the column and the row.

With an idempotency key, the file's name is derived from the key, and the file is only created,
never replaced. The table remembers the key with the rows, as a part of its version. So however
often a call is repeated, with whatever the frame then holds, and whatever the table is called by
then, the rows that were uploaded first are those of the table; only a restore or a reset that takes
them away forgets the key too. A frame without rows uploads no file, and so takes no key.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq

from dormouse.arrow.types import arrow_schema
from dormouse.client.ingesting.dropping import Ingested, drop_files, ingest_key
from dormouse.client.table import TableHandle
from dormouse.errors import InvalidRequestError
from dormouse.model.sources import Source, digest_of_key, keyed_name
from dormouse.schema.schema import Schema
from dormouse.sources.frames import Frame, read_frame
from dormouse.tables.table import Table

MAX_KEY_CHARACTERS = 1024


def ingest_frame(
    handle: TableHandle,
    frame: Frame,
    name: str | None,
    *,
    again: bool,
    idempotency_key: str | None,
    watch: Callable[[Source], None] | None,
) -> Ingested:
    """Drop the rows of a frame as one file; see `TableHandle.ingest`.

    Raises:
        RefusedSourceError: the frame does not fit the table; nothing was uploaded.
        InvalidRequestError: a name and an idempotency key, or a key together with `again`.
    """
    if idempotency_key is not None and (name is not None or again):
        raise InvalidRequestError(
            "an idempotency key decides what the file is called, and that it is ingested once",
            hint="leave out name and again",
        )
    if idempotency_key is None:
        key = ingest_key(handle.name, name or f"{handle.services.ids.new()}.parquet")
    else:
        key = idempotent_key(handle.table, idempotency_key)
    if not key.endswith(".parquet"):
        raise InvalidRequestError(
            f"a frame is dropped as a Parquet file, which cannot be called {name!r}",
            hint="end the name in .parquet",
        )
    with scratch_file(handle) as local:
        if not write_frame(frame, handle.current().schema, local):
            return Ingested(handle, ())
        return drop_files(handle, [(key, local)], again, watch, once=idempotency_key is not None)


def idempotent_key(table: Table, idempotency_key: str, part: str = "") -> str:
    """Return the key in the ingest bucket of the rows that have this idempotency key.

    Raises:
        InvalidRequestError: the key is empty or too long.
    """
    if not 1 <= len(idempotency_key) <= MAX_KEY_CHARACTERS:
        raise InvalidRequestError(
            f"an idempotency key has 1 to {MAX_KEY_CHARACTERS:,} characters",
            hint="a key that names what is ingested, such as 'orders-2026-01-31'",
        )
    return ingest_key(
        table.name, keyed_name(digest_of_key(idempotency_key), part, table, "parquet")
    )


@contextmanager
def scratch_file(handle: TableHandle) -> Iterator[Path]:
    """Yield the path of a local file to be, which is removed in the end."""
    with tempfile.TemporaryDirectory(dir=handle.services.scratch) as folder:
        yield Path(folder) / "rows.parquet"


def write_frame(frame: Frame, schema: Schema, local: Path) -> int:
    """Write the rows of a frame to a Parquet file with the types of the table; return how many.

    Raises:
        RefusedSourceError: they do not fit the table.
        InvalidRequestError: it is a stream that was read before.
    """
    rows = 0
    batches = read_frame(frame, schema)
    with pq.ParquetWriter(local, arrow_schema(schema), compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows
