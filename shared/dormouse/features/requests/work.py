"""The jobs that a request causes: what is stored of them, and their messages.

It names what is to be looked at, and never says how that stands: the state of the table does, and
the tracker. So it is put once, and however late a message comes, it is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET

from dormouse.features.export.stored import kept_export, messages_of
from dormouse.features.garbage.collect_garbage import candidates, garbage_job_id, together
from dormouse.features.ingest.batch_files import ingest_message
from dormouse.features.planning.plan_table import splits
from dormouse.features.purge.stored import purge_request
from dormouse.messages import CompactionJob, IngestJob, OutboundMessage, PurgeStep
from dormouse.model.spark_threshold import compaction_queue
from dormouse.model.state import TableState
from dormouse.ports import Services
from dormouse.replies import Counts, ReplyJob
from dormouse.stored.names import split_job_id
from dormouse.tables.spark_options import SparkOptions
from dormouse.tables.table import Table


class _Work(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """The root of what a request causes."""


class Compactions(_Work, frozen=True, tag="compaction"):
    """Jobs that were assigned in this generation of the table."""

    generation: int
    jobs: tuple[str, ...]
    spark: SparkOptions | None = None


class Files(_Work, frozen=True, tag="ingest"):
    """Ingest jobs, as they were first sent; each may be taken apart into jobs of single files."""

    jobs: tuple[IngestJob, ...]


class Export(_Work, frozen=True, tag="export"):
    """An export, and the prefix that its manifest goes to."""

    export_id: str
    to: str


class Purge(_Work, frozen=True, tag="purge"):
    """A purge."""

    purge_id: str


class Splits(_Work, frozen=True, tag="split"):
    """Leaf partitions that are to be split, in this generation of the table."""

    generation: int
    partitions: tuple[str, ...]
    forced: bool = False


class Garbage(_Work, frozen=True, tag="garbage"):
    """Shards that are to be deleted."""

    generation: int
    shards: tuple[str, ...]


Work = Compactions | Files | Export | Purge | Splits | Garbage


@dataclass(frozen=True, slots=True)
class Begun:
    """What a request has begun: messages to send, and the `work` to wait for, if there is any.

    `counts` are what is known when it begins.
    """

    messages: list[OutboundMessage] = field(default_factory=list)
    work: Work | None = None
    counts: Counts = Counts()


def jobs_of(work: Work) -> list[ReplyJob]:
    """Return the jobs as a reply names them, by the ids under which the tracker shows them."""
    match work:
        case Compactions():
            ids = list(work.jobs)
        case Files():
            ids = [job.job_id for job in work.jobs]
        case Export():
            ids = [work.export_id]
        case Purge():
            ids = [work.purge_id]
        case Splits():
            ids = [split_job_id(partition) for partition in work.partitions]
        case Garbage():
            ids = [garbage_job_id(shards) for shards in together(work.shards)]
    return [ReplyJob(kind_of(work), job_id) for job_id in ids]


def kind_of(work: Work) -> str:
    """Return what the tracker calls such jobs."""
    return str(type(work).__struct_config__.tag)


def messages_again(services: Services, table: Table, work: Work) -> list[OutboundMessage]:
    """Return the messages of what is left of some work: those of its beginning may be lost."""
    match work:
        case Compactions():
            state = services.store(table).current()
            return list(_compactions(table, state, work))
        case Files():
            return [
                ingest_message(table, job.generation, job.sources, job.spark or None)
                for job in work.jobs
            ]
        case Export():
            export = kept_export(services, table.id, work.export_id)
            return messages_of(export) if export is not None else []
        case Purge():
            is_left = purge_request(services, table.id, work.purge_id) is not None
            return (
                [OutboundMessage("purges", PurgeStep(table.id, work.purge_id))] if is_left else []
            )
        case Splits():
            state = services.store(table).current()
            leaves = _leaves(state, work) if state.generation == work.generation else []
            return list(splits(table, state, leaves, forced=work.forced))
        case Garbage():
            state = services.store(table).current()
            shards = [shard for shard in work.shards if shard in state.unreferenced]
            return candidates(table, state, shards) if state.generation == work.generation else []


def _compactions(table: Table, state: TableState, work: Compactions) -> Iterator[OutboundMessage]:
    for job_id in work.jobs:
        job = state.jobs.get(job_id)
        if job is not None and state.generation == work.generation:
            queue = compaction_queue(state, job, table.properties, work.spark)
            message = CompactionJob(table.id, work.generation, job_id, work.spark or UNSET)
            yield OutboundMessage(queue, message)


def _leaves(state: TableState, work: Splits) -> list[str]:
    tree = state.partitions
    return [p for p in work.partitions if p in tree and tree.get(p).is_leaf]
