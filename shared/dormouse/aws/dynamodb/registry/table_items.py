"""Tables and the instance's properties as items of the registry; used by `tables`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from dormouse.access.rules import AccessRules, dump_rules, load_rules
from dormouse.aws.dynamodb.stored_items import opened, sealed
from dormouse.errors import CorruptDataError, DamagedEntryError
from dormouse.schema.schema import Schema
from dormouse.stored.decoding import decode_json
from dormouse.tables.origins import Origin
from dormouse.tables.properties import parse_settings
from dormouse.tables.table import Table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

    from dormouse.aws.dynamodb.stored_items import Item

NAME, ID, INSTANCE, ACCESS = "name#", "id#", "instance", "access"
COPY = "copy#"
"""What the key of an item's copy begins with."""
_KIND = "registry"


def key(pk: str) -> Item:
    """Return the key of an item."""
    return {"pk": {"S": pk}}


def name_item(name: str, table_id: str) -> Item:
    """Return the item that holds a table's name."""
    return sealed(_KIND, {**key(NAME + name), "id": {"S": table_id}})


def id_item(table: Table, revision: int) -> Item:
    """Return the item that holds all of a table; `revision` counts how often it was changed."""
    held: Item = {
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
        "reset_ms": {"N": str(table.reset_ms)},
        **({"tree": {"S": table.tree}} if table.tree else {}),
        **({"restored": {"S": table.restored}} if table.restored else {}),
        **({"purged_version": {"N": str(table.purged_version)}} if table.purged_version else {}),
        "renamed_ms": {"N": str(table.renamed_ms)},
        "applied_requests": {"L": [{"S": request} for request in table.applied_requests]},
        **({"origins": _origins_attribute(table.origins)} if table.origins else {}),
    }
    return sealed(_KIND, held)


def _origins_attribute(origins: Iterable[Origin]) -> AttributeValueTypeDef:
    return {"L": [{"L": [{"S": one.bucket}, {"S": one.table_name}]} for one in origins]}


def _origins_of(attribute: AttributeValueTypeDef) -> tuple[Origin, ...]:
    return tuple(Origin(*(part["S"] for part in one["L"])) for one in attribute["L"])


def defaults_item(settings: Mapping[str, int | str], revision: int) -> Item:
    """Return the item of the instance's properties."""
    held: Item = {
        **key(INSTANCE),
        "revision": {"N": str(revision)},
        "properties": {"S": msgspec.json.encode(settings).decode()},
    }
    return sealed(_KIND, held)


def access_item(rules: AccessRules, revision: int) -> Item:
    """Return the item of the instance's access rules."""
    held: Item = {
        **key(ACCESS),
        "revision": {"N": str(revision)},
        "rules": {"S": dump_rules(rules)},
    }
    return sealed(_KIND, held)


def copy_of(item: Item) -> Item:
    """Return the copy of an item, under a key of its own."""
    return sealed(_KIND, {**item, **key(COPY + item["pk"]["S"])})


def original_of(copy: Item) -> Item:
    """Return the item that a copy is of."""
    return sealed(_KIND, {**copy, **key(copy["pk"]["S"].removeprefix(COPY))})


def revision_of(item: Item) -> int:
    """Return how often what an item holds was changed.

    Raises:
        DamagedEntryError: the item is damaged.
    """
    with _read(item):
        return int(item["revision"]["N"])


def id_named(item: Item) -> str:
    """Return the id of the table that the item of a name holds.

    Raises:
        DamagedEntryError: the item is damaged.
    """
    with _read(item, name=item["pk"]["S"].removeprefix(NAME)):
        return item["id"]["S"]


def settings_of(item: Item) -> dict[str, int | str]:
    """Return the properties an item sets.

    Raises:
        DamagedEntryError: the item is damaged.
    """
    with _read(item):
        return parse_settings(decode_json(item["properties"]["S"], dict[str, object]))


def rules_of(item: Item) -> AccessRules:
    """Return the access rules that an item holds.

    Raises:
        DamagedEntryError: the item is damaged.
    """
    with _read(item):
        return load_rules(item["rules"]["S"])


def table_of(item: Item, defaults: Mapping[str, int | str], name: str = "") -> Table:
    """Return the table an item holds, over the instance's properties.

    `name` is what the table is known to be called, if the item does not say.

    Raises:
        DamagedEntryError: the item is damaged.
    """
    table_id = item["pk"]["S"].removeprefix(COPY).removeprefix(ID)
    with _read(item, name=name, table_id=table_id):
        table = Table(
            id=table_id,
            name=item["name"]["S"],
            schema=Schema.loads(item["schema"]["S"]),
            online=item["online"]["BOOL"],
            deleting=item["deleting"]["BOOL"],
            created_ms=int(item["created_ms"]["N"]),
            log=item["log"]["S"],
            logs=tuple(log["S"] for log in item["logs"]["L"]),
            generation=int(item["generation"]["N"]),
            schema_generation=int(item["schema_generation"]["N"]),
            reset_ms=int(item["reset_ms"]["N"]),
            tree=item["tree"]["S"] if "tree" in item else "",
            restored=item["restored"]["S"] if "restored" in item else "",
            purged_version=int(item["purged_version"]["N"]) if "purged_version" in item else 0,
            renamed_ms=int(item["renamed_ms"]["N"]),
            applied_requests=tuple(request["S"] for request in item["applied_requests"]["L"]),
            origins=_origins_of(item["origins"]) if "origins" in item else (),
        )
        settings = parse_settings(decode_json(item["properties"]["S"], dict[str, object]))
    return table.with_settings(settings, defaults)


def lost(pk: str, *, name: str = "", table_id: str = "") -> DamagedEntryError:
    """Return the error for a missing item that others depend on."""
    return DamagedEntryError(
        f"the registry's item {pk!r} is missing",
        name=name,
        table_id=table_id,
        hint=_hint(name or table_id),
    )


@contextmanager
def _read(item: Item, *, name: str = "", table_id: str = "") -> Iterator[None]:
    problem = f"the registry's item {item['pk'].get('S')!r} cannot be read"
    try:
        with opened(_KIND, item, problem, hint=_hint(name or table_id)):
            yield
    except CorruptDataError as error:
        raise DamagedEntryError(
            str(error), name=name, table_id=table_id, hint=error.hint
        ) from error


def _hint(which: str) -> str:
    command = f"dormouse rebuild {which}".rstrip()
    return f"`{command}` brings it back from the registry's copy"
