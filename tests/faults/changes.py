"""Changes of parsed code: what a planted fault does to a function.

`tests.faults.plants` says how they are written.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from typing import cast

from tests.faults.snippets import (
    BARE,
    HEADERS,
    Meanings,
    MisfitError,
    Spot,
    halves,
    meanings_of,
    numbered,
    readable,
    same,
    spots,
    standing,
)

LISTS = ("args", "keywords", "elts", "ifs", "generators", "decorator_list", "bases")
"""Fields of which an entry can be dropped, beside blocks and the operands of operators."""
Edit = tuple[Spot, list[ast.AST]]


def changed(target: ast.stmt | ast.Module, change: str) -> list[ast.stmt]:
    """Return what a function, a class, an assignment or a module becomes by a change.

    Raises:
        MisfitError: what is changed is not there exactly once, or the change cannot be read.
    """
    tree = _module(copy.deepcopy(target))
    edits = _edits(tree, change)
    if not edits:
        raise MisfitError("finds nothing to change")
    for spot, nodes in sorted(edits, key=lambda edit: -(edit[0].start or 0)):
        spot.become(nodes)
    return tree.body


def fits(target: ast.stmt | ast.Module, change: str) -> bool:
    """Return whether what a change changes is there.

    Raises:
        MisfitError: it is there more than once, or the change cannot be read.
    """
    return bool(_edits(_module(target), change))


def _module(node: ast.stmt | ast.Module) -> ast.Module:
    return node if isinstance(node, ast.Module) else ast.Module(body=[node], type_ignores=[])


def _edits(tree: ast.Module, change: str) -> list[Edit]:
    operator, _, rest = change.partition(" ")
    if operator == "move":
        return _move(tree, rest)
    is_code = operator == "not" and any(halves(change, " -> "))
    if is_code or operator not in OPERATORS:
        return _replacement(tree, change)
    snippet, number = numbered(rest)
    return _only(list(OPERATORS[operator](tree, meanings_of(snippet))), snippet, number)


def _only(edits: list[Edit], snippet: str, number: int) -> list[Edit]:
    """Return the edit with this number (from 1), or the only one (0); nothing if there is none."""
    if number:
        return edits[number - 1 : number]
    if len(edits) > 1:
        raise MisfitError(f"{snippet!r} is there {len(edits)} times")
    return edits


def _become(name: str) -> Callable[[ast.Module, Meanings], Iterator[Edit]]:
    """Return the operator that makes an expression false, true or its opposite."""

    def edits(tree: ast.Module, meanings: Meanings) -> Iterator[Edit]:
        wanted = {kind: nodes for kind, nodes in meanings.items() if kind == "expression"}
        for spot in spots(tree):
            for _ in standing(spot, wanted):
                negated = ast.UnaryOp(ast.Not(), cast(ast.expr, spot.node))
                yield spot, [negated if name == "not" else ast.Constant(name == "always")]

    return edits


def _drop(tree: ast.Module, meanings: Meanings) -> Iterator[Edit]:
    blocks = {k: nodes for k, nodes in meanings.items() if k in ("statements", *HEADERS)}
    entries = {k: nodes for k, nodes in meanings.items() if k not in blocks}
    for spot in spots(tree):
        for _, where in standing(spot, blocks):
            yield where, []
        for shorter in _shorter(spot.node, entries):
            yield spot, [shorter]


def _shorter(node: ast.AST, entries: Meanings) -> Iterator[ast.AST]:
    """Yield a node without an operand, element, argument, pair, clause or decorator."""
    for field in (*LISTS, *(["values"] if isinstance(node, ast.BoolOp) else [])):
        found = getattr(node, field, [])
        for number in range(len(found) if isinstance(found, list) else 0):
            if list(standing(Spot(node, field, number), entries)):
                rest = found[:number] + found[number + 1 :]
                alone = isinstance(node, ast.BoolOp) and len(rest) == 1
                yield rest[0] if alone else _with(node, {field: rest})
    if isinstance(node, ast.BinOp):
        sides = ((node.left, node.right), (node.right, node.left))
        yield from (kept for gone, kept in sides if same(gone, _first(entries)))
    if isinstance(node, ast.Dict) and "pair" in entries:
        yield from _with_pairs(node, entries["pair"][0], None)


def _first(meanings: Meanings) -> ast.AST:
    return next(iter(meanings.get("expression", [])), ast.Pass())


def _with(node: ast.AST, fields: dict[str, object]) -> ast.AST:
    new = copy.copy(node)
    for field, value in fields.items():
        setattr(new, field, value)
    return new


def _with_pairs(node: ast.Dict, old: ast.AST, new: ast.AST | None) -> Iterator[ast.AST]:
    """Yield a dict in which the pairs of another, if it has them in a row, become other pairs."""
    assert isinstance(old, ast.Dict)
    keys, values = (new.keys, new.values) if isinstance(new, ast.Dict) else ([], [])
    count = len(old.keys)
    for start in range(len(node.keys) - count + 1):
        part = ast.Dict(node.keys[start : start + count], node.values[start : start + count])
        if same(part, old):
            yield ast.Dict(
                [*node.keys[:start], *keys, *node.keys[start + count :]],
                [*node.values[:start], *values, *node.values[start + count :]],
            )


def _unwrap(tree: ast.Module, meanings: Meanings) -> Iterator[Edit]:
    wanted = {kind: nodes for kind, nodes in meanings.items() if kind in ("header", "try")}
    for spot in spots(tree):
        for _, where in standing(spot, wanted):
            yield where, getattr(spot.node, "body", [])


def _move(tree: ast.Module, snippets: str) -> list[Edit]:
    for word in ("before", "after"):
        for one, other in halves(snippets, f" {word} "):
            found = [*_place(tree, one), *_place(tree, other)]
            if len(found) == 2:
                moved, there = found
                start = (there.start or 0) + (there.count if word == "after" else 0)
                block = getattr(moved.parent, moved.field)
                nodes = block[moved.start : (moved.start or 0) + moved.count]
                return [(moved, []), (Spot(there.parent, there.field, start, 0), nodes)]
    return []


def _place(tree: ast.Module, snippet: str) -> list[Spot]:
    """Return where statements stand: one place, or none."""
    code, number = numbered(snippet)
    wanted = {k: nodes for k, nodes in readable(code).items() if k in ("statements", *HEADERS)}
    places = (where for spot in spots(tree) for _, where in standing(spot, wanted))
    found: list[Edit] = [(place, []) for place in places]
    return [spot for spot, _ in _only(found, code, number)]


def _replacement(tree: ast.Module, change: str) -> list[Edit]:
    for old, new in halves(change, " -> "):
        snippet, number = numbered(old)
        after = readable(new)
        before = {k: nodes for k, nodes in readable(snippet).items() if k in after}
        if "expression" in before:
            before.pop("statements", None)
        if before:
            edits = [e for spot in spots(tree) for e in _replacements(spot, before, after)]
            return _only(edits, snippet, number)
    raise MisfitError(f"{change!r} has no operator, and is not `code -> code`")


def _replacements(spot: Spot, before: Meanings, after: Meanings) -> Iterator[Edit]:
    for kind, where in standing(spot, before):
        node = where.node
        kept = {
            field: getattr(node, field)
            for field in BARE
            if kind in HEADERS and isinstance(getattr(node, field, None), list)
        }
        yield where, [_with(after[kind][0], kept)] if kind in HEADERS else after[kind]
    if "pair" in before and isinstance(spot.node, ast.Dict):
        for pairs in _with_pairs(spot.node, before["pair"][0], after["pair"][0]):
            yield spot, [pairs]


OPERATORS: dict[str, Callable[[ast.Module, Meanings], Iterator[Edit]]] = {
    **{name: _become(name) for name in ("never", "always", "not")},
    "drop": _drop,
    "unwrap": _unwrap,
}
