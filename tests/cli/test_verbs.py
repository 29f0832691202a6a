"""The index of verbs is true, what lists them starts at once, and shells complete names."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping

import pytest
import typer
from typer.testing import CliRunner

from dormouse_cli.main import VERBS, DeferredVerb, Verbs, _app_of, app
from dormouse_cli.session import Session
from tests.cli.conftest import Dormouse
from tests.cli.test_imports import RUN, imported, run
from tests.support.instances import InMemory


def all_verbs(
    index: Mapping[str, str | Verbs], before: str = ""
) -> Iterator[tuple[str, DeferredVerb]]:
    for name, entry in index.items():
        if isinstance(entry, str):
            yield before + name, DeferredVerb(name, entry)
        else:
            yield from all_verbs(entry.verbs, f"{before}{name} ")


def spelled(text: str) -> str:
    """Return a text without what it is set in: spaces, and lines around it."""
    return re.sub(r"[\s│]", "", text)


def test_every_verb_has_help_and_is_listed_with_what_that_begins_with() -> None:
    for name, verb in all_verbs(VERBS):
        loaded = verb.load()
        text = loaded.info.help if isinstance(loaded, typer.Typer) else inspect.getdoc(loaded)
        paragraph = " ".join(text.partition("\n\n")[0].split())
        assert paragraph.startswith(verb.help), name
        assert verb.help.endswith("."), name
        result = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "200"})
        assert result.exit_code == 0, name
        command = typer.main.get_command(
            loaded if isinstance(loaded, typer.Typer) else _app_of(name, loaded)
        )
        helps = [getattr(each, "help", None) or "" for each in command.params]
        for wanted in (text, *helps):  # no markup eats a part of it
            assert spelled(wanted) in spelled(result.stdout), (name, wanted)
        assert f"{name} [OPTIONS]" in " ".join(result.stdout.split()), result.stdout


def imported_by(*arguments: str, **environment: str) -> tuple[str, set[str]]:
    """Run the command in a process of its own; return its output and what it imported."""
    code = (
        "import sys\nfrom dormouse_cli.main import main\n"
        "try: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout, set(done.stderr.split())


def test_what_only_lists_verbs_imports_no_engine_and_no_client() -> None:
    done = run(RUN, "--help", "--", "--version", "--", "table", "--help")
    assert done.stdout.count("ormouse") >= 3
    assert not imported(done) & {"pyarrow", "datafusion", "boto3", "dormouse.client"}


def test_a_shell_completes_verbs_without_the_engine() -> None:
    output, modules = imported_by(
        _DORMOUSE_COMPLETE="complete_bash", COMP_WORDS="dormouse table re", COMP_CWORD="2"
    )
    assert output.split() == ["rename", "reinitialise"]
    assert not modules & {"pyarrow", "datafusion", "boto3", "dormouse.client"}


def completed(words: str, session: Session) -> list[str]:
    result = CliRunner().invoke(
        app,
        prog_name="dormouse",
        obj=session,
        env={
            "_DORMOUSE_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
        },
    )
    return result.stdout.split()


def test_a_shell_completes_names_of_tables(flights: Dormouse, memory: InMemory) -> None:
    assert completed("dormouse query fl", Session(instance=memory.instance)) == ["flights"]
    assert completed("dormouse query x", Session(instance=memory.instance)) == []


def test_completion_is_silent_where_there_is_no_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DORMOUSE_INSTANCE", raising=False)
    assert completed("dormouse query fl", Session()) == []


def test_a_near_name_is_suggested(flights: Dormouse) -> None:
    result = flights("status", "flihgts")
    assert result.exit_code == 3
    assert "did you mean flights?" in result.stderr
