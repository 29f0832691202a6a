"""Changes of parsed code: what a planted fault does to a function.

`tests.faults.plants` says how they are written. Snippets are parsed and compared with the nodes of
the function, so neither the format of the code nor its comments matter.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import cast

BLOCKS = ("body", "orelse", "finalbody")
LISTS = ("args", "keywords", "elts", "ifs", "generators", "decorator_list", "bases")
"""Fields of which an entry can be dropped, beside blocks and the operands of operators."""
HEADERS = ("header", "handler", "case")
NUMBER = re.compile(r" #(\d+)$")


class MisfitError(Exception):
    """What a change changes is not there exactly once, or the change cannot be read."""


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a node stands in a tree: the only one of a field, or from `start` in its list."""

    parent: ast.AST
    field: str
    start: int | None
    count: int = 1

    @property
    def node(self) -> ast.AST:
        """Return the node, of several the first."""
        found = getattr(self.parent, self.field)
        node: ast.AST = found if self.start is None else found[self.start]
        return node

    def become(self, nodes: list[ast.AST]) -> None:
        """Put other nodes there; a block that gets empty passes."""
        if self.start is None:
            setattr(self.parent, self.field, nodes[0])
            return
        block = getattr(self.parent, self.field)
        block[self.start : self.start + self.count] = nodes
        if not block and self.field in ("body", "finalbody"):
            block.append(ast.Pass())


Edit = tuple[Spot, list[ast.AST]]
Meanings = dict[str, list[ast.AST]]


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
    is_code = operator == "not" and any(_halves(change, " -> "))
    if is_code or operator not in OPERATORS:
        return _replacement(tree, change)
    snippet, number = _numbered(rest)
    return _only(list(OPERATORS[operator](tree, _meanings(snippet))), snippet, number)


def _only(edits: list[Edit], snippet: str, number: int) -> list[Edit]:
    """Return the edit with this number (from 1), or the only one (0); nothing if there is none."""
    if number:
        return edits[number - 1 : number]
    if len(edits) > 1:
        raise MisfitError(f"{snippet!r} is there {len(edits)} times")
    return edits


def _numbered(snippet: str) -> tuple[str, int]:
    """Split a snippet from the number behind it."""
    found = NUMBER.search(snippet)
    return (snippet[: found.start()], int(found[1])) if found else (snippet, 0)


def _halves(text: str, between: str) -> Iterator[tuple[str, str]]:
    """Yield the ways to split a text into two snippets that can be parsed."""
    parts = text.split(between)
    for number in range(1, len(parts)):
        halves = between.join(parts[:number]), between.join(parts[number:])
        if _readable(_numbered(halves[0])[0]) and _readable(halves[1]):
            yield halves


def same(one: object, other: object) -> bool:
    """Return whether two nodes, or lists of them, are the same code, be it read or written."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if not isinstance(one, ast.AST):
        return one == other
    fields = (field for field in one._fields if field != "ctx")
    return all(same(getattr(one, name, None), getattr(other, name, None)) for name in fields)


# What a snippet means


@cache
def _readable(snippet: str) -> Meanings:
    """Return the nodes that a snippet can stand for, by kind; nothing if it is not code."""
    found: Meanings = {}
    for kind, (code, nodes) in KINDS.items():
        if (kind in HEADERS) != snippet.endswith(":"):
            continue
        try:
            found[kind] = nodes(ast.parse(code.format(snippet)).body[0])
        except (SyntaxError, AttributeError, IndexError):
            continue
    with contextlib.suppress(SyntaxError):
        found["statements"] = list(ast.parse(snippet).body)
    return {kind: nodes for kind, nodes in found.items() if nodes}


def _meanings(snippet: str) -> Meanings:
    found = _readable(snippet)
    if not found:
        raise MisfitError(f"{snippet!r} is not code")
    return found


def _one(nodes: list[ast.AST], kind: type[ast.AST]) -> list[ast.AST]:
    return nodes if len(nodes) == 1 and isinstance(nodes[0], kind) else []


def _header(node: ast.AST) -> ast.AST:
    """Return a compound statement (or `except` or `case`) without its blocks and decorators."""
    bare = copy.copy(node)
    for field in (*BLOCKS, "handlers", "cases", "decorator_list"):
        if isinstance(getattr(node, field, None), list):
            setattr(bare, field, [])
    return bare


KINDS: dict[str, tuple[str, Callable[..., list[ast.AST]]]] = {
    "expression": ("(\n{}\n)", lambda node: [node.value]),
    "starred": ("f({})", lambda node: _one(node.value.args, ast.Starred)),
    "keyword": ("f({})", lambda node: _one(node.value.keywords, ast.keyword)),
    "pair": ("{{{}}}", lambda node: _one([node.value], ast.Dict)),
    "clause": ("[0 {}]", lambda node: node.value.generators),
    "argument": ("def f({}): 0", lambda node: _one(node.args.args, ast.arg)),
    "handler": ("try: 0\n{} 0", lambda node: [_header(node.handlers[0])]),
    "case": ("match 0:\n {} 0", lambda node: [_header(node.cases[0])]),
    "header": ("{}\n 0", lambda node: [_header(node)]),
}
"""What a snippet can be beside statements: the code around it, and where its node is in that."""


# Where it stands


def _spots(tree: ast.AST) -> Iterator[Spot]:
    """Yield where nodes stand, from the outside to the inside; docstrings are passed over."""
    for field, value in ast.iter_fields(tree):
        for number, node in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(node, ast.AST) and not _is_docstring(tree, field, number, node):
                yield Spot(tree, field, number if isinstance(value, list) else None)
                yield from _spots(node)


def _is_docstring(parent: ast.AST, field: str, number: int, node: ast.AST) -> bool:
    documented = isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    return (
        documented
        and (field, number) == ("body", 0)
        and isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
    )


def _standing(spot: Spot, meanings: Meanings) -> Iterator[tuple[str, Spot]]:
    """Yield as what a snippet stands at a spot, and where exactly."""
    for kind, nodes in meanings.items():
        if kind == "statements" and spot.field in BLOCKS and spot.start is not None:
            block = getattr(spot.parent, spot.field)[spot.start : spot.start + len(nodes)]
            if len(block) == len(nodes) and all(map(same, block, nodes)):
                yield kind, Spot(spot.parent, spot.field, spot.start, len(nodes))
        elif kind in HEADERS:
            if type(spot.node) is type(nodes[0]) and same(_header(spot.node), nodes[0]):
                yield kind, spot
        elif kind not in ("statements", "pair") and same(spot.node, nodes[0]):
            yield kind, spot


# The operators


def _become(name: str) -> Callable[[ast.Module, Meanings], Iterator[Edit]]:
    """Return the operator that makes an expression false, true or its opposite."""

    def edits(tree: ast.Module, meanings: Meanings) -> Iterator[Edit]:
        wanted = {kind: nodes for kind, nodes in meanings.items() if kind == "expression"}
        for spot in _spots(tree):
            for _ in _standing(spot, wanted):
                negated = ast.UnaryOp(ast.Not(), cast(ast.expr, spot.node))
                yield spot, [negated if name == "not" else ast.Constant(name == "always")]

    return edits


def _drop(tree: ast.Module, meanings: Meanings) -> Iterator[Edit]:
    blocks = {k: nodes for k, nodes in meanings.items() if k in ("statements", *HEADERS)}
    entries = {k: nodes for k, nodes in meanings.items() if k not in blocks}
    for spot in _spots(tree):
        for _, where in _standing(spot, blocks):
            yield where, []
        for shorter in _shorter(spot.node, entries):
            yield spot, [shorter]


def _shorter(node: ast.AST, entries: Meanings) -> Iterator[ast.AST]:
    """Yield a node without an operand, element, argument, pair, clause or decorator."""
    for field in (*LISTS, *(["values"] if isinstance(node, ast.BoolOp) else [])):
        found = getattr(node, field, [])
        for number in range(len(found) if isinstance(found, list) else 0):
            if list(_standing(Spot(node, field, number), entries)):
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
    wanted = {kind: nodes for kind, nodes in meanings.items() if kind == "header"}
    for spot in _spots(tree):
        for _, where in _standing(spot, wanted):
            yield where, getattr(spot.node, "body", [])


def _move(tree: ast.Module, snippets: str) -> list[Edit]:
    for word in ("before", "after"):
        for one, other in _halves(snippets, f" {word} "):
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
    code, number = _numbered(snippet)
    wanted = {k: nodes for k, nodes in _readable(code).items() if k in ("statements", *HEADERS)}
    spots = (where for spot in _spots(tree) for _, where in _standing(spot, wanted))
    found: list[Edit] = [(spot, []) for spot in spots]
    return [spot for spot, _ in _only(found, code, number)]


def _replacement(tree: ast.Module, change: str) -> list[Edit]:
    for old, new in _halves(change, " -> "):
        snippet, number = _numbered(old)
        after = _readable(new)
        before = {k: nodes for k, nodes in _readable(snippet).items() if k in after}
        if "expression" in before:
            before.pop("statements", None)
        if before:
            edits = [e for spot in _spots(tree) for e in _replacements(spot, before, after)]
            return _only(edits, snippet, number)
    raise MisfitError(f"{change!r} has no operator, and is not `code -> code`")


def _replacements(spot: Spot, before: Meanings, after: Meanings) -> Iterator[Edit]:
    for kind, where in _standing(spot, before):
        node = where.node
        kept = {
            field: getattr(node, field)
            for field in (*BLOCKS, "handlers", "cases", "decorator_list")
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
