"""Stand-ins for the filters that Spark 4.1 hands to sources, and what Spark says of a row."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Comparison:
    """The root of what compares a column with a value."""

    attribute: tuple[str, ...]
    value: Any


class EqualTo(Comparison): ...


class EqualNullSafe(Comparison): ...


class GreaterThan(Comparison): ...


class GreaterThanOrEqual(Comparison): ...


class LessThan(Comparison): ...


class LessThanOrEqual(Comparison): ...


class In(Comparison): ...


class StringStartsWith(Comparison): ...


class StringEndsWith(Comparison): ...


class StringContains(Comparison): ...


@dataclass(frozen=True)
class IsNull:
    attribute: tuple[str, ...]


@dataclass(frozen=True)
class IsNotNull:
    attribute: tuple[str, ...]


@dataclass(frozen=True)
class Not:
    child: Any


ORDERS: dict[type, Callable[[Any, Any], bool]] = {
    EqualTo: lambda cell, value: cell == value,
    GreaterThan: lambda cell, value: cell > value,
    GreaterThanOrEqual: lambda cell, value: cell >= value,
    LessThan: lambda cell, value: cell < value,
    LessThanOrEqual: lambda cell, value: cell <= value,
    In: lambda cell, value: cell in value,
    StringStartsWith: lambda cell, value: cell.startswith(value),
    StringEndsWith: lambda cell, value: cell.endswith(value),
    StringContains: lambda cell, value: value in cell,
}


def says(given: Any, row: dict[str, Any]) -> bool | None:
    """Return what Spark finds of a row: nulls compare as null, and NaN is above all numbers."""
    if isinstance(given, Not):
        found = says(given.child, row)
        return None if found is None else not found
    cell = row[given.attribute[0]]
    match given:
        case IsNull():
            return cell is None
        case IsNotNull():
            return cell is not None
        case EqualNullSafe():
            return bool(cell == given.value)
    if cell is None:
        return None
    if isinstance(cell, float) and math.isnan(cell):
        return type(given) in (GreaterThan, GreaterThanOrEqual)
    return ORDERS[type(given)](cell, given.value)
