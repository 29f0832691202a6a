"""Save, load and delete the stored requests of Spark jobs, and the notes of their runs.

Beside a table lies a request for each incomplete Spark job, and a note for each of its runs. A job
that is complete or has failed has neither. A run gets only ids, and reads the rest from its
request.
"""

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from dormouse.errors import CorruptDataError, InvalidRequestError
from dormouse.features.requests import Kind, delete_below, list_jobs
from dormouse.messages.stages import Id, SparkJob
from dormouse.ports import Services, Spark
from dormouse.settings import library_version
from dormouse.stored import paths
from dormouse.stored.decoding import decode_json, raise_corrupt

JVM_OPTIONS = "-XX:TieredStopAtLevel=1"
"""Executors only move bytes between Python processes, disks and the network. What optimizing their
code costs, in the minutes that a job takes, is a fifth of the CPU time of a small import."""


class SparkRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job for Spark.

    The client tokens of its runs are made of `token`. `inputs` are the shards that a compaction
    replaces: the state no longer has them once the job is committed, and they must be collected.
    """

    job: SparkJob
    token: str
    requested_ms: int
    inputs: tuple[Id, ...] = ()


_REQUEST = Kind(
    "a request for Spark",
    SparkRequest,
    "delete this object: the sweep starts the rest of the job again",
)


def load_spark_request(services: Services, table_id: str, job_id: str) -> SparkRequest | None:
    """Return the request of a job; None if Spark has none, or the job is complete or has failed.
    Raises CorruptDataError: the stored request is damaged.
    """
    return _REQUEST.get(services.storage, paths.SPARK_JOBS.path(table_id, job_id))


def save_spark_request(
    services: Services, job: SparkJob, inputs: tuple[str, ...] = ()
) -> SparkRequest:
    """Save the request of a job and return it, or the request that was saved first.

    `inputs` are the shards that a compaction replaces.
    Raises CorruptDataError: the stored request is damaged.
    """
    request = SparkRequest(job, services.ids.new(), services.clock.now_ms(), inputs)
    return _REQUEST.save(services.storage, paths.SPARK_JOBS.path(job.table_id, job.job_id), request)


def list_spark_requests(
    services: Services, table_id: str
) -> tuple[list[SparkRequest], dict[str, CorruptDataError]]:
    """Return the requests of a table's incomplete jobs, and errors of damaged ones by job id."""
    requests, damaged = [], {}
    for job_id in list_jobs(services.storage, paths.SPARK_JOBS.prefix(table_id))[0]:
        try:
            if request := load_spark_request(services, table_id, job_id):
                requests.append(request)
        except CorruptDataError as error:
            damaged[job_id] = error
    return requests, damaged


def save_spark_run(services: Services, job: SparkJob, attempt: int, run_id: str) -> None:
    """Save a note that names the run of an attempt."""
    services.storage.put(paths.spark_run_path(job.table_id, job.job_id, attempt, run_id), b"")


def newest_spark_run(services: Services, job: SparkJob) -> tuple[int, str]:
    """Return the newest attempt that has a note, and its run; 0 if there is none."""
    objects = services.storage.list(paths.SPARK_JOBS.parts(job.table_id, job.job_id))
    runs = (run for item in objects if (run := paths.parse_spark_run_path(item.path)) is not None)
    return max(runs, default=(0, ""))


def delete_spark_request(services: Services, job: SparkJob) -> None:
    """Delete the notes and the request of a job; the request last, for a redelivery."""
    delete_below(services.storage, paths.SPARK_JOBS.parts(job.table_id, job.job_id))
    services.storage.delete([paths.SPARK_JOBS.path(job.table_id, job.job_id)])


# The package of Spark jobs: the library, its dependencies, and the entry point of each job.
#
# It is built and deployed with the functions, as a layer of `dispatch_spark`, which puts it into
# the data bucket under its version. `shared/pack_spark.py` writes its description.

DESCRIPTION = "package.json"
"""The file that describes a package; it is put last, so if it exists, the package is complete."""
ARCHIVE = "environment.tar.gz"
"""The archive of the library and its dependencies; each machine unpacks it."""

_Name = Annotated[str, msgspec.Meta(pattern=r"\A[a-z_]+(\.[a-z]+)+\Z")]
_Digest = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{16}\Z")]


class SparkPackage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A package: its files with their sizes, its version, and the version of the library in it."""

    library: _Digest
    version: _Digest
    files: dict[_Name, int]
    v: Literal[1] = 1


def decode_package(body: bytes, path: str) -> SparkPackage:
    """Parse the description of a package.
    Raises CorruptDataError: the file is damaged or describes no package.
    """
    with raise_corrupt(f"{path} does not describe a package of Spark jobs"):
        return decode_json(body, SparkPackage)


# Upload the deployed package of Spark jobs to the data bucket.
#
# The package lies beside the tables, under its version. Its files are put once and never changed,
# the description last. So runs that started before a deployment keep their code, and the next run
# completes a partial upload.

_BUILD = "build and deploy functions and package together: make build, sam deploy"


def upload_package(services: Services, spark: Spark) -> str:
    """Upload the missing files of the deployed package, and return its version; empty if runs use
    the library of this process.
    Raises InvalidRequestError: no package is deployed, or its version differs from this process's.
    """
    folder = spark.package
    if folder is None:
        return ""
    package = _deployed(folder)
    prefix = paths.spark_package_prefix(package.version)
    there = {item.path for item in services.storage.list(prefix)}
    for name in (*package.files, DESCRIPTION):
        path = paths.spark_package_path(package.version, name)
        if path not in there:
            services.storage.upload(path, folder / name)
    return package.version


def _deployed(folder: Path) -> SparkPackage:
    path = folder / DESCRIPTION
    if not path.is_file():
        raise InvalidRequestError(
            f"there is no package of Spark jobs: {path} is missing", hint=_BUILD
        )
    package = decode_package(path.read_bytes(), str(path))
    if package.library != library_version():
        raise InvalidRequestError(
            f"the package of Spark jobs is of version {package.library} of the library, this "
            f"function of {library_version()}; no run was started",
            hint=_BUILD,
        )
    return package
