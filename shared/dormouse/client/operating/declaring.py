"""Declared tables: the changes that make tables as declared, and the requests that do it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from dormouse.errors import InvalidRequestError
from dormouse.key_forms.codec import KeyCodec
from dormouse.keys.ranges import Key
from dormouse.messages.requests import (
    AdminRequest,
    AlterSchema,
    CreateTable,
    SetOnline,
    SetProperties,
)
from dormouse.ports.services import Services
from dormouse.schema.schema import Schema
from dormouse.tables.properties import parse_settings, property_named

if TYPE_CHECKING:
    from dormouse.tables.declaring import TableChange, TableDeclaration


_PARTS = ("name", "schema", "properties", "online", "splits")


def parse_declarations(body: object, services: Services) -> list[TableDeclaration]:
    """Return the tables that a parsed file declares: ``{"tables": [{"name": …}, …]}``.

    `schema` is in its JSON form; a table that exists needs none. A split point is a list of key
    parts, or its first part alone. A property that is null is unset.

    Raises:
        InvalidRequestError: it is malformed; the message says where.
    """
    if not isinstance(body, Mapping) or set(body) != {"tables"}:
        raise InvalidRequestError('a file of tables has one part, "tables"', hint=_example())
    tables = body["tables"]
    if not isinstance(tables, Sequence) or isinstance(tables, str):
        raise InvalidRequestError('"tables" must be a list', hint=_example())
    return [_declared(each, f"tables[{i}]", services) for i, each in enumerate(tables)]


def _example() -> str:
    return "begin it with tables: and a list of names, schemas, properties, online, splits"


def plan_declared(services: Services, declared: Sequence[TableDeclaration]) -> list[TableChange]:
    """Return the changes that make tables as declared; change nothing.

    Raises:
        InvalidRequestError: a declaration cannot be met; the message says which and why.
        CorruptDataError: the registry entry of a declared table is damaged.
    """
    from dormouse.tables.declaring import plan_table_changes

    tables, damaged = services.tables.list_readable()
    names = {each.name for each in declared}
    for error in damaged:  # an entry whose name is unknown may be one of them
        if error.name in names or error.table_id and not error.name:
            raise error
    with_splits = {each.name for each in declared if each.splits}
    split_keys = {}
    for table in tables:
        if table.name in with_splits:
            partitions = services.store(table).current().partitions.by_id.values()
            split_keys[table.name] = frozenset(p.range.min for p in partitions)
    return plan_table_changes(declared, tables, split_keys, services.tables.defaults())


def requests_of(change: TableChange, services: Services) -> Iterator[AdminRequest]:
    """Return the requests that make the change, in order."""
    new = services.ids.new
    put = {name: value for name, value in change.properties.items() if value is not None}
    if change.schema is not None:
        points = tuple(KeyCodec(change.schema).to_json(key) for key in change.splits)
        body = change.schema.to_json()
        yield CreateTable(new(), change.name, body, dict(put), points)
    if change.add or change.units:
        add = tuple(item.to_json() for item in change.add)
        yield AlterSchema(new(), change.name, add, units=dict(change.units))
    if change.schema is None and change.properties:
        unset = tuple(sorted(change.properties.keys() - put.keys()))
        yield SetProperties(new(), change.name, dict(put), unset)
    if change.online is not None:
        yield SetOnline(new(), change.name, change.online)


def _declared(body: object, where: str, services: Services) -> TableDeclaration:
    from dormouse.tables.declaring import TableDeclaration

    if not isinstance(body, Mapping) or not isinstance(body.get("name"), str):
        raise InvalidRequestError(f"{where} has no name")
    name = str(body["name"])
    try:
        for part in body:
            if part not in _PARTS:
                near = get_close_matches(str(part), _PARTS, 1)
                hint = f"did you mean {near[0]}?" if near else "parts: " + ", ".join(_PARTS)
                raise InvalidRequestError(f"there is no part {str(part)!r}", hint=hint)
        schema = Schema.from_json(body["schema"]) if body.get("schema") is not None else None
        return TableDeclaration(
            name,
            schema,
            _properties(body.get("properties")),
            _online(body.get("online")),
            _splits(body.get("splits"), schema, name, services),
        )
    except InvalidRequestError as error:
        raise InvalidRequestError(f"table {name!r}: {error}", hint=error.hint) from error


def _properties(body: object) -> dict[str, int | str | None]:
    if body is None:
        return {}
    if not isinstance(body, Mapping):
        raise InvalidRequestError("properties must be names with values")
    unset = {property_named(str(name)).name: None for name, value in body.items() if value is None}
    return {**unset, **parse_settings({n: v for n, v in body.items() if v is not None})}


def _online(body: object) -> bool | None:
    if body is None or isinstance(body, bool):
        return body
    raise InvalidRequestError(f"online must be true or false, not {body!r}")


def _splits(
    body: object, schema: Schema | None, name: str, services: Services
) -> tuple[Key, ...] | None:
    if body is None:
        return None
    if not isinstance(body, Sequence) or isinstance(body, str):
        raise InvalidRequestError("splits must be a list")
    if schema is None:
        table = services.tables.named(name)
        if table is None:
            raise InvalidRequestError("it does not exist; a schema is needed to create it")
        schema = table.schema
    points = [tuple(each) if isinstance(each, list | tuple) else (each,) for each in body]
    keys = KeyCodec(schema).split_points_from_json(points)
    if any(not low < high for low, high in zip(keys, keys[1:], strict=False)):
        raise InvalidRequestError("splits must ascend, without repeats")
    return tuple(keys)
