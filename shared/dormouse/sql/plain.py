"""Plain conditions: comparisons of columns with values, joined by AND, OR, NOT and brackets.

What this module reads, `sql.parser` reads to the same tree; what it does not read, or what is wrong
with a text, is the parser's matter.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import NamedTuple, Protocol

from dormouse.errors import InvalidRequestError
from dormouse.key_codec import uuid_bytes
from dormouse.keys import INT64_MAX, INT64_MIN
from dormouse.schema.schema import Schema
from dormouse.schema.types import (
    NANOSECONDS,
    TIMESTAMPS,
    ZONED,
    DecimalType,
    FieldType,
    Primitive,
    from_days,
    parse_clock,
    parse_count,
    parse_uuid,
    show_type,
    to_days,
    type_of_time,
)
from dormouse.sql.conditions import (
    MAX_CONDITION_DEPTH,
    Call,
    Column,
    Expression,
    Literal,
    common_type,
)
from dormouse.sql.conditions import depth as depth_of

# The tokens of plain SQL: those that every parser of SQL takes for the same.
#
# A text with anything else, such as a comment, a backslash or a number with an exponent, is not
# plain: the parser reads it then, which takes longer to import than a look-up takes.

WORD, NAME, TEXT, NUMBER, PARAMETER, MARK = "word", "name", "text", "number", "parameter", "mark"
"""A word, a name in double quotes, a text in single ones, digits with or without a point, ``$1``,
``$name`` or ``:name``, and all else.
"""
_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:
    (?P<word>[A-Za-z_][A-Za-z0-9_]*)(?![\w$'":])
    |(?P<number>[0-9]+(?:\.[0-9]+)?)(?![\w.$'":])
    |(?P<parameter>\$(?:[1-9][0-9]*|[A-Za-z_][A-Za-z0-9_]*)|:[A-Za-z_][A-Za-z0-9_]*)(?![\w$'":])
    |"(?P<name>(?:[^"\\\x00-\x1f\ud800-\udfff]|"")+)"(?!["'\w$])
    |'(?P<text>(?:[^'\\\x00-\x1f\ud800-\udfff]|'')*)'(?!["'\w$])
    |(?P<mark><=|>=|<>|!=|[=<>(),.*;-])
    )""",
    re.VERBOSE,
)

_RESERVED = """
all alter analyse analyze and anti any array as asc asof asymmetric authorization begin between
binary both by cache call case cast check cluster collate collation column comment commit
concurrently connect connect_by_root constraint copy create cross current_catalog current_date
current_role current_schema current_time current_timestamp current_user declare default deferrable
delete desc describe distinct distribute div do drop else end escape except exclude exec execute
exists explain false fetch filter for foreign format freeze from full glob global grant group
having if ignore ilike in initially inner insert intersect interval into is isnull join kill
lateral leading left like limit load localtime localtimestamp lock map match match_condition
match_recognize member merge minus natural not notnull null nullable nulls object offset on only
open operator optimize or order outer output over overlaps partition partitioned_by pivot placing
pragma prepare prewhere primary qualify range references refresh regexp reindex rename reset
respect returning revoke right rlike rollback sample select semi session_user set settings show
similar some sort start straight_join struct symmetric system_user table tablesample then to top
trailing trim true truncate uncache union unique unnest unpivot update use user using vacuum
values variadic verbose view when where while window with within xor
"""
RESERVED = frozenset(_RESERVED.split())
"""Words that are no names for some parser, at least in some places: with any of them outside quotes
in the place of a name, a text is not plain.
"""


class Token(NamedTuple):
    """A word or a mark of a text, what is in its quotes if it has some, and where it begins."""

    kind: str
    text: str
    start: int


def tokenize(text: str) -> list[Token] | None:
    """Return the tokens of a text; None if it has others than those of plain SQL."""
    found: list[Token] = []
    end = len(text.rstrip(" \t\r\n"))
    at = 0
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        kind = str(match.lastgroup)
        shown = match[kind]
        if kind in (NAME, TEXT):
            quote = '"' if kind == NAME else "'"
            shown = shown.replace(2 * quote, quote)
        found.append(Token(kind, shown, match.start(kind) - (kind in (NAME, TEXT))))
        at = match.end()
    # a lone carriage return ends a line for the parser, which says where errors are
    return None if "\r" in text.replace("\r\n", "") else found


class NotPlainError(Exception):
    """A text is not plain."""


def need(fact: object) -> None:
    """Refuse a text as not plain unless something is so.

    Raises:
        NotPlainError: it is not.
    """
    if not fact:
        raise NotPlainError


class Tokens:
    """The tokens of a text, from the first to the last."""

    def __init__(self, text: str) -> None:
        """Begin with the first.

        Raises:
            NotPlainError: the text has others than plain SQL has.
        """
        found = tokenize(text)
        need(found is not None)
        assert found is not None
        self._tokens, self._at = found, 0

    @property
    def is_at_end(self) -> bool:
        """Whether all were taken."""
        return self._at == len(self._tokens)

    def next(self) -> Token:
        """Take the next token.

        Raises:
            NotPlainError: there is none.
        """
        need(not self.is_at_end)
        self._at += 1
        return self._tokens[self._at - 1]

    def is_next(self, *said: str) -> bool:
        """Return whether these words, in capitals, and marks come next."""
        coming = self._tokens[self._at : self._at + len(said)]
        return len(coming) == len(said) and all(
            (token.text.upper() if token.kind == WORD else token.text) == wanted
            and token.kind in (WORD, MARK)
            for token, wanted in zip(coming, said, strict=True)
        )

    def take(self, *said: str) -> bool:
        """Take these words and marks, if they come next; return whether they did."""
        found = self.is_next(*said)
        self._at += len(said) if found else 0
        return found

    def expect(self, *said: str) -> None:
        """Take these words and marks.

        Raises:
            NotPlainError: something else comes.
        """
        need(self.take(*said))

    def name(self) -> Token:
        """Take a name of a column or table.

        Raises:
            NotPlainError: it is none, or a word that means something else to some parser.
        """
        token = self.next()
        need(token.kind == NAME or (token.kind == WORD and token.text.lower() not in RESERVED))
        return token


# Constants of a condition as values of the types that they are compared with.
#
# They come from the nodes of a parser, which show themselves as SQL in errors.

DIALECT = "postgres"
_SHOWN = 60
_NUMBER = re.compile(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,9})?")
_NOT_FINITE = re.compile(r"(?P<number>[+-]?inf(inity)?)|[+-]?nan", re.IGNORECASE)
"""What floats may be beside numbers, as CSV files have it."""
FLOATS = (Primitive.FLOAT, Primitive.DOUBLE)
_NUMBERS = (Primitive.INT, Primitive.LONG, *FLOATS)
_MOST_DIGITS = 400  # before the point or after it: a double has fewer


class Shown(Protocol):
    """A part of a condition."""

    def sql(self, dialect: str, /) -> str:
        """Return it as SQL."""
        ...


def show_node(node: Shown) -> str:
    """Return a part of a condition as text, shortened, for an error message."""
    text = node.sql(DIALECT)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def number(node: Shown, text: str) -> Literal:
    """Return a number as a literal; `coerce_literal` finds its final type.

    Raises:
        InvalidRequestError: it is none, or no column can hold it.
    """
    if not _NUMBER.fullmatch(text):
        raise InvalidRequestError(f"{text!r} is not a number")
    value = Decimal(text)
    if abs(value.adjusted()) > _MOST_DIGITS:
        raise InvalidRequestError(f"{show_node(node)} is beyond all numbers that a column can hold")
    if value == value.to_integral_value() and INT64_MIN <= value <= INT64_MAX:
        return Literal(int(value), Primitive.LONG)
    return Literal(value, Primitive.DOUBLE)


def coerce_literal(node: Shown, literal: Literal, kind: FieldType) -> Literal:
    """Return a number as a literal of the type that it is compared with; other literals unchanged.

    Raises:
        InvalidRequestError: that type cannot hold the number.
    """
    value = literal.value
    if literal.type is Primitive.STRING and isinstance(value, str):
        literal = _of_text(node, value, kind)
        value = literal.value
    if literal.type in (Primitive.DATE, *TIMESTAMPS) and kind in TIMESTAMPS:
        return _timestamp(node, cast_time(literal, kind) or literal, Primitive(kind))
    if kind is Primitive.UUID and isinstance(value, bytes):
        return _uuid(value)
    if literal.type not in (Primitive.LONG, Primitive.DOUBLE) or isinstance(value, float):
        return literal  # a float has been cast to one, or is one already
    assert isinstance(value, int | Decimal)
    exact = Decimal(value)
    if kind in (Primitive.INT, Primitive.LONG):
        if exact == exact.to_integral_value() and INT64_MIN <= exact <= INT64_MAX:
            return Literal(int(exact), Primitive.LONG)
        raise InvalidRequestError(f"{show_node(node)}: {exact} is not a whole number of 64 bits")
    if kind in FLOATS:
        number = float(exact)
        if number in (float("inf"), float("-inf")):
            raise InvalidRequestError(
                f"{show_node(node)}: {exact} is beyond what a double can hold"
            )
        return Literal(number + 0.0, Primitive.DOUBLE)  # of -0.0, to which -1e-400 is rounded
    if isinstance(kind, DecimalType):
        return _decimal(node, exact, kind)
    return literal


def _of_text(node: Shown, text: str, kind: FieldType) -> Literal:
    """Return a text as a constant of the type that it is compared with, as SQL does."""
    if kind in (*TIMESTAMPS, Primitive.DATE, Primitive.TIME):
        return text_as_time(text, kind)
    if kind is Primitive.UUID:
        return _uuid(text)
    if kind in FLOATS and (found := _NOT_FINITE.fullmatch(text)):
        # always the same NaN, so that equal conditions are equal
        return Literal(float(text) if found["number"] else math.nan, Primitive.DOUBLE)
    is_number = kind in _NUMBERS or isinstance(kind, DecimalType)
    return number(node, text) if is_number else Literal(text, Primitive.STRING)


def _timestamp(node: Shown, literal: Literal, kind: Primitive) -> Literal:
    """Return a time as one of the type that it is compared with; without a zone, it is in UTC."""
    assert isinstance(literal.value, int)
    if literal.type in ZONED and kind not in ZONED:
        raise InvalidRequestError(
            f"{show_node(node)}: the time has a zone, and {show_type(kind)} has none",
            hint="write the time without a zone",
        )
    count = literal.value * (1 if literal.type in NANOSECONDS else 1000)
    if kind not in NANOSECONDS:
        if count % 1000:
            raise InvalidRequestError(f"{show_node(node)}: times are whole microseconds")
        return Literal(count // 1000, kind)
    if not INT64_MIN <= count <= INT64_MAX:
        raise InvalidRequestError(
            f"{show_node(node)}: the time is beyond what {show_type(kind)} can hold"
        )
    return Literal(count, kind)


def _uuid(value: str | bytes) -> Literal:
    try:
        return Literal(uuid_bytes(value), Primitive.UUID)
    except ValueError as error:
        raise InvalidRequestError(
            "a value that is compared with a UUID is none",
            hint="write it as '123e4567-e89b-12d3-a456-426614174000'",
        ) from error


def _decimal(node: Shown, value: Decimal, kind: DecimalType) -> Literal:
    """Return a number as a decimal with exactly the digits that it has."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale, 1)
    if precision <= 38:
        own = DecimalType(precision, scale)
        if common_type(own, kind) is not None:
            return Literal(value, own)
    raise InvalidRequestError(
        f"{show_node(node)}: {value} and {show_type(kind)} have no 38 digits in common"
    )


def text_as_time(text: str, kind: FieldType) -> Literal:
    """Return a text as a constant of a type of times or UUIDs.

    Raises:
        InvalidRequestError: it is none.
    """
    try:
        if kind in TIMESTAMPS:
            own = type_of_time(text)
            return Literal(parse_count(text, own), own)
        if kind is Primitive.DATE:
            return Literal(to_days(dt.date.fromisoformat(text)), kind)
        if kind is Primitive.TIME:
            return Literal(parse_clock(text), kind)
        return Literal(parse_uuid(text), Primitive.UUID)
    except (ValueError, OverflowError) as error:
        name = {Primitive.DATE: "date", Primitive.UUID: "UUID"}.get(Primitive(kind), "time")
        raise InvalidRequestError(f"{text[:60]!r} is not a {name}: {error}") from error


def cast_time(literal: Literal, kind: FieldType) -> Literal | None:
    """Return a constant time as a date, or a date as a time; None if it is neither."""
    count = literal.value
    assert isinstance(count, int)
    if literal.type in TIMESTAMPS and kind is Primitive.DATE:
        per_day = 86_400_000_000 * (1000 if literal.type in NANOSECONDS else 1)
        return Literal(count // per_day, kind)
    if literal.type is Primitive.DATE and kind in TIMESTAMPS:
        from_days(count)
        return Literal(count * 86_400_000_000, Primitive.TIMESTAMP_NTZ)
    return literal if literal.type in TIMESTAMPS and kind in TIMESTAMPS else None


# Which types the operands of an expression may have, and the type of what they make.
#
# Used by `parser`.

_HINTS: dict[FieldType, str] = {
    **dict.fromkeys(TIMESTAMPS, "a time is written as TIMESTAMP '2026-01-31 12:00:00'"),
    Primitive.TIMESTAMP: "a time is written as TIMESTAMP '2026-01-31 12:00:00' (UTC)",
    Primitive.TIME: "a time of day is written as TIME '12:30:00'",
    Primitive.UUID: "a UUID is written as UUID '123e4567-e89b-12d3-a456-426614174000'",
    Primitive.DATE: "a date is written as DATE '2026-01-31'",
    Primitive.BYTES: "bytes are written as X'00ff'",
}


_WHOLE = (Primitive.INT, Primitive.LONG)
_WHOLE_AS_DECIMAL = DecimalType(19, 0)
"""What every whole number of 64 bits is exactly."""


def compared(node: Shown, operands: Sequence[Expression]) -> list[Expression]:
    """Return operands that are compared with each other, as `alike` does; whole ones beside a
    decimal, or a number that is none of 64 bits, as decimals: ``k > 1.5`` means what it says.

    Raises:
        InvalidRequestError: they are of types that cannot be compared.
    """
    if any(isinstance(e.type, DecimalType) or _is_no_whole_number(e) for e in operands):
        operands = [
            Call("CAST", (e,), _WHOLE_AS_DECIMAL)
            if e.type in _WHOLE and not isinstance(e, Literal)
            else e
            for e in operands
        ]
    return alike(node, operands)


def _is_no_whole_number(expression: Expression) -> bool:
    return isinstance(expression, Literal) and isinstance(expression.value, Decimal)


def _looseness(expression: Expression) -> int:
    """Return how freely an operand takes the type of another: 0 if not at all, 1 if it was cast to
    a double, 2 if it is another literal.
    """
    if not isinstance(expression, Literal):
        return 0
    return 1 if isinstance(expression.value, float) else 2


def alike(node: Shown, operands: Sequence[Expression]) -> list[Expression]:
    """Return operands that must be of one type; literals take the type of the other operands.

    Raises:
        InvalidRequestError: they are of types that cannot be compared.
    """
    wanted = min(operands, key=_looseness).type
    checked = [coerce_literal(node, e, wanted) if isinstance(e, Literal) else e for e in operands]
    if not isinstance(wanted, Primitive | DecimalType):
        raise InvalidRequestError(
            f"{show_node(node)}: {show_type(wanted)} cannot be compared",
            hint="it can only be tested with IS NULL",
        )
    kind = checked[0].type
    for other in checked[1:]:
        found = common_type(kind, other.type)
        if found is None:
            raise InvalidRequestError(
                f"{show_node(node)}: {show_type(kind)} and {show_type(other.type)} "
                "cannot be compared",
                hint=_HINTS.get(other.type) or _HINTS.get(kind, ""),
            )
        kind = found
    return checked


def calculated(node: Shown, op: str, both: Sequence[Expression]) -> Expression:
    """Return a calculation that cannot fail on any row: it divides by nothing that may be zero.

    Raises:
        InvalidRequestError: it may fail, or its operands are no numbers.
    """
    numbers = (Primitive.INT, Primitive.LONG, Primitive.FLOAT, Primitive.DOUBLE)
    if other := next((part.type for part in both if part.type not in numbers), None):
        raise InvalidRequestError(
            f"{show_node(node)} calculates with {show_type(other)}",
            hint="only whole and floating numbers can be calculated with",
        )
    kind = common(both)
    divisor = both[1]
    if op in "/%" and not (isinstance(divisor, Literal) and _positive(divisor)):
        raise InvalidRequestError(f"{show_node(node)}: the divisor must be a number above zero")
    return Call(op, tuple(both), Primitive.LONG if kind in _WHOLE else Primitive.DOUBLE)


def _positive(literal: Literal) -> bool:
    return isinstance(literal.value, int | float) and literal.value > 0


def common(expressions: Sequence[Expression]) -> FieldType:
    """Return the type that values of all expressions have together."""
    kind = expressions[0].type
    for expression in expressions[1:]:
        kind = common_type(kind, expression.type) or kind
    return kind


def check_types(node: Shown, arguments: Sequence[Expression], wanted: Sequence[FieldType]) -> None:
    """Refuse the arguments of a function unless they are of the types that it is for.

    Raises:
        InvalidRequestError: they are not.
    """
    if [a.type for a in arguments] != list(wanted):
        found = ", ".join(show_type(a.type) for a in arguments)
        needed = ", ".join(show_type(kind) for kind in wanted)
        raise InvalidRequestError(f"{show_node(node)} is for {needed}, not for {found}")


MAX_CHARACTERS = 2048
"""The most characters of a plain condition: its normal form is within the limits of conditions."""
MAX_VALUES = 100
"""The most values of an IN list."""
MAX_TERMS = 100
MAX_BRACKETS = 8
COMPARISONS = ("=", "<>", "!=", "<", "<=", ">", ">=")
MAX_DEPTH = MAX_CONDITION_DEPTH - 2
"""How deep a plain condition nests at most: the parser counts some levels that its tree lacks."""
_TYPED = {
    "TIMESTAMP": Primitive.TIMESTAMP,
    "DATE": Primitive.DATE,
    "TIME": Primitive.TIME,
    "UUID": Primitive.UUID,
}


class _Here(NamedTuple):
    """A part of a condition, which shows itself in errors that nobody sees."""

    text: str = ""

    def sql(self, dialect: str, /) -> str:
        """Return the text."""
        return self.text


_HERE = _Here()


def read_condition(text: str, schema: Schema) -> Expression | None:
    """Return the checked tree of a condition on the columns of a schema; None if it is not plain,
    or anything is wrong with it.
    """
    if len(text) > MAX_CHARACTERS:
        return None
    try:
        found = _Reader(text, schema).condition()
        need(depth_of(found) <= MAX_DEPTH)
        return found
    except (NotPlainError, InvalidRequestError):
        return None


class _Reader:
    """A text that is read from its first token to its last."""

    def __init__(self, text: str, schema: Schema) -> None:
        self._tokens = Tokens(text)
        self._fields = {field.name: field for field in schema.fields}

    def condition(self) -> Expression:
        """Return its tree.

        Raises:
            NotPlainError: it is not plain.
            InvalidRequestError: something is wrong with a value.
        """
        found = self._either(0)
        need(self._tokens.is_at_end)
        return found

    def _either(self, depth: int) -> Expression:
        return self._chain("OR", lambda: self._both(depth))

    def _both(self, depth: int) -> Expression:
        return self._chain("AND", lambda: self._term(depth))

    def _chain(self, operator: str, read: Callable[[], Expression]) -> Expression:
        """Return the terms of a chain as arguments of one call; the only term as it is."""
        terms = [read()]
        while self._tokens.take(operator):
            terms.append(read())
        need(len(terms) <= MAX_TERMS)
        return _call(operator, *terms) if len(terms) > 1 else terms[0]

    def _term(self, depth: int) -> Expression:
        tokens = self._tokens
        if tokens.is_next("(") or tokens.is_next("NOT", "("):
            need(depth < MAX_BRACKETS)
            is_negated = tokens.take("NOT")
            tokens.expect("(")
            inside = self._either(depth + 1)
            tokens.expect(")")
            return _call("NOT", inside) if is_negated else inside
        column = self._column()
        if tokens.take("IS", "NOT", "NULL"):
            return _call("NOT", _call("IS NULL", column))
        if tokens.take("IS", "NULL"):
            return _call("IS NULL", column)
        if tokens.take("IN", "("):
            values = [self._value()]
            while tokens.take(","):
                values.append(self._value())
            tokens.expect(")")
            need(len(values) <= MAX_VALUES)
            return _call("IN", *compared(_HERE, [column, *values]))
        if tokens.take("BETWEEN"):
            low = self._value()
            tokens.expect("AND")
            value, *ends = compared(_HERE, [column, low, self._value()])
            return _call(
                "AND", *(_call(o, value, e) for o, e in zip((">=", "<="), ends, strict=True))
            )
        operator = tokens.next()
        need(operator.kind == MARK and operator.text in COMPARISONS)
        said = "<>" if operator.text == "!=" else operator.text
        return _call(said, *compared(_HERE, [column, self._value()]))

    def _column(self) -> Column:
        name = self._tokens.name().text
        need(name in self._fields)
        return Column(name, self._fields[name].type)

    def _value(self) -> Literal:
        tokens = self._tokens
        kind = next((kind for word, kind in _TYPED.items() if tokens.take(word)), None)
        sign = "-" if kind is None and tokens.take("-") else ""
        token = tokens.next()
        if token.kind == NUMBER and kind is None:
            return number(_HERE, sign + token.text)
        need(token.kind == TEXT and not sign)
        if kind is not None:
            return text_as_time(token.text, kind)
        return Literal(token.text, Primitive.STRING)


def _call(op: str, *arguments: Expression) -> Call:
    return Call(op, arguments, Primitive.BOOLEAN)
