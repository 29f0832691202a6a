"""The Python API: an instance, its tables, their rows.

    from dormouse.client import Instance

    flights = Instance.connect("prod").table("flights")
    flights.ingest("flights.parquet").wait(timeout_seconds=60)
    flights.query(exact="AA", columns=["flight", "dest"]).read_all()

The command line is built on it. Its modules, lowest first:

- ``ports``: what the client needs beside what the stages need; ``versions``: which one is read;
  ``waiting``: polling until work is done
- ``table``: the handle of a table; ``dropping``, ``frames``, ``writer``, ``exporting``,
  ``purging``, ``jobs``, ``status``, ``contents``, ``waiting_files``: what it does
- ``inferring``: schemas of new tables; ``listing``: lists that show themselves
- ``instance``: the handle of an instance; ``statements``: what its SQL reads; ``declaring``,
  ``dead_letters``, ``spark``: what it does; ``estimating``: split points for a table yet to be
  created

A handle imports what a method needs within the method: a look-up loads neither the query engine of
scans nor the code of exports, and listing tables loads no Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from dormouse.client.instance import Instance
from dormouse.client.operating.status import Status
from dormouse.client.table import TableHandle
from dormouse.key_forms.python import KeyLike, KeyValue
from dormouse.model.versions.as_of import AsOf
from dormouse.tables.spark_options import SparkOptions

if TYPE_CHECKING:
    from dormouse.client.contents import TableFile, TablePartition, TableShard
    from dormouse.client.ingesting.dropping import Ingested
    from dormouse.client.ingesting.writer import TableWriter
    from dormouse.client.operating.purging import Purge, PurgeProgress
    from dormouse.client.reading.exporting import Export, ExportProgress
    from dormouse.query.result import QueryResult

__all__ = [
    "AsOf",
    "Export",
    "ExportProgress",
    "Ingested",
    "Instance",
    "KeyLike",
    "KeyValue",
    "QueryResult",
    "Purge",
    "PurgeProgress",
    "SparkOptions",
    "Status",
    "TableFile",
    "TableHandle",
    "TableWriter",
    "TablePartition",
    "TableShard",
]

_LATER = {
    "Export": "dormouse.client.reading.exporting",
    "ExportProgress": "dormouse.client.reading.exporting",
    "Ingested": "dormouse.client.ingesting.dropping",
    "Purge": "dormouse.client.operating.purging",
    "PurgeProgress": "dormouse.client.operating.purging",
    "QueryResult": "dormouse.query.result",
    "TableWriter": "dormouse.client.ingesting.writer",
    "TableFile": "dormouse.client.contents",
    "TablePartition": "dormouse.client.contents",
    "TableShard": "dormouse.client.contents",
}
"""Names whose modules import Arrow or the model of the state: they are imported when they are first
asked for."""


def __getattr__(name: str) -> object:
    """Return a name of `_LATER`."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
