"""A table whose rows are secrets, with work of every kind to be done, and damage to its objects."""

from __future__ import annotations

from collections.abc import Callable

from dormouse.features.export import export_id_of
from dormouse.features.purge import purge_id_of
from dormouse.messages.requests import CollectGarbage, ExportRows, PurgeRows
from dormouse.messages.stages import (
    AnswerQuery,
    CompactionJob,
    ExportTask,
    FilesWaiting,
    GarbageCandidates,
    IngestJob,
    Message,
    PartitionSplits,
    PurgeStep,
    SelectionMessage,
    TableChanged,
    encode,
)
from dormouse.state.sources import job_id_of
from dormouse.state.state import AssignJob
from tests.functions.conftest import TABLE_ID, Functions
from tests.functions.disclosure import SECRET, ingest, rows

WHERE = f"note = '{SECRET}'"
JOB = CompactionJob(TABLE_ID, 0, "job")


def with_everything(functions: Functions) -> dict[str, str]:
    """Fill the table, and ask for everything that can be done with it; return the messages.

    Keys and notes are secrets, and conditions name them.
    """
    world = functions.world
    for number in (1, 2):
        source = world.sources.drop(f"letters/{number}.parquet", rows(f"{number}{SECRET}"))
        assert ingest(functions, source) == []
    store = world.services.store(functions.table)
    state = store.current()
    leaf = next(state.partitions.leaves()).id
    store.commit(AssignJob("job", leaf, tuple(state.shards)), generation=0)
    functions.deliver(
        "administer", encode(PurgeRows("p", "letters", SelectionMessage(where=WHERE)))
    )
    functions.deliver(
        "administer", encode(ExportRows("e", "letters", selection=SelectionMessage(where=WHERE)))
    )
    functions.deliver("dispatch_spark", encode(JOB))
    world.spark.ended["run1"] = ("failed", "no memory")
    late = world.sources.drop("letters/3.parquet", rows(f"3{SECRET}"))
    messages: dict[str, Message] = {
        "administer": CollectGarbage("g", "letters"),
        "batch_files": FilesWaiting(TABLE_ID, 0, 0, (late,)),
        "ingest": IngestJob(TABLE_ID, 0, job_id_of((late,)), (late,)),
        "plan_table": TableChanged(TABLE_ID),
        "compact": JOB,
        "split_partition": PartitionSplits(TABLE_ID, 0, (leaf,), forced=True),
        "collect_garbage": GarbageCandidates(TABLE_ID, 0, tuple(state.shards)),
        "publish_iceberg": TableChanged(TABLE_ID),
        "purge_rows": PurgeStep(TABLE_ID, purge_id_of("p")),
        "export_rows": ExportTask(TABLE_ID, export_id_of("e"), 0),
        "answer_query": AnswerQuery(
            query_id="q", table="letters", selection=SelectionMessage(where=WHERE)
        ),
        "dispatch_spark": JOB,
    }
    world.tables.change(
        TABLE_ID, lambda table: table.with_settings({**table.settings, "iceberg": "on"}, {})
    )
    sent = {stage: encode(message) for stage, message in messages.items()}
    return {**sent, "track_spark": '{"detail": {"jobRunId": "run1"}}'}


def broken_at(place: int) -> Callable[[bytes], bytes]:
    """Return what overwrites some bytes at a place, counted from the end if it is negative."""

    def broken(body: bytes) -> bytes:
        start = place % len(body)
        return body[:start] + bytes(8) + body[start + 8 :]

    return broken


def misspelt(body: bytes) -> bytes:
    """Return a request whose condition cannot be read any more."""
    return body.replace(SECRET.encode(), f"{SECRET}'".encode())


DAMAGES: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "pages of shards": ("*/data/*", broken_at(8)),
    "footers of shards": ("*/data/*", broken_at(-60)),
    "the state": ("*/state/**/*", broken_at(80)),
    "conditions of requests": ("*/*s/*.json", misspelt),
    "requests": ("*/*s/*.json", broken_at(40)),
    "requests for Spark": ("*/spark/*", broken_at(40)),
}
"""What is damaged, by its name: where its objects are, and what becomes of their bytes."""


def damage(functions: Functions, what: str) -> None:
    """Damage all there is of something; no process knows anything of it yet."""
    pattern, change = DAMAGES[what]
    found = [path for path in (functions.world.folder / "data").glob(pattern) if path.is_file()]
    assert found
    for path in found:
        path.write_bytes(change(path.read_bytes()))
    functions.world.services.store.cache_clear()  # type: ignore[attr-defined]  # it is a cache
