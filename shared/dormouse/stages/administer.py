"""administer: requests about whole tables: create, delete, online, offline.

Each is finished by its redelivery if it was cut off, and done once whatever the deliveries: the
id of a table follows from the request that creates it, and a finished request is remembered.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b

from dormouse.errors import AlreadyExistsError, InvalidRequestError, NotFoundError
from dormouse.messages import (
    AdminRequest,
    CreateTable,
    DeleteTable,
    Outgoing,
    SetOnline,
    TableChanged,
)
from dormouse.model.keys import Key, KeyPart
from dormouse.model.names import table_prefix
from dormouse.model.partitions import PartitionTree
from dormouse.model.schema import Field, Primitive, Schema
from dormouse.model.tables import Table, check_name, parse_properties
from dormouse.model.transactions import InitialisePartitions
from dormouse.ports import NO_TABLE, Services
from dormouse.shards.text import parse_key_part
from dormouse.stages.tracking import record
from dormouse.statestore.protocol import accepted

DELETE_BATCH = 1000


def administer(services: Services, request: AdminRequest) -> list[Outgoing]:
    """Do what is asked, or record why not.

    Raises:
        InvalidRequestError: the schema, properties, split points or name are no good.
        AlreadyExistsError: a table of that name exists.
        NotFoundError: no table of that name exists.
    """
    earlier = services.tracker.get(NO_TABLE, request.request_id)
    if earlier is not None and earlier.state == "finished":
        return []
    kind = type(request).__name__
    try:
        match request:
            case CreateTable():
                messages = _create(services, request)
            case DeleteTable():
                messages = _delete(services, request)
            case SetOnline():
                messages = _set_online(services, request)
    except (InvalidRequestError, AlreadyExistsError, NotFoundError) as error:
        record(
            services,
            NO_TABLE,
            request.request_id,
            kind,
            "refused",
            subject=request.name,
            reason=error.explanation,
        )
        raise
    record(services, NO_TABLE, request.request_id, kind, "finished", subject=request.name)
    return messages


def _create(services: Services, request: CreateTable) -> list[Outgoing]:
    schema = Schema.from_json(request.schema)
    table = Table(
        id=blake2b(request.request_id.encode(), digest_size=8).hexdigest(),
        name=check_name(request.name),
        schema=schema,
        properties=parse_properties(request.properties),
        created_ms=services.clock.now_ms(),
    )
    points = [_split_point(schema, i, point) for i, point in enumerate(request.split_points)]
    tree = PartitionTree.from_split_points(points)
    taken = services.tables.named(table.name)
    if taken is not None and taken.id != table.id:
        raise AlreadyExistsError(f"there is a table {table.name!r} already")
    # State first: a table that can be found by name always has its partitions.
    initialise = InitialisePartitions(tuple(tree.by_id.values()))
    (outcome,) = services.store(table).commit(initialise, generation=0)
    if taken is None:
        accepted(outcome)
    try:
        services.tables.create(table)
    except AlreadyExistsError:  # somebody took the name since we looked
        services.store(table).destroy()
        raise
    return []


def _split_point(schema: Schema, index: int, point: tuple[object, ...]) -> Key:
    where = f"split point {index + 1}"
    if not 1 <= len(point) <= len(schema.row_keys):
        raise InvalidRequestError(
            f"{where} has {len(point)} parts, not 1 to {len(schema.row_keys)}"
        )
    return tuple(
        _split_part(part, field, where) for part, field in zip(point, schema.row_keys, strict=False)
    )


def _split_part(part: object, field: Field, where: str) -> KeyPart:
    """Read one part as JSON has it: numbers as numbers, everything else as text."""
    is_number = isinstance(part, int) and not isinstance(part, bool)
    if field.type is Primitive.STRING and is_number or not (is_number or isinstance(part, str)):
        raise InvalidRequestError(f"{where}: {part!r} is no value for {field.name}")
    assert isinstance(field.type, Primitive)  # a key always is
    try:
        return parse_key_part(str(part), field.type)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{where}: {error}", hint=error.hint) from error


def delete_all_of(services: Services, table: Table) -> None:
    """Delete a table's objects, its state and its registry entry, in an order that can resume."""
    services.tables.update(replace(table, online=False, deleting=True))
    batch: list[str] = []
    for stored in services.storage.list(table_prefix(table.id)):
        batch.append(stored.path)
        if len(batch) == DELETE_BATCH:
            services.storage.delete(batch)
            batch = []
    services.storage.delete(batch)
    services.store(table).destroy()
    services.tables.delete(table)


def _delete(services: Services, request: DeleteTable) -> list[Outgoing]:
    delete_all_of(services, _named(services, request.name))
    return []


def _set_online(services: Services, request: SetOnline) -> list[Outgoing]:
    table = _named(services, request.name)
    if table.deleting:
        raise NotFoundError(f"table {request.name!r} is being deleted")
    services.tables.update(replace(table, online=request.online))
    return [Outgoing("table-changes", TableChanged(table.id))] if request.online else []


def _named(services: Services, name: str) -> Table:
    table = services.tables.named(name)
    if table is None:
        raise NotFoundError(f"there is no table {name!r}", hint="list the tables")
    return table
