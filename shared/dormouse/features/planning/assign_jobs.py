"""Assign compaction jobs in the state, then send their messages, one bounded commit at a time.

A crash between the two leaves assigned jobs without a message, those of one commit at most;
``sweep`` sends them again. Their Spark options are saved before they are assigned, so that a
message sent again has them, too. Concurrent assignments cannot give a shard to two jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from msgspec import UNSET

from dormouse.features.planning.compaction import CompactionPlan
from dormouse.features.spark.requests import save_spark_request
from dormouse.jobs.runs import new_run
from dormouse.messages.stages import CompactionJob, OutboundMessage
from dormouse.model.jobs.spark_threshold import compaction_queue
from dormouse.model.state import TableState
from dormouse.model.transactions import AssignJob
from dormouse.ports.services import Services
from dormouse.state_store import Committed
from dormouse.tables.spark_options import SparkOptions
from dormouse.tables.table import Table

REQUESTS_AT_ONCE = 8
JOBS_PER_COMMIT = 500
INPUTS_PER_COMMIT = 5000
"""The limits of one commit, which is then about 30 KB, or 200 KB with the most inputs. A crash
leaves no more jobs without a message."""


def assign(
    services: Services,
    table: Table,
    generation: int,
    jobs: Iterable[AssignJob],
    asked: SparkOptions | None = None,
) -> Iterator[OutboundMessage]:
    """Assign jobs, and yield the messages of those that were assigned, commit by commit.

    With Spark options `asked`, Spark runs them; a sweep deletes the saved options of a job that was
    then not assigned. Jobs whose shards another planning has assigned meanwhile are left out before
    the commit, so the second of two concurrent plannings only reads the state for them.
    """
    store = services.store(table)
    for chunk in _chunks(jobs):
        state = store.current()
        free = [job for job in chunk if _is_free(state, job)]
        if asked is not None:
            _keep_requests(services, table.id, generation, free, asked)
        outcomes = store.commit(*free, generation=generation)
        for job, outcome in zip(free, outcomes, strict=True):
            if isinstance(outcome, Committed):
                queue = compaction_queue(state, job, table.properties, asked)
                message = CompactionJob(table.id, generation, job.job, asked or UNSET)
                yield OutboundMessage(queue, message)


def jobs_of(
    services: Services, table: Table, plans: Iterable[CompactionPlan]
) -> Iterator[AssignJob]:
    """Return a new job for each plan."""
    return (AssignJob(new_run(services, table), plan.partition, plan.inputs) for plan in plans)


def _keep_requests(
    services: Services,
    table_id: str,
    generation: int,
    jobs: Iterable[AssignJob],
    asked: SparkOptions,
) -> None:
    def keep(job: AssignJob) -> None:
        message = CompactionJob(table_id, generation, job.job, asked)
        save_spark_request(services, message, job.inputs)

    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as threads:
        list(threads.map(keep, jobs))


def _is_free(state: TableState, job: AssignJob) -> bool:
    held = (list(state.references_below(job.partition, shard)) for shard in job.inputs)
    return all(found and all(each.job is None for each in found) for found in held)


def _chunks(jobs: Iterable[AssignJob]) -> Iterator[Sequence[AssignJob]]:
    chunk: list[AssignJob] = []
    inputs = 0
    for job in jobs:
        inputs += len(job.inputs)
        if chunk and (len(chunk) == JOBS_PER_COMMIT or inputs > INPUTS_PER_COMMIT):
            yield chunk
            chunk, inputs = [], len(job.inputs)
        chunk.append(job)
    if chunk:
        yield chunk
