"""Which types the operands of an expression may have, and the type of what they make.

Used by `parser`.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import DecimalType, FieldType, Primitive, show_type
from dormouse.schema.types import TIMESTAMPS
from dormouse.sql.expressions import Call, Expression, Literal, common_type
from dormouse.sql.parsing.constants import Shown, coerce_literal, show_node

_HINTS: dict[FieldType, str] = {
    **dict.fromkeys(TIMESTAMPS, "a time is written as TIMESTAMP '2026-01-31 12:00:00'"),
    Primitive.TIMESTAMP: "a time is written as TIMESTAMP '2026-01-31 12:00:00' (UTC)",
    Primitive.TIME: "a time of day is written as TIME '12:30:00'",
    Primitive.UUID: "a UUID is written as UUID '123e4567-e89b-12d3-a456-426614174000'",
    Primitive.DATE: "a date is written as DATE '2026-01-31'",
    Primitive.BYTES: "bytes are written as X'00ff'",
}


_WHOLE = (Primitive.INT, Primitive.LONG)
_WHOLE_AS_DECIMAL = DecimalType(19, 0)
"""What every whole number of 64 bits is exactly."""


def compared(node: Shown, operands: Sequence[Expression]) -> list[Expression]:
    """Return operands that are compared with each other, as `alike` does; whole ones beside a
    decimal, or a number that is none of 64 bits, as decimals: ``k > 1.5`` means what it says.

    Raises:
        InvalidRequestError: they are of types that cannot be compared.
    """
    if any(isinstance(e.type, DecimalType) or _is_no_whole_number(e) for e in operands):
        operands = [
            Call("CAST", (e,), _WHOLE_AS_DECIMAL)
            if e.type in _WHOLE and not isinstance(e, Literal)
            else e
            for e in operands
        ]
    return alike(node, operands)


def _is_no_whole_number(expression: Expression) -> bool:
    return isinstance(expression, Literal) and isinstance(expression.value, Decimal)


def _looseness(expression: Expression) -> int:
    """Return how freely an operand takes the type of another: 0 if not at all, 1 if it was cast to
    a double, 2 if it is another literal.
    """
    if not isinstance(expression, Literal):
        return 0
    return 1 if isinstance(expression.value, float) else 2


def alike(node: Shown, operands: Sequence[Expression]) -> list[Expression]:
    """Return operands that must be of one type; literals take the type of the other operands.

    Raises:
        InvalidRequestError: they are of types that cannot be compared.
    """
    wanted = min(operands, key=_looseness).type
    checked = [coerce_literal(node, e, wanted) if isinstance(e, Literal) else e for e in operands]
    if not isinstance(wanted, Primitive | DecimalType):
        raise InvalidRequestError(
            f"{show_node(node)}: {show_type(wanted)} cannot be compared",
            hint="it can only be tested with IS NULL",
        )
    kind = checked[0].type
    for other in checked[1:]:
        found = common_type(kind, other.type)
        if found is None:
            raise InvalidRequestError(
                f"{show_node(node)}: {show_type(kind)} and {show_type(other.type)} "
                "cannot be compared",
                hint=_HINTS.get(other.type) or _HINTS.get(kind, ""),
            )
        kind = found
    return checked


def calculated(node: Shown, op: str, both: Sequence[Expression]) -> Expression:
    """Return a calculation that cannot fail on any row: it divides by nothing that may be zero.

    Raises:
        InvalidRequestError: it may fail, or its operands are no numbers.
    """
    numbers = (Primitive.INT, Primitive.LONG, Primitive.FLOAT, Primitive.DOUBLE)
    if other := next((part.type for part in both if part.type not in numbers), None):
        raise InvalidRequestError(
            f"{show_node(node)} calculates with {show_type(other)}",
            hint="only whole and floating numbers can be calculated with",
        )
    kind = common(both)
    divisor = both[1]
    if op in "/%" and not (isinstance(divisor, Literal) and _positive(divisor)):
        raise InvalidRequestError(f"{show_node(node)}: the divisor must be a number above zero")
    return Call(op, tuple(both), Primitive.LONG if kind in _WHOLE else Primitive.DOUBLE)


def _positive(literal: Literal) -> bool:
    return isinstance(literal.value, int | float) and literal.value > 0


def common(expressions: Sequence[Expression]) -> FieldType:
    """Return the type that values of all expressions have together."""
    kind = expressions[0].type
    for expression in expressions[1:]:
        kind = common_type(kind, expression.type) or kind
    return kind


def check_types(node: Shown, arguments: Sequence[Expression], wanted: Sequence[FieldType]) -> None:
    """Refuse the arguments of a function unless they are of the types that it is for.

    Raises:
        InvalidRequestError: they are not.
    """
    if [a.type for a in arguments] != list(wanted):
        found = ", ".join(show_type(a.type) for a in arguments)
        needed = ", ".join(show_type(kind) for kind in wanted)
        raise InvalidRequestError(f"{show_node(node)} is for {needed}, not for {found}")
