"""Columns of a condition, and the parts of nested ones: members of structs, elements of lists,
values of maps. Used by `parser`.
"""

from __future__ import annotations

from difflib import get_close_matches

from sqlglot import exp

from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import Primitive, Schema, show_type
from dormouse.schema.types import ListType, MapType, StructType
from dormouse.sql.expressions import Call, Column, Expression, Literal
from dormouse.sql.parsing.constants import show_node


def named_column(node: exp.Expr, schema: Schema) -> Expression:
    """Return the column that a name means, or the member of a struct that names with dots mean.

    Raises:
        InvalidRequestError: there is no such column or member.
    """
    parts = list(node.parts) if isinstance(node, exp.Column) else [node]
    if not all(isinstance(part, exp.Identifier) for part in parts):
        raise InvalidRequestError(f"{show_node(node)}: a column is named on its own")
    first, *others = (part.name for part in parts)
    columns = [field.name for field in schema.fields]
    if first not in columns and others and others[0] in columns:
        raise InvalidRequestError(f"{show_node(node)}: a column is named on its own")
    near = [] if first in columns else get_close_matches(first, columns, 1)
    if near and not schema.explain_former_name(first):
        raise InvalidRequestError(
            f"there is no column {first!r}; columns: {', '.join(columns)}",
            hint=f"did you mean {near[0]}?",
        )
    field = schema.field_named(first)
    found: Expression = Column(field.name, field.type)
    for name in others:
        found = member_of(node, found, name)
    return found


def member_of(node: exp.Expr, whole: Expression, name: str) -> Expression:
    """Return the member of a struct.

    Raises:
        InvalidRequestError: it is no struct, or has no such member.
    """
    if not isinstance(whole.type, StructType):
        raise InvalidRequestError(
            f"{show_node(node)}: {show_type(whole.type)} has no members",
            hint="a value of a map is tags['colour'], an element of a list stops[1]",
        )
    members = {member.name: member.type for member in whole.type.members}
    if name not in members:
        near = get_close_matches(name, members, 1)
        hint = f"did you mean {near[0]}?" if near else "members: " + ", ".join(members)
        raise InvalidRequestError(f"{show_node(node)}: there is no member {name!r}", hint=hint)
    return Call("FIELD", (whole, Literal(name, Primitive.STRING)), members[name])


def part_of(node: exp.Expr, whole: Expression, inside: Literal) -> Expression:
    """Return what is in brackets after a value: a member of a struct, an element of a list, counted
    from 1 or, below zero, from the end, or the value of a key of a map.

    Raises:
        InvalidRequestError: the value has no such parts.
    """
    kind, value = whole.type, inside.value
    if isinstance(kind, StructType) and isinstance(value, str):
        return member_of(node, whole, value)
    if isinstance(kind, ListType) and inside.type is Primitive.LONG:
        return Call("ELEMENT", (whole, inside), kind.element)
    if isinstance(kind, MapType) and kind.key is Primitive.STRING and isinstance(value, str):
        return Call("VALUE", (whole, inside), kind.value)
    if isinstance(kind, MapType) and kind.key is not Primitive.STRING:
        raise InvalidRequestError(
            f"{show_node(node)}: only values of maps whose keys are text can be taken"
        )
    raise InvalidRequestError(
        f"{show_node(node)}: {show_type(kind)} has no such part",
        hint="write place['city'], tags['colour'] or stops[1]",
    )
