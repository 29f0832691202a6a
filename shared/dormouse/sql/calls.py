"""Functions, casts, CASE, and calculations with times, as checked expressions; used by `parser`.

What has only constants is calculated here, so that conditions such as ``seen >= now() - INTERVAL
'1 day'`` bound keys.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlglot import exp

from dormouse.errors import InvalidRequestError
from dormouse.keys import INT64_MAX, INT64_MIN
from dormouse.schema.schema import Schema
from dormouse.schema.types import TIMESTAMPS, DecimalType, FieldType, Primitive, show_type
from dormouse.sql.conditions import (
    MAX_LIST,
    TRUNCATED,
    Call,
    Expression,
    Interval,
    Literal,
    is_time,
    parse_interval,
    shifted,
    truncated,
)
from dormouse.sql.plain import (
    FLOATS,
    alike,
    cast_time,
    check_types,
    coerce_literal,
    common,
    number,
    show_node,
    text_as_time,
)

# Which types a condition can cast between.
#
# CAST is allowed where it cannot fail on any row; TRY_CAST, which makes NULL of what cannot be
# converted, also elsewhere. Texts are not made of floating numbers, which each engine writes in its
# own way.

_INTEGERS = (Primitive.INT, Primitive.LONG)
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
_TYPE_NAMES = "BOOLEAN, INT, BIGINT, REAL, DOUBLE, DECIMAL(p, s), TEXT, DATE, TIMESTAMP"
_DIGITS = {Primitive.BOOLEAN: 1, Primitive.INT: 10, Primitive.LONG: 19}
_NUMBERS = frozenset({*_INTEGERS, *_FLOATS, Primitive.BOOLEAN})
_TEXTUAL = frozenset({*_INTEGERS, Primitive.BOOLEAN, Primitive.DATE, *TIMESTAMPS})


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
            f"{node.sql('postgres')} is no type that conditions cast to",
            hint=f"types: {_TYPE_NAMES}",
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
        if found in _INTEGERS:
            return may_fail or whole >= _DIGITS[Primitive(found)]
        return may_fail and found in (Primitive.DOUBLE, Primitive.STRING)
    if isinstance(found, DecimalType):
        return wanted in _FLOATS or wanted is Primitive.STRING or (may_fail and wanted in _INTEGERS)
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
    if found is Primitive.STRING or (found in _FLOATS and wanted in _INTEGERS):
        return may_fail
    if Primitive.BOOLEAN in (found, wanted):
        return found in _INTEGERS or wanted in _INTEGERS
    return may_fail or (found, wanted) != (Primitive.LONG, Primitive.INT)


def refused_cast(node: str, found: FieldType, wanted: FieldType) -> InvalidRequestError:
    """Return the error for a cast that is not allowed."""
    if can_cast(found, wanted, may_fail=True):
        return InvalidRequestError(
            f"{node}: not every {show_type(found)} can be cast",
            hint="TRY_CAST makes NULL of those that cannot",
        )
    return InvalidRequestError(f"{node}: {show_type(found)} cannot be cast to that in a condition")


# Literals in a parsed SQL condition, with their types; used by `parser`.

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


# The functions of conditions: their arguments, their results, and what keeps them from failing.
#
# A function is listed if it is cheap, cannot fail on any row, and is as DataFusion has it.

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


_MAX_CALCULATED_TIMES = 3
"""How deeply calculations with times may be nested; the engine tests each for overflow first."""
_FUNCTION_NAMES: dict[type[exp.Expr], str] = {
    exp.Lower: "lower",
    exp.Upper: "upper",
    exp.Length: "length",
    exp.Reverse: "reverse",
    exp.Left: "left",
    exp.Right: "right",
    exp.Substring: "substr",
    exp.SplitPart: "split_part",
    exp.StrPosition: "strpos",
    exp.StartsWith: "starts_with",
    exp.EndsWith: "ends_with",
    exp.Contains: "contains",
    exp.Trim: "trim",
}
_ARGUMENTS = ("this", "expression", "substr", "delimiter", "start", "length", "part_index")
_TRIMS = {"": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}


class Checker(Protocol):
    """What turns parts of a parsed condition into expressions."""

    schema: Schema
    now_ms: int | None

    def check(self, node: exp.Expr, depth: int) -> Expression:
        """Return the checked form of a node that is nested in `depth` others."""

    def condition(self, node: exp.Expr, depth: int) -> Expression:
        """Return the checked form of a node that must be true or false."""


def function(checker: Checker, node: exp.Expr, depth: int) -> Expression:
    """Return a call of a function of the table of functions."""
    operands: Sequence[exp.Expr]
    if isinstance(node, exp.Anonymous):
        name, operands = str(node.this).lower(), node.expressions
    else:
        name = _FUNCTION_NAMES[type(node)]
        operands = [part for part in map(node.args.get, _ARGUMENTS) if part]
    if isinstance(node, exp.Trim):
        name = _TRIMS[str(node.args.get("position") or "")]
    if name not in FUNCTIONS:
        raise InvalidRequestError(
            f"there is no function {name!r} in conditions",
            hint="functions: " + ", ".join(sorted(FUNCTIONS)),
        )
    known = FUNCTIONS[name]
    checked = [checker.check(operand, depth + 1) for operand in operands]
    wanted = known.takes[: max(len(checked), len(known.takes) - known.optional)]
    check_types(node, checked, wanted)
    for at in known.numbers:
        if at == len(checked):
            break
        number = checked[at]
        if not isinstance(number, Literal) or not isinstance(number.value, int):
            raise InvalidRequestError(f"{show_node(node)}: argument {at + 1} must be a number")
        if number.value < known.least:
            raise InvalidRequestError(
                f"{show_node(node)}: argument {at + 1} must be at least {known.least}"
            )
    return Call(name, tuple(checked), known.result)


def is_nan(checker: Checker, node: exp.Expr, depth: int) -> Expression:
    """Return ``isnan(a)`` as ``a = 'NaN'``: all NaN are equal."""
    value = checker.check(node.this, depth + 1)
    if value.type not in FLOATS:
        raise InvalidRequestError(f"{show_node(node)} is for floats, not {show_type(value.type)}")
    nan = coerce_literal(node, Literal("NaN", Primitive.STRING), value.type)
    return Call("=", (value, nan), Primitive.BOOLEAN)


def concat(checker: Checker, node: exp.Expr, depth: int) -> Expression:
    """Return ``a || b``, which is null if a part is, or ``concat(a, b)``, which leaves nulls
    out.
    """
    is_pipe = isinstance(node, exp.DPipe)
    operands = [node.this, node.expression] if is_pipe else node.expressions
    check_count(node, operands)
    parts = [checker.check(operand, depth + 1) for operand in operands]
    check_types(node, parts, [Primitive.STRING] * len(parts))
    return Call("||" if is_pipe else "concat", tuple(parts), Primitive.STRING)


def cast(checker: Checker, node: exp.Expr, depth: int) -> Expression:
    """Return a value as another type; a constant time at once."""
    assert isinstance(node, exp.Cast)
    if is_typed(node):
        return parse_literal(node)
    kind = target_type(node.to)
    inner = checker.check(node.this, depth + 1)
    if isinstance(inner, Literal):
        if is_time(inner.type) and is_time(kind) and (time := cast_time(inner, kind)):
            return time
        if inner.type in (Primitive.STRING, Primitive.LONG, Primitive.DOUBLE):
            return _constant(node, inner, kind)
    may_fail = isinstance(node, exp.TryCast)
    if not can_cast(inner.type, kind, may_fail=may_fail):
        raise refused_cast(show_node(node), inner.type, kind)
    return Call("TRY_CAST" if may_fail else "CAST", (inner,), kind)


def _constant(node: exp.Expr, inner: Literal, kind: FieldType) -> Expression:
    """Return a constant number or text as a constant of another type."""
    if kind is Primitive.STRING and inner.type is not Primitive.DOUBLE:
        return Literal(str(inner.value), kind)
    is_float = isinstance(inner.value, float) and kind not in FLOATS
    if is_float or kind in (Primitive.BOOLEAN, Primitive.STRING):
        raise InvalidRequestError(
            f"{show_node(node)}: that constant cannot be cast", hint="write the value itself"
        )
    found = coerce_literal(node, inner, kind)
    if kind is Primitive.FLOAT:
        return _single(node, found)
    if kind is Primitive.INT and not -(2**31) <= int(found.value) < 2**31:
        raise InvalidRequestError(f"{show_node(node)}: the number is beyond 32 bits")
    if isinstance(kind, DecimalType) and found.type != kind:
        digits = found.type
        assert isinstance(digits, DecimalType)
        if not can_cast(digits, kind, may_fail=False):
            raise InvalidRequestError(f"{show_node(node)}: the number has more digits")
    return found


def _single(node: exp.Expr, number: Literal) -> Literal:
    """Return a number as the double that the nearest float of 32 bits is."""
    value = float(number.value)
    try:
        (nearest,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError as error:
        raise InvalidRequestError(f"{show_node(node)}: the number is beyond 32 bits") from error
    return number if math.isnan(value) else Literal(nearest + 0.0, Primitive.DOUBLE)


def choice(checker: Checker, node: exp.Expr, depth: int) -> Expression:
    """Return ``coalesce`` or ``nullif``."""
    if isinstance(node, exp.Nullif):
        name, operands = "nullif", [node.this, node.expression]
    else:
        name, operands = "coalesce", [node.this, *node.expressions]
    check_count(node, operands)
    checked = alike(node, [checker.check(operand, depth + 1) for operand in operands])
    _refuse_times(node, checked)
    return Call(name, tuple(checked), checked[0].type if name == "nullif" else common(checked))


def case(checker: Checker, node: exp.Expr, depth: int) -> Expression:
    """Return ``CASE``; one that compares a value is one that tests conditions."""
    whens = node.args["ifs"]
    check_count(node, whens)
    tests = []
    for when in whens:
        test = when.this if node.this is None else exp.EQ(this=node.this, expression=when.this)
        tests.append(checker.condition(test, depth + 1))
    results = [when.args["true"] for when in whens]
    if (rest := node.args.get("default")) and not isinstance(rest, exp.Null):
        results.append(rest)
    values = alike(node, [checker.check(result, depth + 1) for result in results])
    _refuse_times(node, values)
    arguments = [each for pair in zip(tests, values, strict=False) for each in pair]
    return Call("CASE", (*arguments, *values[len(tests) :]), common(values))


def _refuse_times(node: exp.Expr, values: Sequence[Expression]) -> None:
    """Refuse a choice of nothing but constant times, which have no one type by themselves."""
    if all(isinstance(value, Literal) for value in values) and values[0].type in TIMESTAMPS:
        raise InvalidRequestError(f"{show_node(node)}: one of the times must be of a column")


def extract(checker: Checker, node: exp.Expr, depth: int) -> Expression:
    """Return a part of a time."""
    part = node.this.name.upper()
    if part not in DATE_PARTS:
        raise InvalidRequestError(
            f"{show_node(node)}: {part} cannot be extracted",
            hint="parts: " + ", ".join(DATE_PARTS),
        )
    time = checker.check(node.expression, depth + 1)
    has_clock = time.type is Primitive.TIME and part in ("HOUR", "MINUTE")
    if not is_time(time.type) and not has_clock:
        raise InvalidRequestError(f"{show_node(node)} extracts from {show_type(time.type)}")
    return Call(f"EXTRACT {part}", (time,), Primitive.LONG)


def truncation(checker: Checker, node: exp.Expr, depth: int) -> Expression:
    """Return the beginning of the unit that a time lies in."""
    unit = node.args["unit"].name.lower()
    if unit not in TRUNCATED:
        raise InvalidRequestError(
            f"{show_node(node)}: times cannot be cut to {unit!r}", hint=", ".join(TRUNCATED)
        )
    time = checker.check(node.this, depth + 1)
    if not is_time(time.type):
        raise InvalidRequestError(f"{show_node(node)}: {show_type(time.type)} is no time")
    if isinstance(time, Literal):
        constant = cast_time(time, Primitive.TIMESTAMP) or time
        assert isinstance(constant.value, int)
        return Literal(truncated(constant.value, constant.type, unit), constant.type)
    kind = Primitive.TIMESTAMP_NTZ_NS if time.type is Primitive.DATE else time.type
    return _calculated(node, Call("date_trunc", (Literal(unit, Primitive.STRING), time), kind))


def interval_sum(
    checker: Checker, node: exp.Expr, time: exp.Expr, interval: exp.Interval, depth: int
) -> Expression:
    """Return a time, moved by an interval: forward for a sum, backward for a difference."""
    by = _interval(interval)
    by = by.negated() if isinstance(node, exp.Sub) else by
    base = checker.check(time, depth + 1)
    if not is_time(base.type):
        raise InvalidRequestError(
            f"{show_node(node)}: {show_type(base.type)} and an interval cannot be added",
            hint="intervals are added to timestamps and dates",
        )
    if base.type is Primitive.DATE and by.microseconds:
        raise InvalidRequestError(f"{show_node(node)}: a date is moved by whole days and months")
    if isinstance(base, Literal):
        assert isinstance(base.value, int)
        return Literal(shifted(base.value, base.type, by), base.type)
    return _calculated(node, Call("SHIFT", (base, Literal(str(by), Primitive.STRING)), base.type))


def _interval(node: exp.Interval) -> Interval:
    if not isinstance(node.this, exp.Literal) or isinstance(node.unit, exp.IntervalSpan):
        raise InvalidRequestError(
            f"{show_node(node)}: an interval is a constant", hint="write INTERVAL '1 day'"
        )
    return parse_interval(f"{node.this.name} {node.unit.name if node.unit else ''}")


def _calculated(node: exp.Expr, call: Call) -> Expression:
    if _time_depth(call) > _MAX_CALCULATED_TIMES:
        raise InvalidRequestError(
            f"{show_node(node)}: calculations with times are nested deeper than "
            f"{_MAX_CALCULATED_TIMES}",
            hint="add one interval, as INTERVAL '1 month 2 days'",
        )
    return call


def _time_depth(expression: Expression) -> int:
    if not isinstance(expression, Call):
        return 0
    inner = max((_time_depth(argument) for argument in expression.arguments), default=0)
    return inner + (expression.op in ("SHIFT", "date_trunc") or expression.type is Primitive.DATE)


def now(checker: Checker, node: exp.Expr, depth: int) -> Expression:
    """Return the present time, or the present day in UTC: that of the selection."""
    if checker.now_ms is None:
        raise InvalidRequestError(
            f"{show_node(node)}: a condition that is stored, and evaluated again later, has no "
            "present time",
            hint="a table's rows age by the filter ageOff; elsewhere write the time itself",
        )
    if isinstance(node, exp.CurrentDate):
        return Literal(checker.now_ms // 86_400_000, Primitive.DATE)
    return Literal(checker.now_ms * 1000, Primitive.TIMESTAMP_NTZ)


def folded(op: str, both: Sequence[Expression]) -> Literal | None:
    """Return a calculation with two whole numbers; None if there are columns, or the result has
    more than 64 bits.
    """
    left, right = both
    if not isinstance(left, Literal) or not isinstance(right, Literal):
        return None
    a, b = left.value, right.value
    if type(a) is not int or type(b) is not int or op not in "+-*":
        return None
    result = a + b if op == "+" else a - b if op == "-" else a * b
    return Literal(result, Primitive.LONG) if INT64_MIN <= result <= INT64_MAX else None


def check_count(node: exp.Expr, values: Sequence[object]) -> None:
    """Refuse a list or a chain with too many parts.

    Raises:
        InvalidRequestError: it has.
    """
    if len(values) > MAX_LIST:
        raise InvalidRequestError(
            f"{show_node(node)} has {len(values):,} parts; at most {MAX_LIST:,} are allowed"
        )


FUNCTION_NODES = (*_FUNCTION_NAMES, exp.Anonymous)
