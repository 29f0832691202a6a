"""Makes moto's EMR Serverless start runs as AWS does; applied by `moto_server`.

moto calls every run a success at once, starts a second run for a token it has seen, sends no
events and knows no release of Spark 4. Here a run waits until a runner takes it, one at a time;
each change of its state is sent to EventBridge. An application's id is its name;
a run's follows from its token.
"""

import hashlib
import importlib.util
import json
import os
import queue
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.core.utils import utcnow
from moto.emrserverless.exceptions import ResourceNotFoundException
from moto.emrserverless.models import EMRServerlessBackend, JobRun
from moto.events.models import events_backends

from dormouse import lifeline

Runner = Callable[[JobRun], tuple[str, str]]
"""Does what a run is for; returns the state in which it ended, and details for people."""

CHANGED = threading.RLock()
_waiting: "queue.SimpleQueue[JobRun]" = queue.SimpleQueue()
FINAL = ("SUCCESS", "FAILED", "CANCELLED")

_plain_create_application = EMRServerlessBackend.create_application
_plain_start_job_run = EMRServerlessBackend.start_job_run


def apply() -> None:
    """Replace the parts of moto; call once, before the server starts."""
    EMRServerlessBackend.create_application = _create_application  # type: ignore[method-assign]
    EMRServerlessBackend.start_job_run = _start_job_run  # type: ignore[method-assign]
    EMRServerlessBackend.cancel_job_run = _cancel_job_run  # type: ignore[method-assign]


def serve(runner: Runner) -> None:
    """Have `runner` do the runs, one after the other, from a thread of its own."""
    threading.Thread(target=_serve, args=(runner,), name="emr-serverless", daemon=True).start()


def _serve(runner: Runner) -> None:
    while True:
        run = _waiting.get()
        if not move(run, "RUNNING"):
            continue
        try:
            state, details = runner(run)
        except Exception as error:  # the next run must not suffer from it
            state, details = "FAILED", f"{type(error).__name__}: {error}"
        move(run, state, details)


def move(run: JobRun, state: str, details: str = "") -> bool:
    """Change a run's state and announce it; False, and nothing done, if the run has ended."""
    with CHANGED:
        if run.state in FINAL:
            return False
        before, run.state, run.state_details = run.state, state, details
        run.updated_at = utcnow()
    _announce(run, before)
    return True


def _announce(run: JobRun, before: str) -> None:
    region, account = run.arn.split(":")[3:5]
    detail = {
        "jobRunId": run.id,
        "applicationId": run.application_id,
        "arn": run.arn,
        "releaseLabel": run.release_label,
        "state": run.state,
        "previousState": before,
        "createdAt": run.created_at.isoformat() + "Z",
        "updatedAt": run.updated_at.isoformat() + "Z",
    }
    event = {
        "Source": "aws.emr-serverless",
        "DetailType": "EMR Serverless Job Run State Change",
        "Detail": json.dumps(detail),
    }
    events_backends[account][region].put_events([event])


def run_id_of(application: str, token: str) -> str:
    """Return the id of a run: samples of events name one before it is started."""
    return "00" + hashlib.sha256(f"{application} {token}".encode()).hexdigest()[:14]


def _create_application(self: EMRServerlessBackend, *arguments: Any, **named: Any) -> Any:
    release, named["release_label"] = named["release_label"], "emr-7.0.0"
    application = _plain_create_application(self, *arguments, **named)
    del self.applications[application.id]
    application.release_label = release
    application.arn = application.arn.replace(application.id, application.name)
    application.id = application.name
    self.applications[application.id] = application
    return application


def _start_job_run(self: EMRServerlessBackend, *arguments: Any, **named: Any) -> JobRun:
    with CHANGED:
        for earlier in self.job_runs.get(named["application_id"], []):
            if earlier.client_token == named["client_token"]:
                if earlier.job_driver != named["job_driver"]:
                    raise JsonRESTError("ConflictException", "the token is of another request")
                return earlier
        run = _plain_start_job_run(self, *arguments, **named)
        run_id = run_id_of(run.application_id, run.client_token)
        run.id, run.arn = run_id, run.arn.replace(run.id, run_id)
        run.state, run.created_at = "SUBMITTED", utcnow()
        run.updated_at = run.created_at
        # The real service always sends these, and clients refuse an answer without them.
        run.created_by = run.execution_role_arn
        run.state_details = ""
    _waiting.put(run)
    return run


def _cancel_job_run(
    self: EMRServerlessBackend, application_id: str, job_run_id: str
) -> tuple[str, str]:
    for run in self.job_runs.get(application_id, []):
        if run.id == job_run_id:
            move(run, "CANCELLED", "it was cancelled")
            return application_id, job_run_id
    raise ResourceNotFoundException(job_run_id, "JobRun")


_POLL_SECONDS = 0.2
_OUT_OF_REACH = ("CLOUDWATCH", "EMR_SERVERLESS", "EVENTS", "LAMBDA", "SNS", "SQS")
_NOWHERE = "http://127.0.0.1:9"
"""The port of the discard service, where nobody listens."""


@dataclass(frozen=True, slots=True)
class SparkRunner:
    """Runs one job at a time; its output goes to a log of its own.

    `code` holds the entry points; logs and temporary files go to `folder`. `environment` is what
    the job's processes see beside what Spark needs.
    """

    code: Path
    folder: Path
    environment: Mapping[str, str]

    def __call__(self, run: JobRun) -> tuple[str, str]:
        """Do a run; return the state in which it ended, and details for people."""
        driver = (run.job_driver or {})["sparkSubmit"]
        entry_point = self.code / PurePosixPath(str(driver["entryPoint"])).name
        if not entry_point.is_file():
            return "FAILED", f"there is no entry point {entry_point}"
        if importlib.util.find_spec("pyspark") is None:
            return "FAILED", "pyspark is not installed: pip install 'dormouse-tables[spark]'"
        log = self.folder / "logs" / f"spark-{run.id}.log"
        scratch = self.folder / "spark" / run.id
        scratch.mkdir(parents=True)
        try:
            arguments = [str(entry_point), *driver.get("entryPointArguments", [])]
            return self._submit(run, arguments, scratch, log)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _submit(
        self, run: JobRun, arguments: list[str], scratch: Path, log: Path
    ) -> tuple[str, str]:
        options = ["--master", "local[2]"]
        with log.open("ab") as output:
            process = lifeline.start(
                "dormouse_spark.submit",
                [*options, *arguments],
                cwd=scratch,
                environment={
                    **self.environment,
                    **{f"AWS_ENDPOINT_URL_{service}": _NOWHERE for service in _OUT_OF_REACH},
                    "SPARK_LOCAL_DIRS": str(scratch),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "TMPDIR": str(scratch),
                },
                stdout=output,
            )
        try:
            code = self._wait(process, run)
        finally:
            lifeline.kill(process)  # with whatever the job has left
        if code is None:
            return "CANCELLED", "it ran for too long"
        if code:
            return "FAILED", f"it ended with exit code {code}, see {log}"
        return "SUCCESS", ""

    def _wait(self, process: "subprocess.Popen[bytes]", run: JobRun) -> int | None:
        """Return the exit code; None if the process was ended for it took too long."""
        left_seconds = run.execution_timeout_minutes * 60.0
        while left_seconds > 0 and run.state == "RUNNING":
            try:
                return process.wait(_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                left_seconds -= _POLL_SECONDS
        return None


def python_path(code: Path) -> str:
    """Return the folders from which a job imports, as the archive on AWS has them."""
    packages = Path(__file__).resolve().parents[2]
    return os.pathsep.join(str(each) for each in (code, code.parent / "shared", packages))
