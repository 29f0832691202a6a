"""Names of resources, made here alone: buckets, queues, DynamoDB tables, the Spark application.

`template.yaml` spells the same names with ``!Sub``; a test compares the two. `paths` has the names
of objects.
"""

from __future__ import annotations

from dataclasses import dataclass

from dormouse.stored.paths import spark_package_path

REPLIES = "replies"
"""The queue of replies to administrators, who receive from it themselves."""


def dead_letter_queue(queue: str) -> str:
    """Return the dead-letter queue of a queue."""
    return f"{queue}-dead"


@dataclass(frozen=True, slots=True)
class InstanceNames:
    """The names of one instance's resources. Bucket names include the account, to be unique."""

    instance: str
    account: str

    @property
    def ingest_bucket(self) -> str:
        """The bucket into which files are dropped, under ``<table name>/``."""
        return f"dormouse-{self.instance}-ingest-{self.account}"

    @property
    def data_bucket(self) -> str:
        """The bucket that holds shards and state."""
        return f"dormouse-{self.instance}-data-{self.account}"

    @property
    def results_bucket(self) -> str:
        """The bucket of exported rows; its objects expire after a while."""
        return f"dormouse-{self.instance}-results-{self.account}"

    @property
    def tables_table(self) -> str:
        """The DynamoDB table of the registry of tables."""
        return f"dormouse-{self.instance}-tables"

    @property
    def state_table(self) -> str:
        """The DynamoDB table that orders commits."""
        return f"dormouse-{self.instance}-state"

    @property
    def deltas_table(self) -> str:
        """The DynamoDB table of deltas and segments, of tables whose state is kept in DynamoDB."""
        return f"dormouse-{self.instance}-deltas"

    @property
    def snapshots_table(self) -> str:
        """The DynamoDB table of snapshots, of tables whose state is kept in DynamoDB."""
        return f"dormouse-{self.instance}-snapshots"

    @property
    def jobs_table(self) -> str:
        """The DynamoDB table of the job tracker."""
        return f"dormouse-{self.instance}-jobs"

    @property
    def spark_application(self) -> str:
        """The application of EMR Serverless that runs Spark jobs."""
        return f"dormouse-{self.instance}"

    def spark_package_uri(self, version: str, name: str) -> str:
        """Return the URI of a file of a Spark package."""
        return f"s3://{self.data_bucket}/{spark_package_path(version, name)}"

    def queue(self, queue: str) -> str:
        """Return the SQS name of a queue of `messages.QUEUES`, or of its dead-letter queue."""
        return f"dormouse-{self.instance}-{queue}"
