"""The template as AWS sees it: translated, with its values resolved for one account."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dormouse.messages.stages import SCHEDULED as SCHEDULED
from dormouse.messages.stages import SERVED as SERVED
from dormouse.messages.stages import STAGES as QUEUE_STAGES
from dormouse.stored.paths import InstanceNames
from dormouse_cli.local.resources import Resolver, Resources, Translated, translate
from tools.generated.granted import policies_of

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "template.yaml"
REGION = "eu-west-2"
NAMES = InstanceNames("test", "123456789012")
LONGEST_WINDOW_SECONDS = 300
LONGEST_INSTANCE = 20
"""How many characters the name of an instance may have."""
STAGES = sorted(path.parent.name for path in (ROOT / "functions").glob("*/handler.py"))
QUEUE_OF = {stage.name: stage.queue for stage in QUEUE_STAGES}
"""Which queue feeds which function."""
ROLES = {
    **{stage: "".join(word.title() for word in stage.split("_")) + "Role" for stage in STAGES},
    "spark_job": "SparkJobRole",
}
"""The roles of the functions, and that of the jobs which EMR runs."""


@dataclass(frozen=True)
class Template:
    """The resources of the translated template, with plain values."""

    translated: Translated
    resolver: Resolver
    names: Resources

    @staticmethod
    @cache
    def read(**parameters: str) -> Template:
        given = {
            "Instance": NAMES.instance,
            "AlarmEmail": "someone@example.com",
            "BatchWindowSeconds": str(LONGEST_WINDOW_SECONDS),
            **parameters,
        }
        translated = translate(TEMPLATE, given)
        resources = Resources(translated, "")
        return Template(translated, resources.resolver, resources)

    def properties(self, logical_id: str) -> dict[str, Any]:
        raw = self.translated.resources[logical_id].get("Properties", {})
        resolved = self.resolver.resolve(raw, logical_id)
        assert isinstance(resolved, dict)
        return resolved

    def of_type(self, kind: str) -> dict[str, dict[str, Any]]:
        return {
            logical_id: self.properties(logical_id)
            for logical_id, resource in self.translated.resources.items()
            if resource["Type"] == kind
        }

    def function(self, stage: str) -> dict[str, Any]:
        return self.properties(logical_id_of(stage))

    def queue(self, queue: str) -> dict[str, Any]:
        named = {q["QueueName"]: q for q in self.of_type("AWS::SQS::Queue").values()}
        return named[NAMES.queue(queue)]

    def policies(self, role: str) -> Iterator[Mapping[str, Any]]:
        """Return the documents of all policies that a role of `ROLES` has."""
        yield from policies_of(self.properties(ROLES[role]), self.managed_policies())

    def managed_policies(self) -> dict[str, dict[str, Any]]:
        """Return the managed policies by their ARNs."""
        found = self.of_type("AWS::IAM::ManagedPolicy")
        return {str(self.names.arn(logical_id)): policy for logical_id, policy in found.items()}

    def changed(self, logical_id: str, change: Callable[[dict[str, Any]], None]) -> Template:
        """Return the template with one resource changed; tests damage it so."""
        resource: Any = copy.deepcopy(self.translated.resources[logical_id])
        change(resource)
        resources = {**self.translated.resources, logical_id: resource}
        return replace(self, translated=replace(self.translated, resources=resources))

    def allowing(self, role: str, action: str, resource: str) -> Template:
        """Return the template with one more statement in the policy of a role of `ROLES`."""

        def allow(changed: dict[str, Any]) -> None:
            document = changed["Properties"]["Policies"][0]["PolicyDocument"]
            statement = {"Effect": "Allow", "Action": action, "Resource": resource}
            document["Statement"].append(statement)

        return self.changed(ROLES[role], allow)

    def guards(self) -> Iterator[dict[str, Any]]:
        """Return the documents of the policies that buckets and queues have."""
        for kind in ("AWS::S3::BucketPolicy", "AWS::SQS::QueuePolicy"):
            for policy in self.of_type(kind).values():
                yield policy["PolicyDocument"]


def logical_id_of(stage: str) -> str:
    return "".join(word.title() for word in stage.split("_")) + "Function"


def many(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


@pytest.fixture(scope="session")
def template() -> Template:
    return Template.read()
