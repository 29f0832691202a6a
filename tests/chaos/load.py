"""``python -m tests.chaos.load``: many small files at once, then many queries at once.

First all files are dropped, and it is measured how long it takes until each is rows. Then readers
query all tables, versions of before among them, while more files come, compactions go on and
garbage is collected. Exits 1 if any answer was wrong or missing, a function took more memory than
Lambda gives it, a queue had more messages than there were files, or something was left undone.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from dormouse.client.instance import Instance
from dormouse_cli.local.stack import LocalStack
from dormouse_cli.terminal import print_table
from tests.chaos.completion import settle, verify
from tests.chaos.dropping import Files
from tests.chaos.reading import Reader
from tests.chaos.rehearsal import PARAMETERS, TEMPLATE, connected
from tests.chaos.removing import Requests
from tests.chaos.report import read_logs
from tests.chaos.row_ledger import RowLedger
from tests.chaos.tables import DroppedFile, Plan
from tests.chaos.tally import Tally
from tests.chaos.watching import Watcher

SMALL = {
    "split_threshold_rows": 1_000,
    "compaction_strategy": "batch",
    "compaction_files": 4,
    "gc_delay_seconds": 10,
}
UPLOADS_AT_ONCE = 8
SETTLE_SECONDS = 900
SHOWN_QUEUES = (
    "files",
    "ingest-jobs",
    "table-changes",
    "partition-splits",
    "compaction-jobs",
    "gc-candidates",
)


@dataclass(frozen=True)
class Options:
    """How much there is to do."""

    files: int = 2_000
    tables: int = 20
    rows: int = 40
    readers: int = 64
    seconds: float = 60.0
    more_files: int = 200
    concurrency: int = 4
    seed: int = 1


class Load:
    """One run against a running stack."""

    def __init__(self, options: Options, instance: Instance, stack: LocalStack, folder: Path):
        self.options, self.instance, self.stack = options, instance, stack
        self.tally, self._folder = Tally(), folder
        self.plans = {name: Plan(name, SMALL) for name in _names(options.tables)}
        handles = {
            name: instance.create_table(name, plan.schema, plan.properties)
            for name, plan in self.plans.items()
        }
        self.ledgers = {name: RowLedger(name) for name in self.plans}
        self.files = Files(handles, self.ledgers, self.tally)
        self.requests = Requests(instance, self.ledgers, self.tally, options.seed)
        self.watcher = Watcher(instance, stack)
        self.readers: list[Reader] = []
        self.times: dict[str, float] = {}

    def run(self) -> None:
        """Drop, read, settle, verify."""
        self.watcher.start()
        try:
            began = time.monotonic()
            self._drop(0, self.options.files)
            self.times["uploaded"] = time.monotonic() - began
            self._wait_for_rows()
            self.times["queryable"] = time.monotonic() - began
            self._read()
            settle(self.instance, self.files, self.requests, self.tally, SETTLE_SECONDS)
            self.times["settled"] = time.monotonic() - began
        finally:
            for reader in self.readers:
                reader.stop()
            self.watcher.stop()
        verify(self.instance, self.plans, self.ledgers, self.requests, self.tally)
        for function in self.stack.deployment.functions:
            name = function.name.rpartition("-")[2]
            if self.watcher.peak_bytes.get(name, 0) > function.memory_mb * 2**20:
                self.tally.wrong(f"{name} took more than its {function.memory_mb} MB")
        dropped = self.options.files + self.options.more_files
        for queue, most in self.watcher.peak_depths().items():
            if most > dropped:
                self.tally.wrong(f"queue {queue} had {most} messages of {dropped} files")
        for queue, letters in self.tally.of("dead letters").items():
            self.tally.wrong(f"{letters} messages of {queue} were given up")

    def _drop(self, first: int, count: int) -> None:
        plans = list(self.plans.values())

        def drop(i: int) -> None:
            plan, number = plans[i % len(plans)], i // len(plans)
            file: DroppedFile = plan.file(self.options.seed, number, self.options.rows)
            folder = self._folder / plan.name
            folder.mkdir(exist_ok=True)
            self.files.drop(plan, file, folder)

        with ThreadPoolExecutor(UPLOADS_AT_ONCE) as threads:
            list(threads.map(drop, range(first, first + count)))

    def _wait_for_rows(self) -> None:
        deadline = time.monotonic() + SETTLE_SECONDS
        while self.files.look() and time.monotonic() < deadline:
            time.sleep(0.5)

    def _read(self) -> None:
        """Let all readers read for a while, and more files come meanwhile."""
        self.readers = [
            Reader(self.instance, self.plans, self.ledgers, self.tally, f"{self.options.seed}-{i}")
            for i in range(self.options.readers)
        ]
        began = time.monotonic()
        for reader in self.readers:
            reader.start()
        self._drop(self.options.files, self.options.more_files)
        while time.monotonic() - began < self.options.seconds:
            self.files.look()
            time.sleep(0.5)
        for reader in self.readers:
            reader.stop()
        self.times["reading"] = time.monotonic() - began


def _names(tables: int) -> list[str]:
    return [f"load{i:02}" for i in range(tables)]


def print_figures(console: Console, load: Load) -> None:
    """Print what was measured, and what is wrong."""
    files, times = load.options.files, load.times
    console.print(
        f"{files:,} files of {load.options.rows} rows over {load.options.tables} tables: "
        f"uploaded in {times['uploaded']:.0f} s, all queryable after {times['queryable']:.0f} s: "
        f"{files / times['queryable']:.0f} files/s; all settled after {times['settled']:.0f} s"
    )
    seconds = sorted(second for reader in load.readers for second in reader.seconds)
    if len(seconds) > 1:
        cuts = statistics.quantiles(seconds, n=100)
        console.print(
            f"{len(seconds):,} queries by {load.options.readers} readers in "
            f"{times['reading']:.0f} s: median {cuts[49]:.2f} s, 95 % {cuts[94]:.2f} s, "
            f"99 % {cuts[98]:.2f} s"
        )
    counts = load.tally.of("queries")
    console.print(", ".join(f"{kind} {count:,}" for kind, count in sorted(counts.items())))
    _print_depths(load)
    memory = {f.name.rpartition("-")[2]: f.memory_mb for f in load.stack.deployment.functions}
    rows = [
        (name, len(load.watcher.processes[name]), round(peak / 2**20), memory[name])
        for name, peak in sorted(load.watcher.peak_bytes.items())
    ]
    print_table(("function", "processes", "peak RSS MB", "of MB"), rows)
    for sentence in load.tally.differences:
        console.print(f"WRONG: {sentence}", markup=False, soft_wrap=True)


def _print_depths(load: Load) -> None:
    rows: list[tuple[object, ...]] = []
    last = -10.0
    for seconds, depths in load.watcher.depths:
        if seconds - last >= 10:
            last = seconds
            rows.append((round(seconds), *(depths[queue] for queue in SHOWN_QUEUES)))
    peaks = load.watcher.peak_depths()
    rows.append(("most", *(peaks[queue] for queue in SHOWN_QUEUES)))
    print_table(("after s", *SHOWN_QUEUES), rows)


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="make load", description=__doc__)
    for name in ("files", "tables", "rows", "readers", "more_files", "concurrency", "seed"):
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=int, default=getattr(Options, name))
    parser.add_argument("--seconds", type=float, default=Options.seconds, help="of reading")
    options = Options(**vars(parser.parse_args()))
    console = Console(highlight=False, width=140)
    folder = Path(tempfile.mkdtemp(prefix="dormouse-load-"))
    console.print(f"logs are in {folder / 'logs'}")
    stack = LocalStack(TEMPLATE, PARAMETERS, folder, concurrency=options.concurrency)
    with stack, connected(stack) as instance:
        load = Load(options, instance, stack, folder)
        load.run()
        read_logs(folder / "logs", load.tally)
        print_figures(console, load)
    return 1 if load.tally.differences else 0


if __name__ == "__main__":
    sys.exit(main())
