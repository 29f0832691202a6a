"""Rules of the template refuse parameters that do not go together, before anything is made."""

from __future__ import annotations

import pytest

from dormouse_cli.local.plan import TemplateError
from dormouse_cli.local.template import check_rules
from tests.template.conftest import Template

ISSUER = {"JwtIssuer": "https://login.example"}


def check(**parameters: str) -> None:
    template = Template.read(**parameters)
    check_rules(template.translated.rules, template.resolver)


@pytest.mark.parametrize("audience", [{}, {"JwtAudience": ""}, {"JwtAudience": ","}])
def test_an_address_for_tokens_of_no_audience_is_refused(audience: dict[str, str]) -> None:
    with pytest.raises(TemplateError, match="JwtIssuer needs JwtAudience"):
        check(**ISSUER, **audience)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"JwtAudience": "one"},
        {**ISSUER, "JwtAudience": "one"},
        {**ISSUER, "JwtAudience": "one,two"},
    ],
)
def test_parameters_that_go_together_are_not_refused(parameters: dict[str, str]) -> None:
    check(**parameters)
