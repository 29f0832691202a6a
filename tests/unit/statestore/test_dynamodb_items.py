"""What DynamoDB takes in part or does not answer: it is sent again, or reported."""

from __future__ import annotations

from typing import Any, cast

import pytest
from botocore.exceptions import ReadTimeoutError

from dormouse.errors import UnavailableError
from dormouse.statestore.dynamodb_items import DynamoItems
from dormouse.statestore.dynamodb_pages import DynamoPages
from dormouse.statestore.items import Item, ItemKey

NAMES: Any = {"references": "r", "shards": "s", "partitions": "p"}
KEYS = [ItemKey("shards", "t#S0", f"{number:03d}@1") for number in range(60)]


class Busy:
    """A client that takes the first few deletions of each request and leaves the rest."""

    def __init__(self, takes: int) -> None:
        self.takes = takes
        self.deleted: list[str] = []

    def batch_write_item(self, RequestItems: dict[str, list[Any]]) -> dict[str, Any]:
        left: dict[str, list[Any]] = {}
        for table, requests in RequestItems.items():
            assert len(requests) <= 25, "DynamoDB takes no more in one request"
            taken, rest = requests[: self.takes], requests[self.takes :]
            self.deleted += [each["DeleteRequest"]["Key"]["i"]["S"] for each in taken]
            if rest:
                left[table] = rest
        return {"UnprocessedItems": left}


def items_over(client: Busy) -> DynamoItems:
    return DynamoItems(cast(Any, client), NAMES, cast(DynamoPages, None))


def test_what_a_busy_table_left_is_deleted_by_further_requests() -> None:
    client = Busy(takes=4)
    items_over(client).delete(KEYS)
    assert client.deleted == [key.range for key in KEYS]


def test_what_stays_undeleted_is_reported() -> None:
    with pytest.raises(UnavailableError, match="left items of s undeleted"):
        items_over(Busy(takes=0)).delete(KEYS)


class Silent:
    """A client whose puts are not answered."""

    def put_item(self, **_: object) -> None:
        raise ReadTimeoutError(endpoint_url="dynamodb")

    transact_write_items = put_item


def test_a_put_without_an_answer_is_to_be_made_again() -> None:
    """It may have landed, and putting the same again does no harm."""
    client = cast(Any, Silent())
    items = DynamoItems(client, NAMES, DynamoPages(client, "pages"))
    item = Item(KEYS[0], {"n": 1})
    with pytest.raises(UnavailableError):
        items.put(item)
    with pytest.raises(UnavailableError):
        items.put_while("t", 0, [item])
