"""Deletion of many items: in batches of 25, each repeated until DynamoDB leaves none undone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dormouse.aws.clients import writing
from dormouse.errors import OutcomeUnknownError, UnavailableError
from dormouse.retry_policy import RetryPolicy

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from dormouse.aws.dynamodb import Item


DELETES_PER_REQUEST = 25


def delete_items(
    client: DynamoDBClient, table_name: str, keys: Sequence[Item], retry_policy: RetryPolicy
) -> None:
    """Delete the items with these keys; an item that does not exist is no error.

    Raises:
        UnavailableError: some may not be deleted; call again with the same keys.
    """

    def request(some: Sequence[Item]) -> list[Item]:
        try:
            with writing("DynamoDB"):
                answer = client.batch_write_item(
                    RequestItems={table_name: [{"DeleteRequest": {"Key": key}} for key in some]}
                )
        except OutcomeUnknownError as error:  # a deletion can be repeated
            raise UnavailableError(str(error)) from error
        undone = answer["UnprocessedItems"].get(table_name, [])
        return [dict(each["DeleteRequest"]["Key"]) for each in undone]

    for start in range(0, len(keys), DELETES_PER_REQUEST):
        retry_policy.finish(keys[start : start + DELETES_PER_REQUEST], request)
