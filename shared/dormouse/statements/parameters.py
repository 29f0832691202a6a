"""The values of a statement's parameters: checked, and in the form that DuckDB takes."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from dormouse.errors import InvalidRequestError
from dormouse.statements.statement import Statement

MAX_PARAMETERS = 1000
"""The most parameters of a statement."""
MAX_PARAMETER_BYTES = 16 * 1024 * 1024
MAX_DIGITS = 38
"""The most digits of a decimal: DuckDB takes longer ones for doubles, without a word."""
_AS_TABLE = "ingest long lists of values into a table, and join it"


def checked_parameters(statement: Statement, values: Mapping[str, object]) -> dict[str, object]:
    """Return the values of the parameters of a statement by name.

    Raises:
        InvalidRequestError: the statement names others; one has no type of SQL; or they are too
            many or too large.
    """
    _check_size(values)
    missing = [name for name in statement.parameters if name not in values]
    unknown = [name for name in values if name not in statement.parameters]
    if missing or unknown:
        problem = f"has no value for ${missing[0]}" if missing else f"has no ${unknown[0]}"
        raise InvalidRequestError(
            f"the statement {problem}", hint="give each of its parameters one value"
        )
    return {name: _value(value) for name, value in values.items()}


def _check_size(values: Mapping[str, object]) -> None:
    """Refuse values that are too many or too large, or have no type.

    Raises:
        InvalidRequestError: they are.
    """
    if len(values) > MAX_PARAMETERS:
        raise InvalidRequestError(
            f"the statement has {len(values):,} parameters; at most {MAX_PARAMETERS:,} are allowed",
            hint=_AS_TABLE,
        )
    try:
        held: list[Any] = [[value] for value in values.values()]
        size_bytes = sum(pa.array(each).nbytes for each in held)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
        raise InvalidRequestError("a parameter has a value that no type of SQL has") from error
    if size_bytes > MAX_PARAMETER_BYTES:
        raise InvalidRequestError(
            f"the parameters take {size_bytes:,} bytes; at most {MAX_PARAMETER_BYTES:,} may be",
            hint=_AS_TABLE,
        )


def _value(value: object) -> object:
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    if isinstance(value, Decimal) and value.is_finite():
        digits = value.as_tuple()
        if max(len(digits.digits), -int(digits.exponent)) > MAX_DIGITS:
            raise InvalidRequestError(f"a parameter has more than {MAX_DIGITS} digits")
    return value
