"""A table whose state is lost from DynamoDB and S3 is found so, rebuilt, and goes on."""

from __future__ import annotations

import json

import boto3
import pyarrow as pa

from dormouse.client.table import TableHandle
from dormouse.schema.schema import Schema
from dormouse.settings import Settings
from dormouse.stored.paths import state_prefix
from tests.support.waiting import LIMIT_SECONDS
from tests.system.conftest import System

SCHEMA = Schema.from_json({"rowKeyFields": [{"name": "name", "type": "StringType"}]})


def lose_state(handle: TableHandle) -> None:
    table_id, storage = handle.table.id, handle.services.storage
    storage.delete([o.path for o in storage.list(state_prefix(table_id))])
    items = boto3.resource("dynamodb").Table(Settings.from_environment().names.table("state"))
    for item in items.scan(ConsistentRead=True)["Items"]:
        if str(item["t"]).startswith(table_id):
            items.delete_item(Key={"t": item["t"], "g": item["g"]})


def test_a_table_without_state_is_rebuilt_from_its_shards_and_its_functions_follow(
    system: System,
) -> None:
    handle = system.instance.create_table("rebuilt", SCHEMA, split_points=["m"])
    handle.ingest(pa.table({"name": list("thequickbrownfox")})).wait(LIMIT_SECONDS)
    system.dormouse("check", "rebuilt")
    lose_state(handle)
    system.dormouse("check", "rebuilt", code=1)
    system.dormouse("rebuild", "rebuilt", "--force")
    assert json.loads(system.dormouse("check", "rebuilt", "--format", "json"))["rows"] == 16
    handle.ingest(pa.table({"name": list("jumps")})).wait(LIMIT_SECONDS)
    assert system.dormouse("query", "rebuilt", "--count") == "21\n"
