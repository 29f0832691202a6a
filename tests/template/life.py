"""A table's whole life by the real functions of an instance, with what goes wrong in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from msgspec import structs

from dormouse.client.instance import Instance
from dormouse.features.administration import administer
from dormouse.features.export import load_manifest
from dormouse.features.purge import REQUEST, purge_id_of
from dormouse.features.queries import load_end
from dormouse.features.requests import request_key
from dormouse.log.pages import PAGE_CAPACITY
from dormouse.messages.requests import (
    AdminRequest,
    AlterSchema,
    ClearAccess,
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
    RenameTable,
    RestoreVersion,
    RevokeAccess,
    SetDefaults,
    SetOnline,
    SetProperties,
    SplitPartitions,
    TableRequest,
    TagVersion,
    UntagVersion,
)
from dormouse.messages.stages import (
    QUEUES,
    AnswerQuery,
    CancelQuery,
    GarbageCandidates,
    PurgeStep,
    QueryTask,
    RequestStep,
    SelectionMessage,
    TableChanged,
    encode,
)
from dormouse.state.partitions import ROOT, NewShard, Partition, Shard
from dormouse.state.state import AddShards, AssignJob, ReleaseJob, ReplaceShards, TableState
from dormouse.stored.paths import (
    DELETIONS,
    PURGES,
    REJECTED,
    REQUESTS,
    export_done_path,
    iceberg_metadata_path,
    purge_matches_path,
    set_aside_path,
    shard_path,
)
from dormouse.tables.table import Table
from tests.support.purges import purge_request
from tests.support.trees import initialise
from tests.support.world import LETTERS
from tests.template.conftest import NAMES, TEMPLATE
from tests.template.flow import Flow, half_of
from tests.template.spark_jobs import ONE_BAD_ROW, outlive, use_spark

EVENTS = TEMPLATE.parent / "events"
READER = "reader of "
"""Who reads a table and nothing else, by its name; as a stage of a flow."""


def live(flow: Flow, name: str, state_store: str) -> None:
    """Let a table be made, filled, split, compacted, repaired and deleted."""
    services = flow.wiring().services
    properties = {**PROPERTIES, "state_store": state_store}
    flow.send(
        "admin", encode(CreateTable(f"1 {name}", name, LETTERS.to_json(), properties, reply=True))
    )
    for number, text in enumerate(("abc", "xyz", "dmn")):
        flow.drop(f"{name}/{number}.parquet", text)
        flow.drop(f"nobody/{number}.parquet", text)
        flow.settle()
    table = services.tables.named(name)
    assert table is not None
    assert len(services.store(table).current().partitions) == 3
    flow.drop(f"{name}/on-error=skip/3.csv", ONE_BAD_ROW)
    flow.settle()
    fill_a_page(flow, table)
    flow.send("admin", encode(SetOnline(f"2 {name}", name, True)))  # the planner writes a segment
    flow.send("admin", encode(SetOnline(f"3 {name}", name, False)))
    flow.wirings.clear()  # from here on, all are new processes, which read it
    remove_rows(flow, table)
    table = ask_for_all_else(flow, table)
    leave_undone(flow, table)
    use_spark(flow, table)
    export_rows(flow, table)
    ask_queries(flow, table)
    read_rows(flow, table)
    ask_the_catalog(flow, table)
    use_the_api(flow, table)
    flow.invoke("measure", {})
    flow.drop("nobody/late.parquet", "a")  # so that a message waits
    for event in ("good", "audit"):
        path = EVENTS / "sweep" / f"{event}.json"
        flow.invoke("sweep", json.loads(path.read_text()))
    flow.settle()
    delete_rows(flow, table)
    for queue in QUEUES:
        flow.send(queue, "not a message")
    save_spark_request(flow, table, "last")
    services.storage.put(export_done_path(table.id, "last", 0), b"of a task that was late")
    services.storage.put(set_aside_path(table.id, "last", "function"), b"")
    for queue in QUEUES:
        assert ask_the_api(flow, "GET", f"/queues/{queue}/dead-letters")["items"]
    for queue in QUEUES:  # the messages fail again, and the request is done
        flow.send("admin", encode(Redrive(f"redrive {queue} {name}", queue)))
    with outlive(flow, table):
        flow.send("admin", encode(DeleteTable(f"4 {name}", name)))
    assert not services.tables.all()


PROPERTIES: dict[str, object] = {
    "compaction_strategy": "batch",
    "compaction_files": 2,
    "split_threshold_rows": 8,
    "gc_delay_seconds": 0,
    "orphan_age_seconds": 0,
    "job_retry_seconds": 0,
    "spark_attempts": 1,
    "iceberg": "on",
}
"""Everything is due at once, and after few rows."""


def fill_a_page(flow: Flow, table: Table) -> None:
    """Make the log long enough for a segment; what follows in the life then fits into a page."""
    store = flow.wiring().services.store(table)
    for number in range(PAGE_CAPACITY + 1 - store.current().version):
        store.commit(ReleaseJob(f"none-{number}"), generation=0)


def leave_undone(flow: Flow, table: Table) -> None:
    """Leave behind what lost messages and dead functions do, and a half deleted table."""
    services = flow.wiring().services
    store = services.store(table)
    flow.drop(f"{table.name}/late.parquet", "q")
    flow.lose("files")
    services.storage.put(shard_path(table.id, "orphan-0"), b"of a run that died")
    services.storage.put(set_aside_path(table.id, "no-more", "function"), b"")
    services.storage.put(REQUESTS.path(table.id, "undone"), b"its chain of steps was lost")
    left, *_, right = store.current().partitions.leaves()
    held = shard_in(left.id)
    gone = AssignJob("gone", left.id, (held.shard.id,))
    stuck = AssignJob("stuck", right.id, references(store.current(), right.id))
    store.commit(AddShards("held", (), (held,)), gone, stuck, generation=0)
    store.commit(ReplaceShards("gone", left.id, gone.inputs, ()), generation=0)
    with set_for_now(flow, table, gc_delay_seconds=900):
        flow.send("gc-candidates", encode(GarbageCandidates(table.id, 0, gone.inputs)))
    half = replace(table, id=half_of(table), name="half", deleting=True)
    services.store(half).commit(initialise([Partition(ROOT)], table.schema.key_types), generation=0)
    services.tables.create(half)
    services.storage.put(iceberg_metadata_path(half.id, "00001.metadata.json"), b"")
    services.storage.put(f"{REJECTED.prefix(half.id)}1.jsonl", b"")


def ask_for_all_else(flow: Flow, table: Table) -> Table:
    """Ask once for each kind of request that the rest of the flow does not need.

    Gives the table as it is then.
    """
    column: dict[str, object] = {"name": "more", "type": "LongType", "nullable": True}
    times: dict[str, object] = {"name": "seen", "type": "TimestampType", "nullable": True}
    version = flow.wiring().services.store(table).current().version
    asked: tuple[AdminRequest, ...] = (
        TagVersion("m", table.name, version, "kept"),
        RenameTable("a", table.name, "other"),
        RenameTable("b", "other", table.name),
        AlterSchema("c", table.name, (column, times)),
        AlterSchema("u", table.name, types={"seen": "TimestampNsType"}),
        SetProperties("d", table.name, {"compaction_files": 3}),
        SetProperties("e", table.name, {"compaction_files": 2}),
        SetDefaults("f", {"compaction_size_ratio": 4}),
        GrantAccess("p", "local", table.name, ("read",)),
        RevokeAccess("q", "local", table.name),
        ClearAccess("r"),
        SetDefaults("g", unset=("compaction_size_ratio",)),
        RestoreVersion("o", table.name, "kept"),
        DeleteRows("s", table.name, SelectionMessage(where="letter = 'e'")),
        SplitPartitions("h", table.name, forced=True),
        CompactTable("i", table.name, all=True),
        CollectGarbage("j", table.name),
        UntagVersion("n", table.name, "kept"),
        SetOnline("k", table.name, True),
        IngestFiles("l", table.name, (f"elsewhere/{table.name}",)),
    )
    flow.drop(f"elsewhere/{table.name}/1.parquet", "e")
    flow.lose("files")
    for request in asked:
        request_id = f"{request.request_id} {table.name}"
        changed = structs.replace(request, request_id=request_id, reply=True)
        flow.send("admin", encode(changed))
        if changed.causes_jobs:
            see_whether_it_ended(flow, table, changed)
    services = flow.wiring().services
    assert len(services.store(table).current().partitions) > 3
    changed_table = services.tables.named(table.name)
    assert changed_table is not None
    return changed_table


def delete_rows(flow: Flow, table: Table) -> None:
    """Delete rows for good, and lose the note of that, as a function that died does."""
    asked = SelectionMessage(where="note = 'none'")
    flow.send("admin", encode(DeleteRows(f"t {table.name}", table.name, asked)))
    storage = flow.wiring().services.storage
    (note,) = storage.list(DELETIONS.prefix(table.id))
    storage.delete([note.path])
    flow.send("table-changes", encode(TableChanged(table.id)))
    assert list(storage.list(note.path)), "the planning notes it again"


def remove_rows(flow: Flow, table: Table) -> None:
    """Purge a row, and leave behind what steps that died do."""
    request = PurgeRows(
        f"5 {table.name}", table.name, SelectionMessage(where="letter = 'a'"), reply=True
    )
    with set_for_now(flow, table, job_retry_seconds=900):  # else its steps end at once
        flow.send("admin", encode(request))
    flow.send("purges", encode(PurgeStep(table.id, purge_id_of(request.request_id))))
    see_whether_it_ended(flow, table, request)
    save_spark_request(flow, table, "undone")
    flow.wiring().services.storage.put(purge_matches_path(table.id, "finished", "1"), b"too late")


def see_whether_it_ended(flow: Flow, table: Table, request: TableRequest) -> None:
    """Do the step that comes some seconds after a request."""
    flow.do("admin", encode(RequestStep(table.id, request_key(request))))


def export_rows(flow: Flow, table: Table) -> None:
    """Export all rows; leave behind an export whose messages are lost, and what is left of one."""
    services = flow.wiring().services
    request = ExportRows(f"6 {table.name}", table.name, f"{table.name}/1", reply=True)
    flow.send("admin", encode(request))
    see_whether_it_ended(flow, table, request)
    assert load_manifest(services.results, f"{table.name}/1") is not None
    administer(services, ExportRows(f"7 {table.name}", table.name, f"{table.name}/2"))
    services.storage.put(export_done_path(table.id, "finished", 0), b"too late")


def ask_queries(flow: Flow, table: Table) -> None:
    """Ask for rows that are there, and for some that are not; leave behind a query whose messages
    are lost, and parts of one that was cancelled.
    """
    services = flow.wiring().services
    limited = SelectionMessage(limit=2)
    asked = (
        AnswerQuery(query_id=f"rows-{table.name}", table=table.name),
        AnswerQuery(query_id=f"sql-{table.name}", sql=f"SELECT count(*) AS n FROM {table.name}"),
        AnswerQuery(query_id=f"none-{table.name}", table=f"{table.name}s"),
        AnswerQuery(query_id=f"first-{table.name}", table=table.name, selection=limited),
        CancelQuery(query_id=f"cancelled-{table.name}"),
    )
    for message in asked:
        flow.send("queries", encode(message))
    states = []
    for message in asked:
        end = load_end(services.results, message.query_id)
        assert end is not None
        states.append(end.state)
    assert states == ["finished", "finished", "failed", "finished", "cancelled"]
    cut = structs.replace(asked[0], query_id=f"lost-{table.name}")
    with set_for_now(flow, table, query_cut_bytes=0, query_task_bytes=1):
        flow.do("queries", encode(cut))
        flow.lose("queries")
        half = structs.replace(asked[0], query_id=f"half-{table.name}")
        flow.do("queries", encode(half))
        flow.lose("queries")
        flow.do("queries", encode(QueryTask(half.query_id, 0)))
        flow.send("queries", encode(CancelQuery(query_id=half.query_id)))


def read_rows(flow: Flow, table: Table) -> None:
    """Read rows as somebody does who has the library: all, some by key, those of a version."""
    tagged = Instance.connect(NAMES.instance).table(table.name)
    tagged.tag(tagged.state().version, "read")
    with flow.acting_as(READER + table.name):
        handle = Instance.connect(NAMES.instance).table(table.name)
        found = handle.query().read_all()
        assert 0 < handle.query(exact="x").read_all().num_rows < found.num_rows
        assert handle.query(as_of=handle.state().version).read_all() == found
        assert handle.query(as_of="read").read_all() == found
        assert [tag.tag for tag in handle.tags()] == ["read"]
        assert handle.count() == found.num_rows > 5
    tagged.untag("read")


def ask_the_catalog(flow: Flow, table: Table) -> None:
    """List the published tables, and load one, as an engine does."""
    for name, path, found in (("list", "", table.name), ("good", f"/{table.name}", table.id)):
        event = json.loads((EVENTS / "serve_catalog" / f"{name}.json").read_text())
        event["rawPath"] = f"/iceberg/v1/namespaces/dormouse/tables{path}"
        answer = flow.invoke("serve_catalog", event)
        assert (answer["statusCode"], found in answer["body"]) == (200, True)


def use_the_api(flow: Flow, table: Table) -> None:
    """Ask for all that there is of a table; send rows, and a request."""
    path = f"/tables/{table.name}"
    assert ask_the_api(flow, "GET", "/tables")["tables"]
    parts = ("schema", "properties", "status", "metrics", "partitions", "shards", "versions")
    for part in (*parts, "jobs", "refused-files"):
        ask_the_api(flow, "GET", f"{path}/{part}")
    assert ask_the_api(flow, "POST", f"{path}/query", {"keys": ["x"]})["rows"]
    assert ask_the_api(flow, "POST", f"{path}/query", {"page_rows": 1})["next"]
    statement = {"text": f'SELECT count(*) AS n FROM "{table.name}"'}
    assert ask_the_api(flow, "POST", "/sql", statement)["rows"]
    for _ in range(2):  # the second finds what the first has put
        rows: object = [{"letter": "h", "at": 7, "note": "h"}]
        taken = ask_the_api(flow, "POST", f"{path}/rows", rows, **{"idempotency-key": table.id})
    assert ask_the_api(flow, "GET", taken["location"])["state"] == "waiting"
    assert "Signature=" in ask_the_api(flow, "POST", f"{path}/files", {"name": "1.csv"})["url"]
    asked = ask_the_api(flow, "POST", f"{path}/query", {}, prefer="respond-async")["location"]
    assert ask_the_api(flow, "GET", asked)["state"] == "waiting"
    flow.settle()
    result = ask_the_api(flow, "GET", asked)
    assert "Signature=" in result["files"][0]["url"]
    file = flow.wiring().services.results.list(f"{asked[1:]}/part-")
    small = next(iter(file)).path.rpartition("/")[2]
    assert ask_the_api(flow, "GET", f"{asked}/files/{small}")
    assert ask_the_api(flow, "GET", "/queries")["items"]
    ask_the_api(flow, "DELETE", asked)
    assert ask_the_api(flow, "GET", "/queues")["queues"]
    ask_the_api(flow, "GET", "/jobs")
    location = ask_the_api(flow, "POST", f"{path}/compact", {})["location"]
    flow.settle()
    assert ask_the_api(flow, "GET", location)["state"] != "waiting"


def ask_the_api(
    flow: Flow, method: str, path: str, body: object = None, **headers: str
) -> dict[str, Any]:
    """Return what the API answers."""
    event = json.loads((EVENTS / "serve_http" / "list.json").read_text())
    event["rawPath"] = path
    event["requestContext"]["http"]["method"] = method
    if body is not None:
        event["body"] = json.dumps(body)
        event["headers"] |= {"content-type": "application/json", **headers}
    answer = flow.invoke("serve_http", event)
    assert answer["statusCode"] < 300, answer
    lines = answer["body"].splitlines()
    found: dict[str, Any] = json.loads(lines[0])
    return found


@contextmanager
def set_for_now(flow: Flow, table: Table, **properties: object) -> Iterator[None]:
    """Let a table have other properties in the block."""
    tables = flow.wiring().services.tables
    before = tables.get(table.id)
    assert before is not None
    tables.change(table.id, lambda t: t.with_settings({**t.settings, **properties}, {}))
    yield
    tables.change(table.id, lambda t: t.with_settings(before.settings, {}))


def save_spark_request(flow: Flow, table: Table, purge_id: str) -> None:
    path = PURGES.path(table.id, purge_id)
    request = purge_request(table.schema, "letter = 'b'", purge_id=purge_id)
    REQUEST.put(flow.wiring().services.storage, path, request)


def shard_in(partition: str) -> NewShard:
    return NewShard(Shard.of("held-0", 1, 1, ("a",), ("a",)), ((partition, 1),))


def references(state: TableState, partition: str) -> tuple[str, ...]:
    return tuple(reference.shard for reference in state.references_in(partition))
