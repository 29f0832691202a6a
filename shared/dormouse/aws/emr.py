"""EMR Serverless as what runs Spark jobs: `ports.Spark`.

Of a job, EMR is told ids and sizes. Where its packages lie and what its processes' environment is
belongs to the application, and so to the template.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from dormouse.aws.failures import code_of
from dormouse.errors import InvalidRequestError, OutcomeUnknownError, UnavailableError
from dormouse.model.names import InstanceNames
from dormouse.policy.spark import ClusterSize
from dormouse.ports import SparkRun, SparkRunState
from dormouse.settings import SparkSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_emr_serverless import EMRServerlessClient

ENTRY_POINTS = {
    "ingest": "bulk_import.py",
    "compaction": "compact.py",
    "export": "export_rows.py",
}
"""The file of each kind of job."""
RUN_MINUTES = 12 * 60
"""A run that takes longer is cancelled, and tried again."""

_OUTCOMES = {"SUCCESS": "succeeded", "FAILED": "failed", "CANCELLED": "failed"}
_NEVER = ("ValidationException", "ResourceNotFoundException", "AccessDeniedException")
_GIB = 1024**3


class EmrServerless:
    """An application of EMR Serverless; safe for many threads, as the client is."""

    def __init__(
        self, client: EMRServerlessClient, settings: SparkSettings, names: InstanceNames
    ) -> None:
        """Use the application of `settings` for the instance that `names` is of."""
        self._client, self._settings, self._names = client, settings, names

    def start(self, run: SparkRun) -> str:
        """Give the id of the run, started now or before.

        Raises:
            UnavailableError: EMR is throttled or has no room for now.
            OutcomeUnknownError: EMR did not answer.
            InvalidRequestError: EMR refuses it, and always will.
        """
        with _starting():
            answer = self._client.start_job_run(
                applicationId=self._settings.application,
                clientToken=run.token,
                executionRoleArn=self._settings.role,
                name=f"{run.table_id}/{run.job_id}/{run.attempt}",
                executionTimeoutMinutes=RUN_MINUTES,
                jobDriver={
                    "sparkSubmit": {
                        "entryPoint": self._names.spark_code_uri + ENTRY_POINTS[run.kind],
                        "entryPointArguments": self._arguments(run),
                        "sparkSubmitParameters": parameters(run.size),
                    }
                },
            )
        return answer["jobRunId"]

    def look(self, run_id: str) -> SparkRunState | None:
        """Tell how a run stands; None if there is none, or it is not of such a job.

        Raises:
            UnavailableError: EMR does not answer.
        """
        try:
            answer = self._client.get_job_run(
                applicationId=self._settings.application, jobRunId=run_id
            )
        except self._client.exceptions.ResourceNotFoundException:
            return None
        except (BotoCoreError, ClientError) as error:
            raise UnavailableError(f"EMR Serverless did not answer: {error}") from error
        found = answer["jobRun"]
        match found.get("name", "").split("/"):
            case [table_id, job_id, attempt] if attempt.isdecimal():
                return SparkRunState(
                    table_id=table_id,
                    job_id=job_id,
                    attempt=int(attempt),
                    outcome=_OUTCOMES.get(found["state"], ""),
                    reason=found.get("stateDetails") or "",
                )
        return None

    def _arguments(self, run: SparkRun) -> list[str]:
        return [
            "--instance",
            self._names.instance,
            "--table-id",
            run.table_id,
            "--job-id",
            run.job_id,
            "--generation",
            str(run.generation),
        ]


def parameters(size: ClusterSize) -> str:
    """Give what spark-submit is told of a size.

    Half of each memory is left to Python, which sorts and merges outside of the JVM.
    """
    half = f"{max(1, size.executor_memory_bytes // 2 // _GIB)}g"
    settings = {
        "spark.driver.cores": size.executor_cores,
        "spark.driver.memory": half,
        "spark.driver.memoryOverhead": half,
        "spark.executor.cores": size.executor_cores,
        "spark.executor.memory": half,
        "spark.executor.memoryOverhead": half,
        "spark.executor.instances": 1,
        "spark.dynamicAllocation.initialExecutors": 1,
        "spark.dynamicAllocation.maxExecutors": size.executors,
    }
    return " ".join(f"--conf {name}={value}" for name, value in settings.items())


@contextmanager
def _starting() -> Iterator[None]:
    try:
        yield
    except BotoCoreError as error:
        raise OutcomeUnknownError(f"EMR Serverless did not answer: {error}") from error
    except ClientError as error:
        if code_of(error) in _NEVER:
            raise InvalidRequestError(
                f"EMR Serverless refuses the run: {error}",
                hint="docs/spark.md says what it needs",
            ) from error
        raise UnavailableError(f"EMR Serverless cannot start the run for now: {error}") from error
