"""Published tables as ClickHouse reads them, within this process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from chdb import session
from reader import only

SETTINGS = {"snapshot": "iceberg_snapshot_id", "time_ms": "iceberg_timestamp_ms"}


@contextmanager
def open_reader() -> Iterator[Any]:
    """Yield a function that reads a table by its metadata file. Text is bytes in ClickHouse."""
    os.chdir("/")  # files outside of the working folder are refused

    def read(metadata: str, at: dict[str, Any], where: str) -> pa.Table:
        only(at, *SETTINGS)
        folder, _, file = metadata.partition("/metadata/")
        asked = [f"{SETTINGS[key]} = {value}" for key, value in at.items()]
        settings = ", ".join(["output_format_arrow_string_as_string = 0", *asked])
        query = (
            f"SELECT * FROM icebergLocal('{folder}', SETTINGS iceberg_metadata_file_path = "
            f"'metadata/{file}') WHERE {where or 1} SETTINGS {settings}"
        )
        with session.Session() as opened:  # the query after one that fails has no result
            found = bytes(opened.query(query, "ArrowStream").bytes())
        return pa.ipc.open_stream(found).read_all()

    yield read
