"""Functions, casts, CASE, and calculations with times, as checked expressions; used by `parser`.

What has only constants is calculated here, so that conditions such as ``seen >= now() - INTERVAL
'1 day'`` bound keys.
"""

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dormouse.errors import InvalidRequestError
from dormouse.keys import INT64_MAX, INT64_MIN
from dormouse.schema.row_tags import tag_in
from dormouse.schema.schema import TAGS
from dormouse.schema.types import (
    FLOATS,
    TIMESTAMPS,
    WHOLE,
    DecimalType,
    FieldType,
    Primitive,
    show_type,
)
from dormouse.sql.conditions import (
    DATE_PARTS,
    MAX_LIST,
    TRUNCATED,
    Call,
    Column,
    Expression,
    Interval,
    Literal,
    has_words,
    is_time,
    shifted,
    truncated,
)
from dormouse.sql.operands import (
    IN_DOCUMENTS,
    alike,
    calculated,
    cast_time,
    check_types,
    coerce_literal,
    common,
    text_as_time,
    text_of,
)

# Which types a condition can cast between.
#
# CAST is allowed where it cannot fail on any row; TRY_CAST, which makes NULL of what cannot be
# converted, also elsewhere. Texts are not made of floating numbers, which each engine writes in its
# own way.

_TYPES: Mapping[str, FieldType] = {
    **dict.fromkeys(("BOOLEAN", "BOOL"), Primitive.BOOLEAN),
    **dict.fromkeys(("INT", "INTEGER", "INT4"), Primitive.INT),
    **dict.fromkeys(("BIGINT", "INT8"), Primitive.LONG),
    **dict.fromkeys(("REAL", "FLOAT", "FLOAT4"), Primitive.FLOAT),
    **dict.fromkeys(("DOUBLE", "DOUBLE PRECISION", "FLOAT8"), Primitive.DOUBLE),
    **dict.fromkeys(("TEXT", "VARCHAR", "STRING"), Primitive.STRING),
    "DATE": Primitive.DATE,
    "TIME": Primitive.TIME,
    "UUID": Primitive.UUID,
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMPTZ"), Primitive.TIMESTAMP),
    "TIMESTAMP WITH TIME ZONE": Primitive.TIMESTAMP,
    "TIMESTAMP WITHOUT TIME ZONE": Primitive.TIMESTAMP,
}
_TYPE_NAMES = "BOOLEAN, INT, BIGINT, REAL, DOUBLE, DECIMAL(p, s), TEXT, DATE, TIMESTAMP"
OF_TEXT = (Primitive.DATE, Primitive.TIME, Primitive.TIMESTAMP, Primitive.UUID)
"""The types of literals such as ``DATE '2026-01-31'``."""
_DIGITS = {Primitive.BOOLEAN: 1, Primitive.INT: 10, Primitive.LONG: 19}
_NUMBERS = frozenset({*WHOLE, *FLOATS, Primitive.BOOLEAN})
_TEXTUAL = frozenset({*WHOLE, Primitive.BOOLEAN, Primitive.DATE, *TIMESTAMPS})


def type_named(name: str, sizes: Sequence[str]) -> FieldType:
    """Return the type that a condition casts to, of its words and of the numbers in its brackets.
    Raises InvalidRequestError: conditions have no such type.
    """
    if name in ("DECIMAL", "NUMERIC") and 1 <= len(sizes) <= 2 and all(map(str.isdigit, sizes)):
        return DecimalType(int(sizes[0]), int(sizes[1]) if len(sizes) > 1 else 0)
    if name not in _TYPES or sizes:
        text = f"{name}({', '.join(sizes)})" if sizes else name
        raise InvalidRequestError(
            f"{text} is no type that conditions cast to", hint=f"types: {_TYPE_NAMES}"
        )
    return _TYPES[name]


def can_cast(source: FieldType, target: FieldType, *, may_fail: bool) -> bool:
    """Return whether values of a type can be cast to another; with `may_fail`, if not all can."""
    if source == target:
        return True
    if source is Primitive.DYNAMIC:  # what is of another type is null
        return target in IN_DOCUMENTS
    if isinstance(target, DecimalType):
        whole = target.precision - target.scale  # the digits before the point
        if isinstance(source, DecimalType):
            widens = target.scale >= source.scale and whole >= source.precision - source.scale
            return may_fail or widens
        if source in WHOLE:
            return may_fail or whole >= _DIGITS[Primitive(source)]
        return may_fail and source in (Primitive.DOUBLE, Primitive.STRING)
    if isinstance(source, DecimalType):
        return target in FLOATS or target is Primitive.STRING or (may_fail and target in WHOLE)
    if target is Primitive.STRING:
        return source in _TEXTUAL
    if target is Primitive.DATE:
        return source in TIMESTAMPS or (may_fail and source is Primitive.STRING)
    if target is Primitive.TIMESTAMP_NTZ_NS:
        return may_fail and (source in (*TIMESTAMPS, Primitive.DATE, Primitive.STRING))
    return _is_number_cast(source, target, may_fail=may_fail)


def _is_number_cast(source: FieldType, target: FieldType, *, may_fail: bool) -> bool:
    if target not in _NUMBERS or source not in (*_NUMBERS, Primitive.STRING):
        return False
    if source is Primitive.STRING or (source in FLOATS and target in WHOLE):
        return may_fail
    if Primitive.BOOLEAN in (source, target):
        return source in WHOLE or target in WHOLE
    return may_fail or (source, target) != (Primitive.LONG, Primitive.INT)


def cast(inner: Expression, kind: FieldType, *, is_text: bool, may_fail: bool) -> Expression:
    """Return a value as another type; a constant at once. `is_text` says that it is a text as it
    was written.
    Raises InvalidRequestError: it cannot be cast; or not every such value can, and none may fail.
    """
    if is_text and kind in OF_TEXT:
        assert isinstance(inner, Literal)
        return text_as_time(str(inner.value), kind)
    if kind in (Primitive.TIME, Primitive.UUID):
        raise InvalidRequestError(
            f"only a text in quotes is cast to {show_type(kind)}", hint=f"types: {_TYPE_NAMES}"
        )
    if kind is Primitive.TIMESTAMP:
        kind = Primitive.TIMESTAMP_NTZ_NS
    if isinstance(inner, Literal):
        if is_time(inner.type) and is_time(kind) and (time := cast_time(inner, kind)):
            return time
        if inner.type in (Primitive.STRING, Primitive.LONG, Primitive.DOUBLE):
            return _constant(inner, kind)
    name = show_type(inner.type)
    if not can_cast(inner.type, kind, may_fail=True):
        raise InvalidRequestError(f"{name} cannot be cast to that in a condition")
    if not (may_fail or can_cast(inner.type, kind, may_fail=False)):
        hint = "TRY_CAST makes NULL of those that cannot"
        raise InvalidRequestError(f"not every {name} can be cast", hint=hint)
    return Call("TRY_CAST" if may_fail else "CAST", (inner,), kind)


def _constant(inner: Literal, kind: FieldType) -> Expression:
    """Return a constant number or text as a constant of another type."""
    if kind is Primitive.STRING and inner.type is not Primitive.DOUBLE:
        return Literal(str(inner.value), kind)
    is_float = isinstance(inner.value, float) and kind not in FLOATS
    if is_float or kind in (Primitive.BOOLEAN, Primitive.STRING):
        raise InvalidRequestError("that constant cannot be cast", hint="write the value itself")
    literal = coerce_literal(inner, kind)
    if kind is Primitive.FLOAT:
        return _single(literal)
    if kind is Primitive.INT and not -(2**31) <= int(literal.value) < 2**31:
        raise InvalidRequestError("the number is beyond 32 bits")
    if isinstance(kind, DecimalType) and not can_cast(literal.type, kind, may_fail=False):
        raise InvalidRequestError("the number has more digits")
    return literal


def _single(number: Literal) -> Literal:
    """Return a number as the double that the nearest float of 32 bits is."""
    value = float(number.value)
    try:
        (nearest,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError as error:
        raise InvalidRequestError("the number is beyond 32 bits") from error
    return number if math.isnan(value) else Literal(nearest + 0.0, Primitive.DOUBLE)


# The functions of conditions: their arguments, their results, and what keeps them from failing.
#
# A function is listed if it is cheap, cannot fail on any row, and is as DataFusion has it.

_TEXT, _WHOLE, _TRUTH = Primitive.STRING, Primitive.LONG, Primitive.BOOLEAN


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
    **dict.fromkeys(
        ("lower", "upper", "trim", "ltrim", "rtrim", "reverse"), Function((_TEXT,), _TEXT)
    ),
    **dict.fromkeys(("length", "octet_length"), Function((_TEXT,), _WHOLE)),
    "strpos": Function((_TEXT, _TEXT), _WHOLE),
    **dict.fromkeys(("starts_with", "ends_with", "contains"), Function((_TEXT, _TEXT), _TRUTH)),
    **dict.fromkeys(
        ("left", "right"), Function((_TEXT, _WHOLE), _TEXT, numbers=(1,), least=-INT64_MAX)
    ),
    "substr": Function((_TEXT, _WHOLE, _WHOLE), _TEXT, optional=1, numbers=(1, 2)),
    "split_part": Function((_TEXT, _TEXT, _WHOLE), _TEXT, numbers=(2,), least=1),
}


_MAX_CALCULATED_TIMES = 3
"""How deeply calculations with times may be nested; the engine tests each for overflow first."""


def call(name: str, arguments: Sequence[Expression]) -> Expression:
    """Return a call of a function, which `SPECIAL` or `FUNCTIONS` has.
    Raises InvalidRequestError: there is no such function, or it is for other arguments.
    """
    check_count(arguments)
    if name in SPECIAL:
        fewest, most, make = SPECIAL[name]
        if not fewest <= len(arguments) <= most:
            raise InvalidRequestError(f"{name} has {len(arguments)} arguments")
        return make(arguments)
    arguments = [*map(text_of, arguments)]
    if name not in FUNCTIONS:
        raise InvalidRequestError(
            f"there is no function {name!r} in conditions", hint=f"functions: {NAMES}"
        )
    function = FUNCTIONS[name]
    kinds = function.takes[: max(len(arguments), len(function.takes) - function.optional)]
    check_types(arguments, kinds)
    for at in function.numbers:
        if at == len(arguments):
            break
        number = arguments[at]
        if not isinstance(number, Literal) or not isinstance(number.value, int):
            raise InvalidRequestError(f"argument {at + 1} must be a number")
        if number.value < function.least:
            raise InvalidRequestError(f"argument {at + 1} must be at least {function.least}")
    return Call(name, tuple(arguments), function.result)


def _is_nan(arguments: Sequence[Expression]) -> Expression:
    """Return ``isnan(a)`` as ``a = 'NaN'``: all NaN are equal."""
    (value,) = arguments
    if value.type not in FLOATS:
        raise InvalidRequestError(f"it is for floats, not {show_type(value.type)}")
    nan = coerce_literal(Literal("NaN", Primitive.STRING), value.type)
    return Call("=", (value, nan), Primitive.BOOLEAN)


def _json_kind(arguments: Sequence[Expression]) -> Expression:
    """Return what JSON calls a value in a document: null is one, and nothing is null."""
    check_types(arguments, [Primitive.DYNAMIC])
    return Call("json_kind", tuple(arguments), Primitive.STRING)


def _has(arguments: Sequence[Expression]) -> Expression:
    """Return whether a text holds some words, in whatever case, and not as parts of longer ones."""
    text, word = (text_of(each) for each in arguments)
    check_types([text, word], [Primitive.STRING, Primitive.STRING])
    if not isinstance(word, Literal) or not has_words(str(word.value)):
        raise InvalidRequestError(
            "what has() looks for is a text in quotes with a letter or a digit",
            hint="write has(message, 'refused'), or contains(message, '--') for any characters",
        )
    return Call("has", (text, word), Primitive.BOOLEAN)


def concat(parts: Sequence[Expression], op: str = "concat") -> Expression:
    """Return ``a || b``, which is null if a part is, or ``concat(a, b)``, which leaves nulls
    out.
    """
    parts = [*map(text_of, parts)]
    check_types(parts, [Primitive.STRING] * len(parts))
    return Call(op, tuple(parts), Primitive.STRING)


def _coalesce(arguments: Sequence[Expression]) -> Expression:
    operands = _choice(arguments)
    return Call("coalesce", tuple(operands), common(operands))


def _nullif(arguments: Sequence[Expression]) -> Expression:
    operands = _choice(arguments)
    return Call("nullif", tuple(operands), operands[0].type)


def case(tests: Sequence[Expression], results: Sequence[Expression]) -> Expression:
    """Return ``CASE``; the last of `results` is that of all other rows, if there is one more."""
    check_count(tests)
    values = _choice(results)
    arguments = [each for pair in zip(tests, values, strict=False) for each in pair]
    return Call("CASE", (*arguments, *values[len(tests) :]), common(values))


def _choice(values: Sequence[Expression]) -> list[Expression]:
    """Return values of one type, of which one is chosen; not nothing but constant times, which have
    no one type by themselves.
    """
    operands = alike(values)
    if all(isinstance(value, Literal) for value in operands) and operands[0].type in TIMESTAMPS:
        raise InvalidRequestError("one of the times must be of a column")
    return operands


def extract(part: str, time: Expression) -> Expression:
    """Return a part of a time."""
    if part not in DATE_PARTS:
        raise InvalidRequestError(
            f"{part} cannot be extracted", hint="parts: " + ", ".join(DATE_PARTS)
        )
    has_clock = time.type is Primitive.TIME and part in ("HOUR", "MINUTE")
    if not is_time(time.type) and not has_clock:
        raise InvalidRequestError(f"it extracts from {show_type(time.type)}")
    return Call(f"EXTRACT {part}", (time,), Primitive.LONG)


def _truncation(arguments: Sequence[Expression]) -> Expression:
    """Return the beginning of the unit that a time lies in."""
    first, time = arguments
    unit = str(first.value).lower() if isinstance(first, Literal) else ""
    if unit not in TRUNCATED:
        raise InvalidRequestError(f"times cannot be cut to {unit!r}", hint=", ".join(TRUNCATED))
    if not is_time(time.type):
        raise InvalidRequestError(f"{show_type(time.type)} is no time")
    if isinstance(time, Literal):
        constant = cast_time(time, Primitive.TIMESTAMP) or time
        assert isinstance(constant.value, int)
        return Literal(truncated(constant.value, constant.type, unit), constant.type)
    kind = Primitive.TIMESTAMP_NTZ_NS if time.type is Primitive.DATE else time.type
    return _calculated(Call("date_trunc", (Literal(unit, Primitive.STRING), time), kind))


def moved(time: Expression, by: Interval) -> Expression:
    """Return a time, moved by an interval."""
    if not is_time(time.type):
        raise InvalidRequestError(
            f"{show_type(time.type)} and an interval cannot be added",
            hint="intervals are added to timestamps and dates",
        )
    if time.type is Primitive.DATE and by.microseconds:
        raise InvalidRequestError("a date is moved by whole days and months")
    if isinstance(time, Literal):
        assert isinstance(time.value, int)
        return Literal(shifted(time.value, time.type, by), time.type)
    return _calculated(Call("SHIFT", (time, Literal(str(by), Primitive.STRING)), time.type))


def _calculated(call: Call) -> Expression:
    if _time_depth(call) > _MAX_CALCULATED_TIMES:
        raise InvalidRequestError(
            f"calculations with times are nested deeper than {_MAX_CALCULATED_TIMES}",
            hint="add one interval, as INTERVAL '1 month 2 days'",
        )
    return call


def _time_depth(expression: Expression) -> int:
    if not isinstance(expression, Call):
        return 0
    inner = max((_time_depth(argument) for argument in expression.arguments), default=0)
    return inner + (expression.op in ("SHIFT", "date_trunc") or expression.type is Primitive.DATE)


def now(kind: Primitive, now_ms: int | None) -> Expression:
    """Return the present time, or the present day in UTC: that of the selection."""
    if now_ms is None:
        raise InvalidRequestError(
            "a condition that is stored, and evaluated again later, has no present time",
            hint="a table's rows age by the filter ageOff; elsewhere write the time itself",
        )
    return Literal(now_ms // 86_400_000 if kind is Primitive.DATE else now_ms * 1000, kind)


def tag(arguments: Sequence[Expression], of_rows: bool) -> Expression:
    """Return the value of a row tag, which is null where a row has none of that key."""
    if not of_rows:
        raise InvalidRequestError(
            "row tags are not known here",
            hint="queries, exports, deletions and SQL can ask for them",
        )
    key = arguments[0] if len(arguments) == 1 else None
    is_text = isinstance(key, Literal) and isinstance(key.value, str)
    if not isinstance(key, Literal) or not is_text or tag_in(str(key.value), "-") is None:
        raise InvalidRequestError("it takes the key of a row tag", hint="write tag('day')")
    return Call("tag", (Column(TAGS.name, TAGS.type), key), Primitive.STRING)


def arithmetic(op: str, operands: Sequence[Expression]) -> Expression:
    """Return a calculation; that of two whole numbers at once, if it has no more than 64 bits."""
    both = alike(operands)
    values = [each.value for each in both if isinstance(each, Literal) and type(each.value) is int]
    if len(values) == 2 and op in "+-*":
        a, b = map(int, values)
        result = a + b if op == "+" else a - b if op == "-" else a * b
        if INT64_MIN <= result <= INT64_MAX:
            return Literal(result, Primitive.LONG)
    return calculated(op, both)


def check_count(values: Sequence[object]) -> None:
    """Refuse a list or a chain with too many parts. Raises InvalidRequestError: it has."""
    if len(values) > MAX_LIST:
        raise InvalidRequestError(
            f"there are {len(values):,} parts; at most {MAX_LIST:,} are allowed"
        )


_MAKE = Callable[[Sequence[Expression]], Expression]
SPECIAL: Mapping[str, tuple[int, int, _MAKE]] = {
    "coalesce": (1, MAX_LIST, _coalesce),
    "concat": (1, MAX_LIST, concat),
    "date_trunc": (2, 2, _truncation),
    "has": (2, 2, _has),
    "isnan": (1, 1, _is_nan),
    "json_kind": (1, 1, _json_kind),
    "nullif": (2, 2, _nullif),
}
"""Functions with rules of their own: the least and the greatest number of their arguments."""
NAMES = ", ".join(sorted({*FUNCTIONS, *SPECIAL, "extract", "now", "current_date"}))
