"""Literals in a parsed SQL condition, with their types; used by `parser`."""

from __future__ import annotations

from sqlglot import exp

from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import Primitive
from dormouse.sql.expressions import Literal
from dormouse.sql.parsing.constants import number, text_as_time

_TYPED: dict[exp.DType, Primitive] = {
    exp.DType.TIMESTAMP: Primitive.TIMESTAMP,
    exp.DType.TIMESTAMPTZ: Primitive.TIMESTAMP,
    exp.DType.DATE: Primitive.DATE,
    exp.DType.TIME: Primitive.TIME,
    exp.DType.UUID: Primitive.UUID,
}


def parse_literal(node: exp.Expr) -> Literal:
    """Return the value of a literal. A number gets its final type later, by `coerce_literal`.

    Raises:
        InvalidRequestError: it is malformed, or no column can hold it.
    """
    match node:
        case exp.Boolean():
            return Literal(bool(node.this), Primitive.BOOLEAN)
        case exp.HexString():
            return Literal(_bytes(node), Primitive.BYTES)
        case exp.Cast():
            return _typed(node)
        case exp.Neg():
            return number(node, f"-{node.this.name}")
        case exp.Literal(is_string=True):
            return Literal(node.name, Primitive.STRING)
    return number(node, node.name)


def _bytes(node: exp.HexString) -> bytes:
    try:
        return bytes.fromhex(node.name)
    except ValueError as error:
        raise InvalidRequestError(
            f"X'{node.name}' is not bytes: write two hex digits for each byte"
        ) from error


def _typed(node: exp.Cast) -> Literal:
    """Return the literal ``TIMESTAMP '…'``, ``DATE '…'``, ``TIME '…'`` or ``UUID '…'``, which the
    parser represents as a cast of text.
    """
    assert isinstance(node.this, exp.Literal)
    return text_as_time(node.this.name, _TYPED[node.to.this])


def is_typed(node: exp.Expr) -> bool:
    """Return whether a node is a literal with its type before it, or a text cast to such a type."""
    return (
        isinstance(node, exp.Cast)
        and isinstance(node.this, exp.Literal)
        and node.this.is_string
        and node.to.this in _TYPED
        and not node.to.expressions
    )
