"""Every verb of the command, in the order in which it lists them; each is imported when it runs."""

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
        functions = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name]
        text = ast.get_docstring(functions[0] if functions else tree) or ""
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


_TABLE = Verbs(
    "Create, list, show, change, empty and delete tables.",
    {
        "add": Verb("commands.table:add"),
        "list": Verb("commands.table:list_tables"),
        "unregistered": Verb("commands.table:unregistered"),
        "show": Verb("commands.table:show"),
        "alter": Verb("commands.table:alter"),
        "rename": Verb("commands.table:rename"),
        "set": Verb("commands.table:set_properties"),
        "unset": Verb("commands.table:unset_properties"),
        "online": Verb("commands.table:online"),
        "offline": Verb("commands.table:offline"),
        "apply": Verb("commands.apply:apply"),
        "purge": Verb("commands.purge:purge"),
        "reinitialise": Verb("commands.table:reinitialise"),
        "delete": Verb("commands.table:delete"),
    },
)
_SPLITS = Verbs(
    "Split points: the keys at which partitions of a table meet.",
    {
        "estimate": Verb("commands.splits:estimate"),
        "export": Verb("commands.splits:export"),
    },
)
_INSTANCE = Verbs(
    "Properties of the instance, the defaults of all its tables.",
    {
        "show": Verb("commands.table:show_defaults"),
        "set": Verb("commands.table:set_defaults"),
        "unset": Verb("commands.table:unset_defaults"),
    },
)
_ACCESS = Verbs(
    "Access rules: which principals may use which tables through services of the instance.",
    {
        "list": Verb("commands.access:list_rules"),
        "grant": Verb("commands.access:grant"),
        "revoke": Verb("commands.access:revoke"),
        "check": Verb("commands.access:check"),
        "off": Verb("commands.access:off"),
    },
)
_ICEBERG = Verbs(
    "What is published for readers of Iceberg: show, publish, check, list files, serve.",
    {
        "show": Verb("commands.iceberg:show"),
        "publish": Verb("commands.iceberg:publish"),
        "check": Verb("commands.iceberg:check"),
        "files": Verb("commands.iceberg:files"),
        "serve": Verb("commands.iceberg:serve"),
    },
)
_QUERIES = Verbs(
    "Queries over messages: list, show, read their results, cancel.",
    {
        "list": Verb("commands.queries:list_queries"),
        "show": Verb("commands.queries:show"),
        "result": Verb("commands.queries:result"),
        "cancel": Verb("commands.queries:cancel"),
    },
    default="list",
)
_DLQ = Verbs(
    "Dead letters (DLQ), messages that failed too often: show, redrive, discard.",
    {
        "list": Verb("commands.queues:list_dead_letters"),
        "show": Verb("commands.queues:show"),
        "redrive": Verb("commands.queues:redrive"),
        "discard": Verb("commands.queues:discard"),
    },
)

VERBS: dict[str, Verb | Verbs] = {
    "table": _TABLE,
    "ingest": Verb("commands.ingest:ingest"),
    "wait": Verb("commands.ingest:wait_until_done"),
    "work": Verb("commands.upkeep:work"),
    "serve": Verb("commands.console:serve"),
    "console": Verb("commands.console:console"),
    "query": Verb("commands.query:query"),
    "sql": Verb("commands.sql:sql"),
    "delete": Verb("commands.purge:delete_rows"),
    "queries": _QUERIES,
    "export": Verb("commands.export:export"),
    "copy": Verb("commands.export:copy"),
    "versions": Verb("commands.versions:versions"),
    "tag": Verb("commands.versions:tag"),
    "untag": Verb("commands.versions:untag"),
    "tags": Verb("commands.versions:tags"),
    "changes": Verb("commands.query:changes"),
    "restore": Verb("commands.versions:restore"),
    "status": Verb("commands.contents:status"),
    "partitions": Verb("commands.contents:partitions"),
    "shards": Verb("commands.contents:shards"),
    "files": Verb("commands.contents:files"),
    "why": Verb("commands.query:why"),
    "row-tags": Verb("commands.contents:row_tags"),
    "jobs": Verb("commands.jobs:jobs"),
    "metrics": Verb("commands.contents:metrics"),
    "report": Verb("report.contents:report"),
    "compact": Verb("commands.upkeep:compact"),
    "split": Verb("commands.upkeep:split"),
    "gc": Verb("commands.upkeep:collect"),
    "iceberg": _ICEBERG,
    "splits": _SPLITS,
    "queues": Verb("commands.queues:queues"),
    "dlq": _DLQ,
    "check": Verb("commands.check:check"),
    "rebuild": Verb("commands.check:rebuild"),
    "instance": _INSTANCE,
    "access": _ACCESS,
    "template": Verb("commands.template:template"),
    "local": Verb("local.commands:app"),
}
