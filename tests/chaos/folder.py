"""Processes of one folder that are killed with SIGKILL while they ingest, compact and collect.

``python -m tests.chaos.folder --files 200 --kills 60 --processes 4 --seed 1``: exits 0 if each row
of each file is in the table once in the end, and each file was from the moment it was said to be.

Several processes ingest files into one table, whose properties make for many compactions and
splits; others only work. Each says what it begins and ends. From time to time one is killed, at a
moment that its own progress and chance decide, and another takes its place.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.errors import NotFoundError
from dormouse.messages.stages import QUEUES
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import Primitive
from tests.support.waiting import LIMIT_SECONDS

SCHEMA = Schema(
    row_keys=(Field("n", Primitive.LONG),), values=(Field("file", Primitive.LONG, nullable=True),)
)
PROPERTIES = {
    "compaction_strategy": "batch",
    "compaction_files": 4,
    "split_threshold_rows": 2000,
    "gc_delay_seconds": 1,
}
ROWS_A_FILE = 100


def ingest(root: str, numbers: Sequence[str]) -> None:
    """Be a process that ingests files: say when each begins, and when its rows are there."""
    with Instance.open(root) as instance:
        table = instance.table("t")
        for number in numbers:
            print("begin", number, flush=True)
            table.ingest(Path(root).parent / f"{number}.csv")
            assert counted(table, int(number)) == ROWS_A_FILE
            print("end", number, flush=True)


def counted(table: TableHandle, number: int) -> int:
    """Count the rows of a file: again, if a version is collected while it is read.

    The delay is a second, to have many collections, and a busy machine takes longer to read.
    """
    while True:
        try:
            return table.count(where=f"file = {number}")
        except NotFoundError as error:
            if "cannot be read any more" not in error.explanation:
                raise


def work(root: str) -> None:
    """Be a process that works on whatever there is, until it receives SIGTERM."""
    with Instance.open(root) as instance:
        print("begin work", flush=True)
        assert instance.folder is not None
        sys.stdin.read()


@dataclass
class Chaos:
    """One run."""

    root: Path
    seed: int
    files: int
    processes: int
    kills: int
    killed: int = 0
    left: list[int] = field(default_factory=list)
    done: set[int] = field(default_factory=set)
    said: SimpleQueue[tuple[int, str]] = field(default_factory=SimpleQueue)
    running: dict[int, subprocess.Popen[str]] = field(default_factory=dict)
    has: dict[int, list[int]] = field(default_factory=dict)
    began: int = 0

    def run(self) -> None:
        """Ingest all files, with as many kills as are asked for."""
        chance = random.Random(self.seed)
        self.left = list(range(self.files))
        for number in self.left:
            text = "".join(f"{n},{number}\n" for n in rows_of(number, self.files))
            (self.root.parent / f"{number}.csv").write_text("n,file\n" + text)
        with Instance.open(self.root, background=False) as instance:
            instance.create_table("t", SCHEMA, PROPERTIES)
        self._start_worker()
        while self.left or len(self.running) > 1:
            while self.left and len(self.running) <= self.processes:
                self._start_ingest(chance)
            self._listen(chance)
        for process in self.running.values():
            process.communicate()

    def _start_ingest(self, chance: random.Random) -> None:
        some = [self.left.pop() for _ in range(min(len(self.left), chance.randint(1, 8)))]
        number = self._start("ingest", *map(str, some))
        self.has[number] = some

    def _start_worker(self) -> None:
        self._start("work")

    def _start(self, role: str, *arguments: str) -> int:
        number, self.began = self.began, self.began + 1
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.chaos.folder",
                "--role",
                role,
                str(self.root),
                *arguments,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.running[number] = process
        Thread(target=self._read, args=(number, process), daemon=True).start()
        return number

    def _read(self, number: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.said.put((number, line.strip()))
        self.said.put((number, ""))

    def _listen(self, chance: random.Random) -> None:
        """Hear what a process says; kill one from time to time."""
        try:
            number, line = self.said.get(timeout=LIMIT_SECONDS)
        except Empty as error:
            raise AssertionError("no process says anything any more") from error
        what, _, file = line.partition(" ")
        if what == "end":
            self.done.add(int(file))
            self.has[number].remove(int(file))
        if not line:
            self._ended(number)
        elif self.killed < self.kills and chance.random() < 0.4:
            self.killed += 1
            self.running[chance.choice(sorted(self.running))].kill()

    def _ended(self, number: int) -> None:
        process = self.running.pop(number)
        code = process.wait()
        assert code in (0, -9), f"a process ended with {code}"
        self.left += self.has.pop(number, [])  # what it had not ended is begun again
        if not any(running not in self.has for running in self.running):
            self._start_worker()


def rows_of(file: int, files: int) -> Iterator[int]:
    """Return the keys of a file: spread over the whole range, so that all files meet."""
    return iter(range(file, ROWS_A_FILE * files, files))


def problems(chaos: Chaos) -> Iterator[str]:
    """Let the folder come to rest; yield what is wrong then."""
    with Instance.open(chaos.root, background=False) as instance:
        assert instance.folder is not None
        with instance.folder.database.writing() as connection:  # a sweep is due at once
            connection.execute("UPDATE settings SET value = '0' WHERE name = 'swept_ms'")
        table = instance.table("t")
        for queue in QUEUES:  # what was worked on by three that were killed is for a person
            instance.dead_letters().redrive(queue)
        table.wait(LIMIT_SECONDS)
        found = table.query().read_all()
        counts = Counter(found.column("n").to_pylist())
        expected = set(range(ROWS_A_FILE * chaos.files))
        if lost := expected - counts.keys():
            yield f"{len(lost)} rows are lost"
        if doubled := [n for n, count in counts.items() if count > 1]:
            yield f"{len(doubled)} rows are there more than once"
        report = table.check(all_bytes=True)
        yield from map(str, report.findings)
        if chaos.done != set(range(chaos.files)):
            yield f"{chaos.files - len(chaos.done)} files were not said to be ingested"
        in_flight = sum(queue.in_flight for queue in instance.queue_states()[0])
        if in_flight:
            yield f"{in_flight} messages are hidden by processes that are dead"


def main() -> int:
    """Run by the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dormouse-chaos-") as folder:
        root = Path(folder) / "mice"
        chaos = Chaos(root, given.seed, given.files, given.processes, given.kills)
        chaos.run()
        found = list(problems(chaos))
    print(f"{given.files} files, {chaos.began} processes, {chaos.killed} killed: ", end="")
    print("\n".join(found) or "each row is there once")
    return 1 if found else 0


if __name__ == "__main__":
    if "--role" in sys.argv:
        role, root, *rest = sys.argv[2:]
        ingest(root, rest) if role == "ingest" else work(root)
    else:
        sys.exit(main())
