"""What the template asks of AWS, expanded and resolved: one line a resource, one a grant.

`make expanded` writes it to ``expanded.json``. There, a change of the template shows as the change
of a deployment that it is, whether it is made in a loop, in an anchor or in neither. What a role
may do is listed for its shared and its own policies together.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.template.conftest import ROLES, Template, many

FILE = Path(__file__).with_name("expanded.json")
VARIANTS: dict[str, dict[str, str]] = {
    "by default": {},
    "without Spark": {"AlarmEmail": "", "DataVersions": "yes", "Spark": "no"},
    "with lent credentials": {"LendCredentials": "yes"},
    "with tokens": {
        "JwtIssuer": "https://login.example",
        "JwtAudience": "dormouse",
        "CorsOrigins": "https://app.example",
    },
    "with warm Spark on x86_64": {
        "Architecture": "x86_64",
        "SparkWarmExecutors": "2",
        "GlueDatabase": "lake",
    },
}
"""Parameters under which each condition holds, and under which it does not."""
NOT_LISTED = ("AWS::CloudWatch::Dashboard", "AWS::IAM::ManagedPolicy")
"""A dashboard is text, which `test_watching` reads; managed policies are part of their roles."""


def expanded() -> dict[str, dict[str, Any]]:
    """Return the entries of each variant; of all but the first, those that differ from it."""
    entries = {
        name: dict(_entries(Template.read(**parameters))) for name, parameters in VARIANTS.items()
    }
    first, *others = VARIANTS
    for name in others:
        gone = dict.fromkeys(entries[first].keys() - entries[name].keys())
        changed = {k: e for k, e in entries[name].items() if entries[first].get(k) != e}
        entries[name] = changed | gone
    return entries


def _entries(template: Template) -> Iterator[tuple[str, Any]]:
    for logical_id, resource in template.translated.resources.items():
        condition = resource.get("Condition")
        if condition is not None and not template.resolver.holds(str(condition), logical_id):
            continue
        if resource["Type"] in NOT_LISTED:
            continue
        properties = template.properties(logical_id)
        if resource["Type"] == "AWS::IAM::Role":
            properties = {"AssumeRolePolicyDocument": properties["AssumeRolePolicyDocument"]}
        attributes = {k: v for k, v in resource.items() if k not in ("Condition", "Metadata")}
        yield logical_id, {**attributes, "Properties": properties}
    for role, logical_id in ROLES.items():
        if role != "spark_job" or template.resolver.holds("HasSpark", logical_id):
            yield f"{logical_id} may", sorted(_grants(template, role))


def _grants(template: Template, role: str) -> set[str]:
    """Return what a role may do: each line an effect, a resource, all actions, and conditions."""
    actions: dict[tuple[str, str, str], set[str]] = {}
    for document in template.policies(role):
        for statement in document["Statement"]:
            condition = _text(statement.get("Condition", {}))
            for resource in many(statement["Resource"]):
                key = (statement["Effect"], resource, condition)
                actions.setdefault(key, set()).update(many(statement["Action"]))
    return {
        f"{effect} {resource} {' '.join(sorted(found))} {condition}".removesuffix(" {}")
        for (effect, resource, condition), found in actions.items()
    }


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def written(entries: dict[str, dict[str, Any]]) -> str:
    """Return the text of the file: a line for each resource, and for each grant."""
    parts = []
    for name, found in entries.items():
        lines = [f"  {_text(key)}: {_lines(found[key])}" for key in sorted(found)]
        parts.append(f"{_text(name)}: {{\n" + ",\n".join(lines) + "\n}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _lines(entry: object) -> str:
    if isinstance(entry, list):
        return "[\n    " + ",\n    ".join(map(_text, entry)) + "]"
    return _text(entry)


if __name__ == "__main__":
    FILE.write_text(written(expanded()))
