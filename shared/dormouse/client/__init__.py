"""The Python API: an instance, its tables, their rows.

    from dormouse.client import Instance

    flights = Instance.connect("prod").table("flights")
    flights.ingest("flights.parquet").wait(timeout_seconds=60)
    flights.query(exact="AA", columns=["flight", "dest"]).read_all()

The command line is built on it. Its modules:

- ``table``: the handle of a table; ``ingesting``, ``requested``, ``versions``, ``contents``,
  ``iceberg``: what it does; ``waiting``: polling until work is done
- ``instance``: the handle of an instance, opened by ``in_folder`` or ``deployment``; ``queries``,
  ``operations``: what it does
- ``inferring``: schemas of new tables
- ``computing``, ``reader``: processes that may end in place of a server

A handle imports what a method needs within the method: a look-up loads neither the query engine of
scans nor the code of exports, and listing tables loads no Arrow.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.client.waiting import Status, TaskProgress
from dormouse.key_codec import KeyLike, KeyValue
from dormouse.state.versions import AsOf
from dormouse.tables.properties import SparkOptions

if TYPE_CHECKING:
    from dormouse.client.contents import TableFile, TablePartition, TableShard
    from dormouse.client.ingesting import Ingested, TableWriter
    from dormouse.client.requested import Export, Purge, PurgeProgress
    from dormouse.query.result import QueryResult

__all__ = [
    "AsOf",
    "Export",
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
    "TaskProgress",
]

_LATER = {
    "Export": "dormouse.client.requested",
    "Ingested": "dormouse.client.ingesting",
    "Purge": "dormouse.client.requested",
    "PurgeProgress": "dormouse.client.requested",
    "QueryResult": "dormouse.query.result",
    "TableWriter": "dormouse.client.ingesting",
    "TableFile": "dormouse.client.contents",
    "TablePartition": "dormouse.client.contents",
    "TableShard": "dormouse.client.contents",
}
"""Names whose modules import Arrow or the model of the state: they are imported when they are first
asked for."""


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
