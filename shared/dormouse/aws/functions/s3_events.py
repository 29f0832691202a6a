"""Notifications of S3, as they come through a queue: which objects were created.

The form is AWS's event message structure, version 2. Keys come URL-encoded.
"""

from __future__ import annotations

from datetime import datetime
from urllib.parse import unquote_plus

import msgspec

from dormouse.errors import InvalidRequestError
from dormouse.model.sources import ObjectKey, ObjectTag, Source, WholeNumber
from dormouse.stored.decoding import convert_plain, decode_json


class _Bucket(msgspec.Struct):
    name: str


class _Object(msgspec.Struct):
    key: str
    eTag: ObjectTag = ""
    size: WholeNumber = 0
    versionId: ObjectTag = ""


class _Entity(msgspec.Struct):
    bucket: _Bucket
    object: _Object


class _Record(msgspec.Struct):
    eventName: str
    s3: _Entity
    eventTime: object = None


class _Notification(msgspec.Struct):
    """Either records, or the test event S3 sends when a notification is set up."""

    Records: list[_Record] | None = None
    Event: str = ""


def created_objects(body: str, bucket: str) -> list[Source]:
    """Return the objects of `bucket` that a notification says were created; none for a test event.

    Raises:
        InvalidRequestError: it is no notification, or one of another bucket.
    """
    try:
        notification = decode_json(body, _Notification)
    except ValueError as error:
        raise InvalidRequestError(f"not a notification of S3: {error}") from error
    if notification.Event == "s3:TestEvent":
        return []
    if notification.Records is None:
        raise InvalidRequestError("not a notification of S3: it has no Records")
    return [
        _source(record.s3, bucket, _time_ms(record.eventTime))
        for record in notification.Records
        if record.eventName.startswith("ObjectCreated:")
    ]


def _source(entity: _Entity, bucket: str, dropped_ms: int) -> Source:
    if entity.bucket.name != bucket:
        raise InvalidRequestError(f"the notification is about bucket {entity.bucket.name!r}")
    found = entity.object
    return Source(
        bucket=bucket,
        key=_decoded(found.key),
        etag=found.eTag.strip('"'),
        size_bytes=found.size,
        version=found.versionId,
        dropped_ms=dropped_ms,
    )


def _time_ms(text: object) -> int:
    """Return the time of an event; 0 for none, or one that cannot be read or has no zone.

    A file is not refused because the time of its event is unknown: no user would drop it again.
    """
    try:
        time = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return 0
    if time is None or time.tzinfo is None:
        return 0
    return max(0, int(time.timestamp() * 1000))


def _decoded(key: str) -> str:
    try:
        return convert_plain(unquote_plus(key), ObjectKey)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"the notification has no key of S3: {error}") from error
