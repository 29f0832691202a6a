"""The record of jobs in DynamoDB: `ports.Tracker`.

An item for each job, with hash key `table_id` and range key `job_id`. DynamoDB deletes it some time
after `expires`, in seconds since 1970.
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
MAX_REASON_CHARACTERS = 10_000
"""Items end at 400 KB, and people read on no further anyway."""


class DynamoTracker:
    """`Tracker` over the low-level client; safe for many threads, as the client is."""

    def __init__(self, client: DynamoDBClient, table_name: str) -> None:
        """Use the DynamoDB table `table_name`, which must exist."""
        self._client, self._table_name = client, table_name

    def record(self, record: JobRecord) -> None:
        """Keep the newest record of a job: one older than what is kept changes nothing."""
        with suppress(ConditionFailedError), writing("DynamoDB"):
            self._client.put_item(
                TableName=self._table_name,
                Item=_item(record),
                ConditionExpression="attribute_not_exists(updated_ms) OR updated_ms <= :updated_ms",
                ExpressionAttributeValues={":updated_ms": {"N": str(record.updated_ms)}},
            )

    def get(self, table_id: str, job_id: str) -> JobRecord | None:
        """Give the newest record of a job; None if there is none."""
        with reading("DynamoDB"):
            answer = self._client.get_item(
                TableName=self._table_name,
                Key={"table_id": {"S": table_id}, "job_id": {"S": job_id}},
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


def _item(record: JobRecord) -> _Item:
    return {
        "table_id": {"S": record.table_id},
        "job_id": {"S": record.job_id},
        "kind": {"S": record.kind},
        "state": {"S": record.state},
        "subject": {"S": record.subject},
        "reason": {"S": record.reason[:MAX_REASON_CHARACTERS]},
        "rows": {"N": str(record.rows)},
        "updated_ms": {"N": str(record.updated_ms)},
        "expires": {"N": str(record.updated_ms // 1000 + RECORDS_KEPT_SECONDS)},
    }


def _record(item: _Item) -> JobRecord:
    return JobRecord(
        table_id=item["table_id"]["S"],
        job_id=item["job_id"]["S"],
        kind=item["kind"]["S"],
        state=item["state"]["S"],
        subject=item["subject"]["S"],
        reason=item["reason"]["S"],
        rows=int(item["rows"]["N"]),
        updated_ms=int(item["updated_ms"]["N"]),
    )
