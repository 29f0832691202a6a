"""A state read from DynamoDB page by page is one version, whatever is committed between pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from mypy_boto3_dynamodb import DynamoDBClient

from dormouse.model.transactions import AssignJob, ReleaseJob
from dormouse.statestore import dynamodb_pages, dynamodb_records, pages
from dormouse.statestore.dynamodb_snapshots import DynamoSnapshots
from dormouse.statestore.dynamodb_store import DynamoDBStateStore
from dormouse.statestore.log import Log
from dormouse.statestore.pages import Snapshot
from dormouse.statestore.patience import WITHOUT_PAUSES
from tests.contract.state_items import dynamodb_items
from tests.support.adapters import CountingIds, FakeClock
from tests.support.trees import initialise
from tests.unit.statestore.histories import ONE_LEAF, addition, merge_of, shard_of

INPUTS = tuple(f"s{n}" for n in range(1000))
ITEMS_PER_PAGE = 300


def between_pages(client: DynamoDBClient, act: Callable[[], None]) -> None:
    """Let queries give few items at once, and `act` once, after the second such page."""
    seen: list[int] = []

    def shorten(params: dict[str, Any], **_: object) -> None:
        params["Limit"] = ITEMS_PER_PAGE

    def count(parsed: dict[str, Any], **_: object) -> None:
        if "LastEvaluatedKey" in parsed:
            seen.append(len(parsed["Items"]))
            if len(seen) == 2:
                act()

    client.meta.events.register("provide-client-params.dynamodb.Query", shorten)
    client.meta.events.register("after-call.dynamodb.Query", count)


def test_a_compaction_of_a_thousand_inputs_shows_them_all_or_its_one_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = FakeClock()
    ids = CountingIds(clock)
    with (
        patch.object(pages, "PAGE_CAPACITY", 4),
        patch.object(dynamodb_pages, "PAGE_CAPACITY", 4),
        patch.object(dynamodb_records, "LANES", 1),  # fewer requests, for moto looks through all
        dynamodb_items(monkeypatch) as (items, kept_pages, client),
    ):
        log = Log("t", kept_pages, WITHOUT_PAUSES)

        writer = DynamoDBStateStore("t", items, kept_pages, clock, ids)

        def newest() -> Snapshot:
            head = log.head()
            assert head
            assert head.root.newest
            return head.root.newest

        def shards_at(snapshot: Snapshot) -> set[str]:
            state = DynamoSnapshots(log, items).load(snapshot)
            return {reference.shard for reference in state.all_references()}

        def compact() -> None:
            merged = merge_of("j", INPUTS, shard_of("merged", ("a",), ("z",)))
            writer.commit(merged, generation=0)
            for number in range(3):
                writer.commit(ReleaseJob(f"none-{number}"), generation=0)
            writer.maintain()
            seen.append(shards_at(newest()))

        seen: list[set[str]] = []
        writer.commit(initialise(ONE_LEAF), generation=0)
        writer.commit(*(addition(n) for n in range(1000)), generation=0)
        writer.commit(AssignJob("j", "root", INPUTS), generation=0)
        writer.commit(ReleaseJob("none"), generation=0)
        writer.maintain()
        before = newest()
        between_pages(client, compact)
        seen.append(shards_at(before))
        assert seen == [{"merged"}, set(INPUTS)]
