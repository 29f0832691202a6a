"""compact: a heavy compaction, cut into ranges of keys that are merged side by side.

It is the compact stage with another way to merge. The footers of the inputs tell where to cut; each
task merges what all inputs have of its range, which is sorted already, so nothing is shuffled. The
cuts follow from the inputs alone: every run of the job writes the same shards. The messages of the
stage are not sent from here: EMR Serverless reaches no queue, and `track_spark` announces what the
job changed and which shards it set free.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark import SparkContext

from dormouse.errors import AlreadyExistsError, DormouseError
from dormouse.features.compaction.compact import compact as compact_stage
from dormouse.features.compaction.merge import Compaction, Merged, merge_inputs
from dormouse.features.compaction.slicing import merge_ranges
from dormouse.features.compaction.steps import PARTS_OF_STEPS
from dormouse.keys.ranges import KeyRange
from dormouse.messages import CompactionJob
from dormouse.ports import Services
from dormouse.shards.run_markers import discard_shards
from dormouse.stored.paths import PART_NUMBERS, run_of_shard, shard_id_of, shard_prefix
from dormouse_spark.access import Access, AccessFactory
from dormouse_spark.running import collect_results, run_task

FIRST_PART = PARTS_OF_STEPS
"""The number of the first task's part. Whole runs and steps, in functions, write smaller ones."""


def compact(
    spark: SparkContext, open_access: AccessFactory, services: Services, job: CompactionJob
) -> None:
    """Run the job if it is still to be run.

    Raises:
        UnavailableError: Spark gave a task up; run the job again.
    """
    compact_stage(services, job, _Compaction(spark, open_access).merge)


@dataclass(frozen=True, slots=True)
class _Compaction:
    spark: SparkContext
    open_access: AccessFactory

    def merge(self, services: Services, compaction: Compaction) -> Merged:
        """Merge a job's inputs in as many tasks as they are worth."""
        ranges = merge_ranges(
            compaction.partition.range,
            compaction.known,
            compaction.size_bytes,
            compaction.table.properties.shard_target_bytes,
        )
        _discard_from_functions(services, compaction)
        open_access = self.open_access
        sent = replace(compaction, keys=())  # those of many inputs are long

        def task(part: int, found: Iterable[KeyRange]) -> Iterator[Merged | DormouseError]:
            (span,) = found
            return run_task(lambda: [_merge(open_access(), sent, span, FIRST_PART + part)])

        tasks = self.spark.parallelize(ranges, len(ranges)).mapPartitionsWithIndex(task)
        parts = collect_results(tasks)
        merged = Merged(
            tuple(new for part in parts for new in part.outputs),
            sum(part.rows_read for part in parts),
            sum(part.rows_kept for part in parts),
            sum(part.rows_removed for part in parts),
            ended=False,
        )
        _check_alone(services, compaction, merged)
        return merged


def _merge(access: Access, compaction: Compaction, span: KeyRange, part: int) -> Merged:
    with tempfile.TemporaryDirectory(dir=access.scratch) as folder:
        return merge_inputs(
            access.storage,
            compaction,
            scratch=Path(folder),
            memory_bytes=access.memory_bytes,
            span=span,
            part=part,
        )


def _discard_from_functions(services: Services, compaction: Compaction) -> None:
    """Delete what functions wrote of the job, whole or in steps, before it was given to Spark."""
    table = compaction.table
    listed = services.storage.list(shard_prefix(table.id, compaction.job.id))
    stored = [shard for found in listed if (shard := shard_id_of(found.path)) is not None]
    others = [shard for shard in stored if run_of_shard(shard)[1] < FIRST_PART * PART_NUMBERS]
    if others:
        discard_shards(services.storage, table.id, others, services.store(table).current())


def _check_alone(services: Services, compaction: Compaction, merged: Merged) -> None:
    """Check that no run which cut the job differently has left shards under its name.

    Raises:
        AlreadyExistsError: one has; together with these they would hold rows twice.
    """
    prefix = shard_prefix(compaction.table.id, compaction.job.id)
    stored = {shard_id_of(found.path) for found in services.storage.list(prefix)}
    if others := stored - {new.shard.id for new in merged.outputs}:
        raise AlreadyExistsError(
            f"{len(others)} shards of job {compaction.job.id} are of a run that cut it differently"
        )
