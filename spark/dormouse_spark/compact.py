"""compact: a heavy compaction, divided into ranges of keys that are merged in parallel.

It is the compact stage with another way to merge. The footers of the inputs decide where to divide.
Each task merges its range from all inputs; they are sorted already, so nothing is shuffled. The
ranges depend only on the inputs, so every run of the job writes the same shards. No messages are
sent from here: EMR Serverless cannot reach the queues, and `track_spark` announces what the job
changed and which shards are no longer referenced.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark import SparkContext

from dormouse.errors import AlreadyExistsError, DormouseError
from dormouse.features.compaction import Compaction, Merged, merge_inputs
from dormouse.features.compaction import compact as compact_stage
from dormouse.features.compaction_steps import FIRST_TASK_PART, merge_ranges
from dormouse.keys import KeyRange
from dormouse.messages.stages import CompactionJob
from dormouse.ports import Services
from dormouse.shards.run_markers import discard_shards
from dormouse.stored.paths import PART_NUMBERS, run_of_shard, shard_id_of, shard_prefix
from dormouse_spark.access import Access, AccessFactory
from dormouse_spark.running import collect_results, run_task

FIRST_PART = FIRST_TASK_PART
"""The part number of the first task. Runs in functions, whole or in steps, have lower numbers."""


def compact(
    spark: SparkContext, open_access: AccessFactory, services: Services, job: CompactionJob
) -> None:
    """Run the job, unless it is done already.
    Raises UnavailableError: a task failed too often; run the job again.
    """
    compact_stage(services, job, _Compaction(spark, open_access).merge)


@dataclass(frozen=True, slots=True)
class _Compaction:
    spark: SparkContext
    open_access: AccessFactory

    def merge(self, services: Services, compaction: Compaction) -> Merged:
        """Merge a job's inputs in parallel tasks, as many as their size is worth."""
        ranges = merge_ranges(
            compaction.partition.range,
            compaction.known,
            compaction.size_bytes,
            compaction.table.properties.shard_target_bytes,
        )
        _discard_from_functions(services, compaction)
        open_access = self.open_access
        sent = replace(compaction, keys=(), read=None)  # both are large if there are many inputs

        def task(part: int, spans: Iterable[KeyRange]) -> Iterator[Merged | DormouseError]:
            (span,) = spans
            return run_task(lambda: [_merge(open_access(), sent, span, FIRST_PART + part)])

        tasks = self.spark.parallelize(ranges, len(ranges)).mapPartitionsWithIndex(task)
        parts = collect_results(tasks)
        merged = Merged(
            tuple(new for part in parts for new in part.outputs),
            sum(part.rows_read for part in parts),
            sum(part.rows_kept for part in parts),
            sum(part.rows_removed for part in parts),
            last_is_marked=False,
        )
        _check_alone(services, compaction, merged)
        return merged


def _merge(access: Access, compaction: Compaction, span: KeyRange, part: int) -> Merged:
    with tempfile.TemporaryDirectory(dir=access.scratch) as folder:
        return merge_inputs(
            access,
            replace(compaction, read=access.indexes),
            scratch=Path(folder),
            memory_bytes=access.memory_bytes,
            span=span,
            part=part,
        )


def _discard_from_functions(services: Services, compaction: Compaction) -> None:
    """Delete the shards that functions wrote of the job, whole or in steps, before Spark ran it."""
    table = compaction.table
    listed = services.storage.list(shard_prefix(table.id, compaction.job.id))
    shards = [shard for each in listed if (shard := shard_id_of(each.path)) is not None]
    others = [shard for shard in shards if run_of_shard(shard)[1] < FIRST_PART * PART_NUMBERS]
    if others:
        discard_shards(services.storage, table.id, others, services.store(table).current())


def _check_alone(services: Services, compaction: Compaction, merged: Merged) -> None:
    """Check that no run that divided the job differently has left shards of it.
    Raises AlreadyExistsError: one has; together with the new shards, rows would be duplicated.
    """
    prefix = shard_prefix(compaction.table.id, compaction.job.id)
    shards = {shard_id_of(each.path) for each in services.storage.list(prefix)}
    if others := shards - {new.shard.id for new in merged.outputs}:
        raise AlreadyExistsError(
            f"{len(others)} shards of job {compaction.job.id} are of a run that divided it "
            "differently"
        )
