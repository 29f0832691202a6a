"""What is kept of the jobs that Spark is to do: read, written and deleted here, by every stage.

Beside a table lies a request for each job with Spark, and a note for each run of it. A job which
is done or given up has neither. The jobs themselves read their request for what is no id.
"""

from __future__ import annotations

import msgspec

from dormouse.errors import CorruptDataError, NotFoundError
from dormouse.messages import Id, SparkJob
from dormouse.ports import Services
from dormouse.stored.decoding import raise_corrupt
from dormouse.stored.json_objects import decode_stored, encode_stored
from dormouse.stored.paths import (
    parse_spark_run_path,
    spark_job_of,
    spark_prefix,
    spark_request_path,
    spark_run_path,
    spark_runs_prefix,
)


class SparkRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job that Spark is to do.

    The tokens of its runs are made of `token`. `inputs` are the shards that a compaction replaces:
    the state forgets which these were once the job is done, and somebody must collect them.
    """

    job: SparkJob
    token: str
    requested_ms: int
    inputs: tuple[Id, ...] = ()


FORMAT = 3
_KIND = "a request for Spark"
_HINT = "delete this object: what is left to do of the job, the sweep has done once more"


def spark_request(services: Services, table_id: str, job_id: str) -> SparkRequest | None:
    """Return the request of a job; None if Spark is not to do it, or no more.

    Raises:
        CorruptDataError: what is kept of it is damaged.
    """
    return _read(services, spark_request_path(table_id, job_id))


def keep_request(services: Services, job: SparkJob, inputs: tuple[str, ...] = ()) -> SparkRequest:
    """Keep the request of a job, and return it; of several at once, all return the first.

    `inputs` are the shards that it replaces if it is a compaction.

    Raises:
        CorruptDataError: what is kept of it is damaged.
    """
    path = spark_request_path(job.table_id, job.job_id)
    request = SparkRequest(job, services.ids.new(), services.clock.now_ms(), inputs)
    if services.storage.put(path, encode_stored(_KIND, FORMAT, path, request)):
        return request
    return _read(services, path) or request  # None if it was settled just now


def kept_requests(
    services: Services, table_id: str
) -> tuple[list[SparkRequest], dict[str, CorruptDataError]]:
    """Return the requests of a table's jobs that are neither done nor given up.

    Besides, what is wrong with those that are damaged, by the ids of their jobs.
    """
    requests, damaged = [], {}
    for stored in services.storage.list(spark_prefix(table_id)):
        if stored.path.endswith(".json"):
            try:
                request = _read(services, stored.path)
            except CorruptDataError as error:
                damaged[spark_job_of(stored.path)] = error
                continue
            if request is not None:
                requests.append(request)
    return requests, damaged


def unsettled(services: Services, table_id: str) -> int:
    """Return how many jobs of a table Spark has in hand: not known to be done, nor given up."""
    listed = services.storage.list(spark_prefix(table_id))
    return sum(stored.path.endswith(".json") for stored in listed)


def spent_notes(services: Services, table_id: str, before_ms: int) -> list[str]:
    """Return the paths of notes put before a time, of jobs that are done or given up.

    Who was slow to note a run finds nobody who deletes the note again.
    """
    listed = list(services.storage.list(spark_prefix(table_id)))
    requested = {o.path.removesuffix(".json") for o in listed if o.path.endswith(".json")}
    return [
        stored.path
        for stored in listed
        if not stored.path.endswith(".json")
        and stored.path.rpartition("/")[0] not in requested
        and stored.modified_ms < before_ms
    ]


def keep_run(services: Services, job: SparkJob, attempt: int, run_id: str) -> None:
    """Note that an attempt at a job is this run."""
    services.storage.put(spark_run_path(job.table_id, job.job_id, attempt, run_id), b"")


def newest_run(services: Services, job: SparkJob) -> tuple[int, str]:
    """Return the newest attempt at a job that is noted, and its run; 0 if there is none."""
    listed = services.storage.list(spark_runs_prefix(job.table_id, job.job_id))
    runs = (run for stored in listed if (run := parse_spark_run_path(stored.path)) is not None)
    return max(runs, default=(0, ""))


def forget(services: Services, job: SparkJob) -> None:
    """Delete all that is kept of a job; its request last, so that a redelivery finds the rest."""
    listed = services.storage.list(spark_runs_prefix(job.table_id, job.job_id))
    runs = [stored.path for stored in listed]
    if runs:
        services.storage.delete(runs)
    services.storage.delete([spark_request_path(job.table_id, job.job_id)])


def _read(services: Services, path: str) -> SparkRequest | None:
    try:
        body = services.storage.get(path)
    except NotFoundError:
        return None
    with raise_corrupt(f"{path} is not a request for Spark", hint=_HINT):
        return decode_stored(_KIND, FORMAT, path, body, SparkRequest)
