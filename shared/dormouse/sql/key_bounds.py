"""Find the key ranges in which rows that match a condition can lie, as far as the condition says.

The ranges may hold other rows too, but never miss a matching one. Each key column is bounded by
itself. Where the first column can have only a few values, the second column narrows each of them,
and so on.

Example, with the row keys country and city: ``country IN ('DE', 'FR') AND city >= 'M'`` gives the
ranges [(DE, M), (DE\\0)) and [(FR, M), (FR\\0)). ``country >= 'DE' AND city = 'Köln'`` gives only
[(DE), end), because infinitely many values of country remain.
"""

import math
import re
from collections.abc import Sequence
from datetime import MAXYEAR, MINYEAR, date
from decimal import MAX_PREC, Context, Decimal

from dormouse.keys import (
    INT64_MAX,
    INT64_MIN,
    KeyPart,
    KeyRange,
    above,
    intersect_ranges,
    prefix_successor,
    union_ranges,
)
from dormouse.schema.row_tags import tag_in
from dormouse.schema.schema import Field, Schema, whole_numbers
from dormouse.schema.types import (
    NANOSECONDS,
    TIMESTAMPS,
    WHOLE,
    DecimalType,
    FieldType,
    Primitive,
    to_days,
)
from dormouse.sql.conditions import (
    CASTS,
    MAX_LIST,
    MIRRORED,
    Call,
    Column,
    Condition,
    Expression,
    Literal,
    after_unit,
    truncated,
)

_WILD = re.compile(r"[%_\\]")
"""The first character that makes a pattern more than plain text."""
_RANGES = ("=", "<", "<=", ">", ">=", "IN")
_ALL_DIGITS = Context(prec=MAX_PREC)
"""Rounds no number."""


def key_bounds(condition: Condition, schema: Schema) -> list[KeyRange]:
    """Return disjoint ranges in key order that hold every matching row; none if no row can
    match.
    """
    return _bounds(condition.expression, schema.keys)


def exact_ranges(condition: Condition, schema: Schema) -> list[KeyRange] | None:
    """Return the disjoint ranges in key order that hold exactly the rows that match; None if ranges
    cannot say what the condition does.

    For example, with the row keys country and city: ``country = 'DE' AND city >= 'M'`` is a range,
    ``country >= 'DE' AND city = 'Köln'`` is none.
    """
    fields = schema.keys[: len(condition.columns)]
    if {field.name for field in fields} != condition.columns or any(f.nullable for f in fields):
        return None
    if not all(_is_range(term, fields) for term in _terms(condition.expression)):
        return None
    spans = [_of_column(condition.expression, field) for field in fields]
    # Behind a range of one key, that of the next is no range of both, but one for each value.
    if any(_only_value(span) is None for of_field in spans[:-1] for span in of_field):
        return None
    return None if math.prod(map(len, spans)) > MAX_LIST else key_bounds(condition, schema)


def _terms(expression: Expression) -> list[Expression]:
    """Return the terms of a conjunction, or the only term."""
    if isinstance(expression, Call) and expression.op == "AND":
        return [term for each in expression.arguments for term in _terms(each)]
    return [expression]


def _is_range(term: Expression, fields: Sequence[Field]) -> bool:
    """Return whether a term compares one of the columns with values of its type."""
    if not isinstance(term, Call) or term.op not in _RANGES:
        return False
    column, *values = term.arguments
    own = [field for field in fields if _is(column, field)]
    return bool(own) and all(_value(value, own[0]) is not None for value in values)


def column_bounds(condition: Condition, field: Field) -> KeyRange | None:
    """Return the least range that holds every value which a column can have in a matching row, as a
    range of keys of one part. None if the condition does not bound the column.

    A column that is bounded is not null in any matching row.
    """
    bounds = _of_column(condition.expression, field)
    if not bounds:
        return KeyRange((), ())
    hull = KeyRange(bounds[0].min, bounds[-1].max)
    return None if hull == KeyRange() else hull


def column_values(condition: Condition, field: Field) -> tuple[KeyPart, ...] | None:
    """Return all values, at least one, that a column can have in a matching row; None if there may
    be others.
    """
    values: list[KeyPart] = []
    for span in _of_column(condition.expression, field):
        value = _only_value(span)
        low, high = span.min, span.max
        if value is not None:
            values.append(value)
        elif low and high and isinstance(low[0], int) and isinstance(high[0], int):
            values += range(low[0], min(high[0], low[0] + MAX_LIST + 1))
        else:
            return None
        if len(values) > MAX_LIST:
            return None
    return tuple(values) or None


def wanted_tags(expression: Expression) -> tuple[tuple[str, ...] | None, bool]:
    """Return row tags (`row_tags.tag_in`) of which each matching row has one, None if others can
    match; and whether all rows that have one match.
    """
    match expression:
        case Call("OR", terms):
            bounds = [wanted_tags(term) for term in terms]
            tags = [tag for some, _ in bounds for tag in some or ()]
            if any(some is None for some, _ in bounds):
                return None, False
            return tuple(tags), all(exact for _, exact in bounds)
        case Call("AND", terms):
            sets = [some for some, _ in map(wanted_tags, terms) if some is not None]
            return min(sets, key=len, default=None), False
        case Call("=" | "IN", (head, *rest)):
            if isinstance(head, Literal) and rest:
                head, rest = rest[0], [head]
            values = [each.value for each in rest if isinstance(each, Literal)]
            match head:
                case Call("tag", (_, Literal(value=key))) if len(values) == len(rest):
                    tags_in = (tag_in(str(key), str(value)) for value in values)
                    return tuple(tag for tag in tags_in if tag is not None), True
    return None, False


def _bounds(expression: Expression, fields: Sequence[Field]) -> list[KeyRange]:
    first = _of_column(expression, fields[0])
    values = [_only_value(span) for span in first]
    if len(fields) == 1 or None in values:
        return first
    rest = _bounds(expression, fields[1:])
    if rest == [KeyRange()] or len(first) * len(rest) > MAX_LIST:
        return first
    return [_within(value, span) for value in values if value is not None for span in rest]


def _within(value: KeyPart, rest: KeyRange) -> KeyRange:
    """Return the range of the keys that begin with `value` and continue in `rest`."""
    high = prefix_successor((value,)) if rest.max is None else (value, *rest.max)
    return KeyRange((value, *rest.min), high)


def _only_value(span: KeyRange) -> KeyPart | None:
    """Return the only value in a range of one-part keys; None if there may be more."""
    if len(span.min) == 1 and span == KeyRange.exactly(span.min):
        return span.min[0]
    return None


def _of_column(expression: Expression, field: Field) -> list[KeyRange]:
    """Return the ranges of one column's values, as one-part keys, in which `expression` can be
    true.
    """
    if not isinstance(expression, Call):
        return [KeyRange()]
    if expression.op == "AND":
        ranges = [KeyRange()]
        for term in expression.arguments:
            ranges = intersect_ranges(ranges, _of_column(term, field))
        return ranges
    if expression.op == "OR":
        return union_ranges([s for term in expression.arguments for s in _of_column(term, field)])
    return _of_test(expression, field)


def _of_test(call: Call, field: Field) -> list[KeyRange]:
    head, *rest = call.arguments
    if (bounds := _of_numbers(call, field)) is not None:
        return bounds
    if call.op == "IN":
        values = [_value(item, field) for item in rest]
        if not _is(head, field) or None in values:
            return [KeyRange()]
        return union_ranges([KeyRange.exactly((value,)) for value in values if value is not None])
    if len(rest) != 1:
        return [KeyRange()]
    if call.op in ("starts_with", "LIKE"):
        return _of_beginning(call.op, head, _value(rest[0], field), field)
    op, column, literal = call.op, head, rest[0]
    if isinstance(head, Literal):
        op, column, literal = MIRRORED.get(call.op, call.op), rest[0], head
    if isinstance(column, Call) and isinstance(literal, Literal):
        return _of_unit(op, column, literal, field)
    value = _value(literal, field)
    if value is None or not _is(column, field):
        return [KeyRange()]
    return union_ranges([_range_of(op, KeyRange.exactly((value,)))])


def _of_numbers(call: Call, field: Field) -> list[KeyRange] | None:
    """Return the ranges of a decimal column, or of a column of whole numbers that is compared as
    decimals, that is compared with any numbers: ``id > 1.5`` is ``id >= 2``. None if the call does
    not do so.
    """
    if call.op not in (*_RANGES, "IS NOT DISTINCT FROM"):
        return None
    op, (head, *rest) = call.op, call.arguments
    if isinstance(head, Literal) and len(rest) == 1:
        op, head, rest = MIRRORED.get(op, op), rest[0], [head]
    numbers = [_number(each) for each in rest]
    if not _is_compared_as_decimal(head, field) or None in numbers:
        return None
    op = "=" if op == "IN" else op
    return union_ranges([_range_of_number(op, n, field.type) for n in numbers if n is not None])


def _is_compared_as_decimal(head: Expression, field: Field) -> bool:
    if isinstance(field.type, DecimalType):
        return _is(head, field)
    if field.type not in WHOLE or not isinstance(head, Call) or head.op not in CASTS:
        return False
    return isinstance(head.type, DecimalType) and _is(head.arguments[0], field)


def _number(expression: Expression) -> Decimal | None:
    value = expression.value if isinstance(expression, Literal) else None
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    return Decimal(value)


def _range_of_number(op: str, number: Decimal, kind: FieldType) -> KeyRange:
    """Return the range of the values of a type, as parts of keys, that compare so with a number."""
    if isinstance(kind, DecimalType):  # in units of its last digit
        number = number.scaleb(kind.scale, _ALL_DIGITS)
    below = math.floor(number)
    whole = below if op in ("<=", ">") or below == number else below + 1
    if whole != number and op in ("=", "IS NOT DISTINCT FROM"):
        return KeyRange((), ())
    if whole in whole_numbers(kind):
        return _range_of(op, KeyRange.exactly((whole,)))
    return KeyRange() if op[0] == ("<" if whole > 0 else ">") else KeyRange((), ())


def _of_unit(op: str, call: Call, literal: Literal, field: Field) -> list[KeyRange]:
    """Return the range of the times of which the year, the day or another unit compares with a
    constant: ``date_trunc('month', seen) = '2026-01-01'`` is true from the first moment of January
    to the first of February.
    """
    times = _unit_of(call, literal, field)
    if times is None:
        return [KeyRange()]
    unit, count = times
    try:
        start, end = (f(count, field.type, unit) for f in (truncated, after_unit))
    except OverflowError:
        return [KeyRange()]
    if start < INT64_MIN or end > INT64_MAX:
        return [KeyRange()]
    # a constant within a unit is the beginning of none: it lies between this unit and the next
    here = KeyRange((start,) if start == count else (end,), (end,))
    return union_ranges([_range_of(op, here)])


def _unit_of(call: Call, literal: Literal, field: Field) -> tuple[str, int] | None:
    """Return the unit of a column's times that a call takes, and the constant as one of these
    times; None if it is something else.
    """
    *first, column = call.arguments
    if field.type not in TIMESTAMPS or not _is(column, field) or not isinstance(literal.value, int):
        return None
    if call.op == "date_trunc" and literal.type == field.type and isinstance(first[0], Literal):
        return str(first[0].value), literal.value
    per_day = 86_400_000_000 * (1000 if field.type in NANOSECONDS else 1)
    if call.op == "CAST" and call.type is Primitive.DATE and literal.type is Primitive.DATE:
        return "day", literal.value * per_day
    if call.op == "EXTRACT YEAR" and MINYEAR <= literal.value <= MAXYEAR:
        return "year", to_days(date(literal.value, 1, 1)) * per_day
    return None


def _of_beginning(op: str, head: Expression, text: KeyPart | None, field: Field) -> list[KeyRange]:
    """Return the range in which a string column can start with a text, or with the plain start of a
    pattern.
    """
    if not _is(head, field) or not isinstance(text, str):
        return [KeyRange()]
    wild = _WILD.search(text) if op == "LIKE" else None
    beginning = text[: wild.start()] if wild else text
    if not beginning:
        return [KeyRange()]
    past = above(beginning)
    return [KeyRange((beginning,), None if past is None else (past,))]


def _range_of(op: str, here: KeyRange) -> KeyRange:
    """Return the range of the keys that compare so with those in `here`."""
    match op:
        case "=" | "IS NOT DISTINCT FROM":
            return here
        case "<":
            return KeyRange((), here.min)
        case "<=":
            return KeyRange((), here.max)
        case ">=":
            return KeyRange(here.min)
        case ">":
            return KeyRange((), ()) if here.max is None else KeyRange(here.max)
        case _:
            return KeyRange()


def _is(expression: Expression, field: Field) -> bool:
    return isinstance(expression, Column) and expression.name == field.name


def _value(expression: Expression, field: Field) -> KeyPart | None:
    """Return the value of a literal of the field's own type; None for any other expression."""
    if not isinstance(expression, Literal) or isinstance(expression.value, bool):
        return None
    alike = expression.type == field.type or (expression.type in WHOLE and field.type in WHOLE)
    return expression.value if alike and isinstance(expression.value, int | str | bytes) else None
