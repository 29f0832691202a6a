"""Batches of the functions: three messages about real work, and how to see that it was done.

The table of letters has three leaves with a shard each. What a batch is about is there once for
each of its messages: three jobs, purges, exports, runs of Spark, shards to delete. The message in
the middle is the one that is poisoned, or whose stored half is damaged.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from dormouse.aws import handling
from dormouse.features.export import load_manifest
from dormouse.features.queries import load_end
from dormouse.features.spark_jobs import dispatch_spark
from dormouse.messages import stages as m
from dormouse.messages.requests import SetOnline
from dormouse.messages.stages import AnswerQuery, CancelQuery, QueryTask
from dormouse.query.selection import Selection
from dormouse.state.sources import Source
from dormouse.state.state import AssignJob, ReplaceShards
from tests.functions.conftest import RUN, TABLE_ID, Functions, instance_in
from tests.fuzz import samples
from tests.support.exports import begin_export
from tests.support.purges import begin_purge
from tests.support.trees import part
from tests.support.world import letters

MIDDLE = 1
BESIDE = (0, 2)
ROWS = "abhixy"
"""The letters of the table's rows: two in each leaf."""
_SPLITS = (("g",), ("p",))
LEAVES = part("", "g"), part("g", "p"), part("p")
JOBS = ("job-0", "job-1", "job-2")
_NUMBERS = range(3)


@dataclass(frozen=True)
class Batch:
    """The bodies of three messages; `is_done` returns whether the work of one of them was done.

    Those of `others` could be damaged in place of the one in the middle.
    """

    bodies: tuple[str, ...]
    is_done: Callable[[int], bool]
    others: tuple[str, ...] = ()


@contextmanager
def instance() -> Iterator[Functions]:
    """Return an instance with rows in each leaf of its table, for whose functions it is the one."""
    with tempfile.TemporaryDirectory(prefix="dormouse-fuzz-") as folder:
        functions, wired = instance_in(
            Path(folder), _SPLITS, ingest_file_strategy="one_file_per_leaf", split_threshold_rows=2
        )
        functions.world.drop("letters/rows.parquet", letters(ROWS))
        functions.world.deliver(functions.world.queue.popleft())
        with patch.object(handling, "wiring", lambda: wired):
            yield functions


def batch(functions: Functions, stage: str) -> Batch:
    """Prepare the work of three messages to a function, and give them."""
    prepared = _PREPARED[stage](functions)
    functions.outbox.sent.clear()
    return prepared


@cache
def to_damage(stage: str) -> list[Any]:
    """Return what could be the message in the middle, as JSON: it is the same in each instance."""
    with instance() as functions:
        prepared = batch(functions, stage)
    return [json.loads(body) for body in (prepared.bodies[MIDDLE], *prepared.others)]


def _encoded(messages: Sequence[m.Message]) -> tuple[str, ...]:
    return tuple(map(m.encode, messages))


def _ingest(functions: Functions) -> Batch:
    sources = _dropped(functions)
    jobs = [m.IngestJob(TABLE_ID, 0, f"ingest-{i}", (sources[i],)) for i in _NUMBERS]
    return Batch(_encoded(jobs), lambda i: "djt"[i] in functions.world.names(functions.table))


def _dropped(functions: Functions) -> list[Source]:
    drop = functions.world.sources.drop
    return [drop(f"letters/{c}.csv", f"letter,at,note\n{c},1,x\n".encode()) for c in "djt"]


def _batch_files(functions: Functions) -> Batch:
    sources = _dropped(functions)

    def is_done(i: int) -> bool:
        sent = (getattr(o.message, "sources", ()) for o in functions.outbox.sent)
        return any(sources[i] in found for found in sent)

    others = *map(json.dumps, samples.NOTIFICATIONS), m.encode(_waiting(sources))
    return Batch(tuple(map(_notification, sources)), is_done, others)


def _waiting(sources: Sequence[Source]) -> m.FilesWaiting:
    return m.FilesWaiting(TABLE_ID, 0, 1_700_000_000_000, (sources[MIDDLE],))


def _notification(source: Source) -> str:
    dropped = {"key": source.key, "eTag": source.etag, "size": source.size_bytes}
    entity = {"bucket": {"name": source.bucket}, "object": dropped}
    return json.dumps({"Records": [{"eventName": "ObjectCreated:Put", "s3": entity}]})


def _administer(functions: Functions) -> Batch:
    """Those beside may be refused, too: the one in the middle may have been to delete the table."""
    requests = [SetOnline(f"ask-{i}", "letters", bool(i)) for i in _NUMBERS]
    return Batch(
        _encoded(requests),
        lambda i: functions.world.job_record(f"ask-{i}") is not None,
        _encoded(samples.REQUESTS),
    )


def _plan_table(functions: Functions) -> Batch:
    """Those beside are about tables of their own."""
    world = functions.world
    before, behind = (world.create(name, split_threshold_rows=2) for name in ("one", "two"))
    tables = [before, functions.table, behind]
    for table in (before, behind):
        world.drop(f"{table.name}/rows.parquet", letters("ab"))
        world.deliver(world.queue.popleft())

    def is_done(i: int) -> bool:
        sent = (o.message for o in functions.outbox.sent)
        return any(isinstance(s, m.PartitionSplits) and s.table_id == tables[i].id for s in sent)

    return Batch(_encoded([m.TableChanged(table.id) for table in tables]), is_done)


def _publish_iceberg(functions: Functions) -> Batch:
    """Those beside are about tables of their own."""
    world = functions.world
    tables = [world.create(name, iceberg="on") for name in ("one", "two", "three")]
    messages = _encoded([m.TableChanged(table.id) for table in tables])
    return Batch(messages, lambda i: world.publications.get(tables[i].id) is not None)


def _assigned(functions: Functions) -> list[str]:
    """Assign a job for each leaf; return the shards of the leaves."""
    state = functions.world.state(functions.table)
    shards = [next(iter(state.references_in(leaf))).shard for leaf in LEAVES]
    jobs = zip(JOBS, LEAVES, shards, strict=True)
    store = functions.world.services.store(functions.table)
    store.commit(*(AssignJob(job, leaf, (shard,)) for job, leaf, shard in jobs), generation=0)
    return shards


def _jobs() -> list[m.CompactionJob]:
    return [m.CompactionJob(TABLE_ID, 0, job) for job in JOBS]


def _compact(functions: Functions) -> Batch:
    _assigned(functions)
    state = functions.world.state
    return Batch(_encoded(_jobs()), lambda i: JOBS[i] not in state(functions.table).jobs)


def _split_partition(functions: Functions) -> Batch:
    asked = [m.PartitionSplits(TABLE_ID, 0, (leaf,), True) for leaf in LEAVES]

    def is_done(i: int) -> bool:
        return not functions.world.state(functions.table).partitions.get(LEAVES[i]).is_leaf

    return Batch(_encoded(asked), is_done)


def _collect_garbage(functions: Functions) -> Batch:
    """Another message names shards that hold rows, too."""
    table = functions.table
    shards = _assigned(functions)
    given_up = zip(JOBS, LEAVES, shards, strict=True)
    functions.world.services.store(functions.table).commit(
        *(ReplaceShards(job, leaf, (shard,), ()) for job, leaf, shard in given_up), generation=0
    )
    functions.world.clock.advance(seconds=functions.table.properties.gc_delay_seconds + 1)
    functions.world.drop("letters/kept.parquet", letters("chy"))
    functions.world.deliver(functions.world.queue.popleft())
    *candidates, kept = (
        m.GarbageCandidates(TABLE_ID, 0, some)
        for some in (*((shard,) for shard in shards), tuple(functions.world.state(table).shards))
    )
    objects = functions.world.shard_objects
    return Batch(_encoded(candidates), lambda i: shards[i] not in objects(table), _encoded([kept]))


def _purge_rows(functions: Functions) -> Batch:
    world = functions.world
    purges = [f"{i:016}" for i in _NUMBERS]
    for purge, letter in zip(purges, "ahx", strict=True):
        begin_purge(world.services, functions.table, f"letter = '{letter}'", purge)

    def is_done(i: int) -> bool:
        jobs = world.state(functions.table).jobs.values()
        return purges[i] in {job.purge_id for job in jobs}

    return Batch(_encoded([m.PurgeStep(TABLE_ID, purge) for purge in purges]), is_done)


def _export_rows(functions: Functions) -> Batch:
    world = functions.world
    for i in _NUMBERS:
        begin_export(world, functions.table, f"{i:016}", f"out{i}", Selection(1, ("letter",)))

    def is_done(i: int) -> bool:
        manifest = load_manifest(world.results, f"out{i}")
        return manifest is not None and manifest.rows == len(ROWS)

    return Batch(_encoded([m.ExportTask(TABLE_ID, f"{i:016}", 0) for i in _NUMBERS]), is_done)


def _dispatch_spark(functions: Functions) -> Batch:
    _assigned(functions)
    runs = functions.world.spark.runs
    others: list[m.Message] = [
        m.IngestJob(TABLE_ID, 0, "ingest", (_dropped(functions)[MIDDLE],)),
        m.ExportJob(TABLE_ID, f"{MIDDLE:016}"),
        m.SparkJobStep(TABLE_ID, JOBS[MIDDLE]),
    ]
    return Batch(
        _encoded(_jobs()),
        lambda i: any(run.job_id == JOBS[i] for run in runs.values()),
        _encoded(others),
    )


def _track_spark(functions: Functions) -> Batch:
    """Runs have failed, so their jobs are to be tried again."""
    _assigned(functions)
    for i, job in enumerate(_jobs(), start=1):
        dispatch_spark(functions.world.services, job)
        functions.world.spark.ended[f"run{i}"] = ("failed", "it was cancelled")
    event = json.dumps(samples.NOTIFICATIONS[-1])

    def is_done(i: int) -> bool:
        sent = (o.message for o in functions.outbox.sent)
        return any(isinstance(s, m.SparkJobStep) and s.job_id == JOBS[i] for s in sent)

    return Batch(tuple(event.replace(RUN, f"run{i + 1}") for i in _NUMBERS), is_done)


def _answer_query(functions: Functions) -> Batch:
    asked = [
        AnswerQuery(
            query_id=f"asked-{i}", table="letters", selection=m.SelectionMessage(where="at >= 0")
        )
        for i in _NUMBERS
    ]
    others = (
        CancelQuery(query_id=asked[MIDDLE].query_id),
        QueryTask(query_id=asked[MIDDLE].query_id, task=0),
        AnswerQuery(query_id=asked[MIDDLE].query_id, sql="SELECT letter FROM letters"),
    )

    def is_done(i: int) -> bool:
        end = load_end(functions.world.results, asked[i].query_id)
        return end is not None and (end.state, end.rows) == ("finished", len(ROWS))

    return Batch(_encoded(asked), is_done, _encoded(others))


_PREPARED: dict[str, Callable[[Functions], Batch]] = {
    "answer_query": _answer_query,
    "administer": _administer,
    "batch_files": _batch_files,
    "ingest": _ingest,
    "plan_table": _plan_table,
    "compact": _compact,
    "split_partition": _split_partition,
    "collect_garbage": _collect_garbage,
    "publish_iceberg": _publish_iceberg,
    "purge_rows": _purge_rows,
    "export_rows": _export_rows,
    "dispatch_spark": _dispatch_spark,
    "track_spark": _track_spark,
}
STAGES = tuple(_PREPARED)
