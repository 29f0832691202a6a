"""What a stack holds survives it, as of one moment; and what it has let go of takes no memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from moto.sqs.models import Message, Queue

from dormouse import lifeline
from dormouse_cli.local import moto_server, moto_snapshot
from dormouse_cli.local.data_folder import open_folder
from dormouse_cli.local.moto_emr import run_id_of
from dormouse_cli.local.moto_server import Dispatcher, Saver
from dormouse_cli.local.moto_snapshot import LOCKS, Snapshots
from dormouse_cli.local.moto_values import ValueFolder
from dormouse_cli.local.stack import LocalStack
from tests.local.embedded_aws import TEMPLATE, Server, serving
from tests.support.waiting import LIMIT_SECONDS, eventually

EVERY_TYPE = {
    "pk": {"S": "a"},
    "number": {"N": "12.50"},
    "bytes": {"B": b"\x00\xff"},
    "nothing": {"NULL": True},
    "texts": {"SS": ["x", "y"]},
    "list": {"L": [{"S": "x"}, {"M": {"inner": {"B": b"\x01"}}}]},
}


RUN = {
    "applicationId": "spark",
    "clientToken": "t",
    "executionRoleArn": "arn:aws:iam::123456789012:role/r",
    "jobDriver": {"sparkSubmit": {"entryPoint": "job.py"}},
}


@dataclass(frozen=True)
class Reopened:
    """A server that was started again, and what the one before it said at last."""

    server: Server
    data: Path
    head: dict[str, Any]
    versions: dict[str, Any]
    messages: dict[str, Any]
    run: str


@pytest.fixture(scope="module")
def reopened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reopened]:
    data = tmp_path_factory.mktemp("data")
    with serving(data) as server:
        s3, dynamodb = server.client("s3"), server.client("dynamodb")
        s3.put_object(Bucket="plain", Key="a b/ü", Body=b"body", Metadata={"who": "me"})
        s3.put_object(Bucket="plain", Key="empty", Body=b"")
        s3.put_object(Bucket="plain", Key="gone", Body=b"gone")
        s3.delete_object(Bucket="plain", Key="gone")
        s3.put_object(Bucket="versioned", Key="k", Body=b"first")
        s3.put_object(Bucket="versioned", Key="k", Body=b"second")
        s3.delete_object(Bucket="versioned", Key="k")
        dynamodb.put_item(TableName="table", Item=EVERY_TYPE)
        attributes = {"kind": {"DataType": "Binary", "BinaryValue": b"\x00\x01"}}
        server.send("waits", MessageAttributes=attributes)
        server.send("delayed", DelaySeconds=900)
        (waits,) = server.receive(visibility_seconds=0)
        server.send("taken")
        messages = {each["Body"]: each for each in (waits, *server.receive(5400))}
        server.client("sqs").change_message_visibility(
            QueueUrl=server.queue_url,
            ReceiptHandle=messages["waits"]["ReceiptHandle"],
            VisibilityTimeout=0,
        )
        head = s3.head_object(Bucket="plain", Key="a b/ü", ChecksumMode="ENABLED")
        versions = s3.list_object_versions(Bucket="versioned")
        run = server.client("emr-serverless").start_job_run(**RUN)["jobRunId"]
    with serving(data) as server:
        yield Reopened(server, data, head, versions, messages, run)


def test_objects_are_there_again_as_they_were(reopened: Reopened) -> None:
    server = reopened.server
    s3 = server.client("s3")
    again = s3.head_object(Bucket="plain", Key="a b/ü", ChecksumMode="ENABLED")
    for part in ("ETag", "LastModified", "Metadata", "ContentLength", "ChecksumCRC32"):
        assert again.get(part) == reopened.head.get(part), part
    assert server.body("plain", "a b/ü") == b"body"
    assert server.body("plain", "empty") == b""
    listed = s3.list_objects_v2(Bucket="plain")["Contents"]
    assert [entry["Key"] for entry in listed] == ["a b/ü", "empty"]
    assert len(list((reopened.data / "objects").iterdir())) == 3


def test_versions_and_deletions_of_objects_are_there_again(reopened: Reopened) -> None:
    after = reopened.server.client("s3").list_object_versions(Bucket="versioned")
    for part in ("Versions", "DeleteMarkers"):
        assert after[part] == reopened.versions[part]
    newest, first = after["Versions"]
    assert reopened.server.body("versioned", "k", VersionId=first["VersionId"]) == b"first"
    assert reopened.server.body("versioned", "k", VersionId=newest["VersionId"]) == b"second"


def test_items_of_every_type_are_there_again(reopened: Reopened) -> None:
    dynamodb = reopened.server.client("dynamodb")
    item = dynamodb.get_item(TableName="table", Key={"pk": {"S": "a"}})["Item"]
    assert item == EVERY_TYPE


def test_messages_come_again_and_at_once_if_a_function_had_them(reopened: Reopened) -> None:
    received = {each["Body"]: each for each in reopened.server.receive()}
    assert set(received) == {"waits", "taken"}
    for part in ("MessageId", "MessageAttributes", "MD5OfMessageAttributes"):
        assert received["waits"][part] == reopened.messages["waits"][part], part
    for body, receives in (("waits", 3), ("taken", 1)):
        after, before = received[body]["Attributes"], reopened.messages[body]["Attributes"]
        assert after["SentTimestamp"] >= before["SentTimestamp"]
        assert after["ApproximateReceiveCount"] == str(receives)


def test_a_run_of_spark_that_the_end_of_the_stack_ended_has_failed(reopened: Reopened) -> None:
    emr = reopened.server.client("emr-serverless")
    found = emr.get_job_run(applicationId="spark", jobRunId=reopened.run)["jobRun"]
    assert (found["state"], found["stateDetails"]) == ("FAILED", "the local stack was stopped")
    assert emr.start_job_run(**RUN)["jobRunId"] == reopened.run == run_id_of("spark", "t")


def test_what_nobody_deploys_stays_until_it_is_deployed_again(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.client("s3").put_object(Bucket="plain", Key="k", Body=b"body")
        server.client("dynamodb").put_item(TableName="table", Item=EVERY_TYPE)
    with serving(tmp_path, deploys=False):
        pass
    with serving(tmp_path) as server:
        assert server.body("plain", "k") == b"body"
        assert server.client("dynamodb").scan(TableName="table")["Count"] == 1
        server.client("s3").delete_object(Bucket="plain", Key="k")
    with serving(tmp_path) as server:
        assert "Contents" not in server.client("s3").list_objects_v2(Bucket="plain")


def test_a_killed_stack_has_all_services_as_they_were_at_one_moment(tmp_path: Path) -> None:
    """Each object is put before the item that names it, and deleted after: as shards are.

    Contents that were written after that moment are deleted at the next start.
    """
    with serving(tmp_path, "--save-every", "0.01") as server:
        s3, dynamodb = server.client("s3"), server.client("dynamodb")
        for number in range(60):
            s3.put_object(Bucket="plain", Key=str(number), Body=b"%d" % number)
            item = {"pk": {"S": "newest"}, "object": {"S": str(number)}}
            dynamodb.put_item(TableName="table", Item=item)
            s3.delete_object(Bucket="plain", Key=str(number - 1))
        state = tmp_path / "state.json"
        eventually(lambda: "newest" in state.read_text())
        lifeline.kill(server.process)
        (tmp_path / "objects" / "written-since").write_text("lost")
    with serving(tmp_path) as server:
        item = server.client("dynamodb").get_item(TableName="table", Key={"pk": {"S": "newest"}})
        name = item["Item"]["object"]["S"]
        assert server.body("plain", name) == name.encode()
        listed = server.client("s3").list_objects_v2(Bucket="plain")["Contents"]
        assert len(list((tmp_path / "objects").iterdir())) == len(listed) < 3


def test_a_second_signal_does_not_end_the_last_save() -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit):
            moto_server._end(signal.SIGTERM, None)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_no_call_changes_anything_after_the_last_save_as_it_would_be_answered_and_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Snapshots, "apply", lambda _: None)  # it is for a process of its own
    saver = Saver(open_folder(tmp_path), Dispatcher(), "eu-west-2", 5)

    def free() -> list[bool]:
        """Return, for each lock, whether a call could have it now."""
        with ThreadPoolExecutor(1) as other:
            found = [other.submit(lock.acquire, blocking=False).result() for lock in LOCKS]
            for lock, is_free in zip(LOCKS, found, strict=True):
                if is_free:
                    other.submit(lock.release).result()
        return found

    saver.save()
    assert free() == [True] * 4
    saver.save_last()
    try:
        assert free() == [False] * 4
    finally:
        for lock in LOCKS:
            lock.release()


def test_a_message_does_not_age_and_its_delay_does_not_grow_while_no_stack_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether the stack was stopped for weeks, or the clock was set back by as much."""
    queue = Queue("queue", "eu-west-2", "123456789012")
    for at_ms in (10**12 + 10**10, 10**12 - 10**10):
        message = Message("id", "body")
        message.sent_timestamp = 10**12 - 500  # type: ignore[assignment]
        message.delayed_until = 10**12 + 300
        with monkeypatch.context() as then:
            then.setattr(moto_snapshot, "unix_time_millis", lambda: 10**12)
            held = moto_snapshot._message(message)
            then.setattr(moto_snapshot, "unix_time_millis", lambda at_ms=at_ms: at_ms)
            Snapshots({"queues": {"queue": [held]}}, ValueFolder(Path()), "x")._fill_queue(queue)
        filled = queue._messages.pop()
        assert (filled.sent_timestamp, filled.delayed_until) == (at_ms - 500, at_ms + 300)


def test_a_stack_with_a_folder_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    data, state = tmp_path / "data", tmp_path / "state"
    with LocalStack(TEMPLATE, {}, state, data=data) as stack:
        bucket = stack.deployment.buckets[0].name
        stack.client("s3").put_object(Bucket=bucket, Key="k", Body=b"body")
    with LocalStack(TEMPLATE, {}, state, data=data) as stack:
        assert stack.client("s3").get_object(Bucket=bucket, Key="k")["Body"].read() == b"body"
    with LocalStack(TEMPLATE, {}, state, triggers=False) as stack:
        assert stack.deployment.event_sources == stack.deployment.schedules == ()
        assert stack.deployment.functions
        assert "Contents" not in stack.client("s3").list_objects_v2(Bucket=bucket)
        stack.client("s3").put_object(Bucket=bucket, Key="k", Body=b"body")
        assert any((state / "objects").iterdir())
    assert not (state / "objects").exists()


def test_the_emulator_lets_go_of_what_is_deleted(tmp_path: Path) -> None:
    counted = """
import gc, json
from dormouse_cli.local import moto_server
moto_server.make_atomic()
import boto3
from moto import mock_aws
from moto.dynamodb.models.dynamo_type import Item
from moto.s3.models import FakeKey
from moto.sqs.models import Message, sqs_backends
with mock_aws():
    s3, sqs, db = (boto3.client(name, "us-east-1") for name in ("s3", "sqs", "dynamodb"))
    s3.create_bucket(Bucket="bucket")
    url = sqs.create_queue(QueueName="q")["QueueUrl"]
    db.create_table(TableName="t", BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}])
    for _ in range(30):
        s3.put_object(Bucket="bucket", Key="k", Body=b"x")
        s3.delete_object(Bucket="bucket", Key="k")
        db.put_item(TableName="t", Item={"pk": {"S": "k"}})
        sqs.send_message(QueueUrl=url, MessageBody="m")
        (received,) = sqs.receive_message(QueueUrl=url)["Messages"]
        sqs.delete_message(QueueUrl=url, ReceiptHandle=received["ReceiptHandle"])
    handles = sqs_backends["123456789012"]["us-east-1"].queues["q"].deleted_messages
    handles.update(str(n) for n in range(5000))
    gc.collect()
    alive = [type(o) for o in gc.get_objects()]
    print(json.dumps([alive.count(Item), alive.count(FakeKey), alive.count(Message), len(handles)]))
"""
    nowhere = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    done = subprocess.run(
        [sys.executable, "-c", counted],
        env={**nowhere, "AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=True,
    )
    assert json.loads(done.stdout) == [1, 0, 0, 1000]
