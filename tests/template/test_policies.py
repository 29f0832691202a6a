"""Policies are no larger, and no more, than IAM takes: else a deployment would fail half way."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.template.conftest import LONGEST_INSTANCE, ROLES, TEMPLATE, Template

MOST_MANAGED_POLICIES_OF_A_ROLE = 10
"""By IAM's quota, as long as nobody asks for a higher one."""
MOST_CHARACTERS_OF_A_MANAGED_POLICY = 6144
MOST_CHARACTERS_OF_A_ROLES_OWN_POLICIES = 10240


OF_CALLERS = ("HttpReadPolicy", "HttpWritePolicy", "HttpAdministerPolicy")
"""Policies that operators attach to the callers of the API."""


@pytest.fixture(scope="module")
def longest() -> Template:
    """The template with the longest name that an instance can have: names are in all policies."""
    return Template.read(Instance="i" * LONGEST_INSTANCE)


def characters(document: dict[str, Any]) -> int:
    """Return the size of a policy as IAM counts it: without white space."""
    return len(json.dumps(document, separators=(",", ":")))


def test_the_longest_name_of_an_instance_is_the_one_that_the_template_allows() -> None:
    (pattern,) = re.findall(r'AllowedPattern: "(.+)"', TEMPLATE.read_text())
    assert re.fullmatch(pattern, "i" * LONGEST_INSTANCE)
    assert not re.fullmatch(pattern, "i" * (LONGEST_INSTANCE + 1))


@pytest.mark.parametrize("role", ROLES)
def test_a_role_has_no_more_policies_than_iam_takes(longest: Template, role: str) -> None:
    properties = longest.properties(ROLES[role])
    assert len(properties["ManagedPolicyArns"]) <= MOST_MANAGED_POLICIES_OF_A_ROLE
    own = sum(characters(policy["PolicyDocument"]) for policy in properties["Policies"])
    assert own <= MOST_CHARACTERS_OF_A_ROLES_OWN_POLICIES


def test_no_managed_policy_is_larger_than_iam_takes_or_attached_to_nobody_but_for_callers(
    longest: Template,
) -> None:
    policies = longest.managed_policies()
    assert policies
    for arn, policy in policies.items():
        assert characters(policy["PolicyDocument"]) <= MOST_CHARACTERS_OF_A_MANAGED_POLICY, arn
    attached = {
        arn for role in ROLES.values() for arn in longest.properties(role)["ManagedPolicyArns"]
    }
    assert policies.keys() - attached == {longest.names.arn(each) for each in OF_CALLERS}
    assert attached <= policies.keys()


@pytest.mark.parametrize("role", ROLES)
def test_a_role_that_commits_also_reads_the_state(longest: Template, role: str) -> None:
    """The policy for commits grants the writes alone: no commit can do without the reads."""
    names = {arn.rpartition("-")[2] for arn in longest.properties(ROLES[role])["ManagedPolicyArns"]}
    assert "EveryRolePolicy" in names
    assert "CommitPolicy" not in names or "ReadStatePolicy" in names
