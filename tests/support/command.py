"""The command, run in this process over an instance."""

from __future__ import annotations

from functools import cache
from unittest.mock import patch

from typer import testing
from typer.testing import CliRunner, Result

from dormouse.client.instance import Instance
from dormouse_cli.main import app
from dormouse_cli.session import Session

_command = cache(testing._get_command)
"""What typer makes of the signatures of all verbs; it would do so for each run."""


def run_command(instance: Instance, *arguments: str, input: str | None = None) -> Result:
    """Run ``dormouse ARGUMENTS…``; an error that the command does not report is raised."""
    with patch.object(testing, "_get_command", _command):
        return CliRunner().invoke(
            app, arguments, obj=Session(instance=instance), input=input, catch_exceptions=False
        )
