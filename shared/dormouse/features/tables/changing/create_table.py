"""create_table: create a table with a schema, properties and split points."""

from __future__ import annotations

from hashlib import blake2b

from dormouse.errors import AlreadyExistsError, InvalidRequestError, NotFoundError
from dormouse.features.tables.publications import publications
from dormouse.features.tables.published_names import check_published_names
from dormouse.key_forms.codec import KeyCodec
from dormouse.messages.requests import CreateTable
from dormouse.messages.stages import OutboundMessage
from dormouse.model.partitions import PartitionTree
from dormouse.model.transactions import InitialisePartitions
from dormouse.ports.services import Services
from dormouse.schema.schema import Schema
from dormouse.state_store import accepted
from dormouse.stored.paths import TABLE_ID_DIGITS
from dormouse.tables.bloom_columns import bloom_columns
from dormouse.tables.csv_dialect import csv_dialect
from dormouse.tables.evolution import check_columns
from dormouse.tables.properties import parse_settings
from dormouse.tables.published import check_published
from dormouse.tables.row_rules import row_rules
from dormouse.tables.table import Table, check_name
from dormouse.tables.tombstones import Tombstone


def create_table(services: Services, request: CreateTable) -> list[OutboundMessage]:
    """Create the table, and return the message that publishes it, if it is to be.

    Its id follows from the request's, so a redelivery creates no second one.

    Raises:
        InvalidRequestError: the schema, properties, split points or name are invalid.
        AlreadyExistsError: a table of that name exists.
    """
    schema = Schema.from_json(request.schema)
    table = Table(
        id=new_table_id(request),
        name=check_name(request.name),
        schema=schema,
        created_ms=services.clock.now_ms(),
    ).with_settings(parse_settings(request.properties), services.tables.defaults())
    if _is_created(services, table):
        return publications(table)
    check_columns(schema, table.properties)
    row_rules(schema, table.properties)
    bloom_columns(schema, table.properties)
    csv_dialect(table.properties)
    check_published(schema, table.properties)
    check_published_names(services, table)
    points = KeyCodec(schema).split_points_from_json(
        request.split_points, strings_base64=request.strings_base64
    )
    tree = PartitionTree.from_split_points(points)
    if services.tables.named(table.name) is not None:
        _refuse(services, table)
        return publications(table)
    # State first: a table that can be found by name always has its partitions.
    initialise = InitialisePartitions(tree.splits, schema.key_types)
    try:
        # The state is read first: the store recognises a repeated commit for some days only, but
        # the request may be redriven after weeks. The table id is the request's own, so any
        # partitions here were created by this request.
        if not len(services.store(table).current().partitions):
            (outcome,) = services.store(table).commit(initialise, generation=0)
            accepted(outcome)
        services.tables.create(table)
    except NotFoundError:
        if not _is_created(services, table):
            raise
    except AlreadyExistsError:
        _refuse(services, table)
    return publications(table)


def new_table_id(request: CreateTable) -> str:
    """Return the id of the table that a request creates, derived from the request's id."""
    return made_table_id(request.request_id)


def made_table_id(request_id: str) -> str:
    """Return the id of the table that a request of this id would create."""
    return blake2b(request_id.encode(), digest_size=TABLE_ID_DIGITS // 2).hexdigest()


def _is_created(services: Services, table: Table) -> bool:
    """Return whether another delivery created the table, which may be deleted since.

    Raises:
        AlreadyExistsError: another delivery refused to create it, for good.
        InvalidRequestError: the id belongs to the request for another table.
    """
    kept = services.tables.get(table.id)
    if kept is not None:
        if kept.name != table.name and not kept.renamed_ms:
            raise InvalidRequestError(
                f"the request_id of table {table.name!r} is that of table {kept.name!r}",
                hint="ask under another request_id",
            )
        return True
    tombstone = services.tables.tombstone(table.id)
    if tombstone is not None and not tombstone.was_registered:
        raise _taken(table)
    return tombstone is not None


def _refuse(services: Services, table: Table) -> None:
    """Refuse to create a table whose name is taken, unless another delivery has created it.

    The state that any delivery began is destroyed, after a tombstone is put: without a tombstone a
    concurrent delivery could register a table with that state. It is destroyed even if it seems
    empty: a delivery that crashed may have put items that are not in the log, which no other
    process would find.

    Raises:
        AlreadyExistsError: another table has the name.
    """
    if _is_created(services, table):
        return
    now_ms = services.clock.now_ms()
    tombstone = services.tables.put_tombstone(Tombstone.of(table, now_ms, was_registered=False))
    if tombstone is not None and not tombstone.was_registered:
        services.store(table).destroy()
        raise _taken(table)


def _taken(table: Table) -> AlreadyExistsError:
    return AlreadyExistsError(
        f"there was a table {table.name!r} already when this was asked for",
        hint="choose another name, or delete that table first; a message then has another id",
    )
