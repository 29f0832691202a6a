"""``python -m tests.chaos --minutes 5 --seed 1``: exits 0 if the stack bore it, 1 if not."""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from tests.chaos.completion import settle, verify
from tests.chaos.dropping import Files, Notifier, drop_all, files_of
from tests.chaos.faults import FaultRates
from tests.chaos.killing import Killer
from tests.chaos.proxy import FaultProxy
from tests.chaos.reading import Reader
from tests.chaos.rehearsal import PARAMETERS, Rehearsal, rehearsal
from tests.chaos.removing import Requests
from tests.chaos.report import print_report, read_logs
from tests.chaos.row_ledger import RowLedger
from tests.chaos.tables import Plan, plans
from tests.chaos.tally import Tally

DROPPING_SHARE = 0.7
"""Of the time of trouble, in which files are dropped; after it what they led to goes on."""
SETTLE_SECONDS = 1800
LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Options:
    """How much is done to the stack, for how long."""

    minutes: float = 4.0
    seed: int = 1
    files_per_minute: int = 40
    rows: tuple[int, int] = (50, 250)
    kill_share: float = 0.06
    fault_share: float = 0.04
    readers: int = 2
    concurrency: int = 3
    tables: int | None = None


def run(options: Options, folder: Path, console: Console) -> Tally:
    """Break the stack for some minutes, let it recover, and return what came of it."""
    began, tally = time.monotonic(), Tally()
    storm_share = FaultRates.storm_share if options.fault_share else 0.0
    proxy = FaultProxy(options.seed, tally, FaultRates(options.fault_share, storm_share))
    try:
        with rehearsal(proxy, tally, folder, options.concurrency) as stage:
            chosen = plans()[: options.tables]
            _play(options, stage, proxy, chosen, folder, tally)
            read_logs(folder / "logs", tally)
            print_report(console, stage.direct, chosen, tally, time.monotonic() - began)
    finally:
        proxy.close()
    return tally


def _play(
    options: Options,
    stage: Rehearsal,
    proxy: FaultProxy,
    chosen: list[Plan],
    folder: Path,
    tally: Tally,
) -> None:
    handles = {
        plan.name: stage.direct.create_table(
            plan.name, plan.schema, plan.properties, [(point,) for point in plan.split_points]
        )
        for plan in chosen
    }
    ledgers = {plan.name: RowLedger(plan.name) for plan in chosen}
    files = Files(handles, ledgers, tally)
    requests = Requests(stage.direct, ledgers, tally, options.seed)
    by_name = {plan.name: plan for plan in chosen}
    readers = [
        Reader(stage.troubled, by_name, ledgers, tally, f"{options.seed}-reader-{i}")
        for i in range(options.readers)
    ]
    killer = Killer(stage.stack, options.seed, tally, options.kill_share)
    threads: list[Reader | Killer] = [*readers, killer]
    for each in threads:
        each.start()
    try:
        proxy.break_things()
        _trouble(options, chosen, files, requests, folder, tally)
        proxy.stop_faults()
        killer.stop()
        for reader in readers:
            reader.stop_faults()
        if settle(stage.direct, files, requests, tally, SETTLE_SECONDS):
            requests.export(chosen[0])
            settle(stage.direct, files, requests, tally, SETTLE_SECONDS)
    finally:
        proxy.stop_faults()
        for each in threads:
            each.stop()
    verify(stage.direct, by_name, ledgers, requests, tally)


def _trouble(
    options: Options,
    chosen: list[Plan],
    files: Files,
    requests: Requests,
    folder: Path,
    tally: Tally,
) -> None:
    """Drop files, ask for purges and exports, and look on until the time is over."""
    seconds = options.minutes * 60
    notifier = Notifier(f"dormouse-{PARAMETERS['Instance']}-files", options.seed)
    count = round(options.files_per_minute * options.minutes)
    dropped = files_of(chosen, options.seed, count, options.rows)
    dropping = threading.Thread(
        target=drop_all,
        args=(files, dropped, notifier, folder, options.seed, seconds * DROPPING_SHARE, tally),
        name="dropper",
    )
    dropping.start()
    asks = [(0.35, "purge"), (0.5, "export"), (0.6, "purge"), (0.75, "export")]
    began = time.monotonic()
    while (now := time.monotonic() - began) < seconds or dropping.is_alive():
        files.look()
        requests.look()
        while asks and now >= asks[0][0] * seconds:
            _, what = asks.pop(0)
            for plan in chosen:
                if what == "export" or plan.is_purged:
                    getattr(requests, what)(plan)
        time.sleep(LOOK_SECONDS)
    dropping.join()


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=Options.minutes, help="of trouble")
    parser.add_argument("--seed", type=int, default=Options.seed)
    parser.add_argument("--files-per-minute", type=int, default=Options.files_per_minute)
    parser.add_argument("--tables", type=int, help="only so many, the first ones")
    parser.add_argument("--kill-share", type=float, default=Options.kill_share)
    parser.add_argument("--fault-share", type=float, default=Options.fault_share)
    parser.add_argument("--concurrency", type=int, default=Options.concurrency)
    parser.add_argument("--state", type=Path, help="folder for logs, kept; else a temporary one")
    given = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    folder = given.pop("state", None)
    folder = folder or Path(tempfile.mkdtemp(prefix="dormouse-chaos-"))
    console = Console(highlight=False, width=140)
    console.print(f"logs are in {folder / 'logs'}")
    tally = run(Options(**given), folder, console)
    return 1 if tally.differences else 0


if __name__ == "__main__":
    sys.exit(main())
