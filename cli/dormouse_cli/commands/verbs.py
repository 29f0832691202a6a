"""Every verb of the command, in the order in which it lists them; each is imported when it runs."""

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
class Verbs:
    """Verbs that share a first word; `default` is the one that this word alone means.

    Each is a function, or an app of several verbs, as ``module:name`` below ``dormouse_cli``.
    """

    help: str
    verbs: Mapping[str, str]
    default: str = ""


def commands(index: Mapping[str, str | Verbs]) -> dict[str, TyperCommand | TyperGroup]:
    """Return the commands of an index, by name and in its order."""
    return {name: _command(name, entry) for name, entry in index.items()}


def _command(name: str, entry: str | Verbs) -> TyperCommand | TyperGroup:
    if isinstance(entry, str):
        return DeferredVerb(name, entry)
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


class DeferredVerb(TyperCommand):
    """A verb in listings. To parse and run it imports the verb itself."""

    def __init__(self, name: str, verb: str) -> None:
        self._module, _, self._function = verb.partition(":")
        super().__init__(name)

    @property
    def help(self) -> str:
        """The first paragraph of the function's docstring, or of an app's module.

        It is read from the source: to import the module would take longer than to list all verbs.
        """
        spec = find_spec(f"dormouse_cli.{self._module}")
        assert spec is not None and spec.origin is not None, self._module
        tree = ast.parse(Path(spec.origin).read_bytes())
        functions = (n for n in tree.body if isinstance(n, ast.FunctionDef))
        described = next((each for each in functions if each.name == self._function), tree)
        text = ast.get_docstring(described) or ""
        return " ".join(text.partition("\n\n")[0].split())

    @help.setter
    def help(self, text: str | None) -> None:
        """Ignore what the base class sets: the verb knows its help."""

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Return the context of the verb itself."""
        return self._loaded.make_context(*args, **extra)

    def load(self) -> Any:
        """Import the module, and return the function or the app."""
        return getattr(import_module(f"dormouse_cli.{self._module}"), self._function)

    @cached_property
    def _loaded(self) -> Any:
        verb = self.load()
        app = verb if isinstance(verb, typer.Typer) else _app_of(self.name, verb)
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
        "add": "commands.table:add",
        "list": "commands.table:list_tables",
        "unregistered": "commands.table:unregistered",
        "show": "commands.table:show",
        "alter": "commands.table:alter",
        "rename": "commands.table:rename",
        "set": "commands.table:set_properties",
        "unset": "commands.table:unset_properties",
        "online": "commands.table:online",
        "offline": "commands.table:offline",
        "apply": "commands.apply:apply",
        "purge": "commands.purge:purge",
        "forget": "commands.purge:forget",
        "reinitialise": "commands.table:reinitialise",
        "delete": "commands.table:delete",
    },
)
_SPLITS = Verbs(
    "Split points: the keys at which partitions of a table meet.",
    {"estimate": "commands.splits:estimate", "export": "commands.splits:export"},
)
_INSTANCE = Verbs(
    "Properties of the instance, the defaults of all its tables.",
    {
        "show": "commands.table:show_defaults",
        "set": "commands.table:set_defaults",
        "unset": "commands.table:unset_defaults",
    },
)
_ACCESS = Verbs(
    "Access rules: which principals may use which tables through services of the instance.",
    {
        "list": "commands.access:list_rules",
        "grant": "commands.access:grant",
        "revoke": "commands.access:revoke",
        "check": "commands.access:check",
        "off": "commands.access:off",
    },
)
_ICEBERG = Verbs(
    "What is published for readers of Iceberg: show, publish, check, list files, serve.",
    {
        "show": "commands.iceberg:show",
        "publish": "commands.iceberg:publish",
        "check": "commands.iceberg:check",
        "files": "commands.iceberg:files",
        "serve": "commands.iceberg:serve",
    },
)
_QUERIES = Verbs(
    "Queries over messages: list, show, read their results, cancel.",
    {
        "list": "commands.query:list_queries",
        "show": "commands.query:show",
        "result": "commands.query:result",
        "cancel": "commands.query:cancel",
    },
    default="list",
)
_DLQ = Verbs(
    "Dead letters (DLQ), messages that failed too often: show, redrive, discard.",
    {
        "list": "commands.queues:list_dead_letters",
        "show": "commands.queues:show",
        "redrive": "commands.queues:redrive",
        "discard": "commands.queues:discard",
    },
)

VERBS: dict[str, str | Verbs] = {
    "table": _TABLE,
    "ingest": "commands.ingest:ingest",
    "wait": "commands.ingest:wait_until_done",
    "work": "commands.upkeep:work",
    "serve": "commands.console:serve",
    "console": "commands.console:console",
    "query": "commands.query:query",
    "sql": "commands.sql:sql",
    "delete": "commands.purge:delete_rows",
    "queries": _QUERIES,
    "export": "commands.export:export",
    "copy": "commands.export:copy",
    "versions": "commands.versions:versions",
    "tag": "commands.versions:tag",
    "untag": "commands.versions:untag",
    "tags": "commands.versions:tags",
    "changes": "commands.query:changes",
    "restore": "commands.versions:restore",
    "status": "commands.contents:status",
    "partitions": "commands.contents:partitions",
    "shards": "commands.contents:shards",
    "files": "commands.contents:files",
    "why": "commands.query:why",
    "row-tags": "commands.contents:row_tags",
    "jobs": "commands.jobs:jobs",
    "metrics": "commands.contents:metrics",
    "report": "report.contents:report",
    "compact": "commands.upkeep:compact",
    "split": "commands.upkeep:split",
    "gc": "commands.upkeep:collect",
    "iceberg": _ICEBERG,
    "splits": _SPLITS,
    "queues": "commands.queues:queues",
    "dlq": _DLQ,
    "check": "commands.check:check",
    "rebuild": "commands.check:rebuild",
    "instance": _INSTANCE,
    "access": _ACCESS,
    "template": "commands.template:template",
    "local": "local.commands:app",
}
