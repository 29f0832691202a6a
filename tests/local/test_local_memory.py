"""What the embedded AWS holds of objects, items and messages, and what it has let go of."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dormouse_cli.local.moto_services import StoredValue
from dormouse_cli.local.stack import LocalStack
from tests.support.waiting import LIMIT_SECONDS

TEMPLATE = Path(__file__).parent / "stack" / "template.yaml"


def test_a_value_is_read_where_it_was_written_and_its_file_goes_with_it(tmp_path: Path) -> None:
    value = StoredValue(tmp_path)
    value.write(b"")
    assert (value.read(), list(tmp_path.iterdir())) == (b"", [])
    value.write(b"0123456789")
    value.seek(4)
    assert (value.read(3), value.read(3), value.read()) == (b"456", b"789", b"")
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"0123456789"]
    value.truncate()
    assert (value.read(), list(tmp_path.iterdir())) == (b"", [])
    value.close()


def test_contents_for_which_there_is_no_room_take_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(path: Path, content: bytes) -> int:
        with path.open("wb") as file:
            file.write(content[:2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError, match="No space"):
        StoredValue(tmp_path).write(b"body")
    assert list(tmp_path.iterdir()) == []


def test_a_stack_without_triggers_starts_nothing_and_its_objects_go_with_it(tmp_path: Path) -> None:
    with LocalStack(TEMPLATE, {}, tmp_path, triggers=False) as stack:
        assert stack.deployment.event_sources == stack.deployment.schedules == ()
        assert stack.deployment.functions
        bucket = stack.deployment.buckets[0].name
        stack.client("s3").put_object(Bucket=bucket, Key="k", Body=b"body")
        assert any((tmp_path / "objects").iterdir())
    assert not (tmp_path / "objects").exists()


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
