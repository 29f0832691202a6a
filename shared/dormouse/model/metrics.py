"""Every metric there is of a table: its name, its unit, and whether it is a level or a count.

The dashboard and the alarms of `template.yaml` use the same names; a test holds the two together.
"""

from __future__ import annotations

from enum import Enum


class Metric(Enum):
    """A metric as CloudWatch knows it: its name, its unit.

    The first ones are levels, measured at a time: the newest counts. Those after `LOG_LENGTH` are
    counts of what happened: their sum counts. `UNREGISTERED` is a level of no table: how many ids
    of the data bucket nobody can account for.
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
    ROWS_INGESTED = ("RowsIngested", "Count")
    ROWS_COMPACTED = ("RowsCompacted", "Count")
    SHARDS_DELETED = ("ShardsDeleted", "Count")
    FILES_REFUSED = ("FilesRefused", "Count")
    JOBS_FAILED = ("JobsFailed", "Count")
    UNREGISTERED = ("Unregistered", "Count")

    @property
    def title(self) -> str:
        """The name CloudWatch has for it."""
        return self.value[0]

    @property
    def unit(self) -> str:
        """Its unit, by CloudWatch's name."""
        return self.value[1]
