"""Verbs that are imported when they are run: what only lists them starts at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


@dataclass(frozen=True, slots=True)
class Verb:
    """A function or an app of verbs, as ``module:name``, and the sentence that tells what it does.

    The sentence is that of the function's docstring or of the app's help; a test holds them equal.
    """

    where: str
    help: str

    def load(self) -> Any:
        """Import it."""
        module, _, name = self.where.partition(":")
        return getattr(import_module(module), name)


@dataclass(frozen=True, slots=True)
class Verbs:
    """Verbs that share a first word."""

    help: str
    verbs: Mapping[str, Verb]


def commands(index: Mapping[str, Verb | Verbs]) -> dict[str, TyperCommand | TyperGroup]:
    """Return the commands of an index, by name and in its order."""
    return {name: _command(name, entry) for name, entry in index.items()}


def _command(name: str, entry: Verb | Verbs) -> TyperCommand | TyperGroup:
    if isinstance(entry, Verb):
        return _Deferred(name, entry)
    group: dict[str, Any] = dict(commands(entry.verbs))
    return TyperGroup(name=name, help=entry.help, commands=group, no_args_is_help=True)


class _Deferred(TyperCommand):
    """Stands for a verb in listings; what is parsed and run is the verb itself."""

    def __init__(self, name: str, verb: Verb) -> None:
        super().__init__(name, help=verb.help)
        self._verb = verb

    def make_context(self, *args: Any, **extra: Any) -> Any:
        loaded = self._verb.load()
        app = loaded if isinstance(loaded, typer.Typer) else _app_of(self.name, loaded)
        return typer.main.get_command(app).make_context(*args, **extra)


def _app_of(name: str | None, function: Any) -> typer.Typer:
    app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    app.command(name)(function)
    return app
