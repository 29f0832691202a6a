"""Conditions on rows: which rows match. People write them in SQL, and code makes them."""

from __future__ import annotations

import calendar
import datetime as dt
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

from dormouse.errors import InvalidRequestError
from dormouse.schema import types
from dormouse.schema.schema import Schema
from dormouse.schema.types import Primitive

# Expressions on rows: checked trees of columns, literals and operators, and rendering as normal
# SQL.
#
# Of the text that somebody wrote, only names of columns of the schema and literals reach a tree. An
# operator that is not in the tables below cannot be in one. Types are checked, so that evaluating a
# tree never fails. `parser` builds trees from text, and `rows.predicates` evaluates them.

MAX_CONDITION_CHARACTERS = 16 * 1024
"""The most characters of a condition."""
MAX_CONDITION_DEPTH = 16
"""How deeply a condition may be nested."""
MAX_BRACKETS = 2 * MAX_CONDITION_DEPTH
"""The most brackets that may be open at once. Some do not nest, but the parser recurses into
each."""
MAX_PATTERN = 1_000
"""The most characters of a LIKE or ILIKE pattern. The engine builds an automaton from it: it
refuses a pattern of 11,000 characters, and one of 1,000 takes up to 4 CPU seconds per MB of
text."""
MAX_PATH = 100
"""The most steps of a path into a document, none of which nests deeper."""
MAX_LIST = 1_000
"""The most values of an IN list, and the most terms of one chain of AND or OR."""

ARITHMETIC = ("+", "-", "*", "/", "%")
TESTS = ("IS NULL", "IS TRUE", "IS FALSE")
CASTS = ("CAST", "TRY_CAST")
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""What a comparison becomes if its sides change places."""
DATE_PARTS = ("YEAR", "QUARTER", "MONTH", "DAY", "DOW", "DOY", "HOUR", "MINUTE")
"""The parts that EXTRACT can take from a timestamp, in UTC, or from a date."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table."""

    name: str
    type: types.FieldType


@dataclass(frozen=True, slots=True)
class Literal:
    """A value. A timestamp is microseconds and a date days since 1970."""

    value: bool | int | float | Decimal | str | bytes
    type: types.FieldType


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or function applied to arguments; the name of ``EXTRACT`` includes the part.

    ``FIELD``, ``ELEMENT`` and ``VALUE`` take a member of a struct, an element of a list and a value
    of a map; their second argument is the literal in the brackets. ``PATH`` takes a part of a JSON
    document; the arguments after the first are the names and places that lead to it. ``SHIFT`` adds
    an interval,
    which is a text, to a time. ``CASE`` alternates conditions and values, and may end with one
    value more, for all other rows. ``CAST`` converts to the type that it has. ``tag`` takes the
    value of a key from the row tags of a row.
    """

    op: str
    arguments: tuple[Expression, ...]
    type: types.FieldType


Expression: TypeAlias = "Column | Literal | Call"


def truth(op: str, *arguments: Expression) -> Call:
    """Return a call that is true, false or null."""
    return Call(op, arguments, types.Primitive.BOOLEAN)


def depth(expression: Expression) -> int:
    """Return how deeply an expression is nested: 0 for a column or literal."""
    if not isinstance(expression, Call):
        return 0
    return 1 + max((depth(argument) for argument in expression.arguments), default=0)


def render(
    expression: Expression,
    leaf: Callable[[Column | Literal], str],
    finish: Callable[[Call, list[str]], str] | None = None,
) -> str:
    """Return an expression as SQL. `leaf` renders columns and literals, `finish` renders calls."""
    if not isinstance(expression, Call):
        return leaf(expression)
    parts = [render(argument, leaf, finish) for argument in expression.arguments]
    return finish(expression, parts) if finish else call_sql(expression, parts)


def call_sql(call: Call, parts: list[str]) -> str:
    """Return a call as SQL; `parts` are its rendered arguments."""
    op = call.op
    if op == "IN":
        return f"({parts[0]} IN ({', '.join(parts[1:])}))"
    if op == "NOT":
        return f"(NOT {parts[0]})"
    if op in TESTS:
        return f"({parts[0]} {op})"
    if op.startswith("EXTRACT "):
        return f"EXTRACT({op.removeprefix('EXTRACT ')} FROM {parts[0]})"
    if op in CASTS:
        return f"{op}({parts[0]} AS {sql_type(call.type)})"
    if op in ("FIELD", "ELEMENT", "VALUE"):
        return f"{parts[0]}[{parts[1]}]"
    if op == "PATH":
        return parts[0] + "".join(f"[{step}]" for step in parts[1:])
    if op == "SHIFT":
        return f"({parts[0]} + INTERVAL {parts[1]})"
    if op == "CASE":  # conditions and values, and perhaps one value more
        whens = [f"WHEN {a} THEN {b}" for a, b in zip(parts[::2], parts[1::2], strict=False)]
        last = [f"ELSE {parts[-1]}"] if len(parts) % 2 else []
        return f"(CASE {' '.join([*whens, *last])} END)"
    if op == "tag":
        return f"tag({parts[1]})"
    if op.islower():
        return f"{op}({', '.join(parts)})"
    return f"({f' {op} '.join(parts)})"


_SQL_TYPES: dict[types.FieldType, str] = {
    types.Primitive.BOOLEAN: "BOOLEAN",
    types.Primitive.INT: "INT",
    types.Primitive.LONG: "BIGINT",
    types.Primitive.FLOAT: "REAL",
    types.Primitive.DOUBLE: "DOUBLE",
    types.Primitive.STRING: "TEXT",
    types.Primitive.DATE: "DATE",
    types.Primitive.TIMESTAMP_NTZ_NS: "TIMESTAMP",
}


def sql_type(kind: types.FieldType) -> str:
    """Return the name of a type that values can be cast to."""
    if isinstance(kind, types.DecimalType):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return _SQL_TYPES[kind]


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(value: str) -> str:
    """Return text as an SQL literal."""
    return "'" + value.replace("'", "''") + "'"


def common_type(left: types.FieldType, right: types.FieldType) -> types.FieldType | None:
    """Return the type in which values of both types compare exactly; None if there is none.

    Two decimals need all the digits that either has on each side of the point: decimal(10, 2) and
    decimal(6, 4) compare as decimal(12, 4). Whole and floating numbers have no common type, since a
    double cannot hold every 64-bit integer.
    """
    if left == right:
        return left
    if isinstance(left, types.DecimalType) and isinstance(right, types.DecimalType):
        scale = max(left.scale, right.scale)
        precision = max(left.precision - left.scale, right.precision - right.scale) + scale
        return types.DecimalType(precision, scale) if precision <= 38 else None
    for narrow, wide in (types.WHOLE, types.FLOATS):
        if {left, right} == {wide, narrow}:
            return wide
    return None


def parts_of(expression: Expression) -> Iterator[Expression]:
    """Yield an expression and all within it."""
    yield expression
    if isinstance(expression, Call):
        for argument in expression.arguments:
            yield from parts_of(argument)


def columns_of(expression: Expression) -> set[str]:
    """Return the names of the columns in an expression."""
    return {each.name for each in parts_of(expression) if isinstance(each, Column)}


def leaf_sql(leaf: Column | Literal) -> str:
    """Return a column or literal as SQL."""
    if isinstance(leaf, Column):
        return quoted(leaf.name)
    match leaf.type, leaf.value:
        case types.Primitive() as kind, int(count) if kind in types.TIMESTAMPS:
            # without its zone: the column that it is compared with says whether it is UTC
            text = types.show_count(count, kind).removesuffix("+00:00")
            return f"TIMESTAMP '{text.replace('T', ' ')}'"
        case types.Primitive.TIME, int(clock):
            return f"TIME '{types.show_clock(clock)}'"
        case types.Primitive.DATE, int(days):
            return f"DATE '{types.from_days(days)}'"
        case types.Primitive.UUID, bytes(uuid):
            return f"UUID '{types.show_uuid(uuid)}'"
        case _, bytes(value):
            return f"X'{value.hex()}'"
        case _, bool(value):
            return str(value).upper()
        case _, str(value):
            return text_literal(value)
        case _, float(value) if not math.isfinite(value):
            word = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
            return f"CAST('{word}' AS DOUBLE)"
        case _, value:
            return f"{value:f}" if isinstance(value, Decimal) else repr(value)


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a row. A row matches if the condition is true of it; not if it is false or
    null.
    """

    expression: Expression

    @property
    def columns(self) -> frozenset[str]:
        """The names of the columns that it reads."""
        return frozenset(columns_of(self.expression))

    @property
    def sql(self) -> str:
        """The normal form: SQL that parses to the same condition, the same for equal conditions."""
        return render(self.expression, leaf_sql)

    def negated(self) -> Condition:
        """Return the condition that matches exactly the rows that this one does not match."""
        return Condition(truth("NOT", truth("IS TRUE", self.expression)))

    def and_also(self, other: Condition) -> Condition:
        """Return the condition that matches the rows that match both."""
        return Condition(truth("AND", self.expression, other.expression))


def parse_condition(
    text: str, schema: Schema, *, now_ms: int | None = None, of_rows: bool = False
) -> Condition:
    """Parse an SQL condition on the columns of `schema`; `of_rows`, also on row tags and on where
    rows come from.

    `now()` is `now_ms` for good: the normal form has that time. Without `now_ms` it is refused.
    Raises InvalidRequestError: it is not a condition, names an unknown column or function, uses
    what is not allowed, or its types do not fit. The message says where and why.
    """
    from dormouse.sql import parser  # most processes never see a condition

    return Condition(parser.parse(text, schema, now_ms, of_rows=of_rows))


def greater_than(column: Column, value: int) -> Condition:
    """Return the condition that a column of whole numbers is greater than `value`."""
    return Condition(truth(">", column, Literal(value, column.type)))


# Intervals and truncated times of conditions: how text means them, and calculation with constants.
#
# An interval has months, days and microseconds, which are added in this order, as DataFusion does.

_PART = re.compile(r"\s*([+-]?\d{1,12}(?:\.\d{1,6})?)\s*([a-z]+)", re.IGNORECASE)
_MONTHS = {"month": 1, "year": 12}
_DAYS = {"day": 1, "week": 7}
_MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
}
_MOST_YEARS = 10_000
_DAY = 24 * 3_600_000_000
TRUNCATED = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
"""What date_trunc can cut times to."""
_UNITS = {"hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000}
_FIRST = types.to_microseconds(dt.datetime(1, 1, 1, tzinfo=dt.UTC))
_LAST = types.to_microseconds(dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC))
_FIRST_NS = types.to_microseconds(dt.datetime(1678, 1, 1, tzinfo=dt.UTC))
_LAST_NS = types.to_microseconds(dt.datetime(2261, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC))


@dataclass(frozen=True, slots=True)
class Interval:
    """A length of time; the parts may have different signs."""

    months: int = 0
    days: int = 0
    microseconds: int = 0

    def __str__(self) -> str:
        """Return the interval in SQL, the same for equal ones."""
        parts = ((self.months, "months"), (self.days, "days"), (self.microseconds, "microseconds"))
        return " ".join(f"{count} {unit}" for count, unit in parts if count) or "0 days"

    def negated(self) -> Interval:
        """Return the interval that takes back what this one adds."""
        return Interval(-self.months, -self.days, -self.microseconds)


def parse_interval(text: str) -> Interval:
    """Return the interval that a text such as ``1 month -2 days 90 seconds`` means.
    Raises InvalidRequestError: it means none, or more than 10,000 years.
    """
    months = days = microseconds = at = 0
    while match := _PART.match(text, at):
        at = match.end()
        count, unit = Decimal(match[1]), match[2].lower().removesuffix("s")
        if unit in _MICROSECONDS and (exact := count * _MICROSECONDS[unit]) == int(exact):
            microseconds += int(exact)
        elif unit in _DAYS and count == int(count):
            days += int(count) * _DAYS[unit]
        elif unit in _MONTHS and count == int(count):
            months += int(count) * _MONTHS[unit]
        else:
            at = -1
            break
    if at <= 0 or text[at:].strip():
        raise InvalidRequestError(
            f"{text[:60]!r} is not an interval",
            hint="write INTERVAL '1 day', or '2 hours 30 minutes'; units: "
            + ", ".join((*_MONTHS, *_DAYS, *_MICROSECONDS)),
        )
    years = abs(months) / 12 + abs(days) / 366 + abs(microseconds) / _DAY / 366
    if years > _MOST_YEARS:
        raise InvalidRequestError(f"an interval has at most {_MOST_YEARS:,} years")
    return Interval(months, days, microseconds)


def shifted(count: int, kind: types.FieldType, interval: Interval) -> int:
    """Return a timestamp or date, moved by an interval.
    Raises InvalidRequestError: there is no such time.
    """
    per, finer = (1000, count % 1000) if kind in types.NANOSECONDS else (1, 0)
    days = _DAY if kind is types.Primitive.DATE else 1
    try:
        time = _moved(types.from_microseconds(count // per * days), interval)
    except OverflowError:
        raise InvalidRequestError("the time would be outside of the years 1 to 9999") from None
    moved = types.to_microseconds(time) // days * per + finer
    first, last = time_limits(kind)
    if not first <= moved <= last:
        raise InvalidRequestError("the time would be outside of the years 1678 to 2261")
    return moved


def time_limits(kind: types.FieldType) -> tuple[int, int]:
    """Return the first and the last time of a type that can be calculated with: of the years 1 to
    9999; counted in nanoseconds, 1678 to 2261.
    """
    if kind in types.NANOSECONDS:
        return truncation_limits(kind)
    return _counted(kind, _FIRST, _LAST)


def truncation_limits(kind: types.FieldType) -> tuple[int, int]:
    """Return the first and the last time of a type that DataFusion can truncate: it counts the
    nanoseconds.
    """
    return _counted(kind, _FIRST_NS, _LAST_NS)


def _counted(kind: types.FieldType, *times: int) -> tuple[int, int]:
    """Return two times, which are microseconds, as a type counts them."""
    days = _DAY if kind is types.Primitive.DATE else 1
    first, last = (time // days * (1000 if kind in types.NANOSECONDS else 1) for time in times)
    return first, last


def shift_limits(kind: types.FieldType, interval: Interval) -> tuple[int, int]:
    """Return the first and the last time of a type that an interval can be added to.

    Months and days are of different lengths, so the limits leave out a few days more.
    """
    first, last = time_limits(kind)
    if kind not in types.NANOSECONDS:  # others can count far more than these years
        return first, last
    days = interval.months * 31 + interval.days + interval.microseconds // _DAY
    slack = (abs(interval.months) + 2) * _DAY * 1000
    by = days * _DAY * 1000
    first, last = max(first, first - by + slack), min(last, last - by - slack)
    return (first, last) if first <= last else (1, 0)  # it is longer than all these years


def truncated(count: int, kind: types.FieldType, unit: str) -> int:
    """Return the first moment of the unit that a timestamp lies in. Raises OverflowError beyond
    the years that Python has.
    """
    per = 1000 if kind in types.NANOSECONDS else 1
    microseconds = count // per
    if unit in _UNITS:
        return (microseconds - microseconds % _UNITS[unit]) * per
    day = types.from_microseconds(microseconds).replace(hour=0, minute=0, second=0, microsecond=0)
    if unit == "week":
        day -= dt.timedelta(days=day.weekday())
    elif unit == "quarter":
        day = day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
    elif unit == "month":
        day = day.replace(day=1)
    elif unit == "year":
        day = day.replace(month=1, day=1)
    return types.to_microseconds(day) * per


def after_unit(count: int, kind: types.FieldType, unit: str) -> int:
    """Return the first moment of the unit after the one that a timestamp lies in. Raises
    OverflowError beyond the years that Python has.
    """
    per = 1000 if kind in types.NANOSECONDS else 1
    start = truncated(count, kind, unit)
    if unit in _UNITS:
        return start + _UNITS[unit] * per
    months = {"year": 12, "quarter": 3, "month": 1}.get(unit, 0)
    step = Interval(months, 0 if months else {"week": 7}.get(unit, 1))
    return types.to_microseconds(_moved(types.from_microseconds(start // per), step)) * per


def is_time(kind: types.FieldType) -> bool:
    """Return whether a type has times that intervals can be added to."""
    return kind in types.TIMESTAMPS or kind is types.Primitive.DATE


def _moved(time: dt.datetime, interval: Interval) -> dt.datetime:
    """Return a time, moved by an interval. Raises OverflowError beyond the years of Python."""
    years, month = divmod(time.year * 12 + time.month - 1 + interval.months, 12)
    if not dt.MINYEAR <= years <= dt.MAXYEAR:
        raise OverflowError("the year is beyond those of Python")
    day = min(time.day, calendar.monthrange(years, month + 1)[1])
    date = time.replace(year=years, month=month + 1, day=day)
    return date + dt.timedelta(days=interval.days, microseconds=interval.microseconds)


# What is refused as SQL before it is parsed: by its type, its length and its characters.

MAX_STATEMENT_CHARACTERS = 256 * 1024
"""The most characters of a statement: parsing it takes about a second of CPU time."""


SPACE = r"(?:\s|--[^\n]*|/\*(?s:.*?)\*/)*+"
"""A regular expression of space and comments between the words of a statement."""


def check_statement(text: str) -> None:
    """Refuse a value that is not text, or that is too long to be parsed as a statement.
    Raises InvalidRequestError: it is one of these.
    """
    hint = "ingest long lists of values into a table, and join it"
    check_characters(text, "statement", MAX_STATEMENT_CHARACTERS, hint)


def check_characters(text: str, what: str, most: int, hint: str = "") -> None:
    """Refuse a value that is not text, has more than `most` characters, or is not Unicode; `what`
    names it in errors.
    Raises InvalidRequestError: it is one of these.
    """
    if not isinstance(text, str):
        raise InvalidRequestError(f"a {what} is SQL text, not {type(text).__name__}")
    if len(text) > most:
        raise InvalidRequestError(
            f"the {what} has {len(text):,} characters; at most {most:,} are allowed", hint=hint
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(f"the {what} contains an unpaired surrogate") from error


# What conditions ask of texts that the term index of a shard can answer.


_WILD = re.compile(r"[%_]|\\.?", re.DOTALL)
"""What may stand for other characters in a pattern than itself."""
SEPARATORS = (
    "[\u0080-\u00a9\u00ab-\u00b4\u00b6-\u00b9\u00bb-\u00bf\u00d7\u00f7\u2000-\u206f"
    "\u3000-\u3004\u3008-\u3020\ufeff\uff01-\uff0f]"
)
"""What separates words beyond ASCII."""
_WORD = re.compile(rf"[0-9A-Za-z]|(?!{SEPARATORS})[^\x00-\x7f]")
_BEYOND = re.compile(r"[^\x00-\x7f]+")
_WITHIN = {
    "has": (True, True),
    "=": (True, True),
    "contains": (False, False),
    "starts_with": (True, False),
    "ends_with": (False, True),
}
"""Whether what is looked for begins and ends where words do."""


@dataclass(frozen=True, slots=True)
class TextTest:
    """Whether a column holds a text, in whatever case; if it `is_begun` or `is_ended`, with no
    letter or digit before or after it.
    """

    column: str
    text: str
    is_begun: bool = True
    is_ended: bool = True


@dataclass(frozen=True, slots=True)
class TextTests:
    """Tests of which rows that match pass each, if it `needs_all`, or else one."""

    tests: tuple[TextTest | TextTests, ...]
    needs_all: bool


Tests: TypeAlias = TextTest | TextTests


def has_words(text: str) -> bool:
    """Return whether a text has a word: a letter or a digit."""
    return _WORD.search(text) is not None


def text_tests(expression: Expression) -> Tests | None:
    """Return tests that every row passes for which an expression is true; None if there are none.

    For example, ``has(m, 'refused') AND m LIKE '%conn% by%'`` asks for the word refused, for a part
    conn of any word, and for a word that begins with by.
    """
    match expression:
        case Call("AND", terms):
            return _each([test for term in terms if (test := text_tests(term))])
        case Call("OR", terms):
            some = [text_tests(term) for term in terms]
            tests = tuple(each for each in some if each is not None)
            return TextTests(tests, needs_all=False) if len(tests) == len(terms) else None
        case Call("IS TRUE", (inner,)):
            return text_tests(inner)
        case Call("=", (Literal() as text, Column() as column)):
            return text_tests(Call("=", (column, text), Primitive.BOOLEAN))
        case Call("IN", (Column(name, Primitive.STRING), *values)):
            texts = [str(each.value) for each in values if isinstance(each, Literal)]
            return TextTests(tuple(TextTest(name, text) for text in texts), needs_all=False)
        case Call(op, (Column(name, Primitive.STRING), Literal(str(text)))):
            if op in ("LIKE", "ILIKE"):
                return _each(list(_pattern(name, text, op)))
            return TextTest(name, text, *_WITHIN[op]) if op in _WITHIN else None
    return None


def _each(tests: Sequence[Tests]) -> Tests | None:
    if len(tests) < 2:
        return tests[0] if tests else None
    return TextTests(tuple(tests), needs_all=True)


def _pattern(column: str, pattern: str, op: str) -> Iterator[TextTest]:
    """Yield the texts between the wildcards of a pattern. Where case does not count, letters beyond
    ASCII are wildcards: engines differ in which of them are one.
    """
    parts = _WILD.split(_BEYOND.sub("%", pattern) if op == "ILIKE" else pattern)
    for at, part in enumerate(parts):
        if part:
            yield TextTest(column, part, is_begun=at == 0, is_ended=at == len(parts) - 1)
