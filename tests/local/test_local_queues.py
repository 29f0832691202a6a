"""From queue to function and back: retries, dead letters, partial failures, windows."""

import json
from typing import Any
from uuid import uuid4

from dormouse_cli.local.event_sources import Batch
from dormouse_cli.local.stack import LocalStack
from tests.support.waiting import eventually


def objects(stack: LocalStack, prefix: str) -> list[Any]:
    """What functions have kept in the results bucket under a prefix."""
    s3 = stack.client("s3")
    bucket = stack.deployment.buckets[0].name
    listed = s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
    return [
        json.loads(s3.get_object(Bucket=bucket, Key=one["Key"])["Body"].read()) for one in listed
    ]


def queue_url(stack: LocalStack, name: str) -> str:
    return str(stack.client("sqs").get_queue_url(QueueName=name)["QueueUrl"])


def send(stack: LocalStack, queue: str, *bodies: str) -> list[str]:
    sqs = stack.client("sqs")
    answer = sqs.send_message_batch(
        QueueUrl=queue_url(stack, queue),
        Entries=[{"Id": str(i), "MessageBody": body} for i, body in enumerate(bodies)],
    )
    return [sent["MessageId"] for sent in answer["Successful"]]


def attempts(stack: LocalStack, message_id: str) -> list[Any]:
    return objects(stack, f"{message_id}/")


def dead_letters_until(stack: LocalStack, batches: list[Batch], message_id: str) -> set[str]:
    """The ids of the messages that come to the dead-letter queue, up to the one given.

    After each failure the time is cut short for which that one is hidden.
    """
    sqs, url = stack.client("sqs"), queue_url(stack, "local-WorkQueue")
    dead: set[str] = set()
    shown: set[str] = set()

    def has_come() -> bool:
        failed = [m for b in tuple(batches) for m in b.messages if m["MessageId"] in b.failed]
        for handle in {m["ReceiptHandle"] for m in failed if m["MessageId"] == message_id} - shown:
            sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0)
            shown.add(handle)
        dead.update(take_dead_letters(stack))
        return message_id in dead

    eventually(has_come)
    return dead


def take_dead_letters(stack: LocalStack) -> set[str]:
    sqs = stack.client("sqs")
    url = queue_url(stack, "local-DeadQueue")
    answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)
    messages = answer.get("Messages", [])
    for message in messages:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return {message["MessageId"] for message in messages}


def waiting(stack: LocalStack, queue: str) -> int:
    """How many messages a queue holds, visible or not."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    attributes = stack.client("sqs").get_queue_attributes(
        QueueUrl=queue_url(stack, queue), AttributeNames=names
    )["Attributes"]
    return sum(int(attributes[name]) for name in names)


def test_only_the_failed_message_of_a_batch_is_tried_again_and_then_dead(
    stack: LocalStack, batches: list[Batch]
) -> None:
    good, bad = send(stack, "local-WorkQueue", "good", "fail")
    dead = dead_letters_until(stack, batches, bad)
    assert len(attempts(stack, good)) == 1
    assert len(attempts(stack, bad)) == 2
    assert good not in dead
    eventually(lambda: waiting(stack, "local-WorkQueue") == 0)


def test_the_group_of_a_message_comes_with_it(stack: LocalStack) -> None:
    sqs, url = stack.client("sqs"), queue_url(stack, "local-DeadQueue")
    sqs.send_message(QueueUrl=url, MessageBody="{}", MessageGroupId="table")
    answer = sqs.receive_message(QueueUrl=url, MessageSystemAttributeNames=["MessageGroupId"])
    (message,) = answer["Messages"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert message["Attributes"]["MessageGroupId"] == "table"


def test_a_handler_that_raises_sends_its_batch_to_the_dead_letter_queue(
    stack: LocalStack, batches: list[Batch]
) -> None:
    (bad,) = send(stack, "local-WorkQueue", "raise")
    dead_letters_until(stack, batches, bad)
    counts = [one["attributes"]["ApproximateReceiveCount"] for one in attempts(stack, bad)]
    assert counts == ["1", "2"]


def test_messages_within_the_window_come_as_one_batch(stack: LocalStack) -> None:
    bodies = {str(uuid4()) for _ in range(14)}
    send(stack, "test-window", *list(bodies)[:7])
    send(stack, "test-window", *list(bodies)[7:])
    eventually(lambda: {body for batch in objects(stack, "batch/") for body in batch} >= bodies)
    sizes = [len(batch) for batch in objects(stack, "batch/") if bodies & set(batch)]
    assert sizes == [14]  # as many as make a batch full: its window is longer than any test
    eventually(lambda: waiting(stack, "test-window") == 0)


def test_an_uploaded_object_is_announced_once_even_in_parts(stack: LocalStack) -> None:
    s3 = stack.client("s3")
    bucket = "ingest-test"
    small, large, outside = (f"{folder}/{uuid4()} +x" for folder in ("in", "in", "out"))
    s3.put_object(Bucket=bucket, Key=outside, Body=b"x")
    small_version = s3.put_object(Bucket=bucket, Key=small, Body=b"x")["VersionId"]
    upload = s3.create_multipart_upload(Bucket=bucket, Key=large)["UploadId"]
    named = {"Bucket": bucket, "Key": large, "UploadId": upload}
    tag = s3.upload_part(**named, PartNumber=1, Body=b"y")["ETag"]
    parts = {"Parts": [{"PartNumber": 1, "ETag": tag}]}
    large_version = s3.complete_multipart_upload(**named, MultipartUpload=parts)["VersionId"]

    def announced() -> dict[str, list[str]]:
        events: dict[str, list[str]] = {}
        for kept in objects(stack, ""):
            if isinstance(kept, dict) and '"aws:s3"' in kept["body"]:
                (record,) = json.loads(kept["body"])["Records"]
                version = record["s3"]["object"]["versionId"]
                events.setdefault(version, []).append(record["eventName"])
        return events

    seen = eventually(lambda: len(announced()) >= 2 and announced())
    assert seen == {
        small_version: ["ObjectCreated:Put"],
        large_version: ["ObjectCreated:CompleteMultipartUpload"],
    }
