"""Queries over messages, as tests ask them, and what became of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.features.queries import QUERIES, QueryEnd, load_end
from dormouse.messages.stages import AnswerQuery, OutboundMessage, QueryLimits
from dormouse.state.jobs import JobRecord
from dormouse.state.versions import OwnerKind
from dormouse.stored.paths import query_prefix
from dormouse.tables.table import Table
from tests.support.world import World, letters


def asks(
    world: World, query_id: str = "q", *, limits: dict[str, Any] | None = None, **asked: Any
) -> AnswerQuery:
    """Put the message of a query into the queue; return it."""
    if "sql" not in asked:
        asked.setdefault("table", "letters")
    message = AnswerQuery(query_id=query_id, limits=QueryLimits(**(limits or {})), **asked)
    world.queue.append(OutboundMessage("queries", message))
    return message


def ended(world: World, query_id: str = "q") -> QueryEnd:
    """Return how a query ended."""
    end = load_end(world.results, query_id)
    assert end is not None
    return end


def result(world: World, query_id: str = "q") -> pa.Table:
    """Return all rows of the files that the manifest names, in their order."""
    end = ended(world, query_id)
    assert end.state == "finished", end.reason
    folder = world.folder / "results" / query_prefix(query_id)
    tables = [pq.read_table(folder / file.name) for file in end.files]
    assert [table.num_rows for table in tables] == [file.rows for file in end.files]
    return pa.concat_tables(tables) if tables else pa.table({})


def text(world: World, query_id: str = "q") -> str:
    """Return the letters of a result, in their order."""
    found = result(world, query_id)
    return "".join(found["letter"].to_pylist()) if found.num_rows else ""


def record(world: World, query_id: str = "q") -> JobRecord:
    """Return the record of a query."""
    found = world.tracker.get(QUERIES, query_id)
    assert found is not None
    return found


def pins(world: World, table: Table) -> int:
    """Return how many queries hold versions of a table."""
    found = world.pages.pins.all(table.state_id)
    return sum(pin.owner.kind is OwnerKind.QUERY for pin in found)


def parts(world: World, query_id: str = "q") -> list[str]:
    """Return the names of the stored files with rows of a query, named or not."""
    listed = world.results.list(f"{query_prefix(query_id)}part-")
    return [each.path.rpartition("/")[2] for each in listed]


def four_leaves(world: World, **properties: object) -> Table:
    """Return a table of four leaves with a shard each, of which queries are cut."""
    cut = {"query_cut_bytes": 1, "query_task_bytes": 1, "compaction_files": 100}
    table = world.create(splits=[("g",), ("n",), ("t",)], **{**cut, **properties})
    world.drop("letters/1.parquet", letters("abchijopquvw"))
    world.settle()
    return table
