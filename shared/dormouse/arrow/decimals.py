"""Parse decimal numbers of ingested files exactly as they are written, or refuse them.

Arrow's conversion is used where it is correct: to 76 digits, for plain numbers of up to 38 digits.
Arrow misreads numbers with more digits than the decimal type has, and numbers with extreme
exponents, and on some of them it crashes the process.
"""

from __future__ import annotations

import re
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.arrow.types import Array, arrow_type, widest_decimal
from dormouse.schema.schema import DecimalType

_PLAIN = "^[+-]?[0-9]{1,19}([.][0-9]{0,19})?$"
"""Numbers that Arrow converts correctly: with 76 digits, they fit at any scale."""
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def parse_decimals(cells: Array, kind: DecimalType) -> Array:
    """Return a column of text as decimals.

    Raises:
        ValueError: a cell is not a number, or has more digits than the type.
    """
    wanted = arrow_type(kind)
    if pc.all(pc.match_substring_regex(cells, _PLAIN), min_count=0).as_py():
        return cells.cast(widest_decimal(kind.precision, kind.scale)).cast(wanted)
    return pa.array([_parsed(cell, kind) for cell in cells.to_pylist()], wanted)


def _exact(value: Decimal, kind: DecimalType) -> Decimal:
    """Return a number with exactly as many digits after the point as the type has.

    Raises:
        ValueError: the number has more digits than the type.
    """
    context = Context(prec=kind.precision, traps=[Inexact, InvalidOperation])
    try:
        fitted = value.quantize(Decimal(1).scaleb(-kind.scale), context=context)
    except DecimalException as error:
        raise ValueError("it has more digits than the type") from error
    if not fitted.is_finite():
        raise ValueError("it is not a number")
    return fitted


def _parsed(cell: str | None, kind: DecimalType) -> Decimal | None:
    if cell is None:
        return None
    if not _NUMBER.fullmatch(cell):
        raise ValueError("it is not a number")
    try:
        return _exact(Decimal(cell), kind)
    except DecimalException as error:  # the exponent is out of range
        raise ValueError("it has more digits than the type") from error
