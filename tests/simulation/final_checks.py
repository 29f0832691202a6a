"""How a run comes to rest, and what must lie in the instance then.

Fault injection has stopped. People redrive dead letters; the schedule goes on; time goes by until
all that has an age has had it. Then nothing may be left but tables with the rows of their files.
"""

from __future__ import annotations

import json

from dormouse.features.checking import check
from dormouse.features.deletion import list_unregistered
from dormouse.features.measure import lag_ms
from dormouse.features.planning import plan_everything
from dormouse.features.publishing import problems, reachable
from dormouse.features.requests import request_in, request_reply_path
from dormouse.keys import KeyRange
from dormouse.messages.requests import CompactTable, DeleteTable, IngestFiles, Redrive, UntagVersion
from dormouse.ports import NO_TABLE
from dormouse.shards.run_markers import obsolete_run_markers
from dormouse.state.sources import table_name_of
from dormouse.state.state import TableState
from dormouse.stored.paths import (
    MANIFEST,
    RESULTS_OF_QUERIES,
    RUN_MARKERS,
    SPARK_CODE,
    data_prefix,
    shard_id_of,
    state_prefix,
    table_prefix,
)
from dormouse.tables.table import Table, is_published
from tests.simulation.answers import check_answers
from tests.simulation.event_log import Violation
from tests.simulation.fault_injection import HOUR_MS
from tests.simulation.instance import Instance
from tests.simulation.leftovers import left_in_state, left_of_gone
from tests.simulation.simulation import Simulation
from tests.simulation.versions import tags_of
from tests.simulation.watched import last_record
from tests.support.queries import query_rows

ROUNDS = 4
"""How often people look at the dead letters; one that fails again is redriven again."""
WAITS = 12_000
"""A purge before a reset waits a week until its objects are orphans, and looks every 2 minutes."""
SWEEP_MS = HOUR_MS
DAY_MS = 24 * HOUR_MS
FILES_KNOWN_MS = 13 * DAY_MS


def come_to_rest(simulation: Simulation) -> None:
    """Do all there is to do, and what follows from it, until nothing is to be done any more."""
    simulation.stop_faults()
    simulation.settle()
    simulation.repair()
    check_tags(simulation)
    wait(simulation)
    if simulation.is_long:
        pass_days(simulation, 13)  # dead letters live for 14
    for _ in range(ROUNDS):
        _redrive(simulation)
    if simulation.is_long:
        ask_again(simulation)
    check_tags(simulation)
    ask_for_a_compaction(simulation)
    swept(simulation, audit=True)
    simulation.instance.clock.advance(seconds=7 * 24 * 3600)
    for _ in range(3):
        swept(simulation, audit=True)
        simulation.instance.clock.advance(seconds=2 * 3600 + 600)
    apply_deletions(simulation)
    for _ in range(2):  # the first deletes shards that only deletions kept, the next their markers
        swept(simulation, audit=True)
        simulation.instance.clock.advance(seconds=2 * 3600 + 600)
    for _ in range(ROUNDS):  # a run of Spark whose end nobody was told of is found by an audit
        if simulation.instance.queues.dead():
            _redrive(simulation)


def _redrive(simulation: Simulation) -> None:
    """Send dead letters to their queues again, and do what follows from them."""
    for queue in sorted({queue for queue, _ in simulation.instance.queues.dead()}):
        simulation.number += 1
        simulation.instance.ask(Redrive(f"redrive-{simulation.number}", queue))
    _age_dead_letters(simulation)
    wait(simulation)
    simulation.instance.clock.advance(seconds=2 * 3600)
    swept(simulation, audit=False)


def apply_deletions(simulation: Simulation) -> None:
    """Sweep until no deletion hides rows: of many leaves, each sweep compacts only some."""
    for _ in range(WAITS):
        tables = [table for table in simulation.instance.tables.all() if not table.deleting]
        if not any(simulation.services.store(t).current().deletions for t in tables):
            return
        swept(simulation, audit=True)
        simulation.instance.clock.advance(seconds=2 * 3600 + 600)


def ask_again(simulation: Simulation) -> None:
    """Hear of each file twice more, weeks later: from S3, and by a folder that is asked for."""
    for way in ("recorded", "asked"):
        pass_days(simulation, 16)
        swept(simulation, audit=True)
        if way == "recorded":
            simulation.workload.hear_again()
        for name in simulation.workload.names if way == "asked" else ():
            simulation.number += 1
            simulation.instance.ask(IngestFiles(f"again-{simulation.number}", name, (f"{name}/",)))
        wait(simulation)


def _age_dead_letters(simulation: Simulation) -> None:
    """Have what dead letters say sent to their queues again; in long runs it waits there."""
    if not simulation.is_long:
        return
    while (delivery := simulation.instance.take("admin")) is not None:
        simulation.handle_alone(delivery)
    pass_days(simulation, 13)


def pass_days(simulation: Simulation, days: int) -> None:
    """Let days go by in which nothing comes but the audits, which have a schedule of their own."""
    for _ in range(days):
        simulation.instance.clock.advance(seconds=24 * 3600)
        simulation.instance.worker("auditor").scheduled("sweep", audit=True)
        simulation.watch.look(simulation.turn)


def check_tags(simulation: Simulation) -> None:
    """Read each tagged version, then remove its tag.

    Raises:
        Violation: a version cannot be read, or is not as it was.
    """
    instance = simulation.instance
    for table in instance.tables.all():
        tags = {} if table.deleting else tags_of(instance, table)
        for tag, pin in tags.items():
            if pin.generation >= table.schema_generation:  # else its rows have an earlier schema
                services = simulation.instance.worker("reader").wiring.services
                _check_rows(simulation, table, services.store(table).at(version=pin.version))
            simulation.number += 1
            untag = UntagVersion(f"untag-{simulation.number}", table.name, tag)
            simulation.ask_alone(untag)


def ask_for_a_compaction(simulation: Simulation) -> None:
    """Ask for a table to be compacted while nobody else is at work, and see that this begins.

    Raises:
        Violation: not as many compactions are assigned as can be.
    """
    table = simulation.random.choice([*simulation.instance.tables.all(), None])
    if table is None or table.deleting:
        return
    state = simulation.services.store(table).current()
    room = max(0, table.properties.compaction_jobs_limit - len(state.jobs))
    wanted = min(room, len(plan_everything(state, table.properties)))
    simulation.ask_alone(CompactTable("at-rest", table.name, all=True))
    assigned = len(simulation.services.store(table).current().jobs) - len(state.jobs)
    if assigned != wanted:
        simulation.oracle(table.id).fail(f"{assigned} of {wanted} compactions were assigned")


def wait(simulation: Simulation) -> None:
    """Do all there is to do, waiting for what is delayed."""
    for _ in range(WAITS):
        simulation.settle()
        next_ms = simulation.instance.queues.next_visible_ms()
        if next_ms is None:
            return
        if next_ms - simulation.swept_ms > SWEEP_MS:  # what waits may wait for what was lost
            next_ms = min(next_ms, max(simulation.now_ms, simulation.swept_ms + SWEEP_MS))
            simulation.sweep(audit=simulation.now_ms - simulation.audited_ms > DAY_MS)
        simulation.instance.clock.ms = max(simulation.now_ms, next_ms)
    left = [body for each in simulation.instance.queues.messages.values() for body in each][:3]
    raise Violation(f"there is no end to messages; some are {left}")


def swept(simulation: Simulation, *, audit: bool) -> None:
    """Run the sweep, and do what follows from it."""
    simulation.sweep(audit=audit)
    wait(simulation)


def check_rest(simulation: Simulation) -> None:
    """Check what lies in the instance when all is done.

    Raises:
        Violation: something is not as it must be.
    """
    queues = simulation.instance.queues
    if dead := queues.dead():
        queue, letter = dead[0]
        raise Violation(f"{len(dead)} dead letters are left, one in {queue}: {letter.body}")
    tables = simulation.instance.tables.all()
    for table in tables:
        if table.deleting:
            raise Violation(f"table {table.id} is still being deleted", table.id)
        _check_table(simulation, table)
        _check_kept(simulation, table)
        _check_tracker(simulation, table)
    check_answers(simulation)
    simulation.answers.check_rest()
    _check_files(simulation, {table.name: table for table in tables})
    _check_exports(simulation)
    _check_gone(simulation, {table.id for table in tables})


def check_deletion(simulation: Simulation) -> None:
    """Have a table deleted, and check that nothing is left of it.

    Raises:
        Violation: something is.
    """
    tables = simulation.instance.tables.all()
    if tables:
        table = simulation.random.choice(tables)
        simulation.ask_alone(DeleteTable("in-the-end", table.name, release_tags=True))
        wait(simulation)
        _check_gone(simulation, {each.id for each in tables if each != table})


def _check_table(simulation: Simulation, table: Table) -> None:
    services = simulation.instance.worker("checker").wiring.services
    oracle = simulation.oracle(table.id)
    report = check(services, table)
    if report.findings:
        oracle.fail(f"the check found {report.findings[0]}")
    state = services.store(table).current()
    if len(state.jobs):
        oracle.fail(f"jobs are stuck: {sorted(state.jobs)}")
    if len(state.unreferenced):
        oracle.fail(f"garbage is left: {sorted(state.unreferenced)}")
    if state.version != oracle.newest:
        oracle.fail(f"version {state.version} came to be unseen, after {oracle.newest}")
    _check_rows(simulation, table, state)


def _check_rows(simulation: Simulation, table: Table, state: TableState) -> None:
    """Check that a version of a table has the rows that it had when it came to be."""
    services = simulation.instance.worker("checker").wiring.services
    oracle = simulation.oracle(table.id)
    result = query_rows(
        services.storage,
        table,
        state,
        [],
        now_ms=simulation.now_ms,
        scratch=services.scratch,
        memory_bytes=services.memory_bytes,
    )
    found = oracle.shape.rows_of(result.reader.read_all())
    oracle.check_answer(found, state.version, KeyRange(), simulation.now_ms)


def _check_kept(simulation: Simulation, table: Table) -> None:
    """Check that beside a table lies nothing that nobody needs."""
    services = simulation.services
    storage, oracle = simulation.instance.storage, simulation.oracle(table.id)
    state = services.store(table).current()
    objects = {shard_id_of(stored.path) for stored in storage.list(data_prefix(table.id))}
    if objects != set(state.shards):
        oracle.fail(f"objects and state differ in {sorted(map(str, objects ^ set(state.shards)))}")
    published = _check_published(simulation, table)
    looked_at = (data_prefix(table.id), state_prefix(table.id), RUN_MARKERS.prefix(table.id))
    for stored in storage.list(table_prefix(table.id)):
        if stored.path in published or stored.path.startswith(looked_at):
            continue
        if not _is_reply(stored.path):
            oracle.fail(f"{stored.path} is left")
    orphan_age_ms = table.properties.orphan_age_seconds * 1000
    spent, _ = obsolete_run_markers(
        storage,
        table.id,
        lambda: state,
        before_ms=simulation.now_ms - 2 * orphan_age_ms - DAY_MS,  # as audits wait, and a day
    )
    for path in spent:
        oracle.fail(f"{path} is left")
    for left in left_in_state(simulation.instance, table):
        oracle.fail(left)


def _check_published(simulation: Simulation, table: Table) -> set[str]:
    """Check that the newest version of a table is published, if it is to be; return what of it."""
    services, oracle = simulation.services, simulation.oracle(table.id)
    record = services.publications.get(table.id)
    newest = record.newest if record is not None else None
    if not is_published(table.properties):
        if newest is not None and newest.metadata:
            oracle.fail(f"{newest.metadata} is not withdrawn")
        return set()
    state = services.store(table).current()
    if newest is None or not newest.covers(table.state_id, state) or lag_ms(services, table, state):
        oracle.fail(f"version {state.version} is not published, but {newest}")
        return set()
    for problem in problems(services, table):
        oracle.fail(f"published: {problem}")
    return reachable(services.storage.get, [newest.metadata])


def _is_reply(path: str) -> bool:
    """Return whether an object is a last reply: it stays for a month, for late deliveries."""
    key, _ = request_in(path)
    return path.endswith(request_reply_path("", key))


def _check_tracker(simulation: Simulation, table: Table) -> None:
    """Check that no record shows unfinished work.

    A request that wants no reply stays accepted: the records of its jobs show what became of it.
    Of records by clocks that are apart, the last that came may be older than the one that is kept.
    """
    found = simulation.instance.tracker.latest
    for record in simulation.instance.tracker.records(table.id):
        is_over = record.is_finished or record.state == "accepted"
        last = last_record(record, found[table.id, record.job_id], simulation.slack_ms)
        if not (is_over or last.is_finished):
            simulation.oracle(table.id).fail(f"the tracker still has {record}")


def _check_files(simulation: Simulation, tables: dict[str, Table]) -> None:
    """Check that each file in the bucket was ingested, or refused because it is invalid."""
    sources, tracker = simulation.instance.sources, simulation.instance.tracker
    for known in simulation.workload.dropped.values():
        source = known.source
        table = tables.get(table_name_of(source.key))
        body = sources.objects[source.key][0]
        is_newest = sources.source(source.key).etag == source.etag and body is not None
        slack_ms = simulation.slack_ms + 1000
        if table is None or not is_newest or table.files_since_ms + slack_ms > known.time_ms:
            continue
        if not simulation.is_long and simulation.now_ms - known.time_ms > FILES_KNOWN_MS:
            continue
        oracle = simulation.oracle(table.id)
        record = tracker.get(table.id, source.id) or tracker.get(NO_TABLE, source.id)
        if known.rows is None:
            if record is None or record.state != "refused":
                oracle.fail(f"file {source.key} was not refused, source {source.id}")
        elif source.id in oracle.taken:
            continue
        elif oracle.shows(known) or source.id not in oracle.claimed:
            oracle.fail(f"file {source.key} was not ingested, source {source.id}; {record}")


def _check_exports(simulation: Simulation) -> None:
    """Check the rows of each export that is whole."""
    results = simulation.instance.results
    for stored in list(results.list("")):
        prefix, _, name = stored.path.rpartition("/")
        if name != MANIFEST or stored.path.startswith(RESULTS_OF_QUERIES):
            continue
        manifest = json.loads(results.get(stored.path))
        oracle = simulation.oracle(manifest["table_id"])
        rows = []
        for file in manifest["files"]:
            rows += oracle.shape.rows_in_file(results.get(f"{prefix}/{file['name']}"))
        order = [oracle.shape.order(row) for row in rows]
        if order != sorted(order):
            oracle.fail(f"the rows of {stored.path} are not sorted")
        oracle.check_answer(rows, manifest["version"], KeyRange(), manifest["time_ms"])


def _check_gone(simulation: Simulation, tables: set[str]) -> None:
    """Check that nothing is left of any table that is gone, or that was never made."""
    instance = simulation.instance
    there = {*instance.storage.folders(), *instance.pages.logs, *instance.tables.created}
    for table_id in sorted({each.partition("/")[0] for each in there} - tables - {SPARK_CODE}):
        for left in left_of_gone(instance, table_id):
            raise Violation(f"{left} is left of table {table_id}, which is gone", table_id)


def check_lost_entry(simulation: Simulation) -> None:
    """Lose a table's registry entry, and check that audits delete nothing of it, and report it.

    Raises:
        Violation: something is missing, or no reply was sent.
    """
    instance = simulation.instance
    tables = instance.tables.all()
    if not tables:
        return
    table = simulation.random.choice(tables)
    lost = instance.tables.by_id.pop(table.id)
    before = _kept_of(simulation, table)
    for _ in range(3):
        instance.clock.advance(seconds=2 * DAY_MS // 1000)
        instance.worker("auditor").scheduled("sweep", audit=True)
        has_objects = table.id in instance.storage.folders()
        if has_objects and table.id not in unregistered(instance):
            raise Violation(f"no reply says that {table.id} is not registered", table.id)
    wait(simulation)
    if _kept_of(simulation, table) != before:
        raise Violation(f"something of {table.id} is missing, whose entry was lost", table.id)
    instance.tables.by_id[table.id] = lost
    swept(simulation, audit=True)
    _check_table(simulation, table)


def _kept_of(simulation: Simulation, table: Table) -> object:
    """Return all that a table keeps, wherever it lies."""
    instance = simulation.instance
    state_ids = {state.state_id for state in table.states()}
    items = [key for key in instance.dynamodb.kept if key[1].partition("#")[0] in state_ids]
    logs = [repr(instance.pages.logs.get(state_id)) for state_id in sorted(state_ids)]
    paths = [stored.path for stored in instance.storage.list(table_prefix(table.id))]
    return paths, sorted(items), logs


def unregistered(instance: Instance) -> list[str]:
    """Return the ids that nobody can account for, as a process of a person lists them."""
    services = instance.worker("lister").wiring.services
    return [unregistered.table_id for unregistered in list_unregistered(services)]
