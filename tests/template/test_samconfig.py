"""`sam build` and `sam deploy` need no options: samconfig.toml says what the template needs."""

from __future__ import annotations

import tomllib

import pytest
from click import Command
from samcli.commands.build.command import cli as build  # type: ignore[import-untyped]
from samcli.commands.deploy.command import cli as deploy  # type: ignore[import-untyped]
from samcli.commands.local.invoke.cli import cli as invoke  # type: ignore[import-untyped]
from samcli.commands.validate.validate import cli as validate  # type: ignore[import-untyped]

from tests.template.conftest import ROOT

SAMCONFIG = tomllib.loads((ROOT / "samconfig.toml").read_text())["default"]
USED = [validate, build, invoke, deploy]


@pytest.mark.parametrize("command", USED, ids=lambda command: command.name)
def test_each_command_of_sam_that_reads_the_template_expands_its_loops(command: Command) -> None:
    """Without, it would take a loop for a resource, and fail."""
    assert SAMCONFIG["global"]["parameters"] == {"language_extensions": True}
    assert "language_extensions" in {parameter.name for parameter in command.params}


def test_a_deployment_may_do_what_the_template_needs() -> None:
    parameters = SAMCONFIG["deploy"]["parameters"]
    assert {*parameters["capabilities"].split()} == {"CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"}
    assert {*parameters} <= {parameter.name for parameter in deploy.params}
