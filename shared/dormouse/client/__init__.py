"""The Python API: an instance, its tables, their rows.

    from dormouse.client import Instance

    flights = Instance.connect("prod").table("flights")
    flights.ingest("flights.parquet").wait(timeout_seconds=60)
    flights.query(exact="AA", columns=["flight", "dest"]).read_all()

The command line is built on it. Its modules, lowest first:

- ``ports``: what the client needs beside what the stages need; ``versions``: which one is read;
  ``waiting``: polling until work is done; ``access``: a table and the instance that has it
- ``dropping``, ``exporting``, ``purging``, ``checking``, ``jobs``: parts of a table's handle
- ``table``, ``instance``: the handles; ``declaring``, ``dead_letters``, ``spark``: parts of the
  instance; ``estimating``: split points for a table yet to be created
"""

from dormouse.client.dropping import Ingested
from dormouse.client.exporting import Export, ExportProgress
from dormouse.client.instance import Instance
from dormouse.client.purging import Purge, PurgeProgress
from dormouse.client.table import Status, TableHandle
from dormouse.client.versions import AsOf
from dormouse.key_forms.python import KeyLike, KeyValue
from dormouse.query.result import QueryResult
from dormouse.tables.spark_options import SparkOptions

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
    "TableHandle",
]
