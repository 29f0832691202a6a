"""Verbs that are imported when they are run: listing them starts at once."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


@dataclass(frozen=True, slots=True)
class Verb:
    """A function, or an app of several verbs, as ``module:name`` below ``dormouse_cli``."""

    where: str

    @property
    def help(self) -> str:
        """The first paragraph of the function's docstring, or of an app's module.

        It is read from the source: to import the module would take longer than to list all verbs.
        """
        module, _, name = self.where.partition(":")
        spec = find_spec(f"dormouse_cli.{module}")
        assert spec is not None and spec.origin is not None, self.where
        tree = ast.parse(Path(spec.origin).read_bytes())
        found = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name]
        text = ast.get_docstring(found[0] if found else tree) or ""
        return " ".join(text.partition("\n\n")[0].split())

    def load(self) -> Any:
        """Import the module, and return what it has of that name."""
        module, _, name = self.where.partition(":")
        return getattr(import_module(f"dormouse_cli.{module}"), name)


@dataclass(frozen=True, slots=True)
class Verbs:
    """Verbs that share a first word; `default` is the one that this word alone means."""

    help: str
    verbs: Mapping[str, Verb]
    default: str = ""


def commands(index: Mapping[str, Verb | Verbs]) -> dict[str, TyperCommand | TyperGroup]:
    """Return the commands of an index, by name and in its order."""
    return {name: _command(name, entry) for name, entry in index.items()}


def _command(name: str, entry: Verb | Verbs) -> TyperCommand | TyperGroup:
    if isinstance(entry, Verb):
        return _Deferred(name, entry)
    group: dict[str, Any] = dict(commands(entry.verbs))
    if entry.default:
        return _WithDefault(entry.default, name=name, help=entry.help, commands=group)
    return TyperGroup(name=name, help=entry.help, commands=group, no_args_is_help=True)


class _WithDefault(TyperGroup):
    """Verbs of which one is meant where none is named, also with options of its own."""

    def __init__(self, default: str, **extra: Any) -> None:
        super().__init__(**extra)
        self._default = default

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_own = bool(args) and (not args[0].startswith("-") or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if is_own else [self._default, *args])


class _Deferred(TyperCommand):
    """A verb in listings. To parse and run it imports the verb itself."""

    def __init__(self, name: str, verb: Verb) -> None:
        self._verb = verb
        super().__init__(name)

    @property
    def help(self) -> str:
        """What listings say of the verb."""
        return self._verb.help

    @help.setter
    def help(self, text: str | None) -> None:
        """Ignore what the base class sets: the verb knows its help."""

    def make_context(self, *args: Any, **extra: Any) -> Any:
        return self._loaded.make_context(*args, **extra)

    @cached_property
    def _loaded(self) -> Any:
        loaded = self._verb.load()
        app = loaded if isinstance(loaded, typer.Typer) else _app_of(self.name, loaded)
        return typer.main.get_command(app)


def _app_of(name: str | None, function: Any) -> typer.Typer:
    # Not as Markdown, which takes <long> of list<long> for a tag, and drops backslashes.
    app = typer.Typer(add_completion=False, rich_markup_mode="rich")
    paragraphs = (inspect.getdoc(function) or "").split("\n\n")
    app.command(name, help="\n\n".join(" ".join(each.split()) for each in paragraphs))(function)
    return app
