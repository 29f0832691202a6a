"""The events of ``events/``, in order, on a fresh instance: each does what it is a sample of.

They run in the processes that `dormouse local invoke` starts, on a stack where nothing else does.
It takes a minute: each function starts once.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dormouse.client.instance import Instance
from dormouse.errors import NotFoundError
from dormouse.features.export import load_manifest
from dormouse.ports import NO_TABLE
from dormouse.stored.paths import data_prefix, shard_id_of
from dormouse_cli.local.commands import LOCAL_PARAMETERS, find_template
from dormouse_cli.local.stack import LocalStack
from tools import sample_events as samples

EVENTS = [event for event in samples.ORDER if (samples.EVENTS / f"{event}.json").is_file()]
MADE_ROWS = 10 * samples.SHARDS
SEEN_ROWS = MADE_ROWS - 10
"""A purge hides the rows that it removes, those of one shard, at once and in every version."""
UNREADABLE = {"ingest": 3, "administer": 3, "batch_files": 3}
"""How many messages of ``malformed.json`` cannot be read; two of all others."""


@dataclass
class Seen:
    """What one event left behind: its answer, the messages sent, and the table afterwards."""

    answer: dict[str, Any]
    sent: dict[str, list[Any]]
    rows: int = -1
    leaves: int = 0
    jobs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    objects: set[str | None] = field(default_factory=set)


@dataclass
class Walk:
    """All events, run in order, and the instance as they left it."""

    instance: Instance
    stack: LocalStack
    logs: Path
    table_id: str = ""
    seen: dict[str, Seen] = field(default_factory=dict)

    def run(self, event: str) -> None:
        stage = event.partition("/")[0]
        function = next(f for f in self.stack.deployment.functions if f.code.name == stage)
        body = json.loads((samples.EVENTS / f"{event}.json").read_text())
        outcome = self.stack.invoke(function.name, body)
        assert not outcome.failed, f"{event}: {outcome.payload!r}"
        self.seen[event] = Seen(json.loads(outcome.payload), self.drained())
        self._look(self.seen[event])

    def drained(self) -> dict[str, list[Any]]:
        """Take the messages of all queues."""
        sqs, found = self.stack.client("sqs"), defaultdict(list)
        for queue in self.stack.deployment.queues:
            url = sqs.get_queue_url(QueueName=queue.name)["QueueUrl"]
            name = queue.name.removeprefix("dormouse-local-")
            while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get(
                "Messages"
            ):
                for message in messages:
                    found[name].append(message["Body"])
                    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return dict(found)

    def _look(self, seen: Seen) -> None:
        try:
            handle = self.instance.table("letters")
        except NotFoundError:
            return
        services, self.table_id = self.instance.services, handle.table.id
        state = services.store(handle.table).current()
        seen.rows, seen.leaves = handle.count(), len(list(state.partitions.leaves()))
        seen.jobs = {name: job.inputs for name, job in state.jobs.items()}
        listed = services.storage.list(data_prefix(handle.table.id))
        seen.objects = {shard_id_of(stored.path) for stored in listed}

    def record(self, job_id: str) -> tuple[str, str]:
        """Return the state and the reason that the tracker has of a job."""
        found = self.instance.services.tracker.get(self.table_id, job_id)
        assert found is not None
        return found.state, found.reason


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    state = tmp_path_factory.mktemp("events")
    template = find_template()
    with (
        LocalStack(template, LOCAL_PARAMETERS, state, triggers=False) as stack,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in stack.environment.items():
            patch.setenv(name, value)
        walk = Walk(Instance.connect("local"), stack, state / "logs")
        for event in EVENTS:
            if event == "batch_files/good":
                samples.make(walk.instance)
                walk.drained()  # notifications of S3
            walk.run(event)
        yield walk


def test_every_event_is_run(walk: Walk) -> None:
    files = samples.EVENTS.glob("*/*.json")
    assert set(walk.seen) == {f"{path.parent.name}/{path.stem}" for path in files}
    assert [e for e, s in walk.seen.items() if s.answer.get("batchItemFailures")] == []


def test_a_request_creates_the_table_once_and_is_recorded(walk: Walk) -> None:
    good, again = walk.seen["administer/good"], walk.seen["administer/duplicate"]
    assert (good.rows, good.leaves) == (again.rows, again.leaves) == (0, 1)
    assert walk.record("create-letters-1")[0] == "finished"


def test_notified_files_are_one_job_and_that_of_no_table_is_refused(walk: Walk) -> None:
    for event in ("good", "duplicate", "mixed"):
        (body,) = walk.seen[f"batch_files/{event}"].sent["ingest-jobs"]
        found = {(s["key"], s["etag"]) for s in json.loads(body)["sources"]}
        keys = ("letters/2026/01.csv", "letters/a file, with spaces.csv")
        assert found == {(key, samples.etag(samples.FILES[key])) for key in keys}


def test_a_file_becomes_rows_once_and_a_bad_one_is_refused(walk: Walk) -> None:
    good, again = walk.seen["ingest/good"], walk.seen["ingest/duplicate"]
    assert good.rows == again.rows == SEEN_ROWS + 2
    assert "table-changes" in good.sent
    assert walk.seen["ingest/mixed"].rows == SEEN_ROWS + 3
    records = walk.instance.services.tracker.records(walk.table_id)
    refused = {record.subject for record in records if record.state == "refused"}
    assert refused == {"letters/bad.csv"}


def test_an_assigned_compaction_is_done_once_and_its_inputs_announced(walk: Walk) -> None:
    inputs = {samples.shard_id(2), samples.shard_id(3)}
    good = walk.seen["compact/good"]
    assert samples.JOB in walk.seen["ingest/duplicate"].jobs
    assert samples.JOB not in good.jobs
    assert good.rows == SEEN_ROWS + 2
    (body,) = good.sent["gc-candidates"]
    assert set(json.loads(body)["shards"]) == inputs
    assert "gc-candidates" not in walk.seen["compact/duplicate"].sent


def test_shards_that_nothing_needs_are_gone_and_no_other(walk: Walk) -> None:
    before, after = walk.seen["compact/duplicate"], walk.seen["collect_garbage/good"]
    assert before.objects - after.objects == {samples.shard_id(0), samples.shard_id(1)}
    assert walk.seen["collect_garbage/duplicate"].objects == after.objects


def test_a_purge_has_its_shard_rewritten_once(walk: Walk) -> None:
    good, again = walk.seen["purge_rows/good"], walk.seen["purge_rows/duplicate"]
    (body,) = good.sent["compaction-jobs"]
    assert good.jobs[json.loads(body)["job_id"]] == (samples.shard_id(samples.PURGED),)
    assert good.jobs == again.jobs


def test_an_export_is_written_and_finished(walk: Walk) -> None:
    manifest = load_manifest(walk.instance.services.results, "letters")
    assert manifest is not None
    assert manifest.rows == SEEN_ROWS
    assert walk.record(samples.EXPORT)[0] == "finished"


def test_a_heavy_job_has_one_run_of_spark(walk: Walk) -> None:
    emr = walk.stack.client("emr-serverless")
    runs = emr.list_job_runs(applicationId="dormouse-local")["jobRuns"]
    started = [run for run in runs if samples.SPARK_JOB in run["name"]]
    assert len(started) == 1
    assert walk.record(samples.SPARK_JOB)[1].startswith(f"it is with Spark: run {started[0]['id']}")


def test_a_run_that_was_cancelled_fails_its_job_for_a_retry(walk: Walk) -> None:
    state, reason = walk.record(samples.TRACKED_JOB)
    assert (state, "it was cancelled" in reason) == ("failed", True), reason


def test_a_changed_table_is_planned_once(walk: Walk) -> None:
    good = walk.seen["plan_table/good"]
    (body,) = good.sent["compaction-jobs"]
    planned = set(good.jobs[json.loads(body)["job_id"]])
    assert {samples.shard_id(number) for number in range(9, 13)} <= planned
    assert json.loads(good.sent["partition-splits"][0])["partitions"] == ["root"]
    assert walk.seen["plan_table/duplicate"].jobs == good.jobs


def test_a_partition_with_too_many_rows_is_split_once(walk: Walk) -> None:
    before, good = walk.seen["plan_table/duplicate"], walk.seen["split_partition/good"]
    assert (before.leaves, good.leaves, good.rows) == (1, 2, before.rows)
    assert walk.seen["split_partition/duplicate"].leaves == 2


def test_the_table_is_measured(walk: Walk) -> None:
    lines = (walk.logs / "dormouse-local-measure.log").read_text().splitlines()
    measured = [line for line in map(json.loads, lines) if "Rows" in line]
    assert [line["Rows"] for line in measured] == [[MADE_ROWS + 2]]


@pytest.mark.parametrize("event", ["good", "audit"])
def test_the_sweep_has_the_table_planned(walk: Walk, event: str) -> None:
    (body,) = walk.seen[f"sweep/{event}"].sent["table-changes"]
    assert (json.loads(body)["table_id"], json.loads(body)["swept"]) == (walk.table_id, True)


@pytest.mark.parametrize("stage", samples.STAGES[:-2])
def test_what_cannot_be_read_is_a_dead_letter_and_changes_nothing(walk: Walk, stage: str) -> None:
    event = f"{stage}/malformed"
    before = walk.seen[EVENTS[EVENTS.index(event) - 1]]
    seen = walk.seen[event]
    dead = [
        body for queue, bodies in seen.sent.items() if queue.endswith("-dead") for body in bodies
    ]
    assert len(dead) == UNREADABLE.get(stage, 2)
    assert (seen.rows, seen.jobs, seen.objects) == (before.rows, before.jobs, before.objects)
    if stage != "administer":
        mixed = [q for q in walk.seen[f"{stage}/mixed"].sent if q.endswith("-dead")]
        assert len(mixed) == 1


def test_the_catalog_answers_and_refuses_what_writes(walk: Walk) -> None:
    answers = {
        name: walk.seen[f"serve_catalog/{name}"].answer for name in ("good", "list", "write")
    }
    assert {name: answer["statusCode"] for name, answer in answers.items()} == {
        "good": 404,
        "list": 200,
        "write": 405,
    }
    error = json.loads(answers["good"]["body"])["error"]
    assert error["type"] == "NoSuchTableException"
    assert "dormouse table set letters iceberg=on" in error["message"]


def test_an_earlier_version_becomes_the_newest_and_loses_its_tag(walk: Walk) -> None:
    assert walk.seen["sweep/audit"].rows == SEEN_ROWS + 3
    restored = walk.seen["administer/restore"]
    assert (restored.rows, restored.leaves, restored.jobs) == (SEEN_ROWS, 1, {})
    for request in ("restore-letters-1", "untag-letters-1"):
        assert walk.record(request)[0] == "finished"


def test_requests_in_one_batch_are_done_in_turn_to_the_deletion(walk: Walk) -> None:
    assert walk.seen["administer/mixed"].rows == -1
    assert walk.instance.tables() == []
    tracker = walk.instance.services.tracker
    records = [r for table in (walk.table_id, NO_TABLE) for r in tracker.records(table)]
    states = {record.job_id: record.state for record in records}
    for request in ("offline-1", "alter-1", "delete-1"):
        assert states[request] == "finished", request
    assert states["no-such"] == "refused"


def test_the_api_answers_takes_rows_and_says_what_is_wrong(walk: Walk) -> None:
    answers = {
        name: walk.seen[f"serve_http/{name}"].answer
        for name in ("good", "list", "rows", "malformed")
    }
    assert {name: answer["statusCode"] for name, answer in answers.items()} == {
        "good": 200,
        "list": 200,
        "rows": 202,
        "malformed": 400,
    }
    assert json.loads(answers["good"]["body"])["columns"] == [{"name": "note", "type": "string"}]
    assert "letters" in answers["list"]["body"]
    assert "$.limit" in answers["malformed"]["body"]
