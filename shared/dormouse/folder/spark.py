"""Runs of Spark on this machine, by spark-submit, in a process that ends with this one.

The driver opens the folder as any process does, and commits by itself. Whether the job is done is
seen in the state; what is kept here is only that the run has ended. The output of the last run of a
job that failed is kept beside the tables.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec.structs import replace

from dormouse import lifeline
from dormouse.errors import CorruptDataError
from dormouse.folder.processes import FolderLayout, Leaving, LeavingError
from dormouse.folder.queues import insert_message
from dormouse.folder.sqlite import Connection, Database, SqliteItems
from dormouse.items.store import ABSENT, ANY, Item, ItemStore, Key, Put, put
from dormouse.messages.stages import SparkRunChanged, encode
from dormouse.ports import SparkRun, SparkRunState
from dormouse.settings import SPARK_RUN_SECONDS
from dormouse.stored.decoding import decode_json
from dormouse.system import Clock, OwnFolder

# The runs of Spark that jobs of a folder asked for: `ports.Spark`, and their other end.
#
# A run is a record in SQLite until some days after its end. A process that can run Spark takes it
# and does it, one at a time in a folder: Spark uses all processors. A run whose process died is
# taken by another; the third time, it has failed.

MAX_STARTS = 3
KEPT_SECONDS = 7 * 24 * 60 * 60
"""How long an ended run can be described; its job looks at it once."""
_OWNER = "(spark-runs)"
_QUEUE = "spark-runs"


class StoredRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run. `process` has it, `starts` counts who had it; `outcome` is empty until it ended."""

    table_id: str
    job_id: str
    kind: str
    generation: int
    attempt: int
    process: str = ""
    starts: int = 0
    outcome: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SparkRuns:
    """The runs of an instance. `process` is the name of this one among those of the folder."""

    database: Database
    clock: Clock
    process: str
    is_alive: Callable[[str], bool]
    sent: Callable[[], None] = lambda: None

    @property
    def _items(self) -> SqliteItems:
        return SqliteItems(self.database)

    @property
    def package(self) -> None:
        """None: runs use the library of the process that starts them."""

    def start(self, run: SparkRun) -> str:
        """Store a run, unless it was before; return its id."""
        start = StoredRun(run.table_id, run.job_id, run.kind, run.generation, run.attempt)
        self._items.write(_put(run.token, start, is_new=True))
        self.sent()
        return run.token

    def describe(self, run_id: str) -> SparkRunState | None:
        """Return the state of a run; None if there is none, or if its record is damaged."""
        (item,) = self._items.get(_key(run_id))
        run = _read(item) if item else None
        if run is None:
            return None
        return SparkRunState(run.table_id, run.job_id, run.attempt, run.outcome, run.reason)

    def take(self) -> tuple[str, StoredRun] | None:
        """Take a run that nobody does, if no other process does one; return it and its id.

        Requires: no thread of this process does one. A run whose process died too often ends here.
        """
        if not _open_runs(self._items):  # mostly there is none
            return None
        with self.database.writing() as connection:
            items = SqliteItems(connection)
            runs = _open_runs(items)
            others = {run.process for _, run in runs} - {"", self.process}
            if any(map(self.is_alive, others)):
                return None
            for run_id, run in runs:
                if run.starts < MAX_STARTS:
                    own = replace(run, process=self.process, starts=run.starts + 1)
                    items.write(_put(run_id, own))
                    return run_id, own
                reason = f"the processes that ran it died, {run.starts} of them"
                self._end(connection, run_id, run, "failed", reason)
        return None

    def give_back(self, run_id: str, run: StoredRun) -> None:
        """Leave a run to others, as if this process had not taken it."""
        self._items.write(_put(run_id, replace(run, process="", starts=run.starts - 1)))

    def end(self, run_id: str, run: StoredRun, outcome: str, reason: str) -> None:
        """Keep how a run ended, and announce it."""
        with self.database.writing() as connection:
            self._end(connection, run_id, run, outcome, reason)
        self.sent()

    def _end(
        self, connection: Connection, run_id: str, run: StoredRun, outcome: str, reason: str
    ) -> None:
        now_ms = self.clock.now_ms()
        ended = replace(run, process="", outcome=outcome, reason=reason)
        SqliteItems(connection).write(_put(run_id, ended, expires_s=now_ms // 1000 + KEPT_SECONDS))
        insert_message(connection, _QUEUE, encode(SparkRunChanged(run_id)), now_ms)


def _key(run_id: str) -> Key:
    return Key("jobs", _OWNER, run_id)


def _put(run_id: str, run: StoredRun, *, is_new: bool = False, expires_s: int | None = None) -> Put:
    when = ABSENT if is_new else ANY
    return put(_key(run_id), msgspec.json.encode(run).decode(), when, expires_s=expires_s)


def _open_runs(items: ItemStore) -> list[tuple[str, StoredRun]]:
    """Return the runs that have not ended. The job of a damaged one asks for another."""
    items_of_runs = [item for item in items.query("jobs", _OWNER) if item.expires_s is None]
    return [(item.key.name, run) for item in items_of_runs if (run := _read(item)) is not None]


def _read(item: Item) -> StoredRun | None:
    try:
        return decode_json(item.text(), StoredRun)
    except (CorruptDataError, ValueError):
        return None


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
            run = self.runs.take()
            if run is None:
                return False
            try:
                outcome, reason = self.submit(run[1], self.leaving.check)
            except BaseException as error:
                self.runs.give_back(*run)
                if isinstance(error, LeavingError):
                    return False
                raise
            self.runs.end(*run, outcome, reason)
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
        log = FolderLayout(root).logs / f"spark-{run.job_id}.log"
        log.parent.mkdir(exist_ok=True)
        with OwnFolder(dir=self.scratch) as folder, log.open("wb") as output:
            driver = Path(folder) / "driver.py"
            driver.write_text(_DRIVER)
            processors = os.cpu_count() or 1
            process = lifeline.start(
                _MODULE,
                ["--master", f"local[{processors}]", str(driver), *_arguments(root, run)],
                cwd=Path(folder),
                environment=self._environment(folder, processors),
                stdout=output,
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
        words = _last_words(log, run.job_id) or f"it ended with exit code {code}"
        return "failed", f"{words}; see {log.relative_to(root).as_posix()}"

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
    options = {
        "--instance": root.as_uri(),
        "--table-id": run.table_id,
        "--job-id": run.job_id,
        "--generation": str(run.generation),
        "--attempt": str(run.attempt),
    }
    return [run.kind, *(word for option in options.items() for word in option)]


def _wait(process: subprocess.Popen[bytes], check: Callable[[], None]) -> int | None:
    """Return the exit code of a process; None if it has not ended in time. Raises as `check`."""
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
    words = [line.removeprefix(start) for line in lines if line.startswith(start)]
    return words[-1] if words else ""
