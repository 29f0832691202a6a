"""Checks the rules of a template, that is which parameters go together. CloudFormation checks them
before it makes anything. Used by `template`.
"""

from collections.abc import Mapping
from typing import cast

from dormouse_cli.local.errors import TemplateError
from dormouse_cli.local.intrinsics import Document, Resolver


def check_rules(rules: Mapping[str, Document], resolver: Resolver) -> None:
    """Raise `TemplateError` with its description for the first assertion that does not hold."""
    for name, rule in rules.items():
        where = f"Rules.{name}"
        if resolver.resolve(rule.get("RuleCondition", True), where) is not True:
            continue
        for assertion in cast(list[Document], rule["Assertions"]):
            if resolver.resolve(assertion["Assert"], where) is not True:
                raise TemplateError(f"{where}: {assertion['AssertDescription']}")
