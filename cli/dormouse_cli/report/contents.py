"""`dormouse report`: a table on one page, as plain values for `page`, which draws it."""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

import msgspec
import typer

from dormouse.client.instance import Instance
from dormouse.client.operations import Queue
from dormouse.errors import needs_extra
from dormouse.state.jobs import JobRecord, Metric
from dormouse.state.partitions import ROOT
from dormouse.state.state import TableState
from dormouse.state.versions import iso_time
from dormouse.tables.properties import Properties
from dormouse.tables.table import Table
from dormouse_cli.session import the_instance
from dormouse_cli.terminal import note, row_of, sink_of
from dormouse_cli.values import TableName


@dataclass(slots=True)
class ReportBlock:
    """A partition with all that lies in it and below it.

    If it `is_bottom`, nothing below it is drawn; it stands for `leaves` leaves. `size_bytes` is
    an estimate where a shard lies in several partitions.
    """

    id: str
    parent: str = ""
    range: str = ""
    rows: int = 0
    references: int = 0
    size_bytes: float = 0
    leaves: int = 0
    is_bottom: bool = True

    @property
    def references_per_leaf(self) -> float:
        """How many shards a look-up in it may have to open, on average."""
        return self.references / self.leaves


def outline(state: TableState, most: int) -> list[ReportBlock]:
    """Return the tree from its root down, in key order, with at most `most` blocks at the bottom.

    What has most rows is drawn finest.
    """
    if not len(state.partitions):
        return []
    blocks, bottom = _summed(state), 1
    heap = [(-blocks[ROOT].rows, ROOT)]
    while heap and bottom < most:
        _, partition = heapq.heappop(heap)
        for child in state.partitions.get(partition).children or ():
            blocks[partition].is_bottom = False
            heapq.heappush(heap, (-blocks[child].rows, child))
        bottom += not blocks[partition].is_bottom  # two halves in place of one block
    drawn, pending = [], [ROOT]
    while pending:
        block = blocks[pending.pop()]
        node = state.partitions.get(block.id)
        block.parent, block.range = node.parent or "", str(node.range)
        block.size_bytes = round(block.size_bytes)
        drawn.append(block)
        if not block.is_bottom:
            pending += reversed(node.children or ())
    return drawn


def _summed(state: TableState) -> dict[str, ReportBlock]:
    """Add up what lies in each partition and below it."""
    blocks: dict[str, ReportBlock] = {}

    def add(partition: str, rows: int, references: int, size_bytes: float, leaves: int) -> None:
        for each in (partition, *state.partitions.ancestors(partition)):
            block = blocks.setdefault(each, ReportBlock(each))
            block.rows += rows
            block.references += references
            block.size_bytes += size_bytes
            block.leaves += leaves

    for leaf in state.partitions.leaves():
        add(leaf.id, 0, 0, 0, 1)
    for partition, references in state.references.items():
        shares = ((reference.rows, state.shards[reference.shard]) for reference in references)
        size_bytes = sum(shard.size_bytes * rows / shard.rows for rows, shard in shares if rows)
        add(partition, references.rows, len(references), size_bytes, 0)
    return blocks


BLOCKS = 256
"""A leaf narrower than a few pixels shows nothing."""
FILES_TOLD = 200
TROUBLES_TOLD = 50
STATES = ("assigned", "running", "finished", "failed", "refused")

Rows = list[dict[str, object]]


@dataclass(frozen=True, slots=True)
class Contents:
    """One table at one moment."""

    name: str
    facts: list[tuple[str, str, str]]
    details: list[tuple[str, str]]
    blocks: list[ReportBlock]
    leaves: int
    jobs: list[JobRecord]
    kinds: Rows
    troubles: Rows
    refused: Rows
    left_out: int
    queues: list[Queue]
    columns: list[tuple[str, str, str]]
    properties: list[tuple[str, str, bool]]
    made_ms: int


def contents_of(instance: Instance, name: str) -> Contents:
    """Return the contents of a report about a table.
    Raises NotFoundError: there is no such table.
    """
    handle = instance.table(name)
    state, jobs, now_ms = handle.state(), handle.jobs(), instance.services.clock.now_ms()
    queues, _ = instance.queue_states()
    refusals = sorted((j for j in jobs if j.state == "refused"), key=_newest_first)
    return Contents(
        name=name,
        facts=_facts(state, handle.metrics()),
        details=_details(handle.table, state),
        blocks=outline(state, BLOCKS),
        leaves=(len(state.partitions) + 1) // 2,
        jobs=jobs,
        kinds=_kinds(jobs),
        troubles=_troubles(jobs),
        refused=[
            row_of(("file", "refused", "reason"), j, file="subject", refused="updated")
            for j in refusals[:FILES_TOLD]
        ],
        left_out=max(0, len(refusals) - FILES_TOLD),
        queues=queues,
        columns=handle.schema.described(),
        properties=_properties(handle.table.properties),
        made_ms=now_ms,
    )


def amount(number: float) -> str:
    """Return a number in three digits or so, as people say it: 336,776 is 337 k."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= size * 0.9995:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g}" if number % 1 else f"{number:,.0f}"


def size(size_bytes: float) -> str:
    """Return a number of bytes as people say it."""
    return f"{amount(size_bytes)}B" if size_bytes >= 1000 else f"{size_bytes:,.0f} B"


def _facts(state: TableState, metrics: Mapping[Metric, float]) -> list[tuple[str, str, str]]:
    """Return the figures at the head of the page: name, value, and what it means."""
    live = [s for s in state.shards.values() if s.id not in state.unreferenced]
    age = metrics[Metric.OLDEST_JOB_AGE_SECONDS]
    return [
        ("rows", f"{state.rows:,}", ""),
        ("bytes", size(sum(s.size_bytes for s in live)), "compressed, in its shards"),
        ("leaf partitions", f"{metrics[Metric.LEAF_PARTITIONS]:,.0f}", ""),
        ("shards", f"{len(live):,}", "sorted files with rows that count"),
        (
            "shards per leaf",
            f"{metrics[Metric.REFERENCES_PER_LEAF]:.3g}",
            "what a look-up may have to open",
        ),
        (
            "jobs to be run",
            f"{metrics[Metric.JOBS_ASSIGNED]:,.0f}",
            f"the oldest for {age:,.0f} s" if state.jobs else "",
        ),
        ("shards to be deleted", f"{metrics[Metric.GARBAGE_SHARDS]:,.0f}", "merged into others"),
        ("version", f"{state.version:,}", f"{metrics[Metric.LOG_LENGTH]:,.0f} since a snapshot"),
    ]


def _details(table: Table, state: TableState) -> list[tuple[str, str]]:
    remembered = len(state.sources) + sum(each.count for each in state.all_source_segments)
    return [
        ("id", table.id),
        ("online", "yes" if table.online else "no: neither compacted nor split"),
        ("created", iso_time(table.created_ms)),
        ("last change", iso_time(state.time_ms) if state.time_ms else "never"),
        ("files remembered", f"{remembered:,}"),
    ]


def _kinds(jobs: Iterable[JobRecord]) -> Rows:
    by_kind: dict[str, list[JobRecord]] = defaultdict(list)
    for job in jobs:
        by_kind[job.kind].append(job)
    return [_kind(kind, records) for kind, records in sorted(by_kind.items())]


def _kind(kind: str, jobs: list[JobRecord]) -> dict[str, object]:
    seconds = [job.seconds for job in jobs if job.seconds is not None]
    rows, total = sum(job.rows for job in jobs), sum(seconds)
    return {
        "kind": kind,
        **{state: sum(job.state == state for job in jobs) for state in STATES},
        "rows": amount(rows) if rows else "",
        "median": f"{median(seconds):.1f} s" if seconds else "",
        "longest": f"{max(seconds):.1f} s" if seconds else "",
        "rate": f"{amount(rows / total)}/s" if rows and total else "",
    }


def _troubles(jobs: Iterable[JobRecord]) -> Rows:
    """Return the jobs that somebody may have to look at, the newest first."""
    jobs_in_trouble = [job for job in jobs if job.state == "failed" or job.attempts > 1]
    columns = ("job", "kind", "state", "subject", "attempts", "when", "reason")
    newest = sorted(jobs_in_trouble, key=_newest_first)[:TROUBLES_TOLD]
    return [row_of(columns, job, job="job_id", when="updated") for job in newest]


def _newest_first(job: JobRecord) -> tuple[int, str]:
    return (-job.updated_ms, job.job_id)


def _properties(properties: Properties) -> list[tuple[str, str, bool]]:
    """Return each property, and whether somebody has set it to other than its default."""
    defaults = msgspec.to_builtins(Properties())
    return [
        (name, f"{value:,}" if isinstance(value, int) else str(value), value != defaults[name])
        for name, value in msgspec.to_builtins(properties).items()
    ]


def report(
    name: TableName,
    output: Annotated[
        Path, typer.Option("--output", metavar="FILE", help="The page; replaced if it is there.")
    ],
) -> None:
    """Write a page about a table: its partitions, jobs, refused files, queues and properties.

    It holds all it needs, and opens in a browser without a network.
    """
    size_bytes = write_page(the_instance(), name, output)
    note(f"{output}: {size_bytes / 1e6:.1f} MB")


def write_page(instance: Instance, name: str, output: Path) -> int:
    """Write the page about a table, and return its size in bytes.

    Raises:
        NotFoundError: there is no such table, or the file cannot be written.
        MissingPackageError: the packages of the extra are not installed.
    """
    with needs_extra("report", "a report"):
        from dormouse_cli.report.page import page
    html = page(contents_of(instance, name))
    with sink_of(output) as sink:
        return sink.write(html.encode())
