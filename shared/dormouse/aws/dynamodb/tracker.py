"""The record of jobs in DynamoDB: `ports.Tracker`.

An item for each job, with hash key `table_id` and range key `job_id`; their form is in `job_items`.
The tables that requests are about are under the hash key ``(requests)``. A write reads an item and
replaces it as a whole, so one checksum covers all parts of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from dormouse.aws.base.failures import ConditionFailedError, read_pages, reading, writing
from dormouse.aws.dynamodb.job_items import (
    REQUESTS,
    binding_item,
    bound_to,
    job_item,
    key,
    record_of,
)
from dormouse.aws.dynamodb.stored_items import unchanged
from dormouse.errors import ContendedError
from dormouse.jobs.records import BOUND_KEPT_SECONDS
from dormouse.model.jobs.job_events import JobEvent, Tracked, fold_event
from dormouse.ports.services import DAMAGED, JobRecord

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from dormouse.aws.dynamodb.stored_items import Item

ATTEMPTS = 8
"""How often a write starts over because another process recorded the same job."""
MAX_KEY_BYTES = 1024


class DynamoTracker:
    """`Tracker` over the low-level client; safe for many threads, as the client is."""

    def __init__(self, client: DynamoDBClient, table_name: str) -> None:
        """Use the DynamoDB table `table_name`, which must exist."""
        self._client, self._table_name = client, table_name

    def record(self, job: Tracked, event: JobEvent, at_ms: int) -> None:
        """Record what happened to a job. A damaged record is treated as absent, and replaced."""

        def newest(item: Item) -> Item | None:
            wanted = fold_event(record_of(item) if item else None, job, event, at_ms)
            return None if wanted is None else job_item(wanted)

        self._change(job.table_id, job.id, newest)

    def get(self, table_id: str, job_id: str) -> JobRecord | None:
        """Return the newest record of a job; None if there is none, or it is damaged."""
        if not _can_be_keys(table_id, job_id):  # dead letters may say anything
            return None
        item = self._item(table_id, job_id)
        record = record_of(item) if item else None
        return record if record is not None and record.state != DAMAGED else None

    def records(self, table_id: str) -> Iterator[JobRecord]:
        """Yield a table's records, in job id order; all pages of them."""
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table_name,
            KeyConditionExpression="table_id = :table_id",
            ExpressionAttributeValues={":table_id": {"S": table_id}},
            ConsistentRead=True,
        )
        for page in read_pages("DynamoDB", pages):
            yield from map(record_of, page["Items"])

    def bind(self, request: str, table_id: str, now_ms: int) -> str:
        """Return the table which a request is about: `table_id`, unless a call gave another before.

        Raises:
            CorruptDataError: which it is cannot be read any more.
        """

        def bound(item: Item) -> Item:
            about = bound_to(item) if item else table_id
            return binding_item(request, about, now_ms // 1000 + BOUND_KEPT_SECONDS)

        return bound_to(self._change(REQUESTS, request, bound))

    def _change(self, table_id: str, job_id: str, change: Callable[[Item], Item | None]) -> Item:
        """Replace an item by the result of `change`, unless that is None; return the item then."""
        for _ in range(ATTEMPTS):
            item = self._item(table_id, job_id)
            wanted = change(item)
            if wanted is None:
                return item
            try:
                with writing("DynamoDB"):
                    self._client.put_item(
                        TableName=self._table_name, Item=wanted, **unchanged(item)
                    )
            except ConditionFailedError:
                continue
            return wanted
        raise ContendedError(f"others keep writing of job {job_id!r}; try again")

    def _item(self, table_id: str, job_id: str) -> Item:
        with reading("DynamoDB"):
            answer = self._client.get_item(
                TableName=self._table_name, Key=key(table_id, job_id), ConsistentRead=True
            )
        return answer.get("Item", {})


def _can_be_keys(*texts: str) -> bool:
    try:
        return all(0 < len(text.encode()) <= MAX_KEY_BYTES for text in texts)
    except UnicodeEncodeError:
        return False
