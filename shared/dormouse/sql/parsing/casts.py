"""Which types a condition can cast between.

CAST is allowed where it cannot fail on any row; TRY_CAST, which makes NULL of what cannot be
converted, also elsewhere. Texts are not made of floating numbers, which each engine writes in its
own way.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import DecimalType, FieldType, Primitive, show_type
from dormouse.schema.types import TIMESTAMPS

_WHOLE = (Primitive.INT, Primitive.LONG)
_FLOATS = (Primitive.FLOAT, Primitive.DOUBLE)
_TYPES: Mapping[exp.DType, FieldType] = {
    exp.DType.BOOLEAN: Primitive.BOOLEAN,
    exp.DType.INT: Primitive.INT,
    exp.DType.BIGINT: Primitive.LONG,
    exp.DType.FLOAT: Primitive.FLOAT,
    exp.DType.DOUBLE: Primitive.DOUBLE,
    exp.DType.TEXT: Primitive.STRING,
    exp.DType.VARCHAR: Primitive.STRING,
    exp.DType.DATE: Primitive.DATE,
    exp.DType.TIMESTAMP: Primitive.TIMESTAMP_NTZ_NS,
    exp.DType.TIMESTAMPTZ: Primitive.TIMESTAMP_NTZ_NS,
}
_NAMES = "BOOLEAN, INT, BIGINT, REAL, DOUBLE, DECIMAL(p, s), TEXT, DATE, TIMESTAMP"
_DIGITS = {Primitive.BOOLEAN: 1, Primitive.INT: 10, Primitive.LONG: 19}
_NUMBERS = frozenset({*_WHOLE, *_FLOATS, Primitive.BOOLEAN})
_TEXTUAL = frozenset({*_WHOLE, Primitive.BOOLEAN, Primitive.DATE, *TIMESTAMPS})


def target_type(node: exp.DataType) -> FieldType:
    """Return the type that a condition casts to.

    Raises:
        InvalidRequestError: conditions have no such type.
    """
    kind = _TYPES.get(node.this)
    sizes = [str(size.this.name) for size in node.expressions if isinstance(size.this, exp.Literal)]
    if node.this is exp.DType.DECIMAL and 1 <= len(sizes) <= 2 and all(map(str.isdigit, sizes)):
        return DecimalType(int(sizes[0]), int(sizes[1]) if len(sizes) > 1 else 0)
    if kind is None or sizes:
        raise InvalidRequestError(
            f"{node.sql('postgres')} is no type that conditions cast to", hint=f"types: {_NAMES}"
        )
    return kind


def can_cast(found: FieldType, wanted: FieldType, *, may_fail: bool) -> bool:
    """Return whether values of a type can be cast to another; with `may_fail`, if not all can."""
    if found == wanted:
        return True
    if isinstance(wanted, DecimalType):
        whole = wanted.precision - wanted.scale
        if isinstance(found, DecimalType):
            widens = wanted.scale >= found.scale and whole >= found.precision - found.scale
            return may_fail or widens
        if found in _WHOLE:
            return may_fail or whole >= _DIGITS[Primitive(found)]
        return may_fail and found in (Primitive.DOUBLE, Primitive.STRING)
    if isinstance(found, DecimalType):
        return wanted in _FLOATS or wanted is Primitive.STRING or (may_fail and wanted in _WHOLE)
    if wanted is Primitive.STRING:
        return found in _TEXTUAL
    if wanted is Primitive.DATE:
        return found in TIMESTAMPS or (may_fail and found is Primitive.STRING)
    if wanted is Primitive.TIMESTAMP_NTZ_NS:
        return may_fail and (found in (*TIMESTAMPS, Primitive.DATE, Primitive.STRING))
    return _is_number_cast(found, wanted, may_fail=may_fail)


def _is_number_cast(found: FieldType, wanted: FieldType, *, may_fail: bool) -> bool:
    if wanted not in _NUMBERS or found not in (*_NUMBERS, Primitive.STRING):
        return False
    if found is Primitive.STRING or (found in _FLOATS and wanted in _WHOLE):
        return may_fail
    if Primitive.BOOLEAN in (found, wanted):
        return found in _WHOLE or wanted in _WHOLE
    return may_fail or (found, wanted) != (Primitive.LONG, Primitive.INT)


def refused_cast(node: str, found: FieldType, wanted: FieldType) -> InvalidRequestError:
    """Return the error for a cast that is not allowed."""
    if can_cast(found, wanted, may_fail=True):
        return InvalidRequestError(
            f"{node}: not every {show_type(found)} can be cast",
            hint="TRY_CAST makes NULL of those that cannot",
        )
    return InvalidRequestError(f"{node}: {show_type(found)} cannot be cast to that in a condition")
