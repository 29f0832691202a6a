"""The record of jobs in DynamoDB: `ports.Tracker`.

An item for each job, with hash key `table_id` and range key `job_id`. DynamoDB deletes it some time
after `expires`, in seconds since 1970. What requests are about is under hash key ``(requests)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from dormouse.aws.failures import ConditionFailedError, reading, writing
from dormouse.ports import JobRecord

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

    _Item = Mapping[str, AttributeValueTypeDef]

RECORDS_KEPT_SECONDS = 7 * 24 * 60 * 60
REFUSALS_KEPT_SECONDS = 35 * 24 * 60 * 60
"""Longer than audits look at a dropped file: one that was refused is not judged again by itself."""
BOUND_KEPT_SECONDS = 30 * 24 * 60 * 60
"""Twice as long as SQS keeps any message, a dead letter too."""
REQUESTS = "(requests)"
MAX_REASON_CHARACTERS = 10_000
"""Items end at 400 KB, and people read on no further anyway."""
MAX_KEY_BYTES = 1024
MAX_SUBJECT_CHARACTERS = 1024  # as many as a key of S3 has

_IS_NEWER = "(attribute_not_exists(updated_ms) OR updated_ms <= :updated_ms)"
_IS_OPEN = " AND (attribute_not_exists(updated_ms) OR #state <> :finished)"
_KEPT_NUMBERS = ("files", "size_bytes")
_NUMBERS = (
    *_KEPT_NUMBERS,
    "rows",
    "rows_read",
    "updated_ms",
    "started_ms",
    "finished_ms",
    "attempts",
    "silent",
)


class DynamoTracker:
    """`Tracker` over the low-level client; safe for many threads, as the client is."""

    def __init__(self, client: DynamoDBClient, table_name: str) -> None:
        """Use the DynamoDB table `table_name`, which must exist."""
        self._client, self._table_name = client, table_name

    def record(self, record: JobRecord) -> None:
        """Keep the newest record of a job: one older than what is kept changes nothing, nor does
        one that is ``assigned`` where the job is finished.
        """
        values = _changes(record)
        names = {f"#{name}": name for name in values}  # some are words of DynamoDB's own
        sets = ", ".join(f"#{name} = :{name}" for name in values)
        counts = " ADD attempts :one, silent :one" if record.state == "running" else ""
        opens = record.state == "assigned"
        with suppress(ConditionFailedError), writing("DynamoDB"):
            self._client.update_item(
                TableName=self._table_name,
                Key=_key(record.table_id, record.job_id),
                UpdateExpression=f"SET {sets}{counts}",
                ConditionExpression=_IS_NEWER + (_IS_OPEN if opens else ""),
                ExpressionAttributeNames=names,
                ExpressionAttributeValues={
                    **{f":{name}": value for name, value in values.items()},
                    **({":one": {"N": "1"}} if counts else {}),
                    **({":finished": {"S": "finished"}} if opens else {}),
                },
            )

    def get(self, table_id: str, job_id: str) -> JobRecord | None:
        """Give the newest record of a job; None if there is none."""
        if not _can_be_keys(table_id, job_id):  # dead letters may say anything
            return None
        with reading("DynamoDB"):
            answer = self._client.get_item(
                TableName=self._table_name,
                Key=_key(table_id, job_id),
                ConsistentRead=True,
            )
        item = answer.get("Item")
        return _record(item) if item else None

    def records(self, table_id: str) -> Iterator[JobRecord]:
        """Give a table's records, in job id order; all pages of them."""
        pages = iter(
            self._client.get_paginator("query").paginate(
                TableName=self._table_name,
                KeyConditionExpression="table_id = :table_id",
                ExpressionAttributeValues={":table_id": {"S": table_id}},
                ConsistentRead=True,
            )
        )
        while True:
            with reading("DynamoDB"):
                page = next(pages, None)
            if page is None:
                return
            yield from map(_record, page["Items"])

    def bind(self, request: str, table_id: str, now_ms: int) -> str:
        """Give the table which a request is about: `table_id`, if no call gave another before."""
        with writing("DynamoDB"):
            answer = self._client.update_item(
                TableName=self._table_name,
                Key=_key(REQUESTS, request),
                UpdateExpression="SET #about = if_not_exists(#about, :about), #expires = :expires",
                ExpressionAttributeNames={"#about": "about", "#expires": "expires"},
                ExpressionAttributeValues={
                    ":about": {"S": table_id},
                    ":expires": {"N": str(now_ms // 1000 + BOUND_KEPT_SECONDS)},
                },
                ReturnValues="ALL_NEW",
            )
        return answer["Attributes"]["about"]["S"]


def _key(table_id: str, job_id: str) -> _Item:
    return {"table_id": {"S": table_id}, "job_id": {"S": job_id}}


def _can_be_keys(*texts: str) -> bool:
    try:
        return all(0 < len(text.encode()) <= MAX_KEY_BYTES for text in texts)
    except UnicodeEncodeError:
        return False


def _seconds_kept(record: JobRecord) -> int:
    is_file = (record.kind, record.state) == ("ingest", "refused")  # requests may quote rows
    return REFUSALS_KEPT_SECONDS if is_file else RECORDS_KEPT_SECONDS


def _changes(record: JobRecord) -> dict[str, AttributeValueTypeDef]:
    """Give what a record changes of its item; what is counted is counted there."""
    numbers = {
        "rows": record.rows,
        "rows_read": record.rows_read,
        "updated_ms": record.updated_ms,
        "expires": record.updated_ms // 1000 + _seconds_kept(record),
        **{name: value for name in _KEPT_NUMBERS if (value := getattr(record, name))},
    }
    if record.state == "running":
        numbers |= {"started_ms": record.updated_ms, "finished_ms": 0}
    elif record.is_finished:
        numbers |= {"finished_ms": record.updated_ms, "silent": 0}
    texts = {
        "kind": record.kind,
        "state": record.state,
        "reason": record.reason[:MAX_REASON_CHARACTERS],
        **({"subject": record.subject[:MAX_SUBJECT_CHARACTERS]} if record.subject else {}),
    }
    return {
        **{name: {"S": text} for name, text in texts.items()},
        **{name: {"N": str(number)} for name, number in numbers.items()},
    }


def _record(item: _Item) -> JobRecord:
    def number(name: str) -> int:
        return int(item[name]["N"]) if name in item else 0

    return JobRecord(
        table_id=item["table_id"]["S"],
        job_id=item["job_id"]["S"],
        kind=item["kind"]["S"],
        state=item["state"]["S"],
        subject=item["subject"]["S"] if "subject" in item else "",
        reason=item["reason"]["S"],
        **{name: number(name) for name in _NUMBERS},
    )
