"""Every form in which people have the events of a bucket, through the real handler."""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.parse import quote, quote_plus

from dormouse.messages.stages import IngestJob
from dormouse.state.sources import Source
from tests.functions.conftest import Functions

BUCKET = "dormouse-local-ingest-123456789012"
KEYS = (
    *("letters/a.csv", "letters/2026/a file, with spaces.csv", "letters/a+b%2Bc%.csv"),
    *("letters/ä 日本.csv", "letters/day=1/x&y=z.csv", "letters/100%25.csv"),
)
ETAG = "9bb58f26192e4ba00f01e2e7b136bbd8-2"
Form = Callable[[str], str]


def records(
    name: str,
    key: str,
    *,
    sender: str = "aws:s3",
    configuration: str = "ingest",
    etag: str = ETAG,
    version: str | None = "v1",
    at: str = "2096-01-05T08:00:00.250Z",
) -> str:
    stored = {"key": key, "size": 20, "eTag": etag, "versionId": version, "sequencer": "0"}
    entity = {"configurationId": configuration, "bucket": {"name": BUCKET}, "object": stored}
    record = {"eventName": name, "eventSource": sender, "eventTime": at, "s3": entity}
    return json.dumps({"Records": [record]})


def in_envelope(body: str, kind: str = "Notification") -> str:
    said = {"TopicArn": "arn:aws:sns:eu-west-2:1:others", "Subject": "Amazon S3 Notification"}
    return json.dumps({"Type": kind, "MessageId": "m", **said, "Message": body})


def bridged(key: str, kind: str = "Object Created", source: str = "aws.s3") -> str:
    stored = {"key": key, "size": 20, "etag": ETAG, "version-id": "v1", "sequencer": "0"}
    detail = {"bucket": {"name": BUCKET}, "object": stored, "reason": "PutObject"}
    of_event = {"version": "0", "detail-type": kind, "source": source, "detail": detail}
    return json.dumps({**of_event, "time": "2096-01-05T08:00:00Z"})


def of_aws(key: str) -> str:
    return records("ObjectCreated:Put", quote_plus(key, safe="/"))


def of_minio(key: str) -> str:
    body = records(
        "s3:ObjectCreated:CompleteMultipartUpload", quote(key, safe=""), sender="minio:s3"
    )
    return json.dumps({"EventName": "s3:ObjectCreated:Put", "Key": "k", **json.loads(body)})


def of_ceph(key: str) -> str:
    return records("ObjectCreated:Put", key, sender="ceph:s3", version="")


def of_versity(key: str) -> str:
    said = {"configuration": "webhook-global", "etag": f'"{ETAG}"', "version": None}
    return records("s3:ObjectCreated:Copy", key, at="2096-01-05T08:00:00Z", **said)


READ: dict[str, Form] = {
    "the bucket's own notification, or raw delivery of SNS": of_aws,
    "the envelope of SNS": lambda key: in_envelope(of_aws(key)),
    "EventBridge": bridged,
    "EventBridge to SNS": lambda key: in_envelope(bridged(key)),
    "MinIO": of_minio,
    "Ceph": of_ceph,
    "Versity's gateway": of_versity,
}
"""Each makes the event of one created object."""
HARMLESS = (
    *(
        records(f"{prefix}{name}", "letters/a.csv")
        for prefix in ("", "s3:")
        for name in (
            *("ObjectRemoved:Delete", "ObjectRemoved:DeleteMarkerCreated", "ObjectRestore:Post"),
            *(
                "ObjectTagging:Put",
                "ObjectAcl:Put",
                "LifecycleExpiration:Delete",
                "LifecycleTransition",
            ),
            *("IntelligentTiering", "Replication:OperationMissedThreshold", "ObjectAccessed:Get"),
            *("ReducedRedundancyLostObject", "ObjectCreated:PutTagging"),
        )
    ),
    json.dumps({"Records": [{"eventName": "s3:BucketCreated:*", "s3": {"bucket": {"name": "b"}}}]}),
    *(
        bridged("letters/a.csv", kind)
        for kind in (
            *("Object Deleted", "Object Tags Added", "Object Storage Class Changed"),
            "Object Restore Completed",
        )
    ),
    json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": BUCKET}),
)
UNKNOWN = {
    records("ObjectTeleported:Put", "letters/a.csv"): "ObjectTeleported",
    records("s3:Unknown", "letters/a.csv"): "s3:Unknown",
    records("", "letters/a.csv"): "''",
    bridged("letters/a.csv", "Object Teleported"): "Object Teleported",
    bridged("letters/a.csv", source="mine"): "'mine'",
    bridged("letters/a.csv", "AWS API Call via CloudTrail"): "CloudTrail",
    bridged(""): "no key of S3",
    bridged("letters/a.csv").replace(BUCKET, "others"): "'others'",
    in_envelope("some text"): "not a notification",
    in_envelope(in_envelope(of_aws("letters/a.csv"))): "no Records",
    in_envelope('{"type":"files_waiting","table_id":"t","sources":[]}'): "no Records",
    in_envelope("confirm", "SubscriptionConfirmation"): "SubscribeURL",
    json.dumps({"Event": "s3:Other"}): "no Records",
    json.dumps({"Records": [{"eventName": "ObjectCreated:Put"}]}): "not a notification",
}
"""Events that are dead letters, and what the reason says."""


def sources(functions: Functions) -> list[Source]:
    jobs = [outgoing.message for outgoing in functions.sent()]
    assert all(isinstance(job, IngestJob) for job in jobs)
    return [source for job in jobs if isinstance(job, IngestJob) for source in job.sources]


def test_a_file_is_the_same_source_in_whatever_form_its_event_comes(functions: Functions) -> None:
    for form, event_of in READ.items():
        assert functions.deliver("batch_files", *map(event_of, KEYS)) == []
        found = sources(functions)
        assert {source.key for source in found} == {*KEYS}, form
        assert {(s.bucket, s.etag, s.size_bytes) for s in found} == {(BUCKET, ETAG, 20)}, form
    events = [event_of(key) for event_of in READ.values() for key in KEYS]
    assert functions.deliver("batch_files", *events) == []
    assert len(sources(functions)) == len(KEYS)
    assert functions.outbox.dead == []


def test_an_event_that_creates_no_object_is_ignored_and_an_unknown_one_is_a_dead_letter(
    functions: Functions,
) -> None:
    assert functions.deliver("batch_files", *HARMLESS, *map(in_envelope, HARMLESS)) == []
    assert functions.outbox.dead == []
    assert functions.deliver("batch_files", *UNKNOWN, of_aws(KEYS[0])) == []
    assert [source.key for source in sources(functions)] == [KEYS[0]]
    assert [body for _, body, _ in functions.outbox.dead] == [*UNKNOWN]
    for (_, body, reason), said in zip(functions.outbox.dead, UNKNOWN.values(), strict=True):
        assert said in reason, body


def test_the_sample_events_of_all_forms_name_the_same_files(functions: Functions) -> None:
    expected = ["letters/2026/01.csv", "letters/a file, with spaces.csv"]
    for event in ("good", "sns", "eventbridge"):
        assert functions.invoke("batch_files", event) == []
        assert [source.key for source in sources(functions)] == expected, event
