"""Records of jobs as items of DynamoDB; used by `tracker`."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from dormouse.aws.dynamodb.stored_items import opened, sealed
from dormouse.errors import CorruptDataError
from dormouse.jobs.records import seconds_kept
from dormouse.ports.services import DAMAGED, JobRecord

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

    from dormouse.aws.dynamodb.stored_items import Item

REQUESTS = "(requests)"
"""The hash key under which lies what requests are about."""
_KIND = "job"
_KEYS = ("table_id", "job_id")
_TEXTS = ("kind", "state", "subject", "reason", "purge_id", "who")
_NUMBERS = tuple(field.name for field in fields(JobRecord) if field.name not in (*_KEYS, *_TEXTS))
_HINT = "the job's next record takes its place; without one it is gone in days"


def key(table_id: str, job_id: str) -> Item:
    """Return the key of an item."""
    return {"table_id": {"S": table_id}, "job_id": {"S": job_id}}


def job_item(record: JobRecord) -> Item:
    """Return the item of a record; DynamoDB deletes it some time after `expires`, in seconds."""
    texts = {name: text for name in _TEXTS if (text := getattr(record, name))}
    numbers = {name: number for name in _NUMBERS if (number := getattr(record, name))}
    numbers["expires"] = record.updated_ms // 1000 + seconds_kept(record)
    held: dict[str, AttributeValueTypeDef] = {
        **key(record.table_id, record.job_id),
        **{name: {"S": text} for name, text in texts.items()},
        **{name: {"N": str(number)} for name, number in numbers.items()},
    }
    return sealed(_KIND, held)


def record_of(item: Item) -> JobRecord:
    """Return the record that an item holds; where it is damaged, one that says just that."""
    table_id, job_id = (item[name]["S"] for name in _KEYS)
    try:
        with opened(_KIND, item, f"the record of job {job_id!r} is damaged", hint=_HINT):
            values: dict[str, Any] = {"kind": "", "state": ""}
            values |= {name: item[name]["S"] for name in _TEXTS if name in item}
            values |= {name: int(item[name]["N"]) for name in _NUMBERS if name in item}
            return JobRecord(table_id, job_id, **values)
    except CorruptDataError as error:
        return JobRecord(table_id, job_id, "", DAMAGED, reason=error.explanation)


def binding_item(request: str, table_id: str, expires: int) -> Item:
    """Return the item that says which table a request is about."""
    about: Item = {"about": {"S": table_id}, "expires": {"N": str(expires)}}
    return sealed(_KIND, {**key(REQUESTS, request), **about})


def bound_to(item: Item) -> str:
    """Return the table that an item says a request is about.

    Raises:
        CorruptDataError: it is damaged.
    """
    problem = f"what is kept of request {item['job_id']['S']!r} is damaged"
    with opened(_KIND, item, problem, hint="ask again under another request_id"):
        return item["about"]["S"]
