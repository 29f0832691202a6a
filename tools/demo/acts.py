"""What happens in the demo, act by act. Each prints what a person should see of it."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote_plus

import boto3
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.spinner import Spinner
from rich.text import Text
from rich.tree import Tree

from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.client.waiting import Status
from dormouse.errors import DormouseError, RefusedSourceError
from dormouse.keys import KeyRange, show_key
from dormouse.settings import Settings
from dormouse.state.partitions import ROOT
from dormouse.state.sources import Source
from dormouse.state.state import TableState
from dormouse.stored.paths import data_prefix
from dormouse_cli.report.contents import write_page
from dormouse_cli.terminal import print_table
from tools.demo import flights as data

# Pictures of a table: its partition tree, its shards, numbers side by side.

SHARDS_SHOWN = 12


def partition_tree(state: TableState) -> Tree:
    """Draw the partitions, each leaf with its rows and the shards that hold them."""
    tree = Tree(_label(state, ROOT), guide_style="dim")
    _grow(tree, state, ROOT)
    return tree


def _grow(tree: Tree, state: TableState, partition: str) -> None:
    for child in state.partitions.get(partition).children or ():
        _grow(tree.add(_label(state, child)), state, child)


def _label(state: TableState, partition: str) -> Text:
    node = state.partitions.get(partition)
    references = state.references_in(partition)
    label = Text(_interval(node.range), style="bold" if node.is_leaf else "dim")
    if references or node.is_leaf:
        count = f"{len(references)} shard{'s'[: len(references) != 1]}"
        label.append(f"  {state.rows_in(partition):,} rows in {count}", style="cyan not bold")
    if any(reference.job for reference in references):
        label.append("  compacting", style="yellow not bold")
    return label


def _interval(span: KeyRange) -> str:
    start = show_key(span.min) if span.min else "…"
    return f"{start} → {'…' if span.max is None else show_key(span.max)}"


def print_shards(state: TableState) -> None:
    """Print the shards with rows that count: size, keys, and in how many partitions they count."""
    shards = [s for s in state.shards.values() if s.id not in state.unreferenced]
    rows = [
        (
            shard.rows,
            f"{shard.size_bytes / 1e6:.1f} MB",
            state.reference_counts.get(shard.id) or 0,
            f"{show_key(shard.min_key)} – {show_key(shard.max_key)}",
        )
        for shard in sorted(shards, key=lambda s: (s.min_key, s.id))[:SHARDS_SHOWN]
    ]
    print_table(("rows", "size", "partitions", "keys"), rows)


NAME = "flights"
PROPERTIES: dict[str, object] = {
    "split_threshold_rows": 60_000,
    "compaction_strategy": "batch",
    "compaction_files": 2,
    "gc_delay_seconds": 3,
}
"""Small numbers, so that a small table has all that a large one has."""
PATIENCE_SECONDS = 900
"""Longer than a slow machine takes for any act: after it, something hangs."""
PER_QUARTER = 3


class DemoError(DormouseError):
    """The demo did not end as it must."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Where the demo plays."""

    console: Console
    instance: Instance
    files_queue: str

    def title(self, text: str) -> None:
        """Announce an act."""
        self.console.print()
        self.console.print(Text(text, style="bold magenta"))

    def say(self, text: str) -> None:
        """Print what happened."""
        self.console.print(Text(f"  {text}"))


def files_queue() -> str:
    """Return the name of the queue that S3 notifies."""
    return Settings.from_environment().names.queue("files")


def open_table(stage: Scene) -> TableHandle:
    """Create the table, and take it offline to keep its shards as they are dropped."""
    handle = stage.instance.create_table(NAME, data.schema(), PROPERTIES)
    stage.instance.set_online(NAME, False)
    stage.say("table flights: row keys carrier, flight; sort key time_hour; 16 values")
    stage.say("it is offline for now, so nothing is compacted or split yet")
    return handle


def drop_files(stage: Scene, handle: TableHandle, months: list[Path], broken: Path) -> list[Source]:
    """Drop the months quarter by quarter, a broken file among them, and one notification twice."""
    sources: list[Source] = []
    with Progress(
        TextColumn("  {task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("files"),
        TimeElapsedColumn(),
        console=stage.console,
    ) as progress:
        task = progress.add_task("ingesting", total=len(months) + 1)
        for start in range(0, len(months), PER_QUARTER):
            quarter = months[start : start + PER_QUARTER] + ([broken] if start == 0 else [])
            sources += _drop(stage, handle, quarter, progress, len(sources))
            progress.update(task, completed=len(sources))
    redeliver(stage, sources[0])
    handle.wait(PATIENCE_SECONDS)
    stage.say(f"{sources[0].key} was notified twice; the table has {handle.status().rows:,} rows")
    return sources


def _drop(
    stage: Scene, handle: TableHandle, files: list[Path], progress: Progress, before: int
) -> Sequence[Source]:
    (task,) = progress.task_ids
    ingested = handle.ingest(files)
    if before == PER_QUARTER + 1:
        redeliver(stage, ingested.sources[0])
    try:
        ingested.wait(
            PATIENCE_SECONDS,
            watch=lambda left: progress.update(task, completed=before + len(files) - left),
        )
    except RefusedSourceError:
        progress.console.print(Text("  one file was refused; the others of its batch are in"))
    return ingested.sources


def redeliver(stage: Scene, source: Source) -> None:
    """Send the notification of a dropped file again, as S3 may."""
    event = {
        "Records": [
            {
                "eventVersion": "2.1",
                "eventSource": "aws:s3",
                "eventName": "ObjectCreated:Put",
                "s3": {
                    "bucket": {"name": source.bucket},
                    "object": {
                        "key": quote_plus(source.key, safe="/"),
                        "size": source.size_bytes,
                        "eTag": source.etag,
                        **({"versionId": source.version} if source.version else {}),
                    },
                },
            }
        ]
    }
    sqs = boto3.client("sqs")
    url = sqs.get_queue_url(QueueName=stage.files_queue)["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody=json.dumps(event))


def show_table(stage: Scene, handle: TableHandle) -> Status:
    """Draw the partitions and the shards, and return the numbers."""
    state = handle.state()
    stage.console.print(partition_tree(state))
    print_shards(state)
    return handle.status()


def let_it_work(stage: Scene, handle: TableHandle) -> None:
    """Put the table online and watch its tree grow until nothing is left to do."""
    stage.instance.set_online(NAME, True)
    began = time.perf_counter()
    with Live(console=stage.console, refresh_per_second=8, transient=True) as live:

        def draw(pending: int) -> None:
            seconds = time.perf_counter() - began
            text = f"splitting and compacting: {pending} pending, {seconds:.0f} s"
            tree = partition_tree(handle.state())
            live.update(Group(Spinner("dots", Text(text, style="green")), tree))

        handle.wait(PATIENCE_SECONDS, watch=draw)
    stage.say(f"split and compacted in {time.perf_counter() - began:.1f} s")


def compare(stage: Scene, before: Status, after: Status) -> None:
    """Show the numbers before and after, which must show that the tree and the shards changed."""
    names = ("rows", "shards", "references", "partitions", "leaf_partitions", "version")
    numbers = [(n.replace("_", " "), getattr(before, n), getattr(after, n)) for n in names]
    print_table(("", "before", "after"), numbers)
    if after.leaf_partitions <= before.leaf_partitions:
        raise DemoError("the partition tree did not grow")
    if after.references >= before.references * after.leaf_partitions:
        raise DemoError("nothing was compacted")


def show_refused(stage: Scene, handle: TableHandle, broken: Path) -> None:
    """Show which file was refused, and why; it must be the broken one alone."""
    refusals = [job for job in handle.jobs() if job.state == "refused"]
    for job in refusals:
        stage.console.print(Text.assemble(("  ", ""), (job.subject, "bold red")))
        stage.say(f"  {' '.join(job.reason.split())}")
    if [job.subject for job in refusals] != [f"{NAME}/{broken.name}"]:
        raise DemoError("not just the broken file was refused")


def check(stage: Scene, handle: TableHandle, flights: pa.Table) -> None:
    """Compare every row of the table with the original, which has no two rows of one key."""
    began = time.perf_counter()
    rows = handle.query().read_all()
    seconds = time.perf_counter() - began
    stage.say(f"{rows.num_rows:,} rows read back in {seconds:.1f} s, {flights.num_rows:,} expected")
    if not rows.equals(flights):
        raise DemoError("the table does not have the rows that were dropped")
    stage.console.print(Text("  every row is there, exactly once, in order", style="bold green"))


def show_garbage(stage: Scene, handle: TableHandle) -> None:
    """Show how many files lie in the data bucket, and how many shards the table references."""
    shards = handle.status().shards
    objects = sum(1 for _ in handle.services.storage.list(data_prefix(handle.table.id)))
    if objects == shards:
        stage.say(f"what was replaced is deleted: {objects} data files for {shards} shards")
    else:
        stage.say(f"{objects} data files for {shards} shards: what was replaced waits for deletion")


def write_report(instance: Instance, page: Path) -> None:
    """Write what `dormouse report` writes about the table."""
    page.parent.mkdir(parents=True, exist_ok=True)
    write_page(instance, NAME, page)


# The acts in which the table is asked: look-ups, and rows removed for good.

PURGED = "HA"
LATE_MINUTES = 600


@dataclass(frozen=True, slots=True)
class Inquiry:
    """What is asked, and which of the original rows are the answer."""

    text: str
    answer: pc.Expression
    start: tuple[str, int] | None = None
    end: tuple[str, int] | None = None
    where: str | None = None


def look_up(stage: Scene, handle: TableHandle, flights: pa.Table) -> None:
    """Look up three keys, a range and a condition; show what each took, and check the rows."""
    shards = handle.status().shards
    lines = []
    for question in _questions(flights):
        began = time.perf_counter()
        ranges = [(question.start, question.end)] if question.start else None
        result = handle.query(ranges, where=question.where)
        rows = result.reader.read_all()
        milliseconds = (time.perf_counter() - began) * 1000
        lines.append(
            (
                question.text,
                rows.num_rows,
                f"{len(result.reads.shards)} of {shards}",
                result.reads.requests,
                f"{result.reads.size_bytes / 1000:,.0f} KB",
                f"{milliseconds:.0f} ms",
            )
        )
        if not rows.equals(flights.filter(question.answer)):
            raise DemoError(f"the rows of {question.text} are not those that were dropped")
    print_table(("query", "rows", "shards opened", "requests", "read", "time"), lines)


def _questions(flights: pa.Table) -> list[Inquiry]:
    carrier, flight = pc.field("carrier"), pc.field("flight")
    keys = [
        Inquiry(f"carrier={c}, flight={f}", (carrier == c) & (flight == f), (c, f), (c, f + 1))
        for c, f in _some_flights(flights)
    ]
    some = (carrier == "DL") & (flight >= 1000) & (flight < 1500)
    late = (carrier == "DL") & (pc.field("arr_delay") > LATE_MINUTES)
    return [
        *keys,
        Inquiry("DL, 1000 up to DL, 1500", some, ("DL", 1000), ("DL", 1500)),
        Inquiry(
            f"carrier=DL and arr_delay > {LATE_MINUTES}",
            late,
            where=f"carrier = 'DL' AND arr_delay > {LATE_MINUTES}",
        ),
    ]


def _some_flights(flights: pa.Table) -> list[tuple[str, int]]:
    """Return three keys: one of a small carrier, two of large ones."""
    rows = (0, flights.num_rows // 2, flights.num_rows - 1)
    return [(flights["carrier"][row].as_py(), flights["flight"][row].as_py()) for row in rows]


def remove(stage: Scene, handle: TableHandle, flights: pa.Table) -> None:
    """Purge the flights of a carrier, and see that no object of the table holds one of them."""
    matching = flights.filter(pc.field("carrier") == PURGED).num_rows
    began = time.perf_counter()
    with stage.console.status(f"removing carrier {PURGED}", spinner="dots"):
        purge = handle.purge(keys=[PURGED])
        purge.wait(PATIENCE_SECONDS)
        handle.polling.until_nothing(
            lambda: len(purge.proof().remains), timeout_seconds=PATIENCE_SECONDS
        )
    proof, rows = purge.proof(), handle.status().rows
    stage.say(f"{matching} rows of carrier {PURGED} removed in {time.perf_counter() - began:.1f} s")
    stage.say(
        f"{proof.objects} objects read: {len(proof.remains)} hold such a row; {rows:,} rows stay"
    )
    if not proof.is_complete or rows != flights.num_rows - matching:
        raise DemoError("the purge did not remove just the rows it was asked to")
