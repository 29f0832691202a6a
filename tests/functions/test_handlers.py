"""Every function on its sample events: good, repeated, malformed, and all of it in one batch."""

from __future__ import annotations

import gc
import json
from dataclasses import replace
from importlib import import_module
from urllib.parse import quote_plus

import pytest

from dormouse.aws import handling
from dormouse.aws.handling import handle_changes, loaded
from dormouse.errors import UnavailableError
from dormouse.features.export import load_manifest
from dormouse.features.queries import load_end
from dormouse.messages.stages import (
    CompactionJob,
    FilesWaiting,
    GarbageCandidates,
    IngestJob,
    OutboundMessage,
    QueryTask,
    TableChanged,
    encode,
)
from dormouse.ports import NO_TABLE, Services
from dormouse.query.selection import Selection
from dormouse.state.sources import Source
from dormouse.state.state import AssignJob
from tests.functions.conftest import TABLE_ID, Functions, record
from tests.support.exports import begin_export
from tests.support.lambda_context import Context
from tests.support.purges import begin_purge
from tests.support.stray_objects import FILES, STRAYS
from tests.support.world import letters, letters_file
from tools import sample_events

CHANGED = OutboundMessage("table-changes", TableChanged(TABLE_ID))
EXPORT, JOB = sample_events.EXPORT, sample_events.JOB


def test_a_function_keeps_what_it_imported_from_the_garbage_collector() -> None:
    gc.unfreeze()
    assert loaded("compact").name == "compact"
    kept = gc.get_freeze_count()
    gc.unfreeze()
    assert kept > 1000


def test_files_that_waited_for_more_come_by_the_same_queue_as_notifications(
    functions: Functions,
) -> None:
    waiting = functions.world.sources.drop("letters/waiting.parquet", letters_file(letters("ab")))
    message = encode(FilesWaiting(TABLE_ID, 0, 0, (waiting,)))
    assert functions.deliver("batch_files", message) == []
    assert functions.outbox.dead == []
    (sent,) = functions.sent()
    assert isinstance(sent.message, IngestJob)
    assert sent.message.sources == (waiting,)


@pytest.mark.parametrize(
    ("stage", "queue", "bad"),
    [
        ("batch_files", "files", 3),
        ("ingest", "ingest-jobs", 3),
        ("plan_table", "table-changes", 2),
        ("split_partition", "partition-splits", 2),
        ("compact", "compaction-jobs", 2),
        ("collect_garbage", "gc-candidates", 2),
        ("administer", "admin", 3),
        ("purge_rows", "purges", 2),
        ("dispatch_spark", "spark-jobs", 2),
        ("track_spark", "spark-runs", 2),
        ("export_rows", "exports", 2),
        ("answer_query", "queries", 2),
    ],
)
def test_a_malformed_message_is_a_dead_letter_with_its_reason_and_is_not_redelivered(
    functions: Functions, stage: str, queue: str, bad: int
) -> None:
    assert functions.invoke(stage, "malformed") == []
    assert [letter[0] for letter in functions.outbox.dead] == [queue] * bad
    assert all(reason for _, _, reason in functions.outbox.dead)
    assert functions.sent() == []


def sources_of(outgoing: OutboundMessage) -> list[str]:
    assert isinstance(outgoing.message, IngestJob)
    return [source.key for source in outgoing.message.sources]


def test_notified_files_become_one_job_with_their_keys_decoded(functions: Functions) -> None:
    assert functions.invoke("batch_files", "good") == []
    (job,) = functions.sent()
    assert sources_of(job) == ["letters/2026/01.csv", "letters/a file, with spaces.csv"]


def test_a_file_notified_twice_in_a_batch_is_in_the_job_once(functions: Functions) -> None:
    functions.invoke("batch_files", "duplicate")
    (job,) = functions.sent()
    assert sources_of(job) == ["letters/2026/01.csv", "letters/a file, with spaces.csv"]


def test_test_events_removals_and_strays_harm_no_neighbour(functions: Functions) -> None:
    assert functions.invoke("batch_files", "mixed") == []
    (job,) = functions.sent()
    assert sources_of(job) == ["letters/2026/01.csv", "letters/a file, with spaces.csv"]
    assert len(functions.outbox.dead) == 1
    (refused,) = functions.world.tracker.records(NO_TABLE)
    assert (refused.subject, refused.state) == ("nobody/1.csv", "refused")


def test_notified_objects_that_are_no_files_are_nowhere_refused(functions: Functions) -> None:
    """The events of S3 while Spark writes a table's folder."""
    bodies = [
        json.dumps(
            {
                "Records": [
                    {
                        "eventVersion": "2.1",
                        "eventName": "ObjectCreated:Copy",
                        "s3": {
                            "bucket": {"name": functions.world.sources.bucket},
                            "object": {"key": quote_plus(key, safe="/"), "size": 9, "eTag": "e"},
                        },
                    }
                ]
            }
        )
        for key in ("letters/", "letters_$folder$", *(f"letters/{n}" for n in (*STRAYS, *FILES)))
    ]
    assert functions.deliver("batch_files", *bodies) == []
    (sent,) = functions.sent()
    assert isinstance(sent.message, IngestJob)
    assert [s.key for s in sent.message.sources] == [f"letters/{name}" for name in FILES]
    assert (functions.outbox.dead, functions.world.tracker.kept) == ([], {})


def dropped(functions: Functions, key: str, body: bytes) -> Source:
    return functions.world.sources.drop(key, body)


@pytest.mark.parametrize("event", ["good", "duplicate"])
def test_an_ingest_job_adds_its_rows_once(functions: Functions, event: str) -> None:
    source = dropped(functions, "letters/1.csv", b"letter,at,note\na,1,x\nb,2,\n")
    assert functions.invoke("ingest", event, ETAG_1=source.etag) == []
    assert [r["letter"] for r in functions.world.rows(functions.table)] == ["a", "b"]
    assert all(outgoing == CHANGED for outgoing in functions.sent())


def test_bad_messages_and_bad_files_do_not_keep_good_files_out(functions: Functions) -> None:
    one = dropped(functions, "letters/1.csv", b"letter,at,note\na,1,x\n")
    two = dropped(functions, "letters/2.csv", b"letter,at,note\nb,2,y\n")
    bad = dropped(functions, "letters/bad.csv", b"letter,at,note\nc,soon,z\n")
    failed = functions.invoke(
        "ingest", "mixed", ETAG_1=one.etag, ETAG_2=two.etag, ETAG_BAD=bad.etag
    )
    assert failed == []
    assert [r["letter"] for r in functions.world.rows(functions.table)] == ["a", "b"]
    assert len(functions.outbox.dead) == 1
    refused = functions.world.tracker.get(TABLE_ID, bad.id)
    assert refused is not None
    assert "at" in refused.reason


def compactable(functions: Functions) -> None:
    for i in range(4):
        functions.world.drop(f"letters/{i}.parquet", letters("abc", at=10 * i))
        functions.world.deliver(functions.world.queue.popleft())


@pytest.mark.parametrize("event", ["good", "duplicate"])
def test_a_changed_table_is_planned_once_a_batch(functions: Functions, event: str) -> None:
    compactable(functions)
    assert functions.invoke("plan_table", event) == []
    (job,) = functions.sent()
    assert isinstance(job.message, CompactionJob)


def test_a_table_for_which_no_time_is_left_goes_to_the_end_of_the_queue(
    functions: Functions,
) -> None:
    compactable(functions)
    functions.left_ms = 60_000
    assert functions.invoke("plan_table", "good") == []
    assert functions.sent() == [CHANGED]
    assert not len(functions.world.state(functions.table).jobs)


def test_a_sweep_in_a_batch_is_not_taken_for_the_change_before_it(functions: Functions) -> None:
    seen: list[bool] = []

    def stage(_: Services, message: TableChanged) -> list[OutboundMessage]:
        seen.append(message.swept)
        return []

    bodies = [TableChanged(TABLE_ID, swept) for swept in (False, False, True, False, True)]
    records = [
        {"messageId": str(number), "body": encode(body), "attributes": {}}
        for number, body in enumerate(bodies)
    ]
    handle_changes({"Records": records}, Context(), "table-changes", stage)
    assert seen == [False, True]


def test_a_table_that_cannot_be_planned_makes_only_its_own_messages_come_again(
    functions: Functions,
) -> None:
    compactable(functions)
    functions.world.before_next_commit(unavailable)
    assert len(functions.invoke("plan_table", "mixed")) == 1
    assert len(functions.outbox.dead) == 1
    assert functions.invoke("plan_table", "mixed") == []
    assert len(functions.sent()) == 1


def test_all_messages_of_a_table_come_again_where_its_one_planning_failed(
    functions: Functions,
) -> None:
    compactable(functions)
    functions.world.before_next_commit(unavailable)
    changed = encode(TableChanged(TABLE_ID))
    assert functions.deliver("plan_table", changed, changed) == ["0", "1"]
    assert functions.sent() == []


def unavailable() -> None:
    raise UnavailableError("throttled")


@pytest.mark.parametrize("event", ["good", "duplicate", "mixed"])
def test_an_assigned_job_is_compacted_once(functions: Functions, event: str) -> None:
    compactable(functions)
    store = functions.world.services.store(functions.table)
    inputs = tuple(sorted(store.current().shards))
    store.commit(AssignJob(JOB, "root", inputs), generation=0)
    assert functions.invoke("compact", event) == []
    assert len(functions.world.rows(functions.table)) == 12
    garbage = GarbageCandidates(TABLE_ID, 0, inputs)
    announced = [o for o in functions.sent() if o.queue == "gc-candidates"]
    assert announced == [OutboundMessage("gc-candidates", garbage, delay_seconds=900)]


def test_a_crash_before_the_commit_makes_the_message_come_again(functions: Functions) -> None:
    compactable(functions)
    store = functions.world.services.store(functions.table)
    store.commit(AssignJob(JOB, "root", tuple(sorted(store.current().shards))), generation=0)
    functions.world.before_next_commit(functions.world.crash)
    assert len(functions.invoke("compact", "good")) == 1
    assert functions.sent() == []
    assert functions.invoke("compact", "good") == []
    assert len(functions.world.rows(functions.table)) == 12


@pytest.mark.parametrize("event", ["good", "duplicate", "mixed"])
def test_a_leaf_with_too_many_rows_is_split_once(functions: Functions, event: str) -> None:
    small = functions.world.create("small", split_threshold_rows=4)
    functions.world.tables.by_id[TABLE_ID] = replace(small, id=TABLE_ID, name="letters")
    functions.world.drop("letters/1.parquet", letters("abcdef"))
    functions.world.deliver(functions.world.queue.popleft())
    assert functions.invoke("split_partition", event) == []
    assert len(functions.world.state(functions.table).partitions) == 3
    assert functions.sent() == [CHANGED]


@pytest.mark.parametrize("event", ["good", "duplicate", "mixed"])
def test_candidates_that_are_still_needed_or_unknown_are_left_alone(
    functions: Functions, event: str
) -> None:
    functions.world.drop("letters/1.parquet", letters("abc"))
    functions.world.deliver(functions.world.queue.popleft())
    before = functions.world.shard_objects(functions.table)
    assert functions.invoke("collect_garbage", event) == []
    assert functions.world.shard_objects(functions.table) == before


@pytest.mark.parametrize("event", ["good", "duplicate", "mixed"])
def test_a_step_of_a_purge_has_matching_shards_rewritten_once(
    functions: Functions, event: str
) -> None:
    compactable(functions)
    services, table = functions.world.services, functions.table
    begin_purge(services, table, "letter = 'a'", sample_events.PURGE)
    assert functions.invoke("purge_rows", event) == []
    sent = functions.sent()
    assert [o.queue for o in sent if o.queue != "purges"] == ["compaction-jobs"]
    functions.world.queue += sent
    functions.world.settle()
    letters_left = [row["letter"] for row in functions.world.rows(functions.table)]
    assert letters_left == sorted("bc" * 4)


@pytest.mark.parametrize("event", ["good", "duplicate", "mixed"])
def test_a_task_of_an_export_is_done_once(functions: Functions, event: str) -> None:
    compactable(functions)
    begin_export(functions.world, functions.table, EXPORT, "out", Selection(4, ("letter",)))
    assert functions.invoke("export_rows", event) == []
    manifest = load_manifest(functions.world.results, "out")
    assert manifest is not None
    assert manifest.rows == 12
    assert functions.sent() == []


@pytest.mark.parametrize("event", ["good", "duplicate", "mixed"])
def test_a_heavy_job_becomes_one_run_which_is_done_once(functions: Functions, event: str) -> None:
    compactable(functions)
    store = functions.world.services.store(functions.table)
    store.commit(AssignJob(JOB, "root", tuple(sorted(store.current().shards))), generation=0)
    assert functions.invoke("dispatch_spark", event, JOB=JOB) == []
    assert functions.sent() == []
    assert list(functions.world.spark.runs) == ["run1"]
    functions.invoke("compact", "good")
    functions.sent()
    functions.world.spark.ended["run1"] = ("succeeded", "")
    assert functions.invoke("track_spark", event, RUN_1="run1") == []
    sent = functions.sent()
    assert CHANGED in sent
    assert {each.queue for each in sent} == {"table-changes", "gc-candidates"}


@pytest.mark.parametrize("event", ["good", "duplicate"])
def test_a_table_is_created_once_however_often_it_is_requested(
    functions: Functions, event: str
) -> None:
    functions.world.tables.by_id.clear()
    assert functions.invoke("administer", event) == []
    (table,) = functions.world.tables.all()
    assert table.id == TABLE_ID
    assert table.properties.gc_delay_seconds == 0


def test_requests_are_done_in_turn_and_refused_ones_recorded(functions: Functions) -> None:
    functions.world.tables.by_id.clear()
    assert functions.invoke("administer", "mixed") == []
    assert functions.world.tables.all() == []
    outcomes = {r.job_id: r.state for r in functions.world.tracker.kept.values()}
    assert outcomes == {
        "create-letters-1": "finished",
        "no-such": "refused",
        "offline-1": "finished",
        "alter-1": "finished",
        "delete-1": "finished",
    }
    assert len(functions.outbox.dead) == 1


@pytest.mark.parametrize("event", ["good", "audit"])
def test_the_sweep_has_every_table_planned(functions: Functions, event: str) -> None:
    functions.world.sources.drop("letters/1.parquet", letters_file(letters("a")))
    functions.invoke("sweep", event)
    queues = [outgoing.queue for outgoing in functions.sent()]
    assert queues == ["table-changes", "ingest-jobs"] if event == "audit" else ["table-changes"]


def test_an_unforeseen_failure_is_no_dead_letter(functions: Functions) -> None:
    functions.world.before_next_commit(functions.world.crash)
    source = dropped(functions, "letters/1.csv", b"letter,at,note\na,1,x\n")
    assert len(functions.invoke("ingest", "good", ETAG_1=source.etag)) == 1
    assert functions.outbox.dead == []


def test_a_table_that_cannot_be_swept_does_not_keep_the_others_from_it(
    functions: Functions,
) -> None:
    broken = functions.world.create("broken")
    functions.world.services.store(broken).destroy()
    with pytest.raises(ExceptionGroup, match="for some tables"):
        functions.invoke("sweep", "good")
    assert functions.sent() == [
        OutboundMessage("table-changes", TableChanged(TABLE_ID, swept=True))
    ]


def test_who_asks_a_query_is_the_sender_and_never_what_the_message_says(
    functions: Functions,
) -> None:
    body = '{"type":"answer_query","query_id":"q","table":"letters","who":"aws-id:AIDAOTHER","v":1}'
    sent = {**record("0", body), "attributes": {"SenderId": "AROAEXAMPLE:eve"}}
    handler = import_module("functions.answer_query.handler")
    handler.handle({"Records": [sent]}, Context())
    end = load_end(functions.world.results, "q")
    assert end is not None
    assert end.who == "aws-id:AROAEXAMPLE"


@pytest.mark.parametrize(
    ("role_id", "who"),
    [("AROAHTTP", "jwt:issuer#eve"), ("AROAOTHER", "aws-id:AROAHTTP"), ("", "aws-id:AROAHTTP")],
)
def test_of_messages_of_the_http_api_alone_the_message_says_who_asks(
    functions: Functions, monkeypatch: pytest.MonkeyPatch, role_id: str, who: str
) -> None:
    settings = replace(handling.process().settings, http_role_id=role_id)
    wired = replace(handling.process(), settings=settings)
    monkeypatch.setattr(handling, "wiring", lambda: wired)
    body = '{"type":"answer_query","query_id":"q","table":"x","who":"jwt:issuer#eve","v":1}'
    sent = {**record("0", body), "attributes": {"SenderId": "AROAHTTP:dormouse-serve_http"}}
    import_module("functions.answer_query.handler").handle({"Records": [sent]}, Context())
    end = load_end(functions.world.results, "q")
    assert end is not None
    assert end.who == who


def test_only_the_instance_says_whose_query_it_goes_on_with(
    functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = QueryTask("q", 0, "jwt:issuer#eve")
    settings = replace(
        handling.process().settings,
        query_role_ids=("AROAANSWER", "AROASWEEP"),
        http_role_id="AROAAPI",
    )
    wired = replace(handling.process(), settings=settings)
    monkeypatch.setattr(handling, "wiring", lambda: wired)
    for sender in ("AROAANSWER:answer_query", "AROASWEEP:sweep"):
        assert handling.asked_by(message, sender) == message
    for sender in ("AIDAEVE", "AROAAPI:x", "AROASWEEPER:x", ""):
        found = handling.asked_by(message, sender)
        assert isinstance(found, QueryTask)
        plain = sender.partition(":")[0]
        assert found.who == (f"aws-id:{plain}" if plain else "")
