"""`sam build` and `sam deploy` need no options: samconfig.toml says what the template needs."""

from __future__ import annotations

import tomllib
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from tests.template.conftest import ROOT

if TYPE_CHECKING:
    from click import Command

SAMCONFIG = tomllib.loads((ROOT / "samconfig.toml").read_text())["default"]
USED = {
    "validate": "validate.validate",
    "build": "build.command",
    "invoke": "local.invoke.cli",
    "deploy": "deploy.command",
}
"""The commands that read the template, each with its module in SAM."""


def command(name: str) -> Command:
    """Return a command of SAM, which takes long to import."""
    found: Command = import_module(f"samcli.commands.{USED[name]}").cli
    return found


@pytest.mark.parametrize("name", USED)
def test_each_command_of_sam_that_reads_the_template_expands_its_loops(name: str) -> None:
    """Without, it would take a loop for a resource, and fail."""
    assert SAMCONFIG["global"]["parameters"] == {"language_extensions": True}
    assert "language_extensions" in {parameter.name for parameter in command(name).params}


def test_a_deployment_may_do_what_the_template_needs() -> None:
    parameters = SAMCONFIG["deploy"]["parameters"]
    assert {*parameters["capabilities"].split()} == {"CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"}
    assert {*parameters} <= {parameter.name for parameter in command("deploy").params}
