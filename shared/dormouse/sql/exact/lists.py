"""Lists of values that the same operand is tested by, one beside the other.

DataFusion makes one list of them, or a constant, and forgets that the operand may be null: it takes
`s NOT IN ('a') OR s NOT IN ('b')` for true. A function around the second test, which returns what
it is given, keeps the two apart.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from dormouse.sql.exact.dialect import span_of
from dormouse.sql.exact.edits import Edit, wrapped

KEPT_APART = "greatest"


def list_edits(node: exp.Expr) -> Iterator[Edit]:
    """Yield the edits for tests by lists that follow another one in a chain of AND or OR."""
    if not isinstance(node, exp.And | exp.Or) or isinstance(node.parent, type(node)):
        return
    # lists of which either may hold the operand become one without harm
    harmless = isinstance(node, exp.And)
    tested: dict[exp.Expr, bool] = {}
    for term in node.flatten(unnest=False):
        operand, is_excluded = _listed(term)
        if operand is None:
            continue
        span = span_of(term)
        if operand in tested and span is not None:
            if not (is_excluded == tested[operand] == harmless):
                yield wrapped(span, f"{KEPT_APART}(", ")")
        else:
            tested[operand] = is_excluded


def _listed(node: exp.Expr) -> tuple[exp.Expr | None, bool]:
    """Return the operand that a test compares with each value of a list, None if it is none; and
    whether it must not be in the list.
    """
    is_excluded = False
    while isinstance(node, exp.Paren | exp.Not):
        is_excluded ^= isinstance(node, exp.Not)
        node = node.this
    if isinstance(node, exp.In) and node.expressions:
        return node.this, is_excluded
    if isinstance(node, exp.Or):
        found = [_compared(term) for term in node.flatten()]
        if found[0] is not None and all(operand == found[0] for operand in found):
            return found[0], is_excluded
    return None, False


def _compared(term: exp.Expr) -> exp.Expr | None:
    is_list = isinstance(term, exp.In) and term.expressions
    return term.this if is_list or isinstance(term, exp.EQ) else None
