"""Does the runs of EMR Serverless with spark-submit on this machine; used by `moto_server`.

A run is given the entry point and the arguments that it has on AWS, and a small Spark in one
process instead of the cluster it asks for. Its packages are those of this environment. What an
application of EMR Serverless does not reach on AWS, a run does not reach here.
"""

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from moto.emrserverless.models import JobRun

from dormouse import lifeline

_POLL_SECONDS = 0.2
_OUT_OF_REACH = ("CLOUDWATCH", "EMR_SERVERLESS", "EVENTS", "LAMBDA", "SNS", "SQS")
_NOWHERE = "http://127.0.0.1:9"
"""The port of the discard service, where nobody listens."""


class SparkRunner:
    """Runs one job at a time; its output goes to a log of its own."""

    def __init__(self, code: Path, folder: Path, environment: Mapping[str, str]) -> None:
        """`code` holds the entry points; logs and temporary files go to `folder`.

        `environment` is what the job's processes see beside what Spark needs.
        """
        self._code, self._folder, self._environment = code, folder, environment

    def __call__(self, run: JobRun) -> tuple[str, str]:
        """Do a run; return the state in which it ended, and details for people."""
        driver = (run.job_driver or {})["sparkSubmit"]
        entry_point = self._code / PurePosixPath(str(driver["entryPoint"])).name
        if not entry_point.is_file():
            return "FAILED", f"there is no entry point {entry_point}"
        if importlib.util.find_spec("pyspark") is None:
            return "FAILED", "pyspark is not installed: pip install 'dormouse-tables[spark]'"
        log = self._folder / "logs" / f"spark-{run.id}.log"
        scratch = self._folder / "spark" / run.id
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
                    **self._environment,
                    **{f"AWS_ENDPOINT_URL_{service}": _NOWHERE for service in _OUT_OF_REACH},
                    "SPARK_LOCAL_DIRS": str(scratch),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "TMPDIR": str(scratch),
                },
                stdout=output,
                stderr=output,
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
