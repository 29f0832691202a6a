"""What a person does about a running instance, against the real functions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa

from dormouse.ports import NO_TABLE
from dormouse.schema.schema import Schema
from tests.support.waiting import LIMIT_SECONDS
from tests.system.conftest import System

QUEUE = "compaction-jobs"
SCHEMA = Schema.from_json({"rowKeyFields": [{"name": "n", "type": "LongType"}]})


def dead(system: System) -> set[str]:
    return {letter.id for letter in system.instance.dead_letters().show(QUEUE)}


def wait_for(system: System, what: Any) -> None:
    system.instance.polling.until_nothing(
        lambda: int(not what()), timeout_seconds=LIMIT_SECONDS, looks=1
    )


def is_finished(system: System, request_id: str) -> bool:
    record = system.instance.services.tracker.get(NO_TABLE, request_id)
    return record is not None and record.is_finished


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_an_undecodable_message_is_listed_redriven_dead_lettered_again_and_discarded(
    system: System,
) -> None:
    sqs = boto3.client("sqs")
    url = sqs.get_queue_url(QueueName=f"dormouse-local-{QUEUE}")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="not a message")
    wait_for(system, lambda: dead(system))
    (letter,) = lines(system.dormouse("dlq", "show", QUEUE, "--format", "json"))
    assert letter["body"] == "not a message"
    assert "JSON is malformed" in letter["reason"]
    listed = {
        row["queue"]: row for row in lines(system.dormouse("dlq", "list", "--format", "json"))
    }
    assert listed[QUEUE]["dead"] == 1
    system.dormouse("dlq", "redrive", QUEUE, "--id", letter["id"])
    wait_for(system, lambda: dead(system) - {letter["id"]})
    request = {"type": "redrive", "request_id": "redrive-1", "queue": QUEUE}
    admin = sqs.get_queue_url(QueueName="dormouse-local-admin")["QueueUrl"]
    second = dead(system)
    sqs.send_message(QueueUrl=admin, MessageBody=json.dumps(request))
    wait_for(system, lambda: is_finished(system, "redrive-1"))  # a listing holds them
    wait_for(system, lambda: dead(system) - second)
    assert len(dead(system)) == 1
    system.dormouse("dlq", "discard", QUEUE, "--force")
    assert dead(system) == set()
    (row,) = [
        r for r in lines(system.dormouse("queues", "--format", "json")) if r["queue"] == QUEUE
    ]
    assert (row["waiting"], row["dead"]) == (0, 0)


def test_an_ingested_file_shows_in_jobs_metrics_and_a_report(
    system: System, tmp_path: Path
) -> None:
    table = system.instance.create_table("observed", SCHEMA)
    table.ingest(pa.table({"n": pa.array(range(100), pa.int64())})).wait(LIMIT_SECONDS)
    jobs = lines(system.dormouse("jobs", "observed", "--kind", "ingest", "--format", "json"))
    (job,) = jobs
    assert (job["state"], job["rows"], job["attempts"], job["files"]) == ("finished", 100, 1, 1)
    assert job["seconds"] >= 0
    levels = json.loads(system.dormouse("metrics", "observed", "--format", "json"))
    assert (levels["rows"], levels["shards"], levels["leaf_partitions"]) == (100, 1, 1)
    page = tmp_path / "report.html"
    system.dormouse("report", "observed", "--output", str(page))
    assert "<h1>observed</h1>" in page.read_text()
