"""Files of Python for the rules about them: each is read and parsed once in a process."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
LIBRARY = "shared/dormouse"
HOMES = {"dormouse": "shared", "dormouse_cli": "cli", "dormouse_spark": "spark"}
"""The folders of packages that are not at the top."""


class Import(NamedTuple):
    """What an import names: a module, or a name in one."""

    line: int
    name: str


class Function(NamedTuple):
    """A function or method, and how many lines it has."""

    line: int
    name: str
    lines: int


class Class(NamedTuple):
    """A class, and the expressions that it has as bases."""

    line: int
    name: str
    bases: list[str]


class Statements(NamedTuple):
    """What the statements of a file say, wherever in the file they are."""

    imports: list[Import]
    functions: list[Function]
    classes: list[Class]


def fail_for(breaches: Iterable[object]) -> None:
    """Fail if there are breaches of a rule, and list them all."""
    lines = [str(breach) for breach in breaches]
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)


@dataclass(frozen=True)
class Source:
    """A file of Python, by its path from the root of the repository."""

    place: str
    text: str

    @property
    def tree(self) -> ast.Module:
        """Parse the file. Trees are not kept: those of all files take half a gigabyte."""
        return ast.parse(self.text)

    @property
    def module(self) -> str:
        """The name of its module, as it is imported."""
        parts = Path(self.place).with_suffix("").parts
        return ".".join(parts[parts[0] in HOMES.values() :]).removesuffix(".__init__")

    @cached_property
    def statements(self) -> Statements:
        result = Statements([], [], [])
        for node in _statements_in(self.tree):
            if isinstance(node, ast.Import):
                result.imports.extend(Import(node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
                result.imports.extend(Import(node.lineno, name) for name in names)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                result.functions.append(Function(node.lineno, node.name, lines))
            elif isinstance(node, ast.ClassDef):
                bases = [ast.unparse(base) for base in node.bases]
                result.classes.append(Class(node.lineno, node.name, bases))
        return result

    def matches(self, pattern: str) -> list[str]:
        """Return what of the text matches a regular expression, each with its place."""
        return [
            f"{self.place}:{self.text.count(chr(10), 0, match.start()) + 1}: {match[0]}"
            for match in re.finditer(pattern, self.text)
        ]


def _statements_in(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield all statements, and no expressions, which are nine tenths of a tree."""
    rest: list[ast.AST] = [tree]
    while rest:
        node = rest.pop()
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            rest.extend(getattr(node, field, ()))


def sources(*folders: str) -> list[Source]:
    """Return the files of Python in these folders, by their paths."""
    return [
        source
        for folder in folders
        for source in _sources_below(folder.partition("/")[0])
        if source.place.startswith(f"{folder}/")
    ]


@cache
def _sources_below(folder: str) -> list[Source]:
    paths = sorted((ROOT / folder).rglob("*.py"))
    return [Source(path.relative_to(ROOT).as_posix(), path.read_text()) for path in paths]
