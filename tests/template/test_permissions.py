"""Each function may do what it does, and nothing else.

The flow runs through the real handlers against an embedded AWS, which forbids nothing; every
request is held against the role that the template gives the function.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

import boto3
import pytest
from moto.server import ThreadedMotoServer
from msgspec import structs
from werkzeug.serving import WSGIRequestHandler

from dormouse.aws import handling
from dormouse.messages import GarbageCandidates, PurgeStep, encode
from dormouse.model.names import QUEUES, export_done_path, purge_path, shard_path, verdict_path
from dormouse.model.partitions import ROOT, Partition
from dormouse.model.purges import PurgeRequest, encode_request
from dormouse.model.shards import NewShard, Shard
from dormouse.model.state import TableState
from dormouse.model.tables import Table
from dormouse.model.transactions import (
    AddShards,
    AssignJob,
    InitialisePartitions,
    ReleaseJob,
    ReplaceShards,
)
from dormouse.requests import (
    AdminRequest,
    AlterSchema,
    CollectGarbage,
    CompactTable,
    CreateTable,
    DeleteTable,
    ExportRows,
    IngestFiles,
    PurgeRows,
    Redrive,
    RenameTable,
    SetDefaults,
    SetOnline,
    SetProperties,
    SplitPartitions,
)
from dormouse.stages.administer import administer
from dormouse.stages.manifests import manifest_at
from dormouse.stages.requests.purge_rows import purge_id_of
from dormouse.statestore.pages import PAGE_CAPACITY
from dormouse_cli.local import moto_server
from dormouse_cli.local.deploy import deploy
from dormouse_cli.local.template import read
from tests.support.world import LETTERS
from tests.template.conftest import NAMES, REGION, STAGES, TEMPLATE, Template
from tests.template.flow import Flow
from tests.template.spark_jobs import APPLICATION, use_spark

NO_REQUEST_SHOWS = {
    "logs:CreateLogStream",
    "logs:PutLogEvents",
    "sqs:ReceiveMessage",
    "sqs:DeleteMessage",
    "sqs:GetQueueAttributes",
    "sqs:ChangeMessageVisibility",
    "s3:ListBucket",
}
"""What Lambda does in a function's name; and without ListBucket, S3 calls a missing object a
forbidden one."""
COMMITS = (
    "ingest",
    "plan_table",
    "split_partition",
    "compact",
    "collect_garbage",
    "administer",
    "purge_rows",
)
RARE = {
    **{(s, "dynamodb:PutItem", "-state"): "the next page, if the log's is full" for s in COMMITS},
    ("ingest", "s3:DeleteObject", "/data/"): "its own shards, after a rejected commit",
    ("ingest", "s3:GetObject", "/data/"): "its own shard, if an upload was not answered",
    ("plan_table", "s3:DeleteObject", "/state/"): "what no version needs, when a round is due",
    ("plan_table", "dynamodb:BatchWriteItem", "-state"): "pages that no version needs",
    **{
        (stage, f"dynamodb:{action}", table): reason
        for table in ("-references", "-shards", "-partitions")
        for stage, action, reason in (
            ("plan_table", "BatchWriteItem", "what no version needs after a while"),
            ("sweep", "BatchWriteItem", "a table that lived long before it was half deleted"),
            ("split_partition", "Query", "a table that lived long, by a new process"),
        )
    },
    **{
        ("dispatch_spark", f"sqs:{action}", queue): "in an instance that has no Spark"
        for action in ("SendMessage", "GetQueueUrl")
        for queue in ("-ingest-jobs", "-compaction-jobs", "-exports")
    },
    **{
        (stage, f"sqs:{action}", "-spark-jobs"): reason
        for action in ("SendMessage", "GetQueueUrl")
        for stage, reason in (
            ("dispatch_spark", "itself, when EMR is throttled"),
            ("batch_files", "a job that is too heavy for a function"),
            ("plan_table", "the same"),
            ("purge_rows", "the same"),
        )
    },
    ("administer", "s3:GetObject", "/state/"): "a table half made by a run that died",
    ("sweep", "s3:GetObject", "/endings/"): "the note of a compaction that left no rows",
    ("sweep", "s3:DeleteObject", "/endings/"): "such a note, when it has had its time",
    ("administer", "s3:GetObject", "-results-"): "a manifest, if the request comes late again",
    ("export_rows", "s3:GetObject", "-results-"): "what another run of the task put before",
    ("export_rows", "sqs:SendMessage", "-exports"): "itself, when it has had no time for all",
    ("export_rows", "sqs:GetQueueUrl", "-exports"): "the same",
    **{
        ("batch_files", f"sqs:{action}", "-files"): "files of a table that waits for more"
        for action in ("SendMessage", "GetQueueUrl")
    },
    ("sweep", "dynamodb:UpdateItem", "-jobs"): "a file refused that nobody was told of",
}
"""What only a race or a loss makes a function do: stage, action, and a part of the resource."""


@pytest.mark.parametrize("stage", STAGES)
def test_nothing_is_granted_for_all_resources_or_all_actions(
    template: Template, stage: str
) -> None:
    for action, resource in template.grants(stage):
        service, _, operation = action.partition(":")
        assert "*" not in action and operation, action
        assert resource.startswith(f"arn:aws:{service}:"), f"{action} on {resource}"
        if service in ("dynamodb", "sqs"):
            assert "*" not in resource, f"{action} on {resource}"


@pytest.mark.parametrize("stage", STAGES)
def test_a_function_may_do_all_it_does(
    requests: Mapping[str, set[tuple[str, str]]], template: Template, stage: str
) -> None:
    grants = list(template.grants(stage))
    assert requests[stage], "the flow never ran it"
    for action, resource in sorted(requests[stage]):
        assert any(action == a and fnmatchcase(resource, r) for a, r in grants), (
            f"{stage} is not allowed {action} on {resource}"
        )


@pytest.mark.parametrize("stage", STAGES)
def test_a_function_may_do_nothing_it_never_does(
    requests: Mapping[str, set[tuple[str, str]]], template: Template, stage: str
) -> None:
    never = {
        f"{action} on {resource}"
        for action, resource in template.grants(stage)
        if action not in NO_REQUEST_SHOWS
        and not any(action == a and fnmatchcase(r, resource) for a, r in requests[stage])
        and not any((stage, action) == rare[:2] and rare[2] in resource for rare in RARE)
    }
    assert never == set()


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, set[tuple[str, str]]]]:
    """Run a table's whole life; give what each function asked of AWS."""
    moto_server.make_atomic()
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WSGIRequestHandler, "disable_nagle_algorithm", True)  # it delays answers
        for name, value in {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": REGION,
            "DORMOUSE_INSTANCE": NAMES.instance,
            "DORMOUSE_ACCOUNT": NAMES.account,
            "DORMOUSE_SPARK_APPLICATION": APPLICATION,
            "DORMOUSE_SPARK_ROLE": f"arn:aws:iam::{NAMES.account}:role/local-SparkJobRole",
            "TMPDIR": str(tmp_path_factory.mktemp("scratch")),
        }.items():
            patch.setenv(name, value)
        session = boto3.Session()
        patch.setattr(boto3, "DEFAULT_SESSION", session)
        deployment = read(TEMPLATE, {"Instance": NAMES.instance}, endpoint, REGION)
        deploy(deployment, boto3.Session(), endpoint)
        flow = Flow(boto3.Session().client("sqs"), boto3.Session().client("s3"))
        session.events.register("before-parameter-build", flow.see)
        patch.setattr(handling, "wiring", flow.wiring)
        try:
            live(flow, "letters", "s3")
            live(flow, "items", "dynamodb")
        finally:
            server.stop()
    yield flow.requests


def live(flow: Flow, name: str, state_store: str) -> None:
    """Let a table be made, filled, split, compacted, repaired and deleted."""
    services = flow.wiring().services
    properties = {**PROPERTIES, "state_store": state_store}
    flow.send(
        "admin",
        encode(CreateTable(f"1 {name}", name, LETTERS.to_json(), properties, reply=True)),
    )
    for number, text in enumerate(("abc", "xyz", "dmn")):
        flow.drop(f"{name}/{number}.parquet", text)
        flow.drop(f"nobody/{number}.parquet", text)
        flow.settle()
    table = services.tables.named(name)
    assert table is not None
    assert len(services.store(table).current().partitions) == 3
    fill_a_page(flow, table)
    flow.send("admin", encode(SetOnline(f"2 {name}", name, True)))  # the planner writes a segment
    flow.send("admin", encode(SetOnline(f"3 {name}", name, False)))
    flow.wirings.clear()  # from here on, all are new processes, which read it
    remove_rows(flow, table)
    table = ask_for_all_else(flow, table)
    leave_undone(flow, table)
    use_spark(flow, table)
    export_rows(flow, table)
    flow.invoke("measure", {})
    for event in ("good", "audit"):
        path = TEMPLATE.parent / "events" / "sweep" / f"{event}.json"
        flow.invoke("sweep", json.loads(path.read_text()))
    flow.settle()
    for queue in QUEUES:
        flow.send(queue, "not a message")
    keep_request(flow, table, "last")
    services.storage.put(export_done_path(table.id, "last", 0), b"of a task that was late")
    for queue in QUEUES:  # the letters die again, and the request is done
        flow.send("admin", encode(Redrive(f"redrive {queue} {name}", queue)))
    flow.send("admin", encode(DeleteTable(f"4 {name}", name)))
    assert not services.tables.all()


PROPERTIES: dict[str, object] = {
    "compaction_strategy": "batch",
    "compaction_files": 2,
    "split_threshold_rows": 8,
    "gc_delay_seconds": 0,
    "orphan_age_seconds": 0,
    "job_patience_seconds": 0,
    "spark_attempts": 1,
}
"""Everything is due at once, and after few rows."""


def fill_a_page(flow: Flow, table: Table) -> None:
    """Make the log long enough for a segment."""
    store = flow.wiring().services.store(table)
    for number in range(PAGE_CAPACITY):
        store.commit(ReleaseJob(f"none-{number}"), generation=0)


def leave_undone(flow: Flow, table: Table) -> None:
    """Leave behind what lost messages and dead functions do, and a half deleted table."""
    services = flow.wiring().services
    store = services.store(table)
    flow.drop(f"{table.name}/late.parquet", "q")
    flow.lose("files")
    services.storage.put(shard_path(table.id, "orphan-0"), b"of a run that died")
    left, *_, right = store.current().partitions.leaves()
    held = shard_in(left.id)
    gone = AssignJob("gone", left.id, (held.shard.id,))
    stuck = AssignJob("stuck", right.id, references(store.current(), right.id))
    store.commit(AddShards("held", (), (held,)), gone, stuck, generation=0)
    store.commit(ReplaceShards("gone", left.id, gone.inputs, ()), generation=0)
    services.tables.change(
        table.id, lambda t: t.with_settings({**t.settings, "gc_delay_seconds": 900}, {})
    )
    flow.send("gc-candidates", encode(GarbageCandidates(table.id, 0, gone.inputs)))
    services.tables.change(table.id, lambda _: table)
    half = replace(table, id=f"half-{table.id}", name="half", deleting=True)
    services.store(half).commit(InitialisePartitions((Partition(ROOT),)), generation=0)
    services.tables.create(half)


def ask_for_all_else(flow: Flow, table: Table) -> Table:
    """Ask once for each kind of request that the rest of the flow does not need.

    Gives the table as it is then.
    """
    column: dict[str, object] = {"name": "more", "type": "LongType", "nullable": True}
    asked: tuple[AdminRequest, ...] = (
        RenameTable("a", table.name, "other"),
        RenameTable("b", "other", table.name),
        AlterSchema("c", table.name, (column,)),
        SetProperties("d", table.name, {"compaction_files": 3}),
        SetProperties("e", table.name, {"compaction_files": 2}),
        SetDefaults("f", {"compaction_size_ratio": 4}),
        SetDefaults("g", unset=("compaction_size_ratio",)),
        SplitPartitions("h", table.name, forced=True),
        CompactTable("i", table.name, all=True),
        CollectGarbage("j", table.name),
        SetOnline("k", table.name, True),
        IngestFiles("l", table.name, (f"elsewhere/{table.name}",)),
    )
    flow.drop(f"elsewhere/{table.name}/1.parquet", "e")
    flow.lose("files")
    for request in asked:
        changed = structs.replace(request, request_id=f"{request.request_id} {table.name}")
        flow.send("admin", encode(changed))
    services = flow.wiring().services
    assert len(services.store(table).current().partitions) > 3
    changed_table = services.tables.named(table.name)
    assert changed_table is not None
    return changed_table


def remove_rows(flow: Flow, table: Table) -> None:
    """Purge a row, and leave behind what steps that died do."""
    request = PurgeRows(f"5 {table.name}", table.name, "letter = 'a'")
    flow.send("admin", encode(request))
    flow.send("purges", encode(PurgeStep(table.id, purge_id_of(request.request_id))))
    keep_request(flow, table, "undone")
    flow.wiring().services.storage.put(verdict_path(table.id, "finished", "1"), b"too late")


def export_rows(flow: Flow, table: Table) -> None:
    """Export all rows; leave behind an export whose messages are lost, and what is left of one."""
    services = flow.wiring().services
    flow.send("admin", encode(ExportRows(f"6 {table.name}", table.name, f"{table.name}/1")))
    assert manifest_at(services.results, f"{table.name}/1") is not None
    administer(services, ExportRows(f"7 {table.name}", table.name, f"{table.name}/2"))
    services.storage.put(export_done_path(table.id, "finished", 0), b"too late")


def keep_request(flow: Flow, table: Table, purge_id: str) -> None:
    body = encode_request(PurgeRequest(purge_id, 0, 0, "letter = 'b'"))
    flow.wiring().services.storage.put(purge_path(table.id, purge_id), body)


def shard_in(partition: str) -> NewShard:
    return NewShard(Shard("held-0", 1, 1, ("a",), ("a",)), ((partition, 1),))


def references(state: TableState, partition: str) -> tuple[str, ...]:
    return tuple(reference.shard for reference in state.references_in(partition))
