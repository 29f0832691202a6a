"""Decide which jobs Spark does, how large a cluster each gets, and when a job is retried."""

from __future__ import annotations

from dataclasses import dataclass

from dormouse.model.shards import Job
from dormouse.model.state import TableState
from dormouse.model.transactions import AssignJob
from dormouse.tables.properties import Properties
from dormouse.tables.spark_options import SparkOptions

LEAST_WAIT_SECONDS, MOST_WAIT_SECONDS = 30, 900
WAITS_PER_AGE = 8
"""A job waits for this fraction of its age: short waits at first, long ones later."""
PATIENCE_SECONDS = 24 * 60 * 60
"""A job from which Spark accepts nothing for this long moves to the dead-letter queue: a person
has to look."""


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """The most executors of a job, and the size of each; the driver is as large as one of them."""

    executors: int
    executor_cores: int
    executor_memory_bytes: int


def ingest_queue(
    input_bytes: int, properties: Properties, asked: SparkOptions | None = None
) -> str:
    """Return the queue of an ingest with this much input."""
    least = properties.ingest_spark_bytes
    return "spark-jobs" if asked or (least and input_bytes >= least) else "ingest-jobs"


def compaction_queue(
    state: TableState,
    job: Job | AssignJob,
    properties: Properties,
    asked: SparkOptions | None = None,
) -> str:
    """Return the queue of a compaction, by what it reads. An instance without Spark uses functions
    for all.
    """
    heavy = asked or is_heavy_compaction(state, job, properties)
    return "spark-jobs" if heavy else "compaction-jobs"


def is_heavy_compaction(state: TableState, job: Job | AssignJob, properties: Properties) -> bool:
    """Return whether a compaction reads more than one function should."""
    least = properties.compaction_spark_bytes
    return bool(least) and compaction_bytes(state, job) >= least


def compaction_bytes(state: TableState, job: Job | AssignJob) -> int:
    """Return about how many stored bytes of a job's inputs lie in its partition."""
    size_bytes = 0
    for name in job.inputs:
        rows = sum(each.rows for each in state.references_below(job.partition, name))
        if rows:
            shard = state.shards[name]
            size_bytes += shard.size_bytes * min(rows, shard.rows) // max(shard.rows, 1)
    return size_bytes


def cluster_size(
    input_bytes: int, properties: Properties, asked: SparkOptions | None = None
) -> ClusterSize:
    """Return the cluster for a job with this much input: one executor for each share, up to a
    limit.

    What `asked` says overrides the properties. Spark adds and removes executors with the tasks, so
    the number is an upper limit.
    """
    asked = asked or SparkOptions()
    share = -(-input_bytes // properties.spark_executor_input_bytes)
    return ClusterSize(
        executors=asked.spark_executors or min(max(share, 1), properties.spark_executors),
        executor_cores=asked.spark_executor_cores or properties.spark_executor_cores,
        executor_memory_bytes=asked.spark_executor_memory_bytes
        or properties.spark_executor_memory_bytes,
    )


def wait_seconds(age_seconds: float) -> int:
    """Return how long a job of this age waits for its next attempt."""
    return max(LEAST_WAIT_SECONDS, min(MOST_WAIT_SECONDS, int(age_seconds / WAITS_PER_AGE)))
