"""create_table: a name, a schema, properties and first split points → a table."""

from __future__ import annotations

from hashlib import blake2b

from dormouse.errors import AlreadyExistsError, InvalidRequestError
from dormouse.messages import CreateTable
from dormouse.model.keys import Key, KeyPart
from dormouse.model.partitions import PartitionTree
from dormouse.model.properties import parse_settings
from dormouse.model.schema import Field, Primitive, Schema
from dormouse.model.tables import Table, check_name
from dormouse.model.transactions import InitialisePartitions
from dormouse.ports import Services
from dormouse.shards.text import parse_key_part
from dormouse.statestore.protocol import accepted


def create_table(services: Services, request: CreateTable) -> None:
    """Create the table; its id follows from the request's, so that a redelivery makes no second.

    Raises:
        InvalidRequestError: the schema, properties, split points or name are no good.
        AlreadyExistsError: a table of that name exists.
    """
    schema = Schema.from_json(request.schema)
    table = Table(
        id=blake2b(request.request_id.encode(), digest_size=8).hexdigest(),
        name=check_name(request.name),
        schema=schema,
        created_ms=services.clock.now_ms(),
    ).with_settings(parse_settings(request.properties), services.tables.defaults())
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
