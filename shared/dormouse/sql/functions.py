"""The functions of conditions: their arguments, their results, and what keeps them from failing.

A function is listed if it is cheap, cannot fail on any row, and is as DataFusion has it.
"""

from __future__ import annotations

from dataclasses import dataclass

from dormouse.keys.ranges import INT64_MAX
from dormouse.schema.schema import FieldType, Primitive

_TEXT, _WHOLE, _TRUTH = Primitive.STRING, Primitive.LONG, Primitive.BOOLEAN
DATE_PARTS = ("YEAR", "QUARTER", "MONTH", "DAY", "DOW", "DOY", "HOUR", "MINUTE")
"""The parts that EXTRACT can take from a timestamp, in UTC, or from a date."""


@dataclass(frozen=True, slots=True)
class Function:
    """The types of a function's arguments and of its result. The last `optional` ones may be left
    out. `numbers` are the places of arguments that must be numbers as they are written, from
    `least` on: with others, it could fail.
    """

    takes: tuple[Primitive, ...]
    result: FieldType
    optional: int = 0
    numbers: tuple[int, ...] = ()
    least: int = 0


FUNCTIONS: dict[str, Function] = {
    "lower": Function((_TEXT,), _TEXT),
    "upper": Function((_TEXT,), _TEXT),
    "trim": Function((_TEXT,), _TEXT),
    "ltrim": Function((_TEXT,), _TEXT),
    "rtrim": Function((_TEXT,), _TEXT),
    "reverse": Function((_TEXT,), _TEXT),
    "length": Function((_TEXT,), _WHOLE),
    "octet_length": Function((_TEXT,), _WHOLE),
    "strpos": Function((_TEXT, _TEXT), _WHOLE),
    "starts_with": Function((_TEXT, _TEXT), _TRUTH),
    "ends_with": Function((_TEXT, _TEXT), _TRUTH),
    "contains": Function((_TEXT, _TEXT), _TRUTH),
    "left": Function((_TEXT, _WHOLE), _TEXT, numbers=(1,), least=-INT64_MAX),
    "right": Function((_TEXT, _WHOLE), _TEXT, numbers=(1,), least=-INT64_MAX),
    "substr": Function((_TEXT, _WHOLE, _WHOLE), _TEXT, optional=1, numbers=(1, 2)),
    "split_part": Function((_TEXT, _TEXT, _WHOLE), _TEXT, numbers=(2,), least=1),
}
"""`coalesce`, `nullif`, `concat`, `date_trunc` and `extract` have rules of their own."""
