"""What the template grants each role, as a document; `generated_docs` and tests/template use it.

The tests hold what functions and Spark jobs ask of AWS against the same grants.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dormouse.stored.names import InstanceNames
from dormouse.stored.paths import TABLE_ID_DIGITS
from dormouse_cli.local.resources import Resources
from dormouse_cli.local.translation import translate

_REGION = "eu-west-2"
_NAMES = InstanceNames("dev", "123456789012")
"""Stand for any region, instance and account: the document names none."""
_VERBS = {"GetObjectVersion": "get"}
_ORDER = ("get", "put", "delete", "list")
_TABLE_ID = "?" * TABLE_ID_DIGITS
_FOLDER = re.compile(rf"{re.escape(_TABLE_ID)}/([a-z-]+)/\*")

REDELIVERY = "deletes the object at the end, so that a redelivered message finds nothing to do"
TAKEN_BACK = (
    "an earlier release, or a run that cut the job in another way, may have left outputs under its "
    "names; a redelivered message deletes them with the job, because a rebuild would count them"
)
DELETES_TABLES = "deletes tables, with all objects below their ids, after it put their tombstone"
PUT_AND_DELETE: Mapping[tuple[str, str], str] = {
    ("Compact", "data"): TAKEN_BACK,
    ("SparkJob", "data"): TAKEN_BACK,
    ("Compact", "run-markers"): TAKEN_BACK,
    ("SparkJob", "run-markers"): TAKEN_BACK,
    ("PurgeRows", "purges"): REDELIVERY,
    ("ExportRows", "exports"): REDELIVERY,
    ("SparkJob", "exports"): REDELIVERY,
    ("DispatchSpark", "spark"): REDELIVERY,
    ("PlanTable", "state"): (
        "deletes snapshots, deltas and segments that no kept version needs; each new object has a "
        "name with its time, which is never reused"
    ),
    ("Administer", "state"): DELETES_TABLES,
    ("Administer", "purges"): DELETES_TABLES,
    ("Administer", "exports"): DELETES_TABLES,
    ("Administer", "spark"): DELETES_TABLES,
    ("Administer", "requests"): "deletes a request after its last reply was sent",
}
"""Why a role may both put and delete below a folder of tables, and so could change an object."""

_TEXT = """# What each role may

Each function has a role of its own, and so have Spark jobs. This page lists all their grants;
`make docs` generates it from `template.yaml` and `cli/dormouse_cli/generated/granted.py`.
`tests/template` runs the whole life of a table, and checks that every request is granted and that
every grant is used, there or in a rare case that a test covers ([security](security.md)).

## Objects

`<table id>/data/` holds the shards of a table, `state/` its state, `run-markers/` its run markers;
`purges/`, `exports/`, `spark/` and `requests/` hold unfinished requests, `jobs/` the records of
steps of compactions, and of jobs that are set aside. Ids of tables have
{digits} characters, and grants are for prefixes of exactly that length. So none of them covers
`spark-job-packages/`, the packages of Spark jobs; only roles that upload or run these may use it.

{objects}
## Who could change an object

Buckets refuse to overwrite an object. A role that may both put and delete below a folder could
delete an object there and put another under its name. These roles may, each for its reason:

| role | folder | why |
|---|---|---|
{reasons}
## All else

| role | actions | on |
|---|---|---|
{others}"""


class Grant(NamedTuple):
    """An action, and the resource on which it is allowed; either may be a pattern."""

    action: str
    resource: str


def policies_of(
    role: Mapping[str, Any], managed: Mapping[str, Mapping[str, Any]]
) -> Iterator[Mapping[str, Any]]:
    """Return the documents of all policies that a role has: shared ones, by ARN, and its own."""
    for arn in role.get("ManagedPolicyArns", ()):
        yield managed[arn]["PolicyDocument"]
    for policy in role.get("Policies", ()):
        yield policy["PolicyDocument"]


def grants_in(document: Mapping[str, Any]) -> Iterator[Grant]:
    """Return what a policy's document allows."""
    for statement in document["Statement"]:
        if statement["Effect"] == "Allow":
            for action in _many(statement["Action"]):
                yield from (Grant(action, resource) for resource in _many(statement["Resource"]))


def folder_of(resource: str) -> str | None:
    """Return the folder of tables that a resource is, None if it is another."""
    _, _, path = resource.partition("/")
    found = _FOLDER.fullmatch(path)
    return found[1] if found else None


def put_and_deleted(grants: Iterable[Grant]) -> set[str]:
    """Return the folders of tables below which somebody with these grants may put and delete."""
    may: dict[str, set[str]] = {}
    for grant in grants:
        if folder := folder_of(grant.resource):
            may.setdefault(folder, set()).add(grant.action)
    return {
        folder for folder, actions in may.items() if {"s3:PutObject", "s3:DeleteObject"} <= actions
    }


def document(granted: Mapping[str, Sequence[Grant]], names: InstanceNames) -> str:
    """Return the document about what each role is granted in an instance of these names."""
    objects = {role: _objects(grants, names) for role, grants in granted.items()}
    reasons = "".join(
        f"| {role} | `{folder}/` | {why} |\n" for (role, folder), why in PUT_AND_DELETE.items()
    )
    others = "".join(
        f"| {role} | {actions} | {on} |\n"
        for role, grants in granted.items()
        for actions, on in _others(grants, names)
    )
    return _TEXT.format(
        digits=TABLE_ID_DIGITS, objects=_matrix(objects), reasons=reasons, others=others
    )


def made_from(template: Path) -> str:
    """Return the document made from a template."""
    translated = translate(template, {"Instance": _NAMES.instance}, _REGION)
    resources = Resources.of(translated, "", _REGION, _NAMES.account)
    managed = {
        resources.arn(logical_id): resources.properties(logical_id)
        for logical_id in resources.of_type("AWS::IAM::ManagedPolicy")
    }
    granted: dict[str, list[Grant]] = {}
    for logical_id in resources.of_type("AWS::IAM::Role"):
        documents = policies_of(resources.properties(logical_id), managed)
        role = logical_id.removesuffix("Role")
        granted[role] = [grant for each in documents for grant in grants_in(each)]
    return document(granted, _NAMES)


def _objects(grants: Iterable[Grant], names: InstanceNames) -> dict[str, str]:
    """Return what may be done with objects, by where they lie."""
    found: dict[str, set[str]] = {}
    for action, resource in grants:
        service, _, operation = action.partition(":")
        if service == "s3":
            verb = operation.removesuffix("Object").removesuffix("Bucket").lower()
            found.setdefault(_place(resource, names), set()).add(_VERBS.get(operation, verb))
    return {place: ", ".join(sorted(verbs, key=_ORDER.index)) for place, verbs in found.items()}


def _place(resource: str, names: InstanceNames) -> str:
    """Return where in which bucket a resource is, without the names of an instance."""
    bucket, _, path = resource.removeprefix("arn:aws:s3:::").partition("/")
    folder = folder_of(resource)
    if folder is not None:
        return f"`{folder}/`"
    if path and path != "*" and bucket == names.data_bucket:
        return f"`{path.removesuffix('*')}`"
    kinds = {
        names.ingest_bucket: "ingest bucket",
        names.data_bucket: "data bucket",
        names.results_bucket: "results bucket",
    }
    return kinds[bucket] + (f", `{path}`" if path not in ("", "*") else "")


def _matrix(cells: Mapping[str, Mapping[str, str]]) -> str:
    columns = list(dict.fromkeys(place for row in cells.values() for place in row))
    columns.sort(key=lambda place: (not place.startswith("`"), place))
    lines = [["role", *columns], ["---"] * (len(columns) + 1)]
    lines += [[role, *(row.get(place, "") for place in columns)] for role, row in cells.items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _others(grants: Iterable[Grant], names: InstanceNames) -> Iterator[tuple[str, str]]:
    """Return what may be done with what is no object: actions, and on what."""
    actions_on: dict[str, set[str]] = {}
    for action, resource in grants:
        if not action.startswith("s3:"):
            actions_on.setdefault(_plain(resource, names), set()).add(action)
    alike: dict[tuple[str, ...], list[str]] = {}
    for resource, actions in sorted(actions_on.items()):
        alike.setdefault(tuple(sorted(actions)), []).append(resource)
    for same, resources in alike.items():
        yield ", ".join(same), ", ".join(f"`{each}`" for each in resources)


def _plain(resource: str, names: InstanceNames) -> str:
    """Return a resource without partition, region, account and the name of the instance."""
    *_, name = resource.split(":", 5)
    return name.replace(f"dormouse-{names.instance}", "dormouse-<instance>")


def _many(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value
