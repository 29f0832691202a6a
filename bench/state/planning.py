"""Measure one planning of a table with very many leaves in each of which something is due.

Prints a JSON line for each figure. Called with the number of leaves, by default 65,536; each leaf
holds two shards. The state store is the real one over counting storage and pages; the queues are
those of an outbox whose client answers at once.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.common.figures import emit
from bench.state import memory as state_memory
from bench.state.commits import Table, table_of
from bench.state.counting import Requests
from bench.state.workload import Ids
from dormouse.aws.sqs.queues import SqsOutbox
from dormouse.features.planning.plan_table import plan_table
from dormouse.messages.stages import TableChanged
from dormouse.ports.services import Services
from dormouse.schema.schema import Schema
from dormouse.statestore.snapshot.codec import encode_snapshot
from dormouse.stored.names import InstanceNames
from dormouse.tables.properties import Properties
from dormouse.tables.table import Table as Known

SCHEMA = Schema.from_json({"rowKeyFields": [{"name": "id", "type": "StringType"}]})
COMPACT = Properties(compaction_strategy="batch", compaction_files=2, compaction_jobs_limit=100_000)
SPLIT = Properties(compaction_strategy="batch", compaction_files=3, split_threshold_rows=2000)


@dataclass
class CountingQueues:
    """An SQS client that counts what it is sent; safe for many threads."""

    requests: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def get_queue_url(self, QueueName: str) -> dict[str, str]:  # noqa: N803
        """Return the name as the URL."""
        return {"QueueUrl": QueueName}

    def send_message_batch(self, QueueUrl: str, Entries: list[Any]) -> dict[str, Any]:  # noqa: N803
        """Take a batch."""
        with self.lock:
            self.requests["requests"] += 1
            self.requests["messages"] += len(Entries)
            self.requests["bytes"] += sum(len(entry["MessageBody"]) for entry in Entries)
        return {}


def services(table: Table, requests: Requests, known: Known) -> Services:
    """Return what a planning asks for: one table, its store, a clock and ids."""

    class Tables:
        def get(self, table_id: str) -> Known:
            return known

    store = table.store(requests, 1)
    nothing: Any = None
    return Services(
        tables=Tables(),  # type: ignore[arg-type]  # a planning asks for no more
        publications=nothing,
        tracker=nothing,
        storage=nothing,
        sources=nothing,
        results=nothing,
        dead_letters=nothing,
        store=lambda _: store,
        clock=table.clock,
        ids=Ids(table.clock, 2),
        scratch=Path(),
    )


def measure(of: str, leaves: int, snapshot: bytes, properties: Properties) -> None:
    """Print what a planning by a new process costs, and then what a second one does."""
    table, requests = table_of(snapshot), Requests()
    known = Known(state_memory.TABLE, "bench", SCHEMA, properties)
    world = services(table, requests, known)
    for name in (of, f"{of}, again"):
        requests.clear()
        queues = CountingQueues()
        outbox = SqsOutbox(queues, InstanceNames("bench", "0"))  # type: ignore[arg-type]
        began = time.process_time()
        outbox.send(plan_table(world, TableChanged(known.id)))
        emit(
            "planning",
            name,
            leaves,
            cpu_seconds=time.process_time() - began,
            peak_rss_bytes=state_memory.peak_bytes(),
            commits=requests.counts["put"],
            bytes_written=sum(requests.written.values()),
            dynamo_writes=requests.counts["dynamo_writes"],
            messages=queues.requests["messages"],
            message_bytes=queues.requests["bytes"],
            queue_requests=queues.requests["requests"],
        )


def main() -> None:
    """Make the table, and plan it in a process of its own."""
    match sys.argv[1:]:
        case ["compactions" | "splits" as of, leaves]:
            properties = COMPACT if of == "compactions" else SPLIT
            measure(of, int(leaves), sys.stdin.buffer.read(), properties)
        case [] | [_]:
            leaves = sys.argv[1] if len(sys.argv) > 1 else "65536"
            state_memory.PER_PARTITION = 2
            snapshot = encode_snapshot(state_memory.TABLE, state_memory.built(2 * int(leaves)))
            for of in ("compactions", "splits"):
                command = [sys.executable, "-m", __spec__.name, of, leaves]
                subprocess.run(command, input=snapshot, check=True)
        case _:
            sys.exit("usage: python -m bench.state.planning [LEAVES]")


if __name__ == "__main__":
    main()
