"""create_table: create a table with a schema, properties and split points."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from hashlib import blake2b

from msgspec import UnsetType

from dormouse.access import check_column_renames, check_table_rename
from dormouse.errors import AlreadyExistsError, ContendedError, InvalidRequestError, NotFoundError
from dormouse.features.garbage import check_storage_class
from dormouse.features.reset import finish_reset, reset_table
from dormouse.features.versions import release_tags
from dormouse.key_codec import KeyCodec
from dormouse.messages.requests import (
    AlterSchema,
    CreateTable,
    ReinitialiseTable,
    RenameTable,
    SetDefaults,
    SetOnline,
    SetProperties,
)
from dormouse.messages.stages import OutboundMessage, TableChanged
from dormouse.ports import Services
from dormouse.schema.schema import Schema, parse_field, parse_written_type
from dormouse.state.partitions import PartitionTree
from dormouse.state.rules import accepted
from dormouse.state.state import InitialisePartitions
from dormouse.stored.paths import TABLE_ID_DIGITS
from dormouse.tables.encryption import check_not_encrypted, encrypted_schema
from dormouse.tables.properties import parse_settings, properties_of, property_named
from dormouse.tables.table import (
    PARTS,
    Alteration,
    Origin,
    Table,
    Tombstone,
    apply_alteration,
    check_change,
    check_columns,
    check_name,
    check_properties,
    glue_name,
    is_mirrored,
    is_published,
    merge_settings,
    published_name,
)


def publications(*tables: Table) -> list[OutboundMessage]:
    """Return the message that publishes a changed table, or withdraws what is published of it.

    `tables` are the table before and after: a change may turn publishing off.
    """
    if not any(is_published(table.properties) for table in tables):
        return []
    return [OutboundMessage("iceberg-changes", TableChanged(tables[0].id))]


def check_published_names(services: Services, table: Table) -> None:
    """Check that readers find a table, as it is to be, under names of its own.

    A table with row rules has two: its own is that of a view, and its stored rows have another.
    Raises InvalidRequestError: another table has one of them, or has it in Glue, where case does
    not count; or Glue can have no such name, or this instance no Glue.
    """
    if is_mirrored(table.properties):
        _check_glue(services, table)
    parts = table.name + PARTS
    if _has_parts(table) and services.tables.named(parts) is not None:
        raise _published_name_taken(table.name, parts)
    name = table.name.removesuffix(PARTS)
    other = services.tables.named(name) if name != table.name else None
    if other is not None and other.id != table.id and _has_parts(other):
        raise _published_name_taken(name, table.name)


def _check_glue(services: Services, table: Table) -> None:
    if services.mirror is None:
        raise InvalidRequestError(
            "an instance in a folder has no Glue", hint="leave iceberg_glue off"
        )
    own = glue_name(published_name(table))
    tables, _ = services.tables.list_readable()
    for other in tables:
        if other.id == table.id or not is_mirrored(other.properties):
            continue
        if published_name(other).lower() == own:
            raise InvalidRequestError(
                f"tables {table.name!r} and {other.name!r} would both be {own!r} in Glue, where "
                "names are in lower case",
                hint="rename one of them, or leave iceberg_glue off",
            )


def _has_parts(table: Table) -> bool:
    return is_published(table.properties) and published_name(table) != table.name


def _published_name_taken(name: str, parts: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"readers of Iceberg find the stored rows of table {name!r} under the name {parts!r}, "
        "which would be that of another table too",
        hint=f"rename the table {parts!r}, or give it another name from the start; or set "
        f"iceberg=off for {name!r}",
    )


def create_table(services: Services, request: CreateTable) -> list[OutboundMessage]:
    """Create the table, and return the message that publishes it, if it is to be.

    Its id follows from the request's, so a redelivery creates no second one.

    Raises:
        InvalidRequestError: the schema, properties, split points or name are invalid.
        AlreadyExistsError: a table of that name exists.
    """
    schema = Schema.from_json(request.schema)
    table = Table(
        id=new_table_id(request.request_id),
        name=check_name(request.name),
        schema=schema,
        created_ms=services.clock.now_ms(),
    ).with_settings(parse_settings(request.properties), services.tables.defaults())
    if _is_created(services, table):
        return publications(table)
    check_not_encrypted(*schema.fields)
    check_columns(schema, table.properties)
    check_properties(schema, table.properties)
    check_published_names(services, table)
    check_storage_class(services, table.properties)
    points = KeyCodec(schema).split_points_from_json(request.split_points)
    tree = PartitionTree.from_split_points(points)
    if services.tables.named(table.name) is not None:
        _refuse(services, table)
        return publications(table)
    table = _with_keys(services, table)
    check_change(table, table)  # what else reads columns meets them as they are stored
    # State first: a table that can be found by name always has its partitions.
    initialise = InitialisePartitions(tree.splits, schema.widest_key_types)
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


def _with_keys(services: Services, table: Table, before: Schema | None = None) -> Table:
    """Return a table with the columns encrypted that its properties say, and with their keys.
    Raises as `encrypted_schema`.
    """
    schema = encrypted_schema(table.schema, table.properties, services.keys, table.id, before)
    return replace(table, schema=schema)


def new_table_id(request_id: str) -> str:
    """Return the id of the table that a request of this id would create."""
    return blake2b(request_id.encode(), digest_size=TABLE_ID_DIGITS // 2).hexdigest()


def _is_created(services: Services, table: Table) -> bool:
    """Return whether another delivery created the table, which may be deleted since.

    Raises:
        AlreadyExistsError: another delivery refused to create it, for good.
        InvalidRequestError: the id belongs to the request for another table.
    """
    current = services.tables.get(table.id)
    if current is not None:
        if current.name != table.name and not current.renamed_ms:
            raise InvalidRequestError(
                f"the request_id of table {table.name!r} is that of table {current.name!r}",
                hint="ask under another request_id",
            )
        return True
    tombstone = services.tables.tombstone(table.id)
    if tombstone is not None and not tombstone.was_registered:
        raise _name_taken(table)
    return tombstone is not None


def _refuse(services: Services, table: Table) -> None:
    """Refuse to create a table whose name is taken, unless another delivery has created it.

    The state that any delivery began is destroyed, after a tombstone is put: without a tombstone a
    concurrent delivery could register a table with that state. It is destroyed even if it seems
    empty: a delivery that crashed may have put items that are not in the log, which no other
    process would find.
    Raises AlreadyExistsError: another table has the name.
    """
    if _is_created(services, table):
        return
    now_ms = services.clock.now_ms()
    tombstone = services.tables.put_tombstone(Tombstone.of(table, now_ms, was_registered=False))
    if tombstone is not None and not tombstone.was_registered:
        services.store(table).destroy()
        raise _name_taken(table)


def _name_taken(table: Table) -> AlreadyExistsError:
    return AlreadyExistsError(
        f"there is a table {table.name!r} already",
        hint="choose another name, or delete that table first, and send another request_id with it",
    )


# alter_schema: add, drop and rename columns of a table and members of structs, widen types, and set
# units; no shard is rewritten.
#
# A change is checked against the schema that it replaces: of two concurrent changes, the second
# sees the result of the first. Shards written by jobs that began before stay correct, since columns
# are found by their ids.


def alter_schema(services: Services, table: Table, request: AlterSchema) -> list[OutboundMessage]:
    """Change the schema; a published table is published with it.

    Raises:
        InvalidRequestError: a change is not possible, or would show a column that access rules
            hide; nothing is changed.
        ContendedError: it took too long to look through these times; retry the message.
        CorruptDataError: a shard of which it must be known which times it has is damaged.
    """
    alteration = Alteration(
        add=tuple(parse_field(body, f"add[{i}]") for i, body in enumerate(request.add)),
        drop=request.drop,
        rename=request.rename,
        units=request.units,
        types={
            path: parse_written_type(body, f"the new type of {path!r}")
            for path, body in request.types.items()
        },
    )

    def change(current: Table) -> Table:
        if current.deleting:
            raise NotFoundError(f"table {current.name!r} is being deleted")
        if request.rename:
            check_column_renames(services.tables.access_rules(), current.name, request.rename)
        schema = apply_alteration(current.schema, alteration, current.properties)
        changed = _with_keys(services, replace(current, schema=schema), current.schema)
        if not until_ms:
            return changed
        if current.finer_until_ms != until_ms or services.clock.now_ms() >= until_ms:
            raise ContendedError(f"the times of {current.name!r} took too long to look through")
        return replace(changed, finer_until_ms=0)

    until_ms = 0
    with ExitStack() as stack:
        if request.types and request.request_id not in table.applied_requests:
            from dormouse.features.finer_times import checked_times  # loads what reads shards

            until_ms = stack.enter_context(checked_times(services, table, alteration))
        changed = services.tables.change(table.id, change, request_id=request.request_id)
    return publications(changed)


# reinitialise_table: remove all rows of a table, and perhaps replace its partitions and schema.
#
# Its old shards become garbage, which `sweep` finds; those of a tagged version stay while it has
# the tag.


def reinitialise_table(
    services: Services, table: Table, request: ReinitialiseTable
) -> list[OutboundMessage]:
    """Reset the table once, however often the request is delivered.

    Raises:
        InvalidRequestError: a split point or the schema is invalid, or the present partitions are
            to stay and do not fit the schema.
        ContendedError: the table got another schema meanwhile; retry the message.
        CorruptDataError: the present partitions are to stay, but their stored form is lost.
    """
    if request.request_id in table.applied_requests:  # the first attempt may have crashed
        finish_reset(services, table)
    else:
        body = request.schema
        schema = None if isinstance(body, UnsetType) else Schema.from_json(body)
        points = KeyCodec(schema or table.schema).split_points_from_json(request.split_points)
        replaces = points or request.delete_partitions
        new_points = points if replaces else None
        reset_table(services, table, schema, new_points, request_id=request.request_id)
    if request.release_tags:
        release_tags(services, table)
    return [OutboundMessage("table-changes", TableChanged(table.id))]


def rename_table(services: Services, table: Table, request: RenameTable) -> list[OutboundMessage]:
    """Rename the table, unless this request has renamed it before; its entry in Glue follows.

    Files dropped under the old name that no job has yet are refused, with the reason.

    Raises:
        InvalidRequestError: the new name is invalid, readers of Iceberg find another table under
            it, or access rules would let callers do more with the table.
        AlreadyExistsError: another table has the new name.
    """
    new_name = check_name(request.new_name)
    now_ms = services.clock.now_ms()

    def renamed(current: Table) -> Table:
        if current.name != request.name:
            raise NotFoundError(f"table {request.name!r} is called {current.name!r} by now")
        check_table_rename(services.tables.access_rules(), current.name, new_name)
        # Files that it ingested under this name are known under the next one, too.
        origins = tuple(dict.fromkeys((*current.origins, Origin("", current.name))))
        renamed = replace(current, name=new_name, renamed_ms=now_ms, origins=origins)
        check_published_names(services, renamed)
        return renamed

    changed = services.tables.change(table.id, renamed, request_id=request.request_id)
    return publications(changed) if is_mirrored(changed.properties) else []


def set_online(services: Services, table: Table, request: SetOnline) -> list[OutboundMessage]:
    """Change the table; jobs that became due while it was offline are planned once it is online."""
    services.tables.change(
        table.id, lambda t: replace(t, online=request.online), request_id=request.request_id
    )
    return [OutboundMessage("table-changes", TableChanged(table.id))] if request.online else []


def set_properties(
    services: Services, table: Table, request: SetProperties
) -> list[OutboundMessage]:
    """Change the table's own properties, and plan its jobs again.
    Raises InvalidRequestError: an unknown name, a bad value, one that never changes, filters or
    aggregations that do not fit the schema, or names for readers of Iceberg that another table has.
    """
    put, unset = _checked(request.properties, request.unset)
    defaults = services.tables.defaults()

    def change(current: Table) -> Table:
        changed = current.with_settings(merge_settings(current.settings, put, unset), defaults)
        check_change(current, changed)
        check_published_names(services, changed)
        check_storage_class(services, changed.properties)
        return _with_keys(services, changed, changed.schema)

    changed = services.tables.change(table.id, change, request_id=request.request_id)
    message = OutboundMessage("table-changes", TableChanged(table.id))
    return [message, *publications(table, changed)]


def set_defaults(services: Services, request: SetDefaults) -> None:
    """Change the instance's properties.
    Raises InvalidRequestError: an unknown name, a bad value, or one that a table cannot take.
    """
    put, unset = _checked(request.properties, request.unset)
    if "data_key" in put:
        raise InvalidRequestError("data_key is of a table, and has no default of an instance")
    defaults = services.tables.defaults()
    after = merge_settings(defaults, put, unset)
    check_storage_class(services, properties_of(after))
    for table in services.tables.all():
        changed = table.with_settings(table.settings, after)
        check_change(table, changed)
        check_published_names(services, changed)
        check_storage_class(services, changed.properties)
    services.tables.change_defaults(lambda defaults: merge_settings(defaults, put, unset))


def _checked(
    properties: Mapping[str, object], unset: Sequence[str]
) -> tuple[dict[str, int | str], tuple[str, ...]]:
    return parse_settings(properties), tuple(property_named(name).name for name in unset)
