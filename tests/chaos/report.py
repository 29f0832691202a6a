"""The summary of a run, for people."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from rich.console import Console

from dormouse import errors
from dormouse.client.instance import Instance
from dormouse_cli.terminal import print_table
from tests.chaos.tables import Plan
from tests.chaos.tally import Tally

KNOWN_ERRORS = {name for name in vars(errors) if name.endswith("Error")} | {"ExceptionGroup"}
CRASH_MARKS = ("Fatal Python error", "terminate called", "double free", "free(): ")


def read_logs(logs: Path, tally: Tally) -> None:
    """Count what functions logged as errors; foreign ones and crashes of native code are wrong."""
    for path in sorted(logs.glob("*.log")):
        function = path.stem.rpartition("-")[2]
        for line in path.read_text(errors="replace").splitlines():
            if any(mark in line for mark in CRASH_MARKS):
                tally.wrong(f"{path.name}: {line}")
            if not line.startswith("{"):
                continue
            try:
                logged = json.loads(line)
            except ValueError:
                continue  # the last line of a process that was killed
            if name := logged.get("exception_name"):
                tally.count("exceptions", f"{function}: {name}")
                if name not in KNOWN_ERRORS:
                    tally.wrong(f"{path.name}: {name}: {logged.get('exception')}")


def print_report(
    console: Console, instance: Instance, plans: Iterable[Plan], tally: Tally, seconds: float
) -> None:
    """Print all counts, and what is wrong."""
    _print_tables(instance, plans, tally)
    _print_faults(tally)
    _print_queues(tally)
    for topic in ("kills", "queries", "requests made", "jobs", "exceptions", "failed runs"):
        counts = tally.of(topic)
        listed = ", ".join(f"{kind} {count:,}" for kind, count in sorted(counts.items()))
        console.print(f"{topic}: {listed or 'none'}", markup=False, soft_wrap=True)
    totals: Mapping[str, int] = {
        "files": tally.of("files").total(),
        "rows": tally.of("rows").total(),
        "kills": tally.of("kills").total(),
        "killed while busy": tally.of("killed")["busy"],
        "faults": sum(count.total() for count in _faults(tally).values()),
        "retries of the SDK": tally.of("retries").total(),
        "messages redelivered": tally.of("redelivered").total(),
        "dead letters": tally.of("dead letters").total(),
        "differences": len(tally.differences),
    }
    console.print(", ".join(f"{name} {n:,}" for name, n in totals.items()) + f", {seconds:.0f} s")
    for sentence in tally.differences:
        console.print(f"WRONG: {sentence}", markup=False, soft_wrap=True)


def _print_tables(instance: Instance, plans: Iterable[Plan], tally: Tally) -> None:
    columns = ["table", "files", "refused", "rows dropped", "leaves", "shards", "version"]
    rows = []
    for plan in plans:
        handle = instance.table(plan.name)
        state = handle.state()
        done = Counter(job.kind for job in handle.jobs() if job.state == "finished")
        numbers = (
            tally.of("files")[plan.name],
            tally.of("refused")[plan.name],
            tally.of("rows")[plan.name],
            sum(1 for _ in state.partitions.leaves()),
            len(state.shards) - len(state.unreferenced),
            state.version,
            done["compaction"],
            done["split"],
        )
        rows.append((plan.name, *numbers))
    print_table([*columns, "compactions", "splits"], rows)


def _faults(tally: Tally) -> dict[str, Counter[str]]:
    return {s: tally.of(f"faults {s}") for s in ("s3", "dynamodb", "sqs")}


def _print_faults(tally: Tally) -> None:
    faults = _faults(tally)
    kinds = sorted({kind for counts in faults.values() for kind in counts})
    requests, retries = tally.of("requests"), tally.of("retries")
    rows = [
        (service, requests[service], retries[service], *(counts[kind] for kind in kinds))
        for service, counts in faults.items()
    ]
    print_table(["service", "requests", "retries", *kinds], rows)


def _print_queues(tally: Tally) -> None:
    topics = ("batches", "messages", "redelivered", "failed messages")
    queues = sorted(tally.of("batches"))
    rows = [(queue, *(tally.of(topic)[queue] for topic in topics)) for queue in queues]
    print_table(["queue", *topics], rows)
