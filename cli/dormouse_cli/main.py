"""The `dormouse` command and its verbs, in the order of lists; each is imported when it is run."""

import ast
import inspect
import os
import signal
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from dormouse import __version__
from dormouse_cli.errors import EXIT_CODES, Commands, TerminatedError
from dormouse_cli.session import begin


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
        tree = _source_of(self._module)
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


@cache
def _source_of(module: str) -> ast.Module:
    spec = find_spec(f"dormouse_cli.{module}")
    assert spec is not None and spec.origin is not None, module
    return ast.parse(Path(spec.origin).read_bytes())


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
        "apply": "commands.table:apply",
        "purge": "commands.purge:purge",
        "forget": "commands.purge:forget",
        "reinitialise": "commands.table:reinitialise",
        "delete": "commands.table:delete",
    },
)
_SPLITS = Verbs(
    "Split points: the keys at which partitions of a table meet.",
    {"estimate": "commands.table:estimate", "export": "commands.table:export"},
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
        "list": "commands.instance:list_rules",
        "grant": "commands.instance:grant",
        "revoke": "commands.instance:revoke",
        "check": "commands.instance:check",
        "off": "commands.instance:off",
    },
)
_ICEBERG = Verbs(
    "What is published for readers of Iceberg: show, publish, check, list files, serve.",
    {
        "show": "commands.serving:show",
        "publish": "commands.serving:publish",
        "check": "commands.serving:check",
        "files": "commands.serving:files",
        "serve": "commands.serving:serve_catalog",
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
        "list": "commands.instance:list_dead_letters",
        "show": "commands.instance:show",
        "redrive": "commands.instance:redrive",
        "discard": "commands.instance:discard",
    },
)

VERBS: dict[str, str | Verbs] = {
    "table": _TABLE,
    "ingest": "commands.ingest:ingest",
    "wait": "commands.ingest:wait_until_done",
    "work": "commands.ingest:work",
    "serve": "commands.serving:serve",
    "console": "commands.serving:console",
    "query": "commands.query:query",
    "sql": "commands.query:sql",
    "delete": "commands.purge:delete_rows",
    "queries": _QUERIES,
    "export": "commands.export:export",
    "copy": "commands.export:copy",
    "versions": "commands.contents:versions",
    "tag": "commands.contents:tag",
    "untag": "commands.contents:untag",
    "tags": "commands.contents:tags",
    "changes": "commands.query:changes",
    "restore": "commands.contents:restore",
    "status": "commands.contents:status",
    "partitions": "commands.contents:partitions",
    "shards": "commands.contents:shards",
    "files": "commands.contents:files",
    "why": "commands.query:why",
    "row-tags": "commands.contents:row_tags",
    "jobs": "commands.contents:jobs",
    "metrics": "commands.contents:metrics",
    "report": "report.contents:report",
    "compact": "commands.ingest:compact",
    "split": "commands.ingest:split",
    "gc": "commands.ingest:collect",
    "iceberg": _ICEBERG,
    "splits": _SPLITS,
    "queues": "commands.instance:queues",
    "dlq": _DLQ,
    "check": "commands.check:check",
    "rebuild": "commands.check:rebuild",
    "instance": _INSTANCE,
    "access": _ACCESS,
    "template": "commands.template:template",
    "local": "local.commands:app",
}


class _Dormouse(Commands):
    """All commands."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands.update(commands(VERBS))


app = typer.Typer(
    cls=_Dormouse,
    epilog=EXIT_CODES,
    rich_markup_mode="rich",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(is_set: bool) -> None:
    if is_set:
        typer.echo(f"dormouse {__version__}")
        raise typer.Exit


@app.callback()
def choose_instance(
    ctx: typer.Context,
    instance: Annotated[
        str | None,
        typer.Option(
            "--instance",
            metavar="NAME|FOLDER",
            help="The instance: a folder, such as ./mice, or the name of a deployment or of a "
            "profile; by default $DORMOUSE_INSTANCE.",
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Tables on S3 or in a folder: drop files in, find rows by key."""
    begin(ctx, instance)


def _end(number: int, frame: FrameType | None) -> None:
    """End as Ctrl-C does: what was begun is handed back. Another SIGTERM ends the process."""
    signal.signal(number, signal.SIG_DFL)
    raise TerminatedError


def _open_streams() -> None:
    """Open what was closed (``>&-``), so that no file of the instance gets the number of a standard
    stream; what is written there is lost.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def main() -> None:
    """Run the command line."""
    _open_streams()
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)
    app(prog_name="dormouse")


if __name__ == "__main__":
    main()
