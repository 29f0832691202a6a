"""Numbers beside decimals are written as decimals: DataFusion would take them for floats.

For example, `d = 99999999.99` becomes `d = CAST('99999999.99' AS DECIMAL(10, 2))`. Where there is a
float, too, decimals are cast to floats, as DataFusion would cut floats off after 15 digits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import partial

from sqlglot import exp

from dormouse.schema.schema import DecimalType
from dormouse.sql.exact.dialect import span_of
from dormouse.sql.exact.edits import Edit, replaced, wrapped
from dormouse.sql.exact.kinds import (
    ARITHMETIC,
    CHOICES,
    FLOATS,
    MOST_DIGITS,
    Kinds,
    decimal_of,
    is_fraction,
    operands_of,
    results_of,
)

COMPARISONS = (
    *(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE),
    *(exp.NullSafeEQ, exp.NullSafeNEQ),
)
_MOST_256 = 76
_NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,3})?\s*", re.ASCII)


def number_edits(node: exp.Expr, kinds: Kinds) -> Iterator[Edit]:
    """Yield the edits for numbers and decimals that are operands of an expression."""
    if isinstance(node, exp.Cast | exp.TryCast):
        yield from _of_cast(node, kinds)
        return
    is_compared = not isinstance(node, ARITHMETIC)
    for together in _met(node, kinds):
        yield from _of_operands(together, kinds, is_compared=is_compared)
    if isinstance(node, exp.Case):
        yield from _of_branches(results_of(node), kinds)


def _met(node: exp.Expr, kinds: Kinds) -> Iterator[list[exp.Expr]]:
    """Yield the operands of an expression that must be of one type."""
    if isinstance(node, (*COMPARISONS, *ARITHMETIC)):
        yield [node.this, node.expression]
    elif isinstance(node, CHOICES):
        yield operands_of(node)
    match node:
        case exp.Between():
            yield [node.this, node.args["low"], node.args["high"]]
        case exp.In() if node.args.get("query") is not None:
            yield [node.this, *_results(node.args["query"], 1)]
        case exp.In():
            yield [node.this, *node.expressions]
        case exp.Case():
            if node.this is not None:
                yield [node.this, *(each.this for each in node.args["ifs"])]
        case exp.SetOperation():
            width = len(kinds.sources.columns(node))
            results = _results(node, width)
            for number in range(width):
                yield results[number::width]


def _results(query: exp.Expr, width: int) -> list[exp.Expr]:
    """Return the expressions of the results of a query with so many columns, SELECT by SELECT;
    none, if some are not written one by one.
    """
    match query:
        case exp.Subquery() | exp.Paren():
            return _results(query.this, width)
        case exp.SetOperation():
            left, right = _results(query.this, width), _results(query.expression, width)
            return [*left, *right] if left and right else []
        case exp.Select() if len(query.expressions) == width:
            items = [e.this if isinstance(e, exp.Alias) else e for e in query.expressions]
            stars = (e.this if isinstance(e, exp.Column) else e for e in items)
            return [] if any(isinstance(star, exp.Star) for star in stars) else items
    return []


def _of_operands(
    operands: Sequence[exp.Expr], kinds: Kinds, *, is_compared: bool
) -> Iterator[Edit]:
    others = [kinds.of(node) for node in operands if kinds.number(node) is None]
    decimals = [kind for kind in others if isinstance(kind, DecimalType)]
    if not decimals:
        return
    is_summed = any(node.find(exp.Sum) is not None for node in operands)
    write = partial(_text_of, decimals=decimals, kinds=kinds, is_summed=is_summed)
    written = [write(node, is_compared=is_compared) for node in operands]
    if any(kind in FLOATS for kind in others) or None in written:
        yield from _as_floats(operands, kinds)
        return
    for node, text in zip(operands, written, strict=True):
        span = span_of(node)
        if text and span is not None:
            yield replaced(span, text)


def _as_floats(operands: Sequence[exp.Expr], kinds: Kinds) -> Iterator[Edit]:
    for node in operands:
        if isinstance(kinds.of(node), DecimalType) and kinds.number(node) is None:
            yield from _wrapped(node, "CAST(", " AS DOUBLE)")


def _of_branches(branches: Sequence[exp.Expr], kinds: Kinds) -> Iterator[Edit]:
    """Yield the edits that give all branches of CASE one type of decimals: DataFusion takes that of
    the first one for that of the result.
    """
    numbers = [kinds.number(node) for node in branches]
    if not kinds.is_exact([node for node in branches if not isinstance(node, exp.Null)]):
        if any(kinds.of(node) in FLOATS for node in branches if kinds.number(node) is None):
            yield from _as_floats(branches, kinds)
        return
    found = [
        kinds.of(node) if number is None else decimal_of(number)
        for node, number in zip(branches, numbers, strict=True)
    ]
    decimals = [kind for kind in found if isinstance(kind, DecimalType)]
    scale = max(kind.scale for kind in decimals)
    precision = max(kind.precision - kind.scale for kind in decimals) + scale
    if precision > MOST_DIGITS or len(set(found)) == 1:
        return
    for node, number, kind in zip(branches, numbers, found, strict=True):
        span = span_of(node)
        if span is None or not isinstance(kind, DecimalType):
            continue
        if number is not None:
            yield replaced(span, _cast(number, DecimalType(precision, scale)))
        elif kind != DecimalType(precision, scale):
            yield wrapped(span, "CAST(", f" AS DECIMAL({precision}, {scale}))")


def _text_of(
    node: exp.Expr,
    decimals: Sequence[DecimalType],
    kinds: Kinds,
    *,
    is_compared: bool,
    is_summed: bool,
) -> str | None:
    """Return what is written for an operand, empty if it stays as it is; None if it is a number of
    which no type has all digits.

    A text that is compared with decimals is a number, which is not rounded to their digits.
    """
    number = kinds.number(node)
    if number is not None:
        return _written(
            number,
            decimals,
            is_float=is_fraction(node),
            is_compared=is_compared,
            is_summed=is_summed,
        )
    text = kinds.parameter(node)
    if isinstance(node, exp.Literal) and node.is_string:
        text = node.this
    if not is_compared or not isinstance(text, str) or not _NUMBER.fullmatch(text):
        return ""
    return _written(Decimal(text), decimals, is_float=True, is_compared=True)


def _of_cast(node: exp.Cast | exp.TryCast, kinds: Kinds) -> Iterator[Edit]:
    number, span = kinds.number(node.this), span_of(node.this)
    if number is None or span is None or not isinstance(kinds.of(node), DecimalType):
        return
    kind = decimal_of(number)
    if kind is not None and is_fraction(node.this):
        yield replaced(span, _cast(number, kind))


def _written(
    number: Decimal,
    decimals: Sequence[DecimalType],
    *,
    is_float: bool,
    is_compared: bool,
    is_summed: bool = False,
) -> str | None:
    """Return a number as SQL of an exact type; empty if it is written as one, None if no type has
    its digits. Beside a sum, it has more than decimals have: DataFusion changes the type of sums
    in some plans, and forgets to cast what they are compared with.
    """
    if is_compared:
        scale = max(-int(number.as_tuple().exponent), *(kind.scale for kind in decimals))
        whole = max(number.adjusted() + 1, *(kind.precision - kind.scale for kind in decimals))
        if whole + scale > _MOST_256:
            return None
        if whole + scale > MOST_DIGITS or is_summed:
            return f"arrow_cast('{number:f}', 'Decimal256({_MOST_256}, {scale})')"
    if not is_float:
        return ""
    kind = decimal_of(number)
    return None if kind is None else _cast(number, kind)


def _cast(number: Decimal, kind: DecimalType) -> str:
    return f"CAST('{number:f}' AS DECIMAL({kind.precision}, {kind.scale}))"


def _wrapped(node: exp.Expr, before: str, after: str) -> Iterator[Edit]:
    span = span_of(node)
    if span is not None:
        yield wrapped(span, before, after)
