"""Tables and the instance's properties as items of the registry; used by `tables`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import msgspec

from dormouse.model.decoding import decode_json, told_as_corrupt
from dormouse.model.properties import parse_settings
from dormouse.model.schema import Schema
from dormouse.model.tables import Table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

    _Item = Mapping[str, AttributeValueTypeDef]

NAME, ID, INSTANCE = "name#", "id#", "instance"


def key(pk: str) -> _Item:
    """Give the key of an item."""
    return {"pk": {"S": pk}}


def name_item(table: Table) -> _Item:
    """Give the item that holds a table's name."""
    return {**key(NAME + table.name), "id": {"S": table.id}}


def id_item(table: Table, revision: int) -> _Item:
    """Give the item that holds all of a table; `revision` counts how often it was changed."""
    return {
        **key(ID + table.id),
        "revision": {"N": str(revision)},
        "name": {"S": table.name},
        "schema": {"S": msgspec.json.encode(table.schema.to_json()).decode()},
        "properties": {"S": msgspec.json.encode(table.settings).decode()},
        "online": {"BOOL": table.online},
        "deleting": {"BOOL": table.deleting},
        "created_ms": {"N": str(table.created_ms)},
        "log": {"S": table.log},
        "logs": {"L": [{"S": log} for log in table.logs]},
        "generation": {"N": str(table.generation)},
        "schema_generation": {"N": str(table.schema_generation)},
        "emptied_ms": {"N": str(table.emptied_ms)},
        **({"tree": {"S": table.tree}} if table.tree else {}),
        "named_ms": {"N": str(table.named_ms)},
        "applied": {"L": [{"S": request} for request in table.applied]},
    }


def defaults_item(settings: Mapping[str, int | str], revision: int) -> _Item:
    """Give the item of the instance's properties."""
    return {
        **key(INSTANCE),
        "revision": {"N": str(revision)},
        "properties": {"S": msgspec.json.encode(settings).decode()},
    }


def revision_of(item: _Item) -> int:
    """Give how often what an item holds was changed."""
    with _read(item):
        return int(item["revision"]["N"])


def settings_of(item: _Item) -> dict[str, int | str]:
    """Give the properties an item sets.

    Raises:
        CorruptDataError: the item was damaged.
    """
    with _read(item):
        return parse_settings(decode_json(item["properties"]["S"], dict[str, object]))


def table_of(item: _Item, defaults: Mapping[str, int | str]) -> Table:
    """Give the table an item holds, over the instance's properties.

    Raises:
        CorruptDataError: the item was damaged.
    """
    with _read(item):
        table = Table(
            id=item["pk"]["S"].removeprefix(ID),
            name=item["name"]["S"],
            schema=Schema.loads(item["schema"]["S"]),
            online=item["online"]["BOOL"],
            deleting=item["deleting"]["BOOL"],
            created_ms=int(item["created_ms"]["N"]),
            log=item["log"]["S"],
            logs=tuple(log["S"] for log in item["logs"]["L"]),
            generation=int(item["generation"]["N"]),
            schema_generation=int(item["schema_generation"]["N"]),
            emptied_ms=int(item["emptied_ms"]["N"]),
            tree=item["tree"]["S"] if "tree" in item else "",
            named_ms=int(item["named_ms"]["N"]),
            applied=tuple(request["S"] for request in item["applied"]["L"]),
        )
    return table.with_settings(settings_of(item), defaults)


def _read(item: _Item) -> AbstractContextManager[None]:
    return told_as_corrupt(
        f"the registry's item {item['pk'].get('S')!r} cannot be read",
        hint="restore the item from the registry's point-in-time backup",
    )
