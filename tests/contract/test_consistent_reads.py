"""Code that decides by what DynamoDB returns asks for consistent reads.

moto answers every read with the newest, so an eventually consistent read shows in no result here:
what is looked at is what each adapter asks for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import botocore.client
import pytest

from dormouse.items.blobs import ItemBlobs
from dormouse.log.blobs import MissingBlobError
from dormouse.log.pages import LOWEST_ID
from tests.contract.mocked_aws import mocked_aws
from tests.contract.state_items import dynamodb_tables
from tests.contract.test_tables import A, registry
from tests.support.retries import WITHOUT_PAUSES

READS = {"GetItem", "Query", "Scan", "BatchGetItem"}


@dataclass
class Requests:
    """The reads that were asked for, and whether each was to be consistent."""

    seen: list[tuple[str, bool]] = field(default_factory=list)

    def all_consistent(self, *operations: str) -> bool:
        """Return whether these were asked for, and every read was to be consistent."""
        asked = {operation for operation, _ in self.seen}
        return asked.issuperset(operations) and all(consistent for _, consistent in self.seen)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Iterator[Requests]:
    seen = Requests()
    call = botocore.client.BaseClient._make_api_call  # type: ignore[attr-defined]

    def recorded(self: Any, operation: str, parameters: dict[str, Any]) -> Any:
        if operation in READS:
            asked = parameters.get("RequestItems", {"": parameters}).values()
            consistent = all(each.get("ConsistentRead") is True for each in asked)
            seen.seen.append((operation, consistent))
        return call(self, operation, parameters)

    monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", recorded)
    yield seen


def test_the_log_and_the_items_of_a_state_are_read_consistently(
    monkeypatch: pytest.MonkeyPatch, requests: Requests
) -> None:
    with dynamodb_tables(monkeypatch) as (items, pages):
        pages.open_page("t", 0, LOWEST_ID)
        pages.head("t")
        pages.page("t", 0)
        blobs = ItemBlobs(items, "t", "delta", WITHOUT_PAUSES)
        blobs.put("a", b"delta")
        blobs.delete_stale("b", ())
    assert requests.all_consistent("GetItem", "Query")


def test_an_item_of_a_state_never_changes_so_only_a_lack_of_it_is_read_consistently(
    monkeypatch: pytest.MonkeyPatch, requests: Requests
) -> None:
    with dynamodb_tables(monkeypatch) as (items, _):
        blobs = ItemBlobs(items, "t", "delta", WITHOUT_PAUSES)
        blobs.put("a", b"delta")
        assert blobs.get(["a"]) == [b"delta"]
        assert requests.seen == [("BatchGetItem", False)]
        with pytest.raises(MissingBlobError):
            blobs.get(["a", "b"])
    assert requests.seen[1:] == [("BatchGetItem", False), ("BatchGetItem", True)]


def test_the_registry_is_read_consistently(
    monkeypatch: pytest.MonkeyPatch, requests: Requests
) -> None:
    with mocked_aws(monkeypatch):
        tables = registry()
        tables.create(A)
        tables.tombstone(A.id)
        list(tables.tombstones(0))
        tables.get(A.id)
        tables.named(A.name)
        tables.all()
        tables.defaults()
        tables.change(A.id, lambda table: table)
    assert requests.all_consistent("GetItem", "Scan", "Query")
