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
    """Yield the edit for a test by a list that is beside another one."""
    if not isinstance(node, exp.And | exp.Or):
        return
    left, right, span = _listed(node.left), _listed(node.right), span_of(node.right)
    # lists of which either may hold the operand become one without harm
    are_excluded = [_is_excluded(node.left), _is_excluded(node.right)]
    is_harmless = all(are_excluded) if isinstance(node, exp.And) else not any(are_excluded)
    if left is not None and left == right and span is not None and not is_harmless:
        yield wrapped(span, f"{KEPT_APART}(", ")")


def _listed(node: exp.Expr) -> exp.Expr | None:
    """Return the operand that a test compares with each value of a list; None if it is none."""
    match node:
        case exp.Paren() | exp.Not():
            return _listed(node.this)
        case exp.In():
            return node.this if node.expressions else None
        case exp.Or():
            left, right = (
                side.left if isinstance(side, exp.EQ) else _listed(side)
                for side in (node.left, node.right)
            )
            return left if left == right else None
    return None


def _is_excluded(node: exp.Expr) -> bool:
    """Return whether the operand must not be in the list."""
    is_excluded = False
    while isinstance(node, exp.Paren | exp.Not):
        is_excluded ^= isinstance(node, exp.Not)
        node = node.this
    return is_excluded
