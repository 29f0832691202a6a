"""bulk_import: any number of files → sorted shards in one commit, by many tasks.

It is the ingest stage with another way to write. Tasks read and sort the files, each file once. The
driver divides the keys into ranges, by the leaves and by the distribution of the rows. Other tasks
each receive the rows of one range, and write its shards. Refusals, deduplication of sources and
crash recovery are those of the `ingest` stage. No messages are sent from here: EMR Serverless
cannot reach the queues, and `track_spark` announces what the job changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pyspark import RDD, SparkContext, StorageLevel

from dormouse.errors import DormouseError, UnavailableError
from dormouse.features.batch_files import balanced_batches, refuse
from dormouse.features.compaction_steps import leaf_tasks, max_task_rows
from dormouse.features.garbage import remove_ingested
from dormouse.features.ingest import Written, ingest
from dormouse.features.splitting import plan_extension
from dormouse.files.loader import ingested_schema, last_emptied
from dormouse.jobs import new_run
from dormouse.keys import KeyHistogram, KeyRange, merge_histograms
from dormouse.messages.stages import IngestJob
from dormouse.ports import Services
from dormouse.schema.schema import ROW_ID
from dormouse.shards.run_markers import RunMarker, put_run_marker
from dormouse.shards.writer import ShardContext
from dormouse.state.rules import Rejected
from dormouse.state.sources import Source, have_row_tags, job_id_of
from dormouse.state.state import ExtendTree, TableState
from dormouse.state.versions import Lineage
from dormouse.stored.paths import run_of_shard
from dormouse.tables.indexing import shredded_paths, term_columns
from dormouse.tables.properties import bloom_columns
from dormouse.tables.table import Table
from dormouse_spark.access import AccessFactory
from dormouse_spark.blocks import RowBlock
from dormouse_spark.importing import (
    FileOrder,
    Plan,
    ReadResult,
    WriteResult,
    read_sources,
    route_reads,
    write_range,
)
from dormouse_spark.running import collect_results, run_task

READ_BYTES = 256 * 1024 * 1024
"""The most that one task reads, unless a single file is larger: files are not divided."""
SAMPLES = 2**18
"""How many sampled keys the driver receives in all; this many fit into its memory."""
EXTENSIONS = 3
"""How often the driver tries to split leaves while other processes change them, too."""


def bulk_import(
    spark: SparkContext, open_access: AccessFactory, services: Services, job: IngestJob
) -> None:
    """Ingest the sources of `job` that are not ingested yet; refuse invalid files one by one.

    Raises:
        ContendedError: other jobs kept ingesting the same sources; run the job again.
        UnavailableError: a task failed too often; run the job again.
    """
    ingest(services, job, _Import(spark, open_access).write)
    table = services.table(job.table_id)
    if table is not None and table.schema.encrypted:  # else, once the run is known to have ended
        remove_ingested(services, table, job.sources)


@dataclass(frozen=True, slots=True)
class _Import:
    spark: SparkContext
    open_access: AccessFactory

    def write(
        self, services: Services, table: Table, state: TableState, sources: Sequence[Source]
    ) -> Written:
        """Write the rows of sources to shards."""
        places = {source.key: place for place, source in enumerate(sources)}
        order = FileOrder(places, have_row_tags(sources))
        tasks = self._read(table, sources, order).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            reads = collect_results(tasks)
            for source, error in (refusal for one in reads for refusal in one.refused):
                refuse(services, table.id, source, error)
            valid = {source for one in reads for source in one.accepted}
            accepted = tuple(source for source in sources if source in valid)
            if not accepted:
                return Written()
            keys = merge_histograms(one.keys for one in reads)
            state = _extended(services, table, state, keys)
            size_bytes = sum(one.size_bytes for one in reads)
            leaves = list(state.partitions.leaves())
            limit = max_task_rows(leaves, keys, size_bytes, self.spark.defaultParallelism)
            key_tasks = tuple(leaf_tasks(leaves, keys, limit))
            context = _context(services, table, state, accepted)
            first_row_id = 0
            if ROW_ID in context.schema.values:
                count, now_ms = keys.rows * len(key_tasks), context.written_ms
                first_row_id = services.tracker.reserve_row_ids(table.id, count, now_ms)
            plan = Plan(
                table,
                new_run(services, table),
                context,
                key_tasks,
                last_emptied(one.emptied for one in reads),
                order.tagged,
                first_row_id,
                keys.rows,
            )
            results = self._write(tasks, plan, order)
        finally:
            tasks.unpersist()
        _check_rows(sum(one.rows for one in reads), sum(one.rows for one in results))
        shards = tuple(new for one in results for new in one.shards)
        _put_marker(
            services, plan, accepted, tuple(run_of_shard(new.shard.id)[1] for new in shards)
        )
        rejected = tuple(each for one in reads for each in one.rejected)
        return Written(accepted, keys.rows, shards, rejected=rejected, emptied=plan.emptied)

    def _read(
        self, table: Table, sources: Sequence[Source], order: FileOrder
    ) -> RDD[ReadResult | DormouseError]:
        bundles = balanced_batches(sources, self.spark.defaultParallelism, READ_BYTES)
        samples = max(256, min(2048, SAMPLES // len(bundles)))
        open_access = self.open_access

        def task(
            number: int, bundles: Iterable[tuple[Source, ...]]
        ) -> Iterator[ReadResult | DormouseError]:
            (bundle,) = bundles
            return run_task(
                lambda: [read_sources(open_access(), table, samples, number, bundle, order)]
            )

        return self.spark.parallelize(bundles, len(bundles)).mapPartitionsWithIndex(task)

    def _write(
        self, tasks: RDD[ReadResult | DormouseError], plan: Plan, order: FileOrder
    ) -> list[WriteResult]:
        open_access, table = self.open_access, plan.table
        cuts = [task.span.min for task in plan.tasks[1:]]

        def route(
            number: int, results: Iterable[ReadResult | DormouseError]
        ) -> Iterator[tuple[int, RowBlock]]:
            reads = [one for one in results if isinstance(one, ReadResult)]
            routed = run_task(lambda: route_reads(open_access(), table, number, reads, cuts, order))
            return (one for one in routed if not isinstance(one, DormouseError))

        def task(
            number: int, blocks: Iterable[tuple[int, RowBlock]]
        ) -> Iterator[WriteResult | DormouseError]:
            return run_task(
                lambda: [write_range(open_access(), plan, number, (block for _, block in blocks))]
            )

        routes = tasks.mapPartitionsWithIndex(route)
        return collect_results(
            routes.partitionBy(len(plan.tasks), _number).mapPartitionsWithIndex(task)
        )


def _check_rows(sent: int, arrived: int) -> None:
    """Check that all rows that were read arrived at the tasks that write.

    If an executor is lost with its blocks, Spark reads the files again. They may have been deleted
    by then, or be refused.
    Raises UnavailableError: rows are missing; the next run reads all files again.
    """
    if sent != arrived:
        raise UnavailableError(
            f"of {sent:,} rows that were read, {arrived:,} arrived to be written, because "
            "an executor was lost and some files could not be read again; nothing was committed"
        )


def _number(part: int) -> int:
    return part


def _extended(
    services: Services, table: Table, state: TableState, keys: KeyHistogram
) -> TableState:
    """Split leaves if there are too few for the rows to come; return the newest state.

    If there are too few rows for that, or other processes keep changing the tree, the existing
    leaves are used.
    """
    store = services.store(table)
    for _ in range(EXTENSIONS):
        least = table.properties.bulk_import_min_leaf_partitions
        splits = plan_extension(state.partitions, keys, least)
        if not splits:
            return state
        (outcome,) = store.commit(ExtendTree(splits), generation=state.generation)
        newest = store.current()
        if newest.generation != state.generation:
            return state  # the table was reset, so the commit of the import will be rejected
        state = newest
        if not isinstance(outcome, Rejected):
            return state
    return state


def _context(
    services: Services, table: Table, state: TableState, accepted: tuple[Source, ...]
) -> ShardContext:
    schema, tags = ingested_schema(table, accepted)
    return ShardContext(
        table_id=table.id,
        schema=schema,
        job=job_id_of(accepted),
        written_ms=services.clock.now_ms(),
        generation=state.generation,
        bloom_columns=bloom_columns(table.schema, table.properties),
        term_columns=term_columns(table.schema, table.properties),
        paths=shredded_paths(table.schema, table.properties),
        tags=tags,
    )


def _put_marker(
    services: Services, plan: Plan, accepted: tuple[Source, ...], numbers: tuple[int, ...]
) -> None:
    """Put the run marker: all shards of the run are written, from these sources."""
    context = replace(
        plan.context, lineage=Lineage(tuple(source.remembered_id for source in accepted))
    )
    marker = RunMarker(plan.run, context.provenance(KeyRange(), number=len(numbers)), numbers)
    put_run_marker(services.storage, plan.table.id, marker)
