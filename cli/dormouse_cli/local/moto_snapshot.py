"""What moto holds, as JSON, and back; used by `moto_server` for `local up --data DIR`.

A `Snapshots` puts what was held into each bucket, table, queue and application when it is created,
so deploying a template needs no knowledge of it. What is held of resources that the template does
not have stays held: it is there again when they are.

Not kept: uploads in parts that were not completed, tags of objects, and runs of Spark that had not
ended, which are failed ones then.
"""

import base64
import datetime
import functools
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.core.utils import unix_time_millis
from moto.dynamodb.models import DynamoDBBackend, dynamodb_backends
from moto.dynamodb.models.table import Table
from moto.emrserverless.models import (
    Application,
    EMRServerlessBackend,
    JobRun,
    emrserverless_backends,
)
from moto.s3.models import FakeBucket, FakeDeleteMarker, FakeKey, S3Backend, s3_backends
from moto.sqs.models import Message, Queue, SQSBackend, sqs_backends

from dormouse_cli.local import moto_dynamodb, moto_emr, moto_s3, moto_sqs
from dormouse_cli.local.moto_values import StoredValue, ValueFolder

Json = dict[str, Any]

_KEY_ARGUMENTS = {  # of FakeKey, and where it keeps them
    "storage": "_storage_class",
    "etag": "_etag",
    "is_versioned": "_is_versioned",
    "version_id": "_version_id",
    "encryption": "encryption",
    "kms_key_id": "kms_key_id",
    "checksum_value": "checksum_value",
    "checksum_type": "checksum_type",
    "checksum_parts": "checksum_parts",
}
_MESSAGE_FIELDS = (
    "message_attributes",
    "sender_id",
    "approximate_first_receive_timestamp",
    "approximate_receive_count",
    "deduplication_id",
    "group_id",
    "sequence_number",
)
_RUN_ARGUMENTS = (
    "application_id",
    "client_token",
    "execution_role_arn",
    "release_label",
    "application_type",
    "job_driver",
    "configuration_overrides",
    "tags",
    "network_configuration",
    "execution_timeout_minutes",
    "name",
)
_RUN_FIELDS = ("id", "arn", "state", "state_details", "created_by")


_BYTES = "bytes (base64)"

LOCKS = (moto_s3.LOCK, moto_dynamodb.LOCK, moto_emr.CHANGED, moto_sqs.CHANGED)
"""A reader that has all of these, in this order, sees the services as of one moment."""


class Snapshots:
    """Takes snapshots of moto, and fills what is created with what the last one held."""

    def __init__(self, held: Mapping[str, Any], values: ValueFolder, region: str) -> None:
        """`held` is a state that `take` returned once, or empty."""
        self._held: dict[str, Json] = {
            part: dict(held.get(part, {})) for part in ("buckets", "tables", "queues", "runs")
        }
        self._values, self._region = values, region

    def sizes(self) -> dict[str, int]:
        """Return the names of all files that what is held refers to, and their sizes in bytes."""
        objects = (o for b in self._held["buckets"].values() for o in b.values())
        return {v["file"]: v["size"] for versions in objects for v in versions if v.get("file")}

    def apply(self) -> None:
        """Fill what is created from now on; call once, before the server starts."""
        for backend, name, fill in (
            (S3Backend, "create_bucket", self._fill_bucket),
            (DynamoDBBackend, "create_table", self._fill_table),
            (SQSBackend, "create_queue", self._fill_queue),
            (EMRServerlessBackend, "create_application", self._fill_application),
        ):
            setattr(backend, name, _then(getattr(backend, name), fill))

    def take(self) -> tuple[Json, set[str]]:
        """Return the state of all services at one moment, and the files that it needs no more."""
        account, region = DEFAULT_ACCOUNT_ID, self._region
        with ExitStack() as locked:
            for lock in LOCKS:
                locked.enter_context(lock)
            buckets = s3_backends[account]["aws"].buckets
            tables = dynamodb_backends[account][region].tables
            queues = sqs_backends[account][region].queues
            runs = emrserverless_backends[account][region].job_runs
            taken: dict[str, Json] = {
                "buckets": {name: _objects(bucket) for name, bucket in buckets.items()},
                "tables": {name: _items(table) for name, table in tables.items()},
                "queues": {name: _messages(queue) for name, queue in queues.items()},
                "runs": {name: [_run(run) for run in each] for name, each in runs.items()},
            }
            removed = self._values.removed()
            state = {part: {**self._held[part], **taken[part]} for part in taken}
        return state, removed

    def _fill_bucket(self, bucket: FakeBucket) -> None:
        for name, versions in self._held["buckets"].pop(bucket.name, {}).items():
            for version in versions:
                made = self._version(bucket, name, version)
                bucket.keys.setlist(name, [*bucket.keys.getlist(name, []), made])

    def _version(self, bucket: FakeBucket, name: str, held: Json) -> FakeKey | FakeDeleteMarker:
        arguments: Json = {argument: held.get(argument) for argument in _KEY_ARGUMENTS}
        key = FakeKey(
            name,
            b"",
            account_id=bucket.account_id,
            region_name=bucket.region_name,
            bucket_name=bucket.name,
            **arguments,
        )
        at = datetime.datetime.fromisoformat(held["last_modified"])
        if "marker" in held:
            latest = (bucket.keys.getlist(name) or [key])[-1]
            marker = FakeDeleteMarker(latest)
            marker._version_id, marker.last_modified = held["marker"], at
            return marker
        key.last_modified, key.contentsize = at, held["size"]
        key.checksum_algorithm = held["checksum_algorithm"]
        key._metadata.update(held["metadata"])
        key._value_buffer = StoredValue(self._values, held["file"])  # type: ignore[assignment]
        return key

    def _fill_table(self, table: Table) -> None:
        for attributes in self._held["tables"].pop(table.name, ()):
            table.put_item(_with_bytes(attributes))

    def _fill_queue(self, queue: Queue) -> None:
        for held in self._held["queues"].pop(queue.name, ()):
            message = Message(held["id"], held["body"], held["system_attributes"])
            for field in _MESSAGE_FIELDS:
                setattr(message, field, _with_bytes(held[field]))
            now_ms = int(unix_time_millis())
            message.sent_timestamp = now_ms - held["age_ms"]
            message.delayed_until = now_ms + held["delay_ms"]
            queue._messages.append(message)

    def _fill_application(self, application: Application) -> None:
        backend = emrserverless_backends[DEFAULT_ACCOUNT_ID][self._region]
        for held in self._held["runs"].pop(application.id, ()):
            arguments = {name: held[name] for name in _RUN_ARGUMENTS}
            run = JobRun(account_id=DEFAULT_ACCOUNT_ID, region_name=self._region, **arguments)
            for field in _RUN_FIELDS:
                setattr(run, field, held[field])
            run.created_at = datetime.datetime.fromisoformat(held["created_at"])
            run.updated_at = datetime.datetime.fromisoformat(held["updated_at"])
            if run.state not in moto_emr.FINAL:
                run.state, run.state_details = "FAILED", "the local stack was stopped"
            backend.job_runs.setdefault(application.id, []).append(run)


def _then(create: Callable[..., Any], fill: Callable[[Any], None]) -> Callable[..., Any]:
    @functools.wraps(create)
    def create_and_fill(*arguments: Any, **named: Any) -> Any:
        created = create(*arguments, **named)
        fill(created)
        return created

    return create_and_fill


def _objects(bucket: FakeBucket) -> Json:
    return {name: [_held(version) for version in each] for name, each in bucket.keys.lists()}


def _held(version: FakeKey | FakeDeleteMarker) -> Json:
    at = version.last_modified.isoformat()
    if isinstance(version, FakeDeleteMarker):
        return {"marker": version.version_id, "last_modified": at}
    etag = version.etag.strip('"')
    arguments = {argument: getattr(version, kept) for argument, kept in _KEY_ARGUMENTS.items()}
    return {
        **arguments,
        "etag": etag,
        "last_modified": at,
        "size": version.contentsize,
        "checksum_algorithm": version.checksum_algorithm,
        "metadata": dict(version._metadata),
        "file": version._value_buffer.name,
    }


def _items(table: Table) -> list[Json]:
    return [_without_bytes(item.to_json()["Attributes"]) for item in table.all_items()]


def _messages(queue: Queue) -> list[Json]:
    return [_message(message) for message in queue._messages]


def _message(message: Message) -> Json:
    """Return a message that can be received at once: who had it when the stack stopped is gone.

    Only while a stack runs does a message grow older, and its delay shorter. So none expires, or is
    delayed for longer, because the stack was stopped for weeks or the clock was set back.
    """
    now_ms = int(unix_time_millis())
    held = {field: getattr(message, field) for field in _MESSAGE_FIELDS}
    if message.visible_at > now_ms:
        held["approximate_receive_count"] -= 1  # that the stack stopped is no failure of it
    sent = {
        **held,
        "id": message.id,
        "body": message.body,
        "system_attributes": message.system_attributes,
        "age_ms": max(0, now_ms - int(message.sent_timestamp or now_ms)),
        "delay_ms": max(0, int(message.delayed_until) - now_ms),
    }
    return {name: _without_bytes(value) for name, value in sent.items()}


def _run(run: JobRun) -> Json:
    held = {name: getattr(run, name) for name in (*_RUN_ARGUMENTS, *_RUN_FIELDS)}
    times = {"created_at": run.created_at.isoformat(), "updated_at": run.updated_at.isoformat()}
    return {**held, **times}


def _without_bytes(value: Any) -> Any:
    """Return a copy that JSON can hold, with bytes as base64 in an object of their own."""
    match value:
        case dict():
            return {name: _without_bytes(part) for name, part in value.items()}
        case list() | tuple() | set():
            return [_without_bytes(part) for part in value]
        case bytes():
            return {_BYTES: base64.b64encode(value).decode()}
        case _:
            return value


def _with_bytes(value: Any) -> Any:
    """Return what `_without_bytes` had been given."""
    match value:
        case dict() if value.keys() == {_BYTES} and isinstance(text := value[_BYTES], str):
            return base64.b64decode(text)
        case dict():
            return {name: _with_bytes(part) for name, part in value.items()}
        case list():
            return [_with_bytes(part) for part in value]
        case _:
            return value
