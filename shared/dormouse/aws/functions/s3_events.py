"""Events of S3, as they come through the queue of files: which objects were created.

Three forms are read: the notification that a bucket sends itself (AWS's event message structure,
version 2, which other servers of S3 send too), the same in the envelope of an SNS topic, and the
events of EventBridge. An event of another form is refused, so that it becomes a dead letter and no
file is lost without a word.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TypeVar
from urllib.parse import unquote_plus

import msgspec

from dormouse.errors import InvalidRequestError
from dormouse.model.sources import ObjectKey, ObjectTag, Source, WholeNumber
from dormouse.stored.decoding import convert_plain, decode_json

_CREATED = "ObjectCreated:"
_TAGGED = ("PutRetention", "PutLegalHold", "PutTagging", "DeleteTagging")
"""What MinIO also calls created, though the content of the object is what it was."""
_OTHERS = (
    *("ObjectRemoved:", "ObjectRestore:", "ObjectTagging:", "ObjectAcl:", "ObjectAccessed:"),
    *("LifecycleExpiration:", "LifecycleTransition", "IntelligentTiering", "Replication:"),
    *("ReducedRedundancyLostObject", "ObjectTransition:", "ObjectLifecycle:", "Scanner:"),
    *("BucketCreated:", "BucketRemoved:"),
)
"""How the names of other events begin, of AWS, MinIO and Ceph: they create no object."""
_BRIDGED_OTHERS = (
    *("Object Deleted", "Object Restore Initiated", "Object Restore Completed"),
    *("Object Restore Expired", "Object Storage Class Changed", "Object Access Tier Changed"),
    *("Object ACL Updated", "Object Tags Added", "Object Tags Deleted"),
)
"""The other events of S3 in EventBridge."""
_PLAIN_SENDERS = ("ceph:s3",)
_PLAIN_CONFIGURATIONS = ("kafka-global", "nats-global", "rabbitmq-global", "webhook-global")
"""Ceph's notifications, and those of Versity's gateway, which says that it is ``aws:s3``, have keys
that are not encoded. Versity's ETags are in quotes."""

_Form = TypeVar("_Form")


class _Bucket(msgspec.Struct):
    name: str


class _Object(msgspec.Struct):
    key: str
    eTag: ObjectTag | None = ""
    size: WholeNumber | None = 0
    versionId: ObjectTag | None = ""


class _Entity(msgspec.Struct):
    bucket: _Bucket
    object: _Object
    configurationId: str | None = None


class _Record(msgspec.Struct):
    eventName: str
    s3: object = None
    eventTime: object = None
    eventSource: object = None


class _BridgedObject(msgspec.Struct, rename="kebab"):
    key: str
    etag: ObjectTag = ""
    size: WholeNumber = 0
    version_id: ObjectTag = ""


class _BridgedDetail(msgspec.Struct):
    bucket: _Bucket
    object: _BridgedObject


class _Event(msgspec.Struct):
    """What tells the forms apart."""

    Records: list[_Record] | None = None
    Event: str = ""  # of the test event that S3 sends when a notification is set up
    Type: str = ""  # of the envelope of SNS
    Message: str = ""
    detail_type: str = msgspec.field(default="", name="detail-type")  # of EventBridge
    source: object = None
    time: object = None
    detail: object = None


def created_objects(body: str, bucket: str) -> list[Source]:
    """Return the objects of `bucket` that an event says were created; none for events that are
    known to create none.

    Raises:
        InvalidRequestError: it is no event of S3, of a kind that is not known, or about another
            bucket.
    """
    event = _decoded(body)
    if event.Type == "Notification":
        event = _decoded(event.Message)
    elif event.Type:
        raise InvalidRequestError(
            f"SNS sent a {event.Type!r}, not a notification; a topic of another account waits "
            "until somebody opens its SubscribeURL"
        )
    if event.detail_type:
        return list(_bridged(event, bucket))
    if event.Event == "s3:TestEvent":
        return []
    if event.Records is None:
        raise InvalidRequestError("not a notification of S3: it has no Records")
    return [_notified(record, bucket) for record in event.Records if _creates(record.eventName)]


def _creates(name: str) -> bool:
    """Return whether an event of this name creates an object; MinIO's names begin with ``s3:``."""
    kind = name.removeprefix("s3:")
    if kind.startswith(_CREATED):
        return kind.removeprefix(_CREATED) not in _TAGGED
    if kind.startswith(_OTHERS):
        return False
    raise InvalidRequestError(f"not an event of S3 that is known: {name!r}")


def _notified(record: _Record, bucket: str) -> Source:
    entity = _converted(record.s3, _Entity)
    found = entity.object
    is_plain = (
        record.eventSource in _PLAIN_SENDERS or entity.configurationId in _PLAIN_CONFIGURATIONS
    )
    return Source(
        bucket=_checked_bucket(entity.bucket, bucket),
        key=_checked_key(found.key if is_plain else unquote_plus(found.key)),
        etag=(found.eTag or "").strip('"'),
        size_bytes=found.size or 0,
        version=found.versionId or "",
        dropped_ms=_time_ms(record.eventTime),
    )


def _bridged(event: _Event, bucket: str) -> Iterator[Source]:
    """Yield the object of an event of EventBridge, whose key is not encoded."""
    if event.source != "aws.s3" or event.detail_type not in ("Object Created", *_BRIDGED_OTHERS):
        raise InvalidRequestError(
            f"not an event of S3 that is known: {event.detail_type!r} of {event.source!r}"
        )
    if event.detail_type == "Object Created":
        detail = _converted(event.detail, _BridgedDetail)
        found = detail.object
        yield Source(
            bucket=_checked_bucket(detail.bucket, bucket),
            key=_checked_key(found.key),
            etag=found.etag.strip('"'),
            size_bytes=found.size,
            version=found.version_id,
            dropped_ms=_time_ms(event.time),
        )


def _time_ms(text: object) -> int:
    """Return the time of an event; 0 for none, or one that cannot be read or has no zone.

    A file is not refused because the time of its event is unknown: no user would drop it again.
    Nor because EventBridge and others cut the time to the second: the end of that second is meant.
    """
    try:
        time = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return 0
    if not isinstance(text, str) or time is None or time.tzinfo is None:
        return 0
    return max(0, int(time.timestamp() * 1000) + (0 if "." in text else 999))


def _decoded(text: str) -> _Event:
    try:
        return decode_json(text, _Event)
    except ValueError as error:
        raise InvalidRequestError(f"not a notification of S3: {error}") from error


def _converted(value: object, form: type[_Form]) -> _Form:
    try:
        return convert_plain(value, form)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"not a notification of S3: {error}") from error


def _checked_bucket(found: _Bucket, bucket: str) -> str:
    if found.name != bucket:
        raise InvalidRequestError(f"the notification is about bucket {found.name!r}")
    return bucket


def _checked_key(key: str) -> str:
    try:
        return convert_plain(key, ObjectKey)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"the notification has no key of S3: {error}") from error
