"""What each role calls, by recorded requests, and what the network it runs in reaches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.template.conftest import ROLES
from tests.template.iam import Need
from tests.template.spark_jobs import SPARK_JOB

REACHED_BY_EMR = {"dynamodb", "glue", "kms", "lakeformation", "logs", "s3", "secretsmanager", "sts"}
"""What an application of EMR Serverless reaches that lies in no VPC: no queue among it."""
REACHED: Mapping[str, set[str] | None] = {
    role: REACHED_BY_EMR if role == SPARK_JOB else None for role in ROLES
}
"""The services that the network of a role reaches; None for all, as of functions without a VPC."""


def services(actions: Iterable[str]) -> set[str]:
    """Return the services that are asked for actions. To pass a role on is no call of its own."""
    return {action.partition(":")[0] for action in actions} - {"iam"}


def called(needs: Iterable[Need]) -> set[str]:
    """Return the services that requests go to."""
    return services(need.action for need in needs)


def out_of_reach(role: str, found: set[str]) -> set[str]:
    """Return those of some services which the network of a role does not reach."""
    reached = REACHED[role]
    return set() if reached is None else found - reached
