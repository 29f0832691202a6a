"""The code of the product by its functions' names, and tests by theirs."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.faults.changes import changed, fits
from tests.faults.snippets import MisfitError

ROOT = Path(__file__).parents[2]
PRODUCT = ("shared", "cli", "spark", "functions", "bench", "tools")
TEST = re.compile(r"^(?:class (\w+)|(Test\w+) =|( *)(?:async )?def (test_\w+))", re.MULTILINE)
"""Classes, state machines of Hypothesis, and functions."""
Named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class Place:
    """A function, class, assignment or module, and the file that it is in."""

    path: Path
    text: str
    node: ast.stmt | ast.Module

    def changed(self, change: str) -> str:
        """Return the text of the file with a change in it."""
        nodes = changed(self.node, change)
        if isinstance(self.node, ast.Module):
            return unparsed(nodes, 0)
        lines = self.text.splitlines(keepends=True)
        decorators = getattr(self.node, "decorator_list", [])
        first = min(node.lineno for node in (self.node, *decorators))
        new = unparsed(nodes, self.node.col_offset // 4)
        return "".join([*lines[: first - 1], new, *lines[self.node.end_lineno :]])


class Code:
    """The code below a folder."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root

    def place(self, function: str, change: str) -> Place:
        """Return the only function of a name in which a change finds what it changes.

        Raises:
            MisfitError: there is none, or there are several.
        """
        module, _, name = function.rpartition(":")
        places = self.places.get(name, []) if name else self.modules
        places = [place for place in places if _is_in(place.path, module)]
        if not places:
            raise MisfitError("there is no such function")
        if len(places) > 1:
            places = [place for place in places if fits(place.node, change)]
        if len(places) != 1:
            where = ", ".join(str(place.path.relative_to(self.root)) for place in places)
            fitting = (
                f"fits several of this name, in {where}" if where else "fits none of this name"
            )
            raise MisfitError(fitting)
        return places[0]

    def test(self, name: str) -> str:
        """Return the argument with which pytest runs the test of a name, or a path as it is.

        Raises:
            MisfitError: there is no such test, or there are several.
        """
        if "/" in name:
            if not (self.root / name).exists():
                raise MisfitError(f"there is no {name}")
            return name
        function, bracket, parameters = name.partition("[")
        module, _, function = function.rpartition(":")
        found = [t for t in self._tests.get(function, []) if _is_in(Path(t[0]), module)]
        if len(found) != 1:
            where = ", ".join(path for path, _ in found)
            raise MisfitError(f"{name} is a test of {where or 'no file'}")
        return "::".join(found[0]) + bracket + parameters

    @cached_property
    def modules(self) -> list[Place]:
        """Return the modules of the product."""
        paths = [path for part in PRODUCT for path in sorted((self.root / part).rglob("*.py"))]
        texts = {path: path.read_text() for path in paths}
        return [Place(path, text, ast.parse(text)) for path, text in texts.items()]

    @cached_property
    def places(self) -> dict[str, list[Place]]:
        """Return functions, classes and constants by their qualified names."""
        found = defaultdict(list)
        for module in self.modules:
            for name, node in _named(module.node, ""):
                found[name].append(Place(module.path, module.text, node))
        return found

    @cached_property
    def _tests(self) -> dict[str, list[tuple[str, str]]]:
        found = defaultdict(list)
        for path in sorted((self.root / "tests").rglob("*.py")):
            group = ""
            for line in TEST.finditer(path.read_text()):
                group = line[1] or (group if line[3] else "")
                if test := line[2] or line[4]:
                    name = f"{group}::{test}" if group else test
                    found[test].append((path.relative_to(self.root).as_posix(), name))
        return found


def unparsed(nodes: list[ast.stmt], depth: int) -> str:
    """Return the text of statements that stand in so many blocks."""
    for _ in range(depth):
        nodes = [ast.If(ast.Constant(True), nodes, [])]
    module = ast.fix_missing_locations(ast.Module(nodes, []))
    return ast.unparse(module).split("\n", depth)[depth].lstrip("\n") + "\n"


def _is_in(path: Path, module: str) -> bool:
    dotted = "." + ".".join(path.with_suffix("").parts)
    return not module or dotted.removesuffix(".__init__").endswith("." + module)


def _named(block: ast.AST, prefix: str) -> Iterator[tuple[str, ast.stmt]]:
    """Yield functions, classes and assigned names of a block, with their qualified names."""
    for node in ast.iter_child_nodes(block):
        if isinstance(node, Named):
            yield prefix + node.name, node
            yield from _named(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.stmt):
            is_constant = isinstance(block, (ast.Module, ast.ClassDef))
            yield from ((prefix + name, node) for name in _assigned(node) if is_constant)
            yield from _named(node, prefix)


def _assigned(node: ast.stmt) -> list[str]:
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    names = [name for target in targets for name in getattr(target, "elts", [target])]
    return [name.id for name in names if isinstance(name, ast.Name)]
