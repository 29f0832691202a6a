"""Snippets of code, and where they stand in the tree of a function.

Snippets are parsed and compared with nodes, so neither the format of the code nor its comments
matter.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

BLOCKS = ("body", "orelse", "finalbody")
BARE = (*BLOCKS, "handlers", "cases", "decorator_list")
"""What the header of a statement leaves out."""
HEADERS = ("header", "try", "handler", "case")
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


Meanings = dict[str, list[ast.AST]]
"""The nodes that a snippet can stand for, by what it then is."""


def numbered(snippet: str) -> tuple[str, int]:
    """Split a snippet from the number behind it."""
    found = NUMBER.search(snippet)
    return (snippet[: found.start()], int(found[1])) if found else (snippet, 0)


def halves(text: str, between: str) -> Iterator[tuple[str, str]]:
    """Yield the ways to split a text into two snippets that can be parsed."""
    parts = text.split(between)
    for number in range(1, len(parts)):
        first, second = between.join(parts[:number]), between.join(parts[number:])
        if readable(numbered(first)[0]) and readable(second):
            yield first, second


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
def readable(snippet: str) -> Meanings:
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


def meanings_of(snippet: str) -> Meanings:
    """Return the nodes that a snippet can stand for, by kind.

    Raises:
        MisfitError: it is not code.
    """
    found = readable(snippet)
    if not found:
        raise MisfitError(f"{snippet!r} is not code")
    return found


def _one(nodes: list[ast.AST], kind: type[ast.AST]) -> list[ast.AST]:
    return nodes if len(nodes) == 1 and isinstance(nodes[0], kind) else []


def _header(node: ast.AST) -> ast.AST:
    """Return a compound statement (or `except` or `case`) without its blocks and decorators."""
    bare = copy.copy(node)
    for field in BARE:
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
    "try": ("{}\n 0\nfinally: 0", lambda node: [_header(node)]),
}
"""What a snippet can be beside statements: the code around it, and where its node is in that."""


# Where it stands


def spots(tree: ast.AST) -> Iterator[Spot]:
    """Yield where nodes stand, from the outside to the inside; docstrings are passed over."""
    for field, value in ast.iter_fields(tree):
        for number, node in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(node, ast.AST) and not _is_docstring(tree, field, number, node):
                yield Spot(tree, field, number if isinstance(value, list) else None)
                yield from spots(node)


def _is_docstring(parent: ast.AST, field: str, number: int, node: ast.AST) -> bool:
    documented = isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    return (
        documented
        and (field, number) == ("body", 0)
        and isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
    )


def standing(spot: Spot, meanings: Meanings) -> Iterator[tuple[str, Spot]]:
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
