"""Through the real functions, queues and buckets: rows in are rows out."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from pathlib import Path

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.errors import RefusedSourceError
from dormouse.ports import NO_TABLE
from dormouse.schema.schema import Schema
from tests.support.waiting import LIMIT_SECONDS
from tests.system.conftest import System

READINGS = {
    "rowKeyFields": [{"name": "site", "type": "StringType"}, {"name": "sensor", "type": "IntType"}],
    "sortKeyFields": [{"name": "at", "type": "TimestampType"}],
    "valueFields": [
        {"name": "value", "type": "DoubleType", "nullable": True},
        {"name": "tags", "type": {"ListType": {"elementType": "StringType"}}, "nullable": True},
    ],
}
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def readings(count: int, *, first: int = 0) -> list[dict[str, object]]:
    return [
        {
            "site": f"s{i % 7}",
            "sensor": i % 100 - 50,
            "at": START + dt.timedelta(seconds=i),
            "value": None if i % 10 == 0 else i / 4,
            "tags": ["a", "ü"] if i % 3 else None,
        }
        for i in range(first, first + count)
    ]


def in_order(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return sorted(rows, key=lambda r: (str(r["site"]), int(str(r["sensor"])), str(r["at"])))


def parquet(path: Path, rows: list[dict[str, object]]) -> Path:
    types = pa.schema(
        [
            ("site", pa.string()),
            ("sensor", pa.int32()),
            ("at", pa.timestamp("us", "UTC")),
            ("value", pa.float64()),
            ("tags", pa.list_(pa.string())),
        ]
    )
    pq.write_table(pa.Table.from_pylist(rows, types), path)
    return path


def as_json_lines(rows: list[dict[str, object]]) -> str:
    return "".join(json.dumps({**r, "at": r["at"].isoformat()}) + "\n" for r in rows)  # type: ignore[attr-defined]


def test_rows_in_are_rows_out_in_every_format_after_splits_and_compactions(
    system: System, tmp_path: Path
) -> None:
    table = system.instance.create_table(
        "readings",
        Schema.from_json(READINGS),
        {"split_threshold_rows": 500, "compaction_files": 3, "compaction_strategy": "batch"},
        [("s3",)],
    )
    rows = readings(1200)
    plain = tmp_path / "b.jsonl"
    plain.write_text(as_json_lines(rows[400:600]))
    zipped = tmp_path / "c.json.gz"
    zipped.write_bytes(gzip.compress(as_json_lines(rows[600:800]).encode()))
    files = [parquet(tmp_path / "a.parquet", rows[:400]), plain, zipped]
    table.ingest(files).wait(LIMIT_SECONDS)
    table.ingest(parquet(tmp_path / "d.parquet", rows[800:])).wait(LIMIT_SECONDS)
    table.wait(LIMIT_SECONDS)

    assert table.query().read_all().to_pylist() == in_order(rows)
    status = table.status()
    assert (status.rows, status.pending) == (1200, 0)
    assert status.leaf_partitions > 2
    found = table.query(exact=("s1", 7)).read_all().to_pylist()
    assert found == [r for r in in_order(rows) if (r["site"], r["sensor"]) == ("s1", 7)]


def test_bad_files_are_refused_with_reasons_and_their_neighbours_are_ingested(
    system: System, tmp_path: Path
) -> None:
    table = system.instance.create_table("refusals", Schema.from_json(READINGS))
    header = "site,sensor,at,value\n"
    bad = {
        "not-parquet.parquet": ("PAR1 but not really", "Parquet"),
        "no-column.csv": ("site,sensor,value\ns1,1,2\n", "at"),
        "mistyped.csv": (header + "s1,one,2026-01-01T00:00:00Z,1\n", "sensor"),
        "null-key.jsonl": ('{"site": null, "sensor": 1, "at": "2026-01-01T00:00:00Z"}\n', "site"),
        "unknown.docx": ("?", "format"),
    }
    for name, (body, _) in bad.items():
        (tmp_path / name).write_text(body)
    good = tmp_path / "good.jsonl"
    good.write_text(as_json_lines(readings(5)))
    empty = parquet(tmp_path / "empty.parquet", [])
    unknown = tmp_path / "unknown.docx"  # a client would not upload it
    table.bucket.drop(f"refusals/{unknown.name}", unknown)
    others = [tmp_path / name for name in bad if name != unknown.name]
    with pytest.raises(RefusedSourceError):
        table.ingest([*others, good, empty]).wait(LIMIT_SECONDS)
    table.wait(LIMIT_SECONDS)

    reasons = {r.subject: r.reason for r in table.jobs() if r.state == "refused"}
    assert set(reasons) == {f"refusals/{name}" for name in bad}
    for name, (_, word) in bad.items():
        assert word in reasons[f"refusals/{name}"]
    assert table.count() == 5


def test_a_notification_delivered_twice_and_a_stray_file_change_no_row(
    system: System, tmp_path: Path
) -> None:
    table = system.instance.create_table("twice", Schema.from_json(READINGS))
    dropped = table.ingest(parquet(tmp_path / "once.parquet", readings(50)))
    dropped.wait(LIMIT_SECONDS)
    (source,) = dropped.sources
    body = {"key": source.key, "eTag": source.etag, "size": source.size_bytes}
    record = {
        "eventName": "ObjectCreated:Put",
        "s3": {"bucket": {"name": source.bucket}, "object": body},
    }
    sqs = boto3.client("sqs")
    url = sqs.get_queue_url(QueueName="dormouse-local-files")["QueueUrl"]
    for _ in range(2):
        sqs.send_message(QueueUrl=url, MessageBody=json.dumps({"Records": [record]}))
    sqs.send_message(QueueUrl=url, MessageBody="{ this is no notification")
    boto3.client("s3").put_object(Bucket=source.bucket, Key="nobody/stray.csv", Body=b"a\n1\n")
    system.instance.wait(LIMIT_SECONDS)

    assert table.count() == 50
    strays = [r for r in system.instance.services.tracker.records(NO_TABLE) if r.kind == "ingest"]
    assert "nobody/stray.csv" in [r.subject for r in strays]
    dead = sqs.get_queue_url(QueueName="dormouse-local-files-dead")["QueueUrl"]
    (letter,) = sqs.receive_message(QueueUrl=dead, MessageAttributeNames=["All"])["Messages"]
    assert "notification" in letter["MessageAttributes"]["reason"]["StringValue"]


def test_the_command_line_does_the_whole_path(system: System, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(READINGS))
    splits = tmp_path / "splits.txt"
    splits.write_text("s2\ns4\n")
    system.dormouse("table", "add", "command", "--schema", str(schema), "--splits", str(splits))
    rows = readings(300)
    file = parquet(tmp_path / "rows.parquet", rows)
    system.dormouse("ingest", "command", str(file), "--wait")
    system.dormouse("wait", "command")

    status = json.loads(system.dormouse("status", "command", "--format", "json"))
    assert list(status) == [
        "rows",
        "size_bytes",
        "shards",
        "references",
        "partitions",
        "leaf_partitions",
        "version",
        "files_waiting",
        "pending",
    ]
    assert (status["rows"], status["leaf_partitions"], status["pending"]) == (300, 3, 0)
    lines = system.dormouse(
        "query", "command", "--range", "site=s1..site=s3,sensor=0", "--format", "json"
    ).splitlines()
    expected = [r for r in in_order(rows) if ("s1",) <= (r["site"], r["sensor"]) < ("s3", 0)]
    assert [json.loads(line)["value"] for line in lines] == [r["value"] for r in expected]
    assert system.dormouse("query", "command", "--count").strip() == "300"
    assert "command" in system.dormouse("table", "list")
    assert "no table" in system.dormouse("query", "nowhere", code=3)
    system.dormouse("table", "delete", "command", "--force")
    assert "no table" in system.dormouse("status", "command", code=3)


def test_a_request_by_message_creates_takes_offline_and_deletes_a_table(system: System) -> None:
    sqs = boto3.client("sqs")
    url = sqs.get_queue_url(QueueName="dormouse-local-admin")["QueueUrl"]
    requests = [
        {"type": "create_table", "request_id": "q1", "name": "by-message", "schema": READINGS},
        {"type": "set_online", "request_id": "q2", "name": "by-message", "online": False},
        {"type": "delete_table", "request_id": "q3", "name": "by-message"},
    ]
    for request in requests:
        for _ in range(2):
            sqs.send_message(QueueUrl=url, MessageBody=json.dumps(request))
        system.instance.polling.until_nothing(
            lambda wanted=str(request["request_id"]): int(not finished(system, wanted)),
            timeout_seconds=LIMIT_SECONDS,
            looks=1,
        )
    assert "by-message" not in [table.name for table in system.instance.tables()]


def finished(system: System, request_id: str) -> bool:
    places = (NO_TABLE, *(each.table.id for each in system.instance.tables()))
    records = (system.instance.services.tracker.get(place, request_id) for place in places)
    return any(record is not None and record.state == "finished" for record in records)
