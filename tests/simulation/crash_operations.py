"""The operations that are cut off, each with what brings an instance just before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from unittest.mock import patch

from dormouse.errors import DormouseError
from dormouse.features import seal_sources as sealing
from dormouse.features.seal_sources import seal_sources
from dormouse.log.blobs import BlobStore
from dormouse.log.engine import StateStore
from dormouse.messages.requests import (
    AdminRequest,
    AlterSchema,
    CollectGarbage,
    CompactTable,
    CreateTable,
    DeleteRows,
    DeleteTable,
    ExportRows,
    GrantAccess,
    IngestFiles,
    PurgeRows,
    Redrive,
    ReinitialiseTable,
    RenameTable,
    SetDefaults,
    SetOnline,
    SetProperties,
    SplitPartitions,
)
from dormouse.messages.stages import SelectionMessage
from dormouse.tables.table import Table
from tests.simulation.crash_points import Operation
from tests.simulation.crash_recovery import (
    GC_SECONDS,
    ORPHAN_SECONDS,
    PATIENCE_SECONDS,
    Rows,
    dies_at,
    settle,
)
from tests.simulation.instance import Instance, Worker
from tests.simulation.leftovers import blobs_of
from tests.simulation.processes import Died
from tests.support.world import BY_TIME, LETTERS, letters, letters_file

NAME = "letters"
TEXTS = ("hazel", "oak", "fern")
IN_PAIRS = {"compaction_strategy": "batch", "compaction_files": 2, "index_objects": "on"}
Prepare = Callable[[Instance, Worker], dict[str, Rows]]


def rows(*texts: str, without: str = "") -> Rows:
    """Return the rows of texts that were dropped one after the other, in order."""
    found = (row for n, text in enumerate(texts) for row in letters(text, at=100 * n))
    return tuple(sorted((r["letter"], r["at"]) for r in found if r["letter"] not in without))  # type: ignore[type-var]


def create(instance: Instance, worker: Worker, **properties: object) -> Table:
    """Make the table, with short delays."""
    given = {"gc_delay_seconds": GC_SECONDS, "orphan_age_seconds": ORPHAN_SECONDS, **properties}
    points = (("m",),)
    instance.ask(CreateTable("create", NAME, LETTERS.to_json(), given, points))
    settle(instance, worker)
    table = instance.tables.named(NAME)
    assert table is not None
    return table


def drop(instance: Instance, *texts: str, first: int = 0) -> None:
    """Drop a file for each text."""
    for number, text in enumerate(texts, start=first):
        body = letters_file(letters(text, at=100 * number))
        instance.drop(f"{NAME}/{number}.parquet", body)
        instance.clock.advance(seconds=1)


def filled(instance: Instance, worker: Worker, *, until: str = "", **properties: object) -> Table:
    """Make a table of several ingests, up to the messages of one queue."""
    table = create(instance, worker, **properties)
    for number, text in enumerate(TEXTS):
        drop(instance, text, first=number)
        settle(instance, worker, until="table-changes")
    settle(instance, worker, until=until)
    return table


def handles(queue: str) -> Callable[[Instance, Worker], object]:
    """Return the running of a queue's function on what it is given at once."""

    def run(instance: Instance, worker: Worker) -> object:
        visible_ms = min(m.visible_ms for m in instance.queues.messages[queue])
        instance.clock.ms = max(instance.clock.ms, visible_ms)
        delivery = instance.take(queue)
        assert delivery is not None
        return worker.handle(delivery)

    return run


def drives(instance: Instance, worker: Worker) -> None:
    """Run the driver of the run of Spark that was started."""
    worker.drive(instance.undriven()[0])


def before(queue: str, **properties: object) -> Prepare:
    """Bring a table of several ingests up to the messages of a queue."""

    def prepare(instance: Instance, worker: Worker) -> dict[str, Rows]:
        filled(instance, worker, until=queue, **{**IN_PAIRS, **properties})
        return {NAME: rows(*TEXTS)}

    return prepare


def _files(instance: Instance, worker: Worker) -> dict[str, Rows]:
    create(instance, worker)
    drop(instance, *TEXTS)
    return {NAME: rows(*TEXTS)}


def _ingest(instance: Instance, worker: Worker) -> dict[str, Rows]:
    create(instance, worker, ingest_file_strategy="one_file_per_leaf")
    drop(instance, *TEXTS)
    instance.drop(f"{NAME}/bad.csv", b"no,such,columns\n1,2,3\n")
    settle(instance, worker, until="ingest-jobs")
    return {NAME: rows(*TEXTS)}


def _changes(instance: Instance, worker: Worker) -> dict[str, Rows]:
    """Bring a table that keeps the latest rows to an ingest of rows and deletes."""
    create(instance, worker, **BY_AT)
    drop(instance, *TEXTS)
    instance.drop(f"{NAME}/3.jsonl", b'{"letter": "e", "at": 300, "_change": "delete"}')
    settle(instance, worker, until="ingest-jobs")
    return LATEST


def _changes_to_merge(instance: Instance, worker: Worker) -> dict[str, Rows]:
    """Bring such a table to compactions, with rows that only a deletion hides."""
    filled(instance, worker, until="table-changes", **IN_PAIRS, **BY_AT)
    instance.ask(DELETE)
    settle(instance, worker, until="compaction-jobs")
    return LATEST


def _died_twice(instance: Instance, worker: Worker) -> dict[str, Rows]:
    """Bring an ingest to its third run: two processes died of it."""
    expected = _ingest(instance, worker)
    for number in range(2):
        with suppress(Died):
            handles("ingest-jobs")(instance, instance.worker(f"dies-{number}", dies_at(6)))
    return expected


def _idle(instance: Instance, worker: Worker) -> dict[str, Rows]:
    filled(instance, worker)
    return {NAME: rows(*TEXTS)}


def asks(
    request: AdminRequest,
    expected: dict[str, Rows] | None = None,
    prepare: Callable[[Instance, Worker], object] = filled,
) -> Prepare:
    """Return the state before an administrator's request is done."""

    def asked(instance: Instance, worker: Worker) -> dict[str, Rows]:
        prepare(instance, worker)
        instance.ask(request)
        return {NAME: rows(*TEXTS)} if expected is None else expected

    return asked


def later(
    request: AdminRequest, queue: str, expected: dict[str, Rows], **properties: object
) -> Prepare:
    """Bring a table to the messages of a queue that follow from a request."""

    def prepare(instance: Instance, worker: Worker) -> dict[str, Rows]:
        filled(instance, worker, **properties)
        instance.ask(request)
        settle(instance, worker, until=queue)
        return expected

    return prepare


def _purge_end(instance: Instance, worker: Worker) -> dict[str, Rows]:
    """Bring a purge to its last step: all is rewritten."""
    later(PURGE, "purges", PURGED)(instance, worker)
    handles("purges")(instance, worker)
    settle(instance, worker, until="purges")
    return PURGED


def _empty(instance: Instance, worker: Worker) -> None:
    """Nothing is there."""


def _dead_letter(instance: Instance, worker: Worker) -> None:
    """Bring a table to a dead letter: an ingest that failed while S3 was down."""
    create(instance, worker)
    drop(instance, *TEXTS)
    settle(instance, worker, until="ingest-jobs")
    (job,) = instance.queues.messages["ingest-jobs"]
    instance.queues.messages["ingest-jobs"].clear()
    instance.queues.messages["ingest-jobs-dead"].append(job)


def _garbage(instance: Instance, worker: Worker) -> None:
    """Bring a table to garbage that is due, of which all messages are lost."""
    filled(instance, worker, until="gc-candidates", **IN_PAIRS)
    instance.queues.messages["gc-candidates"].clear()
    instance.clock.advance(seconds=GC_SECONDS)


def _unnoticed(instance: Instance, worker: Worker) -> dict[str, Rows]:
    """Bring a table to an audit that finds missed files, stale jobs, garbage and orphans."""
    table = filled(instance, worker, until="compaction-jobs", **IN_PAIRS)
    handles("compaction-jobs")(instance, worker)
    body = letters_file(letters("moss", at=300))
    instance.drop(f"{NAME}/3.parquet", body, notify=False)
    shard = next(iter(instance.storage.list(f"{table.id}/data/")))
    orphan = f"{table.id}/data/{'0' * 31}1-0.parquet"
    instance.storage.put(orphan, instance.storage.get(shard.path))
    for messages in instance.queues.messages.values():
        messages.clear()  # all are lost
    instance.clock.advance(seconds=ORPHAN_SECONDS + 1)
    return {NAME: rows(*TEXTS, "moss")}


def _left_of_deleted(instance: Instance, worker: Worker) -> dict[str, Rows]:
    """Bring an instance to an audit that finds what came late for a table that was deleted."""
    table = filled(instance, worker)
    delta = blobs_of(instance, table, "delta")[0]
    (body,) = _deltas(instance, worker, table).get([delta])
    instance.ask(DeleteTable("delete", NAME))
    settle(instance, worker)
    for number in range(2):
        instance.storage.put(f"{table.id}/data/late-{number}.parquet", b"late")
    _deltas(instance, worker, table).put(delta, body)
    return {}


def _deltas(instance: Instance, worker: Worker, table: Table) -> BlobStore:
    store = worker.wiring.services.store(table)
    assert isinstance(store, StateStore)
    return store.reader.deltas


def _published(instance: Instance, worker: Worker) -> dict[str, Rows]:
    """Bring a published table to its next publication."""
    filled(instance, worker, iceberg="on", compaction_files=100)
    drop(instance, "ash", first=len(TEXTS))
    settle(instance, worker, until="iceberg-changes")
    return {NAME: rows(*TEXTS, "ash")}


def _withdrawn(instance: Instance, worker: Worker) -> dict[str, Rows]:
    """Bring a published table to where it is to be published no more."""
    filled(instance, worker, iceberg="on")
    instance.ask(SetProperties("r", NAME, {"iceberg": "off"}))
    settle(instance, worker, until="iceberg-changes")
    return {NAME: rows(*TEXTS)}


def _long_published(instance: Instance, worker: Worker) -> dict[str, Rows]:
    """Bring a published table to an audit that finds objects that no reader needs any more."""
    filled(instance, worker, iceberg="on")
    instance.clock.advance(seconds=ORPHAN_SECONDS)
    drop(instance, "ash", first=len(TEXTS))
    settle(instance, worker)
    instance.clock.advance(seconds=PATIENCE_SECONDS)
    return {NAME: rows(*TEXTS, "ash")}


def _snapshots(instance: Instance, worker: Worker) -> dict[str, Rows]:
    """Bring a table to a planning that is to tidy the log: a snapshot, segments, old versions."""
    create(instance, worker, compaction_files=100)
    texts = ("ash", "elm", "fir", "yew", "bay", "box", "rue", "ivy")
    for number, text in enumerate(texts):
        drop(instance, text, first=number)
        settle(instance, worker, until="table-changes")
        instance.queues.messages["table-changes"].clear()
    instance.clock.advance(seconds=3 * GC_SECONDS)
    drop(instance, "oak", first=len(texts))
    settle(instance, worker, until="table-changes")
    return {NAME: rows(*texts, "oak")}


def _to_seal(instance: Instance, worker: Worker) -> dict[str, Rows]:
    """Bring a table to its second sealing, which takes in the segment of the first."""
    create(instance, worker)
    drop(instance, TEXTS[0])
    settle(instance, worker)
    _seal(instance, worker)
    drop(instance, *TEXTS[1:], first=1)
    settle(instance, worker)
    return ALL


def _seal(instance: Instance, worker: Worker) -> None:
    """Seal as a planning does, however few the sources are; two segments are merged."""
    services = worker.wiring.services
    table = services.tables.named(NAME)
    if table is None or table.deleting:  # by somebody else meanwhile
        return
    # As a planning that fails: the next one seals.
    with patch.multiple(sealing, MIN_SEALED_SOURCES=1, SEGMENT_FANOUT=2), suppress(DormouseError):
        seal_sources(services, table, least=1)


PURGE = PurgeRows("purge", NAME, SelectionMessage(where="letter = 'e'"))
PURGED = {NAME: rows(*TEXTS, without="e")}
ALL = {NAME: rows(*TEXTS)}
BY_AT = {"keep": "latest", "latest_by": "at"}
LATEST = {NAME: tuple(dict(PURGED[NAME]).items())}
DELETE = DeleteRows("r", NAME, PURGE.selection)
NOTHING = DeleteRows("r", NAME, SelectionMessage(where="letter > 'z'"))
EXPORT = ExportRows("export", NAME, to="out")
COUNT = len(rows(*TEXTS))
FLOW: Sequence[Operation] = (
    Operation("batch files", _files, handles("files")),
    Operation("ingest", _ingest, handles("ingest-jobs")),
    Operation("ingest: rows that change", _changes, handles("ingest-jobs")),
    Operation("compact: rows that change", _changes_to_merge, handles("compaction-jobs")),
    Operation(
        "ingest: take a job apart",
        _died_twice,
        handles("ingest-jobs"),
        asked_again=Redrive("again", "ingest-jobs"),  # where its third run fails, too
    ),
    Operation("plan: assign compactions", before("table-changes"), handles("table-changes")),
    Operation("compact", before("compaction-jobs"), handles("compaction-jobs")),
    Operation("collect garbage", before("gc-candidates"), handles("gc-candidates")),
    Operation(
        "publish first",
        before("iceberg-changes", iceberg="on", compaction_files=100),
        handles("iceberg-changes"),
    ),
    Operation("publish", _published, handles("iceberg-changes")),
    Operation("withdraw", _withdrawn, handles("iceberg-changes")),
    Operation(
        "collect garbage of a published table",
        before("gc-candidates", iceberg="on"),
        handles("gc-candidates"),
    ),
    Operation(
        "sweep: audit of a published table",
        _long_published,
        lambda _, worker: worker.scheduled("sweep", audit=True),
    ),
    Operation(
        "plan: forget deletions", later(NOTHING, "table-changes", ALL), handles("table-changes")
    ),
    Operation("plan: snapshot maintenance", _snapshots, handles("table-changes")),
    Operation("plan: seal sources", _to_seal, _seal),
    Operation(
        "split", before("partition-splits", split_threshold_rows=6), handles("partition-splits")
    ),
    Operation("sweep", _idle, lambda _, worker: worker.scheduled("sweep")),
    Operation("sweep: audit", _unnoticed, lambda _, worker: worker.scheduled("sweep", audit=True)),
    Operation(
        "sweep: audit after a deletion",
        _left_of_deleted,
        lambda _, worker: worker.scheduled("sweep", audit=True),
    ),
    Operation("measure", _idle, lambda _, worker: worker.scheduled("measure")),
)


def _asked_again(name: str) -> AdminRequest | None:
    """Return what a person asks for who sees that dead letters are left: others had them in
    hand."""
    return Redrive("again", "ingest-jobs") if name == "redrive" else None


SPLIT_ANEW = ReinitialiseTable("r", NAME, False, (("c",), ("x",)))
RESORTED = ReinitialiseTable("r", NAME, False, ((100,),), schema=BY_TIME.to_json())
REQUESTS: Sequence[Operation] = tuple(
    Operation(
        f"admin: {name}", prepare, handles("admin"), exported, _asked_again(name), most_leaves=4
    )
    for name, prepare, exported in (
        (
            "create",
            asks(CreateTable("r", NAME, LETTERS.to_json(), {}, (("m",),)), {NAME: ()}, _empty),
            None,
        ),
        ("delete", asks(DeleteTable("r", NAME), {}), None),
        ("reinitialise", asks(ReinitialiseTable("r", NAME), {NAME: ()}), None),
        ("reinitialise and split", asks(SPLIT_ANEW, {NAME: ()}), None),
        ("new schema", asks(RESORTED, {NAME: ()}), None),
        ("rename", asks(RenameTable("r", NAME, "words"), {"words": rows(*TEXTS)}), None),
        (
            "alter",
            asks(
                AlterSchema("r", NAME, add=({"name": "n", "type": "LongType", "nullable": True},))
            ),
            None,
        ),
        ("set properties", asks(SetProperties("r", NAME, {"compaction_files": 2})), None),
        ("set defaults", asks(SetDefaults("r", {"compaction_files": 2})), None),
        ("grant", asks(GrantAccess("r", "local", NAME, ("read",), ("note",))), None),
        ("offline", asks(SetOnline("r", NAME, False)), None),
        ("compact", asks(CompactTable("r", NAME, all=True)), None),
        ("split", asks(SplitPartitions("r", NAME, forced=True)), None),
        ("collect garbage", asks(CollectGarbage("r", NAME), None, _garbage), None),
        ("ingest files", asks(IngestFiles("r", NAME, (f"{NAME}/",))), None),
        ("redrive", asks(Redrive("r", "ingest-jobs"), None, _dead_letter), None),
        ("delete rows", asks(DELETE, PURGED), None),
        ("purge", asks(PURGE, PURGED), None),
        ("export", asks(EXPORT), COUNT),
    )
)
ASKED: Sequence[Operation] = (
    Operation("purge: first step", later(PURGE, "purges", PURGED), handles("purges")),
    Operation("purge: last step", _purge_end, handles("purges")),
    Operation("export: task", later(EXPORT, "exports", ALL), handles("exports"), COUNT),
)
