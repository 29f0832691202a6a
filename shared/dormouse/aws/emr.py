"""Spark runs on EMR Serverless: `ports.Spark`.

EMR gets only the ids of a job, the sizes of its cluster, and the package to run. The environment of
the processes belongs to the application, which the template configures.
"""

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from dormouse.aws.clients import Failure, kind_of, read_pages, unavailable
from dormouse.errors import InvalidRequestError, OutcomeUnknownError
from dormouse.features.spark import ARCHIVE, JVM_OPTIONS
from dormouse.ports import SparkRun, SparkRunState
from dormouse.settings import SPARK_RUN_SECONDS, SparkSettings
from dormouse.state.jobs import ClusterSize
from dormouse.stored.paths import InstanceNames, spark_package_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_emr_serverless import EMRServerlessClient

ENTRY_POINTS = {
    "ingest": "bulk_import.py",
    "compaction": "compact.py",
    "export": "export_rows.py",
    "query": "statement.py",
}
"""The entry point of each kind of job."""
UNPACKED = "environment"
"""The folder into which the archive is unpacked; the application's settings refer to it."""
LOCALITY_WAIT = "30s"
"""How long a task waits for the executor that has its rows: elsewhere, a bulk import reads its
files again."""

_OUTCOMES = {"SUCCESS": "succeeded", "FAILED": "failed", "CANCELLED": "failed"}
_GONE = "TERMINATED"
_GIB = 1024**3


class EmrServerless:
    """An EMR Serverless application; thread-safe, like its client."""

    def __init__(
        self, client: "EMRServerlessClient", settings: SparkSettings, names: InstanceNames
    ) -> None:
        self._client, self._settings, self._names = client, settings, names

    @property
    def package(self) -> Path:
        """The folder of the package of Spark jobs that is deployed with this process."""
        return self._settings.package

    def start(self, run: SparkRun) -> str:
        """Return the id of the run, started now or before.

        Raises:
            UnavailableError: EMR throttles, or has no capacity at the moment.
            OutcomeUnknownError: EMR did not answer.
            InvalidRequestError: EMR refuses the run; a retry would not help.
        """
        with _starting():
            answer = self._client.start_job_run(
                applicationId=self._settings.application,
                clientToken=run.token,
                executionRoleArn=self._settings.role,
                name=f"{run.table_id}/{run.job_id}/{run.attempt}",
                executionTimeoutMinutes=SPARK_RUN_SECONDS // 60,
                jobDriver={
                    "sparkSubmit": {
                        "entryPoint": self._file(run, ENTRY_POINTS[run.kind]),
                        "entryPointArguments": self._arguments(run),
                        "sparkSubmitParameters": parameters(run.size, self._file(run, ARCHIVE)),
                    }
                },
            )
        return answer["jobRunId"]

    def describe(self, run_id: str) -> SparkRunState | None:
        """Return the state of a run; None if it is not a run of a job. Raises UnavailableError."""
        try:
            answer = self._client.get_job_run(
                applicationId=self._settings.application, jobRunId=run_id
            )
        except self._client.exceptions.ResourceNotFoundException:
            return None
        except (BotoCoreError, ClientError) as error:
            raise unavailable("EMR Serverless could not be read", error) from error
        run = answer["jobRun"]
        words = run.get("jobDriver", {}).get("sparkSubmit", {}).get("entryPointArguments", [])
        match dict(zip(words[::2], words[1::2], strict=False)):
            case {"--table-id": table_id, "--job-id": job_id, "--attempt": attempt} if (
                attempt.isdecimal()
            ):
                return SparkRunState(
                    table_id=table_id,
                    job_id=job_id,
                    attempt=int(attempt),
                    outcome=_OUTCOMES.get(run["state"], ""),
                    reason=run.get("stateDetails") or "",
                )
        return None

    def _file(self, run: SparkRun, name: str) -> str:
        return f"s3://{self._names.data_bucket}/{spark_package_path(run.package, name)}"

    def _arguments(self, run: SparkRun) -> list[str]:
        """Return the options of the entry point, from which `describe` knows the job again."""
        options = {
            "--instance": self._names.instance,
            "--table-id": run.table_id,
            "--job-id": run.job_id,
            "--generation": str(run.generation),
            "--attempt": str(run.attempt),
        }
        return [word for option in options.items() for word in option]


def find_application(emr: "EMRServerlessClient", names: InstanceNames) -> tuple[str, str] | None:
    """Return the id and the state of the application with the name of the instance; None if there
    is none. Raises UnavailableError.
    """
    pages = emr.get_paginator("list_applications").paginate()
    lists = [page["applications"] for page in read_pages("EMR Serverless", pages)]
    for application in (each for applications in lists for each in applications):
        name, state = application.get("name"), application["state"]
        if name == names.spark_application and state != _GONE:
            return application["id"], state
    return None


def parameters(size: ClusterSize, archive: str) -> str:
    """Return the spark-submit parameters for a cluster size and an archive to unpack.

    Python gets half of the memory of each process, since it sorts and merges outside the JVM.
    """
    half = f"{max(1, size.executor_memory_bytes // 2 // _GIB)}g"
    settings = {
        "spark.archives": f"{archive}#{UNPACKED}",
        "spark.driver.cores": size.executor_cores,
        "spark.driver.memory": half,
        "spark.driver.memoryOverhead": half,
        "spark.executor.cores": size.executor_cores,
        "spark.executor.memory": half,
        "spark.executor.memoryOverhead": half,
        "spark.executor.extraJavaOptions": JVM_OPTIONS,
        "spark.executor.instances": 1,
        "spark.dynamicAllocation.initialExecutors": 1,
        "spark.dynamicAllocation.maxExecutors": size.executors,
        "spark.locality.wait": LOCALITY_WAIT,
    }
    return " ".join(f"--conf {name}={value}" for name, value in settings.items())


@contextmanager
def _starting() -> "Iterator[None]":
    try:
        yield
    except BotoCoreError as error:
        raise OutcomeUnknownError(f"EMR Serverless did not answer: {error}") from error
    except ClientError as error:
        if kind_of(error) is Failure.PERMANENT:
            raise InvalidRequestError(
                f"EMR Serverless refuses the run: {error}", hint="docs/spark.md says what it needs"
            ) from error
        raise unavailable("EMR Serverless cannot start the run at the moment", error) from error
