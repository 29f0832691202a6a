"""Two hundred tables: what one needs, or breaks, does not keep the others waiting."""

from __future__ import annotations

from collections import Counter

import pytest

from dormouse.aws.handling import handle_changes
from dormouse.messages import CompactionJob, OfTable, TableChanged, encode
from dormouse.model.partitions import PartitionTree
from dormouse.model.tables import Table
from dormouse.model.transactions import InitialisePartitions, ReleaseJob
from dormouse.stages.plan_table import plan_table
from tests.functions.conftest import TABLE_ID, Functions
from tests.support.lambda_context import Context
from tests.support.world import LETTERS, letters

TABLES = 200


@pytest.fixture
def tables(functions: Functions) -> list[Table]:
    """Two hundred tables; in the first and the last a compaction is due."""
    world = functions.world
    found = [Table(f"{number:016}", f"t{number:03}", LETTERS) for number in range(TABLES)]
    root = tuple(PartitionTree.from_split_points([]).by_id.values())
    for table in found:
        world.tables.by_id[table.id] = table
        world.services.store(table).commit(InitialisePartitions(root), generation=0)
    for table in (found[0], found[-1]):
        for number in range(4):
            world.drop(f"{table.name}/{number}.parquet", letters("abc", at=number))
    while world.queue:
        world.deliver(world.queue.popleft())
    return found


def changed(functions: Functions, tables: list[Table]) -> list[str]:
    """Plan tables as batches of a hundred messages; give the ids of failed messages."""
    failed = []
    for start in range(0, len(tables), 100):
        records = [
            {
                "messageId": table.name,
                "body": encode(TableChanged(table.id)),
                "receiptHandle": "r",
                "attributes": {"ApproximateReceiveCount": "1"},
            }
            for table in tables[start : start + 100]
        ]
        answer = handle_changes({"Records": records}, Context(), "table-changes", plan_table)
        failed += [item["itemIdentifier"] for item in answer["batchItemFailures"]]
    return failed


def planned(functions: Functions) -> Counter[str]:
    sent = (outgoing.message for outgoing in functions.sent())
    return Counter(m.table_id for m in sent if isinstance(m, CompactionJob))


def test_each_table_that_needs_it_is_planned_though_others_fail_or_flood_the_queue(
    functions: Functions, tables: list[Table]
) -> None:
    assert changed(functions, [tables[0]] * 99 + [tables[-1]]) == []
    assert planned(functions) == {tables[0].id: 1, tables[-1].id: 1}
    for table in (tables[0], tables[-1]):  # so that it is due anew
        jobs = functions.world.state(table).jobs
        functions.world.services.store(table).commit(*map(ReleaseJob, jobs), generation=0)
    broken = tables[50]
    functions.world.services.store(broken).destroy()
    assert changed(functions, tables) == [broken.name]
    assert planned(functions) == {tables[0].id: 1, tables[-1].id: 1}


def test_every_table_is_swept_in_turn_though_some_cannot_be(
    functions: Functions, tables: list[Table]
) -> None:
    for table in tables[:3]:
        functions.world.services.store(table).destroy()
    with pytest.raises(ExceptionGroup, match="for some tables"):
        functions.invoke("sweep", "good")
    swept = [o.message.table_id for o in functions.sent() if isinstance(o.message, OfTable)]
    assert sorted(swept) == sorted([TABLE_ID, *(table.id for table in tables[3:])])
    first = set()
    for _ in range(3):
        functions.world.clock.advance(seconds=300)
        with pytest.raises(ExceptionGroup):
            functions.invoke("sweep", "good")
        first.add(str(functions.sent()[0].message))
    assert len(first) == 3, "each time another table is the first"
