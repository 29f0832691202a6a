"""The Python API: an instance, its tables, their rows.

    from dormouse.client import Instance

    flights = Instance.connect("prod").table("flights")
    flights.ingest("flights.parquet").wait(timeout_seconds=60)
    flights.query(exact="AA", columns=["flight", "dest"]).read_all()

The command line stands on it. The parts, lowest first: ``keys`` (Python values as keys),
``versions`` (which one is read), ``ports`` (what else than the stages need is asked of the world),
``waiting``, ``dropping`` (files into the ingest bucket), ``purging``, ``exporting``, ``table``,
``instance``.
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
