"""Equal floats are equal everywhere, and NaN is the greatest.

DataFusion's windows, sorts, DISTINCT in aggregates, CASE and long lists tell -0.0 from 0.0. To all
of it, a NaN with a sign, as calculations make it, is the least number. And `min` and `max` of
groups are wrong for NaN and infinities.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from dormouse.schema.schema import Primitive
from dormouse.sql.exact.dialect import span_of
from dormouse.sql.exact.edits import Edit, inserted, replaced, wrapped
from dormouse.sql.exact.kinds import ARITHMETIC, DOUBLES, FLOATS, Kinds, operands_of
from dormouse.sql.expressions import quoted

CALCULATIONS = (*ARITHMETIC, exp.Div, exp.Neg, exp.Sum, exp.Avg, *DOUBLES)
_AROUND = (exp.Paren, exp.Filter, exp.Window)


def float_edits(node: exp.Expr, kinds: Kinds) -> Iterator[Edit]:
    """Yield the edits for floats that an expression calculates, or tests for being equal."""
    if isinstance(node, CALCULATIONS):
        yield from _without_signed_nan(node, kinds)
    match node:
        case exp.Window():
            order = node.args.get("order")
            terms = [term.this for term in order.expressions] if order is not None else []
            yield from _without_signs([*(node.args.get("partition_by") or ()), *terms], kinds)
        case exp.Order() if not isinstance(node.parent, exp.Window):
            yield from _of_order(node, kinds)
        case exp.Distinct() if not isinstance(node.parent, exp.Select | exp.Min | exp.Max):
            yield from _without_signs(node.expressions, kinds)
        case exp.Nullif():
            yield from _compared(operands_of(node), kinds)
        case exp.Case() if node.this is not None:
            yield from _compared([node.this, *(each.this for each in node.args["ifs"])], kinds)
        case exp.In() if node.expressions and kinds.of(node.this) in FLOATS:
            yield from _of_list(node, kinds)
        case exp.Min() | exp.Max():
            yield from _least_or_greatest(node, kinds)


def _without_signed_nan(node: exp.Expr, kinds: Kinds) -> Iterator[Edit]:
    """Yield the edit that makes one NaN of all that a calculation returns. Within another one, it
    is left as it is, unless rows are grouped by it: then it has to be the same everywhere.
    """
    if kinds.of(node) not in FLOATS or kinds.number(node) is not None:
        return
    outer = node
    while isinstance(outer.parent, _AROUND) and outer.arg_key == "this":
        outer = outer.parent
    kind, span = kinds.of(node), span_of(outer)
    if span is not None and (not isinstance(outer.parent, CALCULATIONS) or _is_group(node)):
        name = "REAL" if kind is Primitive.FLOAT else "DOUBLE"
        yield wrapped(span, "nanvl(", f", CAST('NaN' AS {name}))")


def _is_group(node: exp.Expr) -> bool:
    select = node.find_ancestor(exp.Select)
    group = select.args.get("group") if select is not None else None
    return group is not None and any(part == node for part in group.walk())


def _without_signs(nodes: list[exp.Expr], kinds: Kinds) -> Iterator[Edit]:
    for node in nodes:
        kind, span = kinds.of(node), span_of(node)
        if kind in FLOATS and span is not None:
            zero = "CAST(0 AS REAL)" if kind is Primitive.FLOAT else "0.0"
            yield wrapped(span, "((", f") + {zero})")


def _of_order(node: exp.Order, kinds: Kinds) -> Iterator[Edit]:
    """Yield the edits for terms that others follow, which order what is equal in them.

    Results of DISTINCT and of sets have one zero, and are ordered by what they select alone.
    """
    query = node.parent
    if isinstance(query, exp.SetOperation) or (query is not None and query.args.get("distinct")):
        return
    for term in node.expressions[:-1]:
        selected = _by_number(term.this, query)
        if selected is None:
            yield from _without_signs([term.this], kinds)
            continue
        span = span_of(term.this)
        if kinds.of(selected) in FLOATS and selected.alias_or_name and span is not None:
            yield replaced(span, f"({quoted(selected.alias_or_name)} + 0.0)")


def _by_number(term: exp.Expr, query: exp.Expr | None) -> exp.Expr | None:
    """Return the expression of the result that a term means by its number."""
    if not isinstance(query, exp.Select) or not isinstance(term, exp.Literal) or term.is_string:
        return None
    number = int(term.name) if term.name.isdigit() else 0
    return query.expressions[number - 1] if 0 < number <= len(query.expressions) else None


def _compared(nodes: list[exp.Expr], kinds: Kinds) -> Iterator[Edit]:
    """Yield the edits for values of which each is compared with the first."""
    if any(kinds.of(node) in FLOATS for node in nodes if kinds.number(node) is None):
        yield from _without_signs([n for n in nodes if kinds.number(n) != 0], kinds)
        for node in nodes:
            number, span = kinds.number(node), span_of(node)
            if number == 0 and span is not None:
                yield wrapped(span, "(0.0 + ", ")")


def _of_list(node: exp.In, kinds: Kinds) -> Iterator[Edit]:
    """Yield the edit that adds the other zero to a list that has one."""
    for each in node.expressions:
        span = span_of(each)
        if kinds.number(each) == 0 and span is not None:
            yield inserted(span[1], ", 0.0, -0.0")
            return


def _least_or_greatest(node: exp.Min | exp.Max, kinds: Kinds) -> Iterator[Edit]:
    """Yield the edit that takes the first value in order in place of the least or greatest one of
    a group; DataFusion makes groups of sub-queries, too.
    """
    call = node.parent if isinstance(node.parent, exp.Filter) else node
    if isinstance(call.parent, exp.Window) or node.expressions:
        return
    argument = node.this
    if isinstance(argument, exp.Distinct):
        (argument,) = argument.expressions
    whole, span = span_of(call), span_of(argument)
    if kinds.of(argument) not in FLOATS or whole is None or span is None or not _has_groups(node):
        return
    order = "DESC NULLS LAST" if isinstance(node, exp.Max) else "ASC NULLS LAST"
    yield Edit(
        whole[0],
        span[1],
        span[0],
        lambda value: f"first_value({value} ORDER BY {value} {order}",
    )


def _has_groups(node: exp.Expr) -> bool:
    select = node.find_ancestor(exp.Select)
    return select is not None and (
        select.args.get("group") is not None or select.find_ancestor(exp.Select) is not None
    )
