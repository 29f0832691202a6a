"""Rows are purged by the real functions, and after the collection no object holds them."""

from __future__ import annotations

import json

import pyarrow as pa

from dormouse.schema.schema import Schema
from tests.support.waiting import LIMIT_SECONDS
from tests.system.conftest import System

SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "name", "type": "StringType"}],
        "valueFields": [{"name": "size", "type": "LongType"}],
    }
)


def test_purged_rows_are_gone_from_the_table_and_then_from_every_object(system: System) -> None:
    handle = system.instance.create_table(
        "purged", SCHEMA, {"gc_delay_seconds": 1}, split_points=["m"]
    )
    for _ in range(2):
        rows = pa.table({"name": list("thequickbrownfox"), "size": list(range(16))})
        handle.ingest(rows).wait(LIMIT_SECONDS)
    system.dormouse("table", "purge", "purged", "--where", "size >= 10", "--force")
    assert system.dormouse("query", "purged", "--count") == "20\n"
    system.dormouse("table", "purge", "purged", "--key", "name=q", "--key", "name=t", "--force")
    assert system.dormouse("query", "purged", "--count") == "16\n"
    handle.polling.until_nothing(
        lambda: len(handle.prove_purge("size >= 10 OR name IN ('q', 't')").remains),
        timeout_seconds=LIMIT_SECONDS,
    )
    proof = system.dormouse(
        *("table", "purge", "purged", "--where", "size >= 10", "--prove", "--format", "json")
    )
    assert json.loads(proof)["objects_that_hold_rows"] == 0
    system.dormouse("check", "purged")
