"""The template as AWS sees it: translated, with its values resolved for one account."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from dormouse.stored.names import InstanceNames
from dormouse_cli.local.intrinsics import References, Resolver
from dormouse_cli.local.resource_names import ResourceNames
from dormouse_cli.local.translation import Translated, translate

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "template.yaml"
REGION = "eu-west-2"
NAMES = InstanceNames("test", "123456789012")
LONGEST_WINDOW_SECONDS = 300
STAGES = sorted(path.parent.name for path in (ROOT / "functions").glob("*/handler.py"))
QUEUE_OF = {
    "batch_files": "files",
    "ingest": "ingest-jobs",
    "plan_table": "table-changes",
    "compact": "compaction-jobs",
    "split_partition": "partition-splits",
    "collect_garbage": "gc-candidates",
    "administer": "admin",
    "purge_rows": "purges",
    "export_rows": "exports",
    "dispatch_spark": "spark-jobs",
    "track_spark": "spark-runs",
}
"""Which queue feeds which function."""
SCHEDULED = ("measure", "sweep")
"""The functions that have a schedule instead."""
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

    @staticmethod
    def read(**parameters: str) -> Template:
        given = {
            "Instance": NAMES.instance,
            "AlarmEmail": "someone@example.com",
            "BatchWindowSeconds": str(LONGEST_WINDOW_SECONDS),
            **parameters,
        }
        translated = translate(TEMPLATE, given, REGION)
        pseudo = {
            "AWS::AccountId": NAMES.account,
            "AWS::Partition": "aws",
            "AWS::Region": REGION,
            "AWS::StackName": "test",
        }
        resolver: Resolver
        names = ResourceNames(
            translated.resources, pseudo, "", lambda value, at: resolver.text(value, at)
        )
        resolver = Resolver(
            {**translated.parameters, **pseudo},
            translated.conditions,
            References(names.ref, names.attribute),
        )
        return Template(translated, resolver)

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

    def policies(self, role: str) -> Iterator[dict[str, Any]]:
        """Return the documents of the policies that a role of `ROLES` has."""
        for policy in self.properties(ROLES[role])["Policies"]:
            yield policy["PolicyDocument"]

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
