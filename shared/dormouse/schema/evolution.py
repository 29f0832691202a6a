"""How the type of a column changes in place: it widens, and members of structs are added, dropped
and renamed.

What is nested in a column is a field of its own here, and has an id that no other ever gets. Shards
keep the types that they were written with; readers find each part by its id (`arrow.types`).
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from dormouse.errors import InvalidRequestError, did_you_mean
from dormouse.keys import KeyPart
from dormouse.schema.schema import Field, Schema, whole_numbers
from dormouse.schema.types import (
    NANOSECONDS,
    DecimalType,
    FieldType,
    ListType,
    MapType,
    Member,
    Primitive,
    StructType,
    check_column_name,
    count_nested,
    parse_type,
    show_type,
)

_WIDER: Mapping[FieldType, FieldType] = {
    Primitive.INT: Primitive.LONG,
    Primitive.FLOAT: Primitive.DOUBLE,
    Primitive.TIMESTAMP: Primitive.TIMESTAMP_NS,
    Primitive.TIMESTAMP_NTZ: Primitive.TIMESTAMP_NTZ_NS,
}
_PER_MICROSECOND = 1000
_WIDENING_HINT = (
    "int becomes long, float double, decimal one of more digits and the same scale, timestamp "
    "timestamp_ns, timestamp_ntz timestamp_ntz_ns; for any other type add a column or member of "
    "another name"
)


def parts_of(item: Field) -> tuple[Field, ...]:
    """Return what is nested in a field, with the ids that it has there: the element of a list, key
    and value of a map, the members of a struct.
    """
    match item.type:
        case ListType(element=element):
            named = [Member("element", element, True)]
        case MapType(key=key, value=value):
            named = [Member("key", key), Member("value", value, True)]
        case StructType(members=members):
            named = [*members]
        case _:
            return ()
    ids = iter(item.nested_ids)
    return tuple(
        Field(m.name, m.type, m.nullable, next(ids, 0), "", (*islice(ids, count_nested(m.type)),))
        for m in named
    )


def with_parts(item: Field, parts: Sequence[Field]) -> Field:
    """Return a nested field with other parts of the same kinds."""
    kind: FieldType = item.type
    match item.type:
        case ListType():
            kind = ListType(parts[0].type)
        case MapType():
            assert isinstance(parts[0].type, Primitive)
            kind = MapType(parts[0].type, parts[1].type)
        case StructType():
            kind = StructType(tuple(Member(p.name, p.type, p.nullable) for p in parts))
    nested = tuple(i for part in parts for i in (part.id, *part.nested_ids))
    return replace(item, type=kind, nested_ids=nested)


def widens(then: FieldType, now: FieldType) -> bool:
    """Return whether each value of a type without parts is one of another, or both are the same."""
    if isinstance(then, DecimalType) and isinstance(now, DecimalType):
        return then.scale == now.scale and then.precision <= now.precision
    return then == now or _WIDER.get(then) == now


def earlier_part(part: KeyPart, now: FieldType, then: FieldType) -> KeyPart | None:
    """Return a value of a type as it was in an earlier type; None if that had none like it."""
    if isinstance(part, int) and now != then:
        if _gets_finer(then, now):
            part, rest = divmod(part, _PER_MICROSECOND)
            return None if rest else part
        return part if part in whole_numbers(then) else None
    return part


def later_part(part: KeyPart, then: FieldType, now: FieldType) -> KeyPart:
    """Return a value of an earlier type as it is in a type now."""
    return part * _PER_MICROSECOND if isinstance(part, int) and _gets_finer(then, now) else part


def _gets_finer(then: FieldType, now: FieldType) -> bool:
    return now in NANOSECONDS and then not in NANOSECONDS


def is_same(then: Field, now: Field) -> bool:
    """Return whether values are stored in the same way: of the same type, with the same parts."""
    return then.type == now.type and then.nested_ids == now.nested_ids


def becomes(then: Field, now: Field) -> bool:
    """Return whether the values of a stored field become those of the same field as it is now."""
    if is_same(then, now):
        return True
    by_id = {part.id: part for part in parts_of(then)}
    if not by_id:
        return widens(then.type, now.type)
    parts = parts_of(now)
    return type(then.type) is type(now.type) and all(
        becomes(by_id[part.id], part) for part in parts if part.id in by_id
    )


def keeps_names(then: Field, now: Field) -> bool:
    """Return whether each name of a part, at any depth, still means the same part."""
    by_name = {part.name: part for part in parts_of(now)}
    return then.id == now.id and all(
        part.name in by_name and keeps_names(part, by_name[part.name]) for part in parts_of(then)
    )


def loses_range(then: Field, now: Field) -> bool:
    """Return whether times of some years do not become nanoseconds, at any depth."""
    if _gets_finer(then.type, now.type):
        return True
    by_id = {part.id: part for part in parts_of(then)}
    return any(loses_range(by_id[p.id], p) for p in parts_of(now) if p.id in by_id)


def may_lose_range(item: Field) -> bool:
    """Return whether a field, or a part of it, has times that can become nanoseconds."""
    is_time = item.type in (Primitive.TIMESTAMP, Primitive.TIMESTAMP_NTZ)
    return is_time or any(map(may_lose_range, parts_of(item)))


# Paths: the name of a column, and after dots the names of parts, as Iceberg has them: those of
# members, `element` of a list, `key` and `value` of a map. Names may have dots themselves: one that
# is the whole rest of a path comes first, then the longest.


def find_part(
    fields: Sequence[Field], path: str, owner: Field | None = None
) -> tuple[Field, Field | None] | None:
    """Return the column or part that a path names, if there is one, and what it is a part of."""
    if whole := [item for item in fields if item.name == path]:
        return whole[0], owner
    for item, rest in _entered(fields, path):
        if part := find_part(parts_of(item), rest, item):
            return part
    return None


def find_struct(fields: Sequence[Field], path: str) -> tuple[Field, str] | None:
    """Return the innermost struct that a path enters, and the rest of the path."""
    for item, rest in _entered(fields, path):
        if struct := find_struct(parts_of(item), rest):
            return struct
        if isinstance(item.type, StructType):
            return item, rest
    return None


def _entered(fields: Sequence[Field], path: str) -> Iterator[tuple[Field, str]]:
    """Yield each nested field that a path may enter, and the rest of the path."""
    for item in sorted(fields, key=lambda each: -len(each.name)):
        if path.startswith(f"{item.name}.") and parts_of(item):
            yield item, path[len(item.name) + 1 :]


@dataclass(slots=True)
class SchemaChanges:
    """What becomes of columns and of what is nested in them, by their ids: those to `drop`, new
    names and types, and the members to add to structs.
    """

    drop: set[int] = field(default_factory=set)
    rename: dict[int, str] = field(default_factory=dict)
    types: dict[int, FieldType] = field(default_factory=dict)
    add: dict[int, list[Field]] = field(default_factory=dict)

    def of(self, item: Field, ids: Iterator[int]) -> Field:
        """Return a column or part as it is then; members that are added take `ids`.
        Raises InvalidRequestError: a type would not widen, or a struct would have no members, or
        two of one name.
        """
        column = replace(self._of(item, ids), name=self.rename.get(item.id, item.name))
        parse_type(column.type.to_json(), f"column {item.name!r}")  # it may nest too deeply now
        return replace(column, finer=True) if loses_range(item, column) else column

    def _of(self, item: Field, ids: Iterator[int]) -> Field:
        if item.id in self.types:
            item = retyped(item, self.types[item.id])
        before = parts_of(item)
        if not before:
            return item
        parts = [
            replace(self._of(part, ids), name=self.rename.get(part.id, part.name))
            for part in before
            if part.id not in self.drop
        ]
        for new in self.add.get(item.id, ()):
            own, nested = next(ids), tuple(islice(ids, count_nested(new.type)))
            parts.append(replace(new, id=own, nested_ids=nested))
        if not parts:
            raise InvalidRequestError(
                f"{item.name!r} would have no members", hint="drop it instead of all its members"
            )
        return with_parts(item, parts)


def retyped(item: Field, target: FieldType) -> Field:
    """Return a field with a wider type. Raises InvalidRequestError: the type is not wider."""
    if item.encrypted is not None:
        raise InvalidRequestError(
            f"the values of {item.name!r} are encrypted, and keep their type",
            hint="add a column of the other type",
        )
    parts, others = parts_of(item), parts_of(Field(item.name, target))
    if parts:
        names = [(part.name, part.nullable) for part in parts]
        if type(item.type) is type(target) and names == [(p.name, p.nullable) for p in others]:
            pairs = zip(parts, others, strict=True)
            return with_parts(item, [retyped(part, other.type) for part, other in pairs])
    elif widens(item.type, target):
        return replace(item, type=target)
    same_members = "members of structs are added, dropped and renamed one by one; " if parts else ""
    raise InvalidRequestError(
        f"{item.name!r} is {show_type(item.type)} and cannot become {show_type(target)}",
        hint=same_members + _WIDENING_HINT,
    )


def changes_of(
    schema: Schema,
    *,
    add: Sequence[Field],
    drop: Sequence[str],
    rename: Mapping[str, str],
    types: Mapping[str, FieldType],
) -> tuple[SchemaChanges, list[Field]]:
    """Return what paths ask for as changes by ids, and the columns to add to the table.
    Raises InvalidRequestError: a path names nothing, or a change contradicts another one.
    """
    changes, columns, fields = SchemaChanges(), [], schema.fields
    drops = [_named(schema, path, "dropped") for path in drop]
    ids = {i for part in drops for i in (part.id, *part.nested_ids)}
    changes.drop.update(part.id for part in drops)
    for path, name in rename.items():
        part = _named(schema, path, "renamed", ids)
        changes.rename[part.id] = check_column_name(name)
        if part not in fields and "." in name:
            raise InvalidRequestError(
                f"a member cannot be renamed to {name!r}, which has a dot",
                hint="it stays in its struct: give its new name alone",
            )
    later = [_renamed(item, changes) for item in fields if item.id not in ids]
    for path, kind in types.items():
        part = _named(schema, path, "widened", ids, later)
        if changes.types.setdefault(part.id, kind) != kind:
            raise InvalidRequestError(f"{path!r} is given two types, by its old and new name")
    for item in add:
        if not any(_entered((*fields, *later), item.name)):
            columns.append(item)
            continue
        struct, name = find_struct(fields, item.name) or find_struct(later, item.name) or (None, "")
        if struct is None or struct.id in ids or "." in name:
            raise InvalidRequestError(
                f"no member {item.name!r} can be added: there is no struct to add it to",
                hint="write column.member; the elements of a list are called element, the values "
                "of a map value: column.element.member",
            )
        changes.add.setdefault(struct.id, []).append(replace(item, name=name))
    return changes, columns


def _renamed(item: Field, changes: SchemaChanges) -> Field:
    """Return a field with the new names of what is left of it."""
    if parts := parts_of(item):
        rest = [_renamed(part, changes) for part in parts if part.id not in changes.drop]
        item = with_parts(item, rest) if rest else item
    return replace(item, name=changes.rename.get(item.id, item.name))


def _named(
    schema: Schema, path: str, verb: str, gone: Container[int] = (), later: Sequence[Field] = ()
) -> Field:
    """Return what a path names, now or by its `later` name, if it can be changed."""
    present, target = find_part(schema.fields, path), find_part(later, path)
    if present and target and present[0].id != target[0].id:
        raise InvalidRequestError(
            f"{path!r} cannot be {verb}: it is the old name of one and the new name of another",
            hint="make two requests, or name it by what no other is called",
        )
    if (present := present or target) is None:
        if (within := find_struct(schema.fields, path)) is None:
            return schema.field_named(path)  # raises: there is none
        names = [part.name for part in parts_of(within[0])]
        raise InvalidRequestError(
            f"there is no member {path!r}",
            hint=did_you_mean(within[1], names, "members: " + ", ".join(names)),
        )
    part, owner = present
    if part.id in gone:
        raise InvalidRequestError(f"{path!r} cannot be dropped and {verb} at once")
    if owner is not None and verb != "widened" and not isinstance(owner.type, StructType):
        raise InvalidRequestError(f"{path!r} cannot be {verb}: it is no member of a struct")
    return part


def declared_changes(
    there: Sequence[Field], fields: Sequence[Field], path: str = ""
) -> tuple[list[Field], dict[str, FieldType]]:
    """Return the members that columns lack which they are declared to have, as fields to be added,
    and the types that differ, by paths. Members that are not declared stay.
    Raises InvalidRequestError: one can be null, and is declared not to, or the other way.
    """
    add: list[Field] = []
    types: dict[str, FieldType] = {}
    by_name = {item.name: item for item in there}
    for item in fields:
        here, previous = f"{path}{item.name}", by_name.get(item.name)
        if previous is None:
            add.append(replace(item.without_ids(), name=here))
            continue
        if previous.nullable != item.nullable:
            raise InvalidRequestError(
                f"column {here!r} has another nullability, which cannot change",
                hint="declare a column of another name",
            )
        parts, declared = parts_of(previous), parts_of(item)
        if not parts or type(previous.type) is not type(item.type):
            types |= {} if previous.type == item.type else {here: item.type}
            continue
        inner = declared_changes(parts, declared, f"{here}.")
        add += inner[0]
        types |= inner[1]
    return add, types
