"""create_table: a name, a schema, properties and first split points → a table."""

from __future__ import annotations

from hashlib import blake2b

from dormouse.errors import AlreadyExistsError, NotFoundError
from dormouse.model.csv_dialect import csv_dialect
from dormouse.model.evolution import check_columns
from dormouse.model.names import table_prefix
from dormouse.model.partitions import PartitionTree
from dormouse.model.properties import parse_settings
from dormouse.model.row_rules import row_rules
from dormouse.model.schema import Schema
from dormouse.model.tables import Table, check_name
from dormouse.model.transactions import InitialisePartitions
from dormouse.ports import Services
from dormouse.requests import CreateTable
from dormouse.stages.requests.json_keys import split_points_of_json
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
    if _is_made(services, table):
        _forget_if_deleted(services, table)
        return
    check_columns(schema, table.properties)
    row_rules(schema, table.properties)
    csv_dialect(table.properties)
    points = split_points_of_json(
        schema, request.split_points, strings_base64=request.strings_base64
    )
    tree = PartitionTree.from_split_points(points)
    if services.tables.named(table.name) is not None and not _is_made(services, table):
        raise AlreadyExistsError(f"there is a table {table.name!r} already")
    # State first: a table that can be found by name always has its partitions. Where the name was
    # taken since, this empty state stays: to destroy it could be to destroy what another delivery
    # has made a table of.
    initialise = InitialisePartitions(tuple(tree.by_id.values()), schema.key_types)
    (outcome,) = services.store(table).commit(initialise, generation=0)
    accepted(outcome)
    try:
        services.tables.create(table)
    except AlreadyExistsError:
        if not _is_made(services, table):
            raise
    _forget_if_deleted(services, table)


def _is_made(services: Services, table: Table) -> bool:
    """Tell whether another delivery has made the table, whatever it is called by now."""
    return services.tables.get(table.id) is not None


def _forget_if_deleted(services: Services, table: Table) -> None:
    """Remove a table from the registry that a delivery which slept put there after its deletion.

    Its state is closed for good. So is, for a while, that of a table which is rebuilt; but then
    what the state is made of still lies in the data bucket, and a deletion leaves nothing there.
    """
    try:
        services.store(table).current()
        return
    except NotFoundError:
        kept = services.tables.get(table.id)
    if kept is None or kept.deleting or kept.log:
        return
    if next(services.storage.list(table_prefix(table.id)), None) is None:
        services.tables.delete(kept)
