"""Every metric of a table: its name, its unit, and whether it is a gauge or a counter.

The dashboard and the alarms of `template.yaml` use the same names; a test compares them.
"""

from __future__ import annotations

from enum import Enum


class Metric(Enum):
    """A metric as CloudWatch knows it: name and unit.

    Those up to `ICEBERG_LAG_SECONDS` are gauges: the newest value applies. The ones after it are
    counters of events: values are added up. `UNREGISTERED` is a gauge of the instance: the number
    of ids in the data bucket that belong to no known table.
    """

    SHARDS = ("Shards", "Count")
    ROWS = ("Rows", "Count")
    REFERENCES = ("References", "Count")
    PARTITIONS = ("Partitions", "Count")
    LEAF_PARTITIONS = ("LeafPartitions", "Count")
    REFERENCES_PER_LEAF = ("ReferencesPerLeaf", "Count")
    JOBS_ASSIGNED = ("JobsAssigned", "Count")
    OLDEST_JOB_AGE_SECONDS = ("OldestJobAge", "Seconds")
    GARBAGE_SHARDS = ("GarbageShards", "Count")
    DISPUTED_SHARDS = ("DisputedShards", "Count")
    LOG_LENGTH = ("LogLength", "Count")
    ICEBERG_LAG_SECONDS = ("IcebergLag", "Seconds")
    ROWS_INGESTED = ("RowsIngested", "Count")
    ROWS_COMPACTED = ("RowsCompacted", "Count")
    SHARDS_DELETED = ("ShardsDeleted", "Count")
    FILES_REFUSED = ("FilesRefused", "Count")
    JOBS_FAILED = ("JobsFailed", "Count")
    UNREGISTERED = ("Unregistered", "Count")

    @property
    def title(self) -> str:
        """The metric's name in CloudWatch."""
        return self.value[0]

    @property
    def unit(self) -> str:
        """The metric's unit, as CloudWatch spells it."""
        return self.value[1]
