"""Commands that documents, errors and hints name are there, with the options that they have."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path

import pytest
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from dormouse_cli.main import app
from tests.architecture.sources import ROOT, fail_for

ENDS = {"|", ">", "<", "&&", "||", "#", "\\", "--"}
"""What ends the words of a command."""
_QUOTED = re.compile(r"`(dormouse [^`\n]+)`")
_LINE = re.compile(r"^(?:\$ )?(?:\w+=\S+ )?(dormouse [^\n]+)$", re.MULTILINE)


@cache
def loaded(command: TyperCommand | TyperGroup) -> TyperCommand | TyperGroup:
    """Return a verb with its options, which are imported when it is used."""
    with command.make_context("", [], resilient_parsing=True) as context:
        found = context.command
    assert isinstance(found, TyperCommand | TyperGroup)
    return found


def options(command: TyperCommand | TyperGroup) -> set[str]:
    return {name for p in command.params for name in (*p.opts, *p.secondary_opts)}


def wrong(text: str) -> str | None:
    """Return what of a command is not there, None if all is; braces stand for any word."""
    try:
        words = shlex.split(re.sub(r"\{[^}]*\}", "X", text))[1:]
    except ValueError:  # a quoted text that goes on in the next line
        words = text.split()[1:]
    command = loaded(get_command(app))
    known = options(command) | {"--help", "--install-completion"}
    verbs: list[str] = []
    is_value, is_verb = False, True
    for word in words:
        is_group = isinstance(command, TyperGroup)
        if word in ENDS or word == "…" or is_group and word.isupper():
            break
        if is_value or word.startswith("-"):
            if word.startswith("-") and word != "-" and word.partition("=")[0] not in known:
                return f"{' '.join(verbs)} has no option {word}"
            is_value = word == "--instance"
            is_verb &= is_value or not word.startswith("-")
        elif is_verb and isinstance(command, TyperGroup):
            verb = word.rstrip(",")
            if verb not in command.commands:
                return f"{' '.join(verbs)} has no verb {verb}"
            if verb != word:  # a list of verbs
                break
            command = loaded(command.commands[verb])
            verbs.append(verb)
            known |= options(command)
            if isinstance(command, TyperGroup):  # one of its verbs may be meant where none is named
                known |= {
                    name for each in command.commands.values() for name in options(loaded(each))
                }
    return None


def commands(path: Path) -> list[str]:
    text = path.read_text()
    lines = _LINE.findall(text) if path.suffix == ".md" else []
    return [*_QUOTED.findall(text), *lines]


def test_every_command_that_a_document_or_an_error_names_exists() -> None:
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "template.yaml")]
    pages += [*(ROOT / "docs").rglob("*.md")]
    pages += [path for name in ("shared", "cli", "spark") for path in (ROOT / name).rglob("*.py")]
    found = [(page, command) for page in sorted(pages) for command in commands(page)]
    assert len(found) > 200
    fail_for(
        f"{page.relative_to(ROOT)}: {command!r}: {why}"
        for page, command in found
        if (why := wrong(command))
    )


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("dormouse table compact {name} --all", "table has no verb compact"),
        ("dormouse compact flights --every", "compact has no option --every"),
        ("dormouse --instance ./mice compact flights --all", None),
    ],
)
def test_a_verb_or_an_option_that_is_not_there_is_found(command: str, why: str | None) -> None:
    assert wrong(command) == why
