"""What becomes of an instance after a crash: it recovers, and is held to what it promised.

Recovery is what an instance does anyway: messages come again after their visibility timeout, the
sweep and its audit run by their schedule, and delays pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from unittest.mock import patch

from dormouse.errors import DormouseError
from dormouse.features.checking import check
from dormouse.features.export import load_manifest
from dormouse.features.publishing import READERS_MS, reachable
from dormouse.features.publishing import problems as published_problems
from dormouse.features.versions import read_version
from dormouse.ports import NO_TABLE
from dormouse.state.validation import broken_invariants
from dormouse.stored.paths import (
    SOURCES,
    SPARK_CODE,
    data_prefix,
    paths_of_shard,
    shard_path,
    state_prefix,
)
from dormouse.tables.table import Table, is_published
from tests.simulation.instance import Instance, Worker
from tests.simulation.leftovers import left_in_state, left_of_gone
from tests.simulation.processes import Died, Fate
from tests.simulation.queues import feeds
from tests.support.queries import query_rows

Rows = tuple[tuple[object, ...], ...]
"""Rows as letter and at, in order."""
PATIENCE_SECONDS, GC_SECONDS, ORPHAN_SECONDS = 7200, 60, 86_400
SWEEPS = ((PATIENCE_SECONDS, False), (ORPHAN_SECONDS + GC_SECONDS, True), (PATIENCE_SECONDS, True))
"""How long until each sweep of a recovery, and whether it is an audit."""
SWEEP_SECONDS = 1800
"""How often a sweep comes while messages are waited for: more rarely than it does, to be fast."""
MOST_ROUNDS = 300

NewWorker = Callable[[], Worker]


def settle(
    instance: Instance, worker: Worker, *, until: str = "", swept_each_seconds: int = 0
) -> None:
    """Deliver all there is, and wait for what is hidden; leave the messages of one queue alone."""
    sweep_ms = instance.clock.ms + swept_each_seconds * 1000
    queues = [queue for queue in feeds() if queue != until]
    for _ in range(MOST_ROUNDS):
        delivered = [_deliver(instance, worker, queue) for queue in queues]
        runs = instance.undriven() if until != "driver" else []
        for run_id in runs:
            worker.drive(run_id)
        if any(delivered) or runs:
            continue
        waiting = [m.visible_ms for q in queues for m in instance.queues.messages[q]]
        if not waiting:
            return
        instance.clock.ms = max(instance.clock.ms, min(waiting))
        if swept_each_seconds and instance.clock.ms >= sweep_ms:
            sweep_all(worker)
            sweep_ms = instance.clock.ms + swept_each_seconds * 1000
    raise AssertionError("there is no end to messages")


def _deliver(instance: Instance, worker: Worker, queue: str) -> bool:
    delivery = instance.take(queue)
    if delivery is None:
        return False
    worker.handle(delivery)
    return True


def recover(instance: Instance, new_worker: NewWorker) -> None:
    """Let time pass until nothing more can come; a worker that dies is followed by another."""
    worker = new_worker()

    def wait(worker: Worker) -> None:
        settle(instance, worker, swept_each_seconds=SWEEP_SECONDS)

    steps: list[Callable[[Worker], None]] = [wait]
    for seconds, audit in SWEEPS:
        steps += [_sweep(instance, seconds, audit=audit), wait]
    for step in steps:
        while True:
            try:
                step(worker)
                break
            except Died:
                worker = new_worker()


def _sweep(instance: Instance, seconds: int, *, audit: bool) -> Callable[[Worker], None]:
    due_ms: list[int] = []

    def step(worker: Worker) -> None:
        if not due_ms:  # a sweep that died comes again by its schedule
            due_ms.append(instance.clock.ms + seconds * 1000)
        instance.clock.ms = max(instance.clock.ms + 300_000, due_ms[0])
        sweep_all(worker, audit=audit)

    return step


def sweep_all(worker: Worker, *, audit: bool = False) -> None:
    """Sweep all tables, also quiet ones, as the sweeps of an hour do."""
    with patch("dormouse.features.sweep._is_in_turn", return_value=True):
        worker.scheduled("sweep", audit=audit)


def dangling(instance: Instance) -> Iterator[str]:
    """Return what a query could stumble over at this moment."""
    services = instance.worker("looker").wiring.services
    for table in instance.tables.all():
        if table.deleting:
            continue
        state = services.store(table).current()
        yield from (str(broken) for broken in broken_invariants(state))
        there = {stored.path for stored in instance.storage.list(data_prefix(table.id))}
        held = {reference.shard for reference in state.all_references()}
        for shard in sorted(held):
            if shard_path(table.id, shard) not in there:
                yield f"shard {shard} of {table.name} is referenced and has no object"
        yield from unreadable(instance, table)


def unreadable(instance: Instance, table: Table) -> Iterator[str]:
    """Return what readers of Iceberg could stumble over at this moment."""
    services = instance.worker("looker").wiring.services
    record = instance.publications.get(table.id)
    if record is not None and record.metadata and is_published(table.properties):
        yield from (f"published: {problem}" for problem in published_problems(services, table))


def rows_by_id(instance: Instance) -> dict[str, Rows]:
    """Return the rows of each table that is not being deleted, by its id."""
    tables = [table for table in instance.tables.all() if not table.deleting]
    return {table.id: rows_of(instance, table) for table in tables}


def rows_of(instance: Instance, table: Table) -> Rows:
    """Return the rows of a table as a cold process reads them."""
    services = instance.worker("reader").wiring.services
    table, state = read_version(services, table)
    result = query_rows(
        services.storage,
        table,
        state,
        [],
        now_ms=services.clock.now_ms(),
        scratch=services.scratch,
        memory_bytes=services.memory_bytes,
    )
    try:
        found = result.reader.read_all()
    except DormouseError as error:
        return ((error.explanation,),)
    return tuple(zip(found["letter"].to_pylist(), found["at"].to_pylist(), strict=True))


def shape(instance: Instance, most_leaves: int = 10**9) -> object:
    """Return what else than rows an operation changes: the same, whatever happened to it.

    Leaves are counted up to a number: what comes twice may split the halves, too.
    """
    services = instance.worker("looker").wiring.services
    tables = [
        (
            table.name,
            table.online,
            sorted(table.settings.items()),
            [field.name for field in table.schema.fields],
            min(most_leaves, len(list(services.store(table).current().partitions.leaves()))),
            sorted(r.subject for r in instance.tracker.records(table.id) if r.state == "refused"),
        )
        for table in instance.tables.all()
    ]
    return tables, sorted(instance.tables.settings.items())


def problems(instance: Instance, expected: dict[str, Rows], exported: int | None) -> Iterator[str]:
    """Return what is wrong once an instance has recovered; nothing, if it kept its promises."""
    tables = instance.tables.all()
    if (names := [table.name for table in tables]) != sorted(expected):
        yield f"there are the tables {names}"
        return
    yield from dangling(instance)
    for table in tables:
        found, rows = rows_of(instance, table), expected[table.name]
        if found != rows:
            yield f"table {table.name} has the rows {found}, not {rows}"
    yield from _left_over(instance)
    yield from _records(instance)
    if exported is not None:
        manifest = load_manifest(instance.results, "out")
        if manifest is None or manifest.rows != exported:
            yield f"the export has {manifest.rows if manifest else 'no'} rows, not {exported}"


def _left_over(instance: Instance) -> Iterator[str]:
    services = instance.worker("looker").wiring.services
    tables = instance.tables.all()
    for table in tables:
        yield from (f"check: {finding}" for finding in check(services, table).findings)
        yield from _of_table(instance, table)
    prefixes = (*(f"{table.id}/" for table in tables), f"{SPARK_CODE}/")
    for stored in instance.storage.list(""):
        if not stored.path.startswith(prefixes):
            yield f"{stored.path} is of no table"
    begun = {state_id.partition("/")[0] for state_id in instance.pages.logs}
    for table_id in sorted(begun - {table.id for table in tables}):
        for left in left_of_gone(instance, table_id):
            yield f"{left} is of no table"
    for queue, letter in instance.queues.dead():
        yield f"dead letter of {queue}: {letter.body[:200]}"
    if instance.queues.waiting():
        yield f"{instance.queues.waiting()} messages wait"


def _of_table(instance: Instance, table: Table) -> Iterator[str]:
    state = instance.worker("looker").wiring.services.store(table).current()
    for job in state.jobs:
        yield f"job {job} is assigned for good"
    for shard in state.unreferenced:
        yield f"shard {shard} is never deleted"
    known = {path for shard in state.shards for path in paths_of_shard(table.id, shard)}
    known |= {SOURCES.path(table.id, segment.id) for segment in state.all_source_segments}
    known |= published_objects(instance, table)
    kept_for_good = (state_prefix(table.id), f"{table.id}/run-markers/")
    for stored in instance.storage.list(f"{table.id}/"):
        if stored.path not in known and not stored.path.startswith(kept_for_good):
            yield f"{stored.path} is left over"
    yield from left_in_state(instance, table)


def published_objects(instance: Instance, table: Table) -> set[str]:
    """Return the paths of what readers of Iceberg may have found."""
    record = instance.publications.get(table.id)
    kept_ms = table.properties.gc_delay_seconds * 1000 + READERS_MS
    checkpoints = record.since(instance.clock.ms - kept_ms) if record is not None else ()
    found = {each.metadata for each in checkpoints if each.metadata}
    return reachable(instance.storage.get, found)


def _records(instance: Instance) -> Iterator[str]:
    ids = [NO_TABLE, *(table.id for table in instance.tables.all())]
    for table_id in ids:
        for record in instance.tracker.records(table_id):
            if record.state not in ("accepted", "finished", "refused"):
                yield f"{record.kind} {record.job_id} is recorded as {record.state} {record.reason}"


def dies_at(number: int) -> Callable[[object], Fate]:
    """Return a gate at whose so many-th call, from 0, the process dies."""
    calls = iter(range(number + 1))
    last = number

    def gate(_: object) -> Fate:
        return Fate.DIES_BEFORE if next(calls, last) == last else Fate.LANDS

    return gate
