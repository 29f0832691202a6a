"""Requests that are to be answered, and what is looked at of their answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from dormouse.features.administration import follow_request
from dormouse.features.requests import request_key
from dormouse.messages.requests import (
    AdminRequest,
    CompactTable,
    Counts,
    ExportRows,
    IngestFiles,
    PurgeRows,
    Reply,
    SplitPartitions,
    TableRequest,
)
from dormouse.messages.stages import OutboundMessage, RequestStep, SelectionMessage
from dormouse.tables.table import Table
from tests.support.made_once import made_once
from tests.support.world import World, letters, letters_file


@made_once
def filled(world: World, **properties: object) -> Table:
    settings: dict[str, object] = {"compaction_files": 100, "gc_delay_seconds": 0} | properties
    table = world.create("letters", splits=[("m",)], **settings)
    for number, text in enumerate(("abyz", "cx")):
        world.drop(f"letters/{number}.parquet", letters(text, at=100 * number))
    world.settle()
    return table


def asked(world: World, request: AdminRequest) -> Reply:
    """Ask, and return the first reply; what follows is queued."""
    world.administer(request)
    first = [m.message for m in world.queue if isinstance(m.message, Reply)]
    assert len(first) == 1
    world.queue = deque(m for m in world.queue if m.message != first[0])
    return first[0]


def look(world: World, table: Table, request: TableRequest) -> list[OutboundMessage]:
    """Do one step of a request, as if its time had come."""
    return follow_request(world.services, RequestStep(table.id, request_key(request)))


def last(world: World) -> Reply:
    """Return the last reply, which came in one meaning only."""
    (reply,) = {reply for reply in world.replies if reply.outcome != "accepted"}
    return reply


def without(world: World, queue: str) -> None:
    """Lose the messages of a queue."""
    world.queue = deque(m for m in world.queue if m.queue != queue)


ASKED: dict[str, tuple[Callable[[], AdminRequest], Counts]] = {
    "compact": (
        lambda: CompactTable("r", "letters", all=True, reply=True),
        Counts(jobs=2, finished=2, rows=6, shards=4),
    ),
    "split": (
        lambda: SplitPartitions("r", "letters", forced=True, reply=True),
        Counts(jobs=2, finished=2, partitions=2),
    ),
    "ingest": (
        lambda: IngestFiles("r", "letters", ("archive",), reply=True),
        Counts(jobs=1, finished=1, files=2, rows=3),
    ),
    "export": (
        lambda: ExportRows("r", "letters", "out", reply=True),
        Counts(jobs=1, finished=1, files=1, rows=6),
    ),
    "purge": (
        lambda: PurgeRows("r", "letters", SelectionMessage(where="letter = 'a'"), reply=True),
        Counts(jobs=1, finished=1, removed=1),
    ),
}


@made_once
def prepared(world: World) -> Table:
    table = filled(world)
    for name, text in (("1", "q"), ("2", "rs")):
        world.sources.drop(f"archive/{name}.parquet", letters_file(letters(text)))
    return table
