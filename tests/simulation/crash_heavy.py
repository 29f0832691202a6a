"""The operations on heavy jobs that are cut off: by Spark, and in steps where there is no Spark."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from dormouse.messages.requests import CompactTable, PurgeRows, Redrive
from dormouse.messages.stages import SelectionMessage
from dormouse.tables.properties import SparkOptions
from tests.simulation.crash_operations import (
    ALL,
    ASKED,
    COUNT,
    EXPORT,
    FLOW,
    NAME,
    PURGE,
    PURGED,
    REQUESTS,
    TEXTS,
    Prepare,
    asks,
    before,
    create,
    drives,
    drop,
    handles,
    later,
)
from tests.simulation.crash_points import Operation
from tests.simulation.crash_queries import QUERIES_CUT_OFF
from tests.simulation.crash_recovery import Rows, dies_at, settle
from tests.simulation.instance import Instance, Worker
from tests.simulation.processes import Died

PURGE_BY_SPARK = PurgeRows(
    "purge", NAME, SelectionMessage(where="letter = 'e'"), spark=SparkOptions()
)


def _failed(prepare: Prepare) -> Prepare:
    """Bring a job that Spark was given to the event of its run, which died before it did anything.

    `prepare` brings it just before the dispatch.
    """

    def prepared(instance: Instance, worker: Worker) -> dict[str, Rows]:
        expected = prepare(instance, worker)
        handles("spark-jobs")(instance, worker)
        run_id = instance.undriven()[0]
        instance.driven.add(run_id)
        instance.end_run(run_id, "failed", tell=True)
        return expected

    return prepared


HEAVY_INGEST = {"ingest_spark_bytes": 1, "bulk_import_min_leaf_partitions": 4}
HEAVY_COMPACTION = {"compaction_spark_bytes": 1}


def _heavy_import(until: str) -> Prepare:
    def prepare(instance: Instance, worker: Worker) -> dict[str, Rows]:
        create(instance, worker, **HEAVY_INGEST)
        drop(instance, *TEXTS)
        settle(instance, worker, until=until)
        return ALL

    return prepare


HEAVY_EXPORT = {"export_spark_bytes": 1}
_to_export = later(EXPORT, "spark-jobs", ALL, **HEAVY_EXPORT)
_to_import = _heavy_import("spark-jobs")
_to_compact = before("spark-jobs", **HEAVY_COMPACTION)
_to_rewrite = later(PURGE_BY_SPARK, "spark-jobs", PURGED)
SPARK: Sequence[Operation] = (
    Operation("dispatch: bulk import", _to_import, handles("spark-jobs")),
    Operation("dispatch: compaction", _to_compact, handles("spark-jobs")),
    Operation("dispatch: purge", _to_rewrite, handles("spark-jobs")),
    Operation("dispatch: export", _to_export, handles("spark-jobs"), COUNT),
    Operation("driver: bulk import", _heavy_import("driver"), drives),
    Operation("driver: compaction", before("driver", **HEAVY_COMPACTION), drives),
    Operation("driver: purge", later(PURGE_BY_SPARK, "driver", PURGED), drives),
    Operation("driver: export", later(EXPORT, "driver", ALL, **HEAVY_EXPORT), drives, COUNT),
    Operation("track: bulk import done", _heavy_import("spark-runs"), handles("spark-runs")),
    Operation("track: bulk import failed", _failed(_to_import), handles("spark-runs")),
    Operation("track: compaction failed", _failed(_to_compact), handles("spark-runs")),
    Operation("track: purge failed", _failed(_to_rewrite), handles("spark-runs")),
    Operation("track: export failed", _failed(_to_export), handles("spark-runs"), COUNT),
)


def _without_spark(prepare: Prepare) -> Prepare:
    """Return the same of an instance that has no Spark."""

    def prepared(instance: Instance, worker: Worker) -> dict[str, Rows]:
        instance.has_spark = False
        return prepare(instance, instance.worker("without-spark"))

    return prepared


def _after_messages(prepare: Prepare, queue: str, count: int) -> Prepare:
    """Deliver so many messages of a queue more."""

    def prepared(instance: Instance, worker: Worker) -> dict[str, Rows]:
        expected = prepare(instance, worker)
        for _ in range(count):
            handles(queue)(instance, instance.worker("gets-on"))
        return expected

    return prepared


def _dead_merges(prepare: Prepare, queue: str) -> Prepare:
    """Let two processes die of a job, in the midst of the merge."""

    def prepared(instance: Instance, worker: Worker) -> dict[str, Rows]:
        expected = prepare(instance, worker)
        for number in range(2):
            with suppress(Died):
                handles(queue)(instance, instance.worker(f"dies-{number}", dies_at(CALLS_TO_DEATH)))
        return expected

    return prepared


CALLS_TO_DEATH = 12
"""So many calls a run of a compaction makes until it is in the midst of its merge."""
JOBS = "compaction-jobs"
_to_cut = _without_spark(before(JOBS, compaction_spark_bytes=1500))
_to_halve = _without_spark(before(JOBS))
_runs_job = handles(JOBS)
CUT: Sequence[Operation] = (
    Operation("compact: cut into steps", _to_cut, _runs_job),
    Operation("compact: a step", _after_messages(_to_cut, JOBS, 1), _runs_job),
    Operation("compact: the end of all steps", _after_messages(_to_cut, JOBS, 3), _runs_job),
    Operation(
        "compact: cut what died twice",
        _dead_merges(_to_halve, JOBS),
        _runs_job,
        asked_again=Redrive("again", JOBS),  # where its third run fails, too
    ),
    Operation(
        "compact: cut a step that died twice",
        _dead_merges(_after_messages(_to_cut, JOBS, 1), JOBS),
        _runs_job,
        asked_again=Redrive("again", JOBS),
    ),
    Operation(
        "compact: to Spark, what died twice",
        _dead_merges(before(JOBS), JOBS),
        _runs_job,
        asked_again=Redrive("again", JOBS),
    ),
    Operation(
        "admin: compact by Spark",
        asks(CompactTable("r", NAME, all=True, spark=SparkOptions())),
        handles("admin"),
    ),
    Operation(
        "purge: a leaf in steps",
        _after_messages(
            _without_spark(later(PURGE, JOBS, PURGED, compaction_spark_bytes=1)), JOBS, 1
        ),
        _runs_job,
    ),
)
OPERATIONS: Sequence[Operation] = (*FLOW, *REQUESTS, *ASKED, *QUERIES_CUT_OFF, *SPARK, *CUT)
