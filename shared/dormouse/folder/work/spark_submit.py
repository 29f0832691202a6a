"""Runs of Spark on this machine, by spark-submit, in a process that ends with this one.

The driver opens the folder as any process does, and commits by itself. Whether the job is done is
seen in the state; what is kept here is only that the run has ended. The output of the last run of a
job that failed is kept beside the tables.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dormouse import lifeline
from dormouse.folder.layout import Layout
from dormouse.folder.work.leaving import Leaving, LeavingError
from dormouse.folder.work.spark_runs import SparkRuns, StoredRun
from dormouse.settings import SPARK_RUN_SECONDS

POLL_SECONDS = 0.2
LEAST_MEMORY_BYTES = 64 * 1024 * 1024
_MODULE = "dormouse_spark.submit"
_DRIVER = """import sys
from dormouse_spark.entry import main
sys.exit(main(sys.argv[1], sys.argv[2:]))
"""

Submit = Callable[[StoredRun, Callable[[], None]], tuple[str, str]]
"""Does a run, and returns its outcome and the reason; calls a function from time to time, which
raises an error if the process has to leave."""


@dataclass
class SparkWorker:
    """Does the runs of a folder, one at a time."""

    runs: SparkRuns
    submit: Submit
    leaving: Leaving
    _busy: threading.Lock = field(default_factory=threading.Lock)

    def step(self) -> bool:
        """Do a run, if nobody does one; return whether there was any."""
        if not self._busy.acquire(blocking=False):
            return False
        try:
            taken = self.runs.take()
            if taken is None:
                return False
            try:
                outcome, reason = self.submit(taken[1], self.leaving.check)
            except BaseException as error:
                self.runs.give_back(*taken)
                if isinstance(error, LeavingError):
                    return False
                raise
            self.runs.end(*taken, outcome, reason)
            return True
        finally:
            self._busy.release()


@dataclass(frozen=True, slots=True)
class SparkSubmit:
    """Runs spark-submit for the instance in a folder.

    `environment` is that of its processes. All tasks at once use `memory_bytes`.
    """

    root: Path
    environment: Mapping[str, str]
    memory_bytes: int
    scratch: Path

    def __call__(self, run: StoredRun, check: Callable[[], None]) -> tuple[str, str]:
        """Do a run."""
        root = self.root.expanduser().absolute()
        log = Layout(root).logs / f"spark-{run.job_id}.log"
        log.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.scratch) as folder, log.open("wb") as output:
            driver = Path(folder) / "driver.py"
            driver.write_text(_DRIVER)
            processors = os.cpu_count() or 1
            process = lifeline.start(
                _MODULE,
                ["--master", f"local[{processors}]", str(driver), *_arguments(root, run)],
                cwd=Path(folder),
                environment=self._environment(folder, processors),
                stdout=output,
                stderr=output,
            )
            try:
                code = _wait(process, check)
            finally:
                lifeline.kill(process)  # with whatever the run has left
        if code == 0:
            log.unlink()
            return "succeeded", ""
        if code is None:
            return "failed", f"it did not end within {SPARK_RUN_SECONDS // 3600} hours"
        said = _last_words(log, run.job_id) or f"it ended with exit code {code}"
        return "failed", f"{said}; see {log.relative_to(root).as_posix()}"

    def _environment(self, folder: str, processors: int) -> Mapping[str, str]:
        memory_bytes = max(LEAST_MEMORY_BYTES, self.memory_bytes // processors)
        return {
            **self.environment,
            "DORMOUSE_MEMORY_BYTES": str(memory_bytes),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "SPARK_LOCAL_DIRS": folder,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TMPDIR": folder,
        }


def _arguments(root: Path, run: StoredRun) -> list[str]:
    given = {
        "--instance": root.as_uri(),
        "--table-id": run.table_id,
        "--job-id": run.job_id,
        "--generation": str(run.generation),
        "--attempt": str(run.attempt),
    }
    return [run.kind, *(word for option in given.items() for word in option)]


def _wait(process: subprocess.Popen[bytes], check: Callable[[], None]) -> int | None:
    """Return the exit code of a process; None if it has not ended in time. Raises what `check`
    does.
    """
    end = time.monotonic() + SPARK_RUN_SECONDS
    while time.monotonic() < end:
        check()
        try:
            return process.wait(POLL_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    return None


def _last_words(log: Path, job_id: str) -> str:
    """Return what the driver said of its failure; all else may quote rows."""
    lines = log.read_text(errors="replace").splitlines()
    start = f"job {job_id}: "
    said = [line.removeprefix(start) for line in lines if line.startswith(start)]
    return said[-1] if said else ""
