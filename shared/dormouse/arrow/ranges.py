"""Key ranges as predicates over columns, for pyarrow and DataFusion.

A predicate is a conjunction that bounds single columns wherever the range does. From this form,
readers can see which row groups and pages they can skip.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self, TypeVar

from dormouse.arrow.types import Scalar
from dormouse.errors import InvalidRequestError
from dormouse.key_forms.arrow import key_scalar
from dormouse.keys.ranges import (
    INT64_MAX,
    INT64_MIN,
    Key,
    KeyPart,
    KeyRange,
    intersect_ranges,
    prefix_successor,
    union_ranges,
)
from dormouse.schema.schema import Field, FieldType, Primitive, Schema
from dormouse.schema.types import MAX_TIME, UUID_BYTES
from dormouse.sql.conditions import Condition
from dormouse.sql.key_bounds import key_bounds
from dormouse.tables.row_rules import group_keys
from dormouse.tables.table import Table

_INT32_TYPES = (Primitive.INT, Primitive.DATE)
_PYTHON_TYPES: dict[FieldType, type[KeyPart]] = {
    Primitive.STRING: str,
    Primitive.BYTES: bytes,
    Primitive.UUID: bytes,
}


class Term(Protocol):
    """The operators that expressions of DataFusion and pyarrow have in common; the
    other operand may be any term.
    """

    def __and__(self, other: Any, /) -> Self: ...  # noqa: D105
    def __or__(self, other: Any, /) -> Self: ...  # noqa: D105
    def __lt__(self, other: Any, /) -> Self: ...  # noqa: D105
    def __le__(self, other: Any, /) -> Self: ...  # noqa: D105
    def __gt__(self, other: Any, /) -> Self: ...  # noqa: D105
    def __ge__(self, other: Any, /) -> Self: ...  # noqa: D105


_T = TypeVar("_T", bound=Term)


def fit_range(wanted: KeyRange, schema: Schema) -> KeyRange:
    """Return a range of the same rows whose bounds are values of the key columns; it may be empty.

    A bound of a request may be outside its column's type, or have more parts than there are keys.

    For example, with one key of type int (32 bits): from 3,000,000,000 on there are no keys, so the
    range is empty; below 3,000,000,000 are all keys, so the upper bound is dropped. With two keys,
    the lower bound (a, 3,000,000,000) becomes the successor of (a).

    Raises:
        InvalidRequestError: a part is of another type than its column.
    """
    return fit_range_to_fields(wanted, schema.keys)


def fit_range_to_fields(wanted: KeyRange, fields: Sequence[Field]) -> KeyRange:
    """Return a range as `fit_range` does, for columns that need not be keys."""
    low = _fitted(wanted.min, fields)
    high = None if wanted.max is None else _fitted(wanted.max, fields)
    if low is None:
        return KeyRange((), ())
    return KeyRange(low, high)


def requested_ranges(schema: Schema, ranges: Sequence[KeyRange]) -> list[KeyRange]:
    """Return disjoint ascending ranges that contain exactly the rows in any of `ranges`.

    No ranges mean the whole table.

    Raises:
        InvalidRequestError: a bound of the wrong type.
    """
    return union_ranges([fit_range(r, schema) for r in ranges]) if ranges else [KeyRange()]


def ranges_to_read(
    table: Table, ranges: Sequence[KeyRange], condition: Condition | None
) -> list[KeyRange]:
    """Return disjoint ascending ranges that contain all stored rows
    that can contribute to the result.

    No ranges mean the whole table. The result may contain more: rows that do not match the
    condition, and all rows of a group of which one row is requested, because the whole group
    decides about its result row.

    Raises:
        InvalidRequestError: a bound of the wrong type.
    """
    schema = table.schema
    wanted = requested_ranges(schema, ranges)
    if condition is not None:
        bounds = [fit_range(r, schema) for r in key_bounds(condition, schema)]
        wanted = intersect_ranges(wanted, union_ranges(bounds))
    shared = len(group_keys(schema, table.properties))
    return union_ranges([span.widen_to_parts(shared) for span in wanted])


def _fitted(bound: Key, fields: Sequence[Field]) -> Key | None:
    """Return a bound at the same position whose parts fit their
    columns; None if it is above all keys.
    """
    for i, (part, field) in enumerate(zip(bound, fields, strict=False)):
        _check_type(part, field)
        if isinstance(part, int):
            low, high = _limits(field)
            if part < low:
                return bound[:i]
            if part > high:
                return _after(bound[:i], fields)
        if isinstance(part, bytes) and field.type is Primitive.UUID and len(part) != UUID_BYTES:
            nearest = _uuid_from(part)
            return _after(bound[:i], fields) if nearest is None else (*bound[:i], nearest)
    return _after(bound[: len(fields)], fields) if len(bound) > len(fields) else bound


def _after(key: Key, fields: Sequence[Field]) -> Key | None:
    past = prefix_successor(key)
    return None if past is None else _fitted(past, fields)


def _uuid_from(bound: bytes) -> bytes | None:
    """Return the least UUID that is not below bytes of another length; None if there is none."""
    if len(bound) < UUID_BYTES:
        return bound.ljust(UUID_BYTES, b"\0")
    after = int.from_bytes(bound[:UUID_BYTES], "big") + 1
    return None if after >> 8 * UUID_BYTES else after.to_bytes(UUID_BYTES, "big")


def _limits(field: Field) -> tuple[int, int]:
    if field.type is Primitive.TIME:
        return 0, MAX_TIME
    return (-(2**31), 2**31 - 1) if field.type in _INT32_TYPES else (INT64_MIN, INT64_MAX)


def _check_type(part: KeyPart, field: Field) -> None:
    wanted = _PYTHON_TYPES.get(field.type, int)
    if not isinstance(part, wanted) or isinstance(part, bool):
        raise InvalidRequestError(
            f"a key does not fit column {field.name!r}: its part is not of type {wanted.__name__}"
        )


def range_predicate(
    wanted: KeyRange,
    fields: Sequence[Field],
    column: Callable[[str], _T],
    literal: Callable[[Scalar], _T],
) -> _T | None:
    """Return the term that is true of exactly the rows in `wanted`; None if that is all rows.

    `wanted` is a range of values of `fields`; it must fit them (`fit_range`) and not be empty.
    `column` and `literal` make the terms of a column and of a typed value.

    For example, the range from (a, 5) to (a, 9) becomes

        k1 >= a AND k1 <= a AND k2 >= 5 AND k2 < 9

    and the range from (a, 5) to (c, 2), whose bounds differ in the first part,

        k1 >= a AND (k1 > a OR k2 >= 5) AND k1 <= c AND (k1 < c OR k2 < 2)

    The conjuncts `k1 >= a` and `k1 <= c` are redundant, but are what statistics of a single column
    can be compared with.
    """
    columns = [column(f.name) for f in fields]
    low = _literals(wanted.min, fields, literal)
    if wanted.max is None:
        return _from(columns, low) if low else None
    high = _literals(wanted.max, fields, literal)
    same = _common_prefix(wanted.min, wanted.max)
    terms = []
    for item, value in zip(columns[:same], low, strict=False):
        terms += [item >= value, item <= value]
    if same < len(low):
        terms.append(_from(columns[same:], low[same:]))
    terms.append(_below(columns[same:], high[same:]))
    result = terms[0]
    for term in terms[1:]:
        result = result & term
    return result


def _from(columns: Sequence[_T], bound: Sequence[_T]) -> _T:
    """Return the term for keys at or above a bound, part by part."""
    first, value = columns[0], bound[0]
    if len(bound) == 1:
        return first >= value
    return (first >= value) & ((first > value) | _from(columns[1:], bound[1:]))


def _below(columns: Sequence[_T], bound: Sequence[_T]) -> _T:
    """Return the term for keys below a bound, part by part."""
    first, value = columns[0], bound[0]
    if len(bound) == 1:
        return first < value
    return (first <= value) & ((first < value) | _below(columns[1:], bound[1:]))


def _literals(bound: Key, fields: Sequence[Field], literal: Callable[[Scalar], _T]) -> list[_T]:
    return [literal(key_scalar(p, f.type)) for p, f in zip(bound, fields, strict=False)]


def _common_prefix(low: Key, high: Key) -> int:
    count = 0
    for a, b in zip(low, high, strict=False):
        if a != b:
            break
        count += 1
    return count
