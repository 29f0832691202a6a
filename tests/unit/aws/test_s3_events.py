"""Notifications of S3: objects of the ingest bucket that were created, and nothing else."""

from __future__ import annotations

import json

import pytest

from dormouse.aws.handling import created_objects
from dormouse.errors import InvalidRequestError


def notification(event: str = "ObjectCreated:Put", bucket: str = "ingest", **found: object) -> str:
    stored = {"key": "t/a.csv", "eTag": '"e"', "size": 3, **found}
    record = {"eventName": event, "s3": {"bucket": {"name": bucket}, "object": stored}}
    return json.dumps({"Records": [record]})


def test_a_notification_about_another_bucket_is_not_believed() -> None:
    with pytest.raises(InvalidRequestError, match="bucket 'others'"):
        created_objects(notification(bucket="others"), "ingest")


@pytest.mark.parametrize("event", ["ObjectRemoved:Delete", "ObjectRestore:Post"])
def test_events_of_other_kinds_than_creation_name_no_source(event: str) -> None:
    assert created_objects(notification(event), "ingest") == []


def test_the_test_event_of_a_bucket_names_no_source() -> None:
    assert created_objects(json.dumps({"Event": "s3:TestEvent"}), "ingest") == []


def test_an_object_is_known_by_its_own_key_content_and_version() -> None:
    (source,) = created_objects(notification(key="t/a+b%2Bc.csv", versionId="v1"), "ingest")
    assert (source.key, source.etag, source.version) == ("t/a b+c.csv", "e", "v1")
    assert (source.bucket, source.size_bytes) == ("ingest", 3)


def test_what_has_no_records_is_no_notification_and_not_passed_over() -> None:
    with pytest.raises(InvalidRequestError, match="no Records"):
        created_objects(json.dumps({"Event": "s3:Other"}), "ingest")


@pytest.mark.parametrize(
    ("said", "dropped_ms"),
    [
        ("2026-01-05T08:00:00.250Z", 1_767_600_000_250),
        ("2026-01-05T10:00:00.250+02:00", 1_767_600_000_250),
        # cut to the second, as in EventBridge: the file may have been dropped at the end of it
        ("2026-01-05T08:00:00Z", 1_767_600_000_999),
        ("2026-01-05T08:00:00", 0),
        ("1969-12-31T00:00:00.000Z", 0),
        ("yesterday", 0),
        ("", 0),
        (7, 0),
        (None, 0),
        ({"at": []}, 0),
    ],
)
def test_when_an_object_was_dropped_is_known_or_said_not_to_be(
    said: object, dropped_ms: int
) -> None:
    body = json.loads(notification())
    body["Records"][0]["eventTime"] = said
    (source,) = created_objects(json.dumps(body), "ingest")
    assert source.dropped_ms == dropped_ms
    (source,) = created_objects(notification(), "ingest")
    assert source.dropped_ms == 0
