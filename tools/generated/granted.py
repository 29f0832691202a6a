"""What the template grants each role, as a document; `docs.py` and tests/template use it.

The tests hold what functions and Spark jobs ask of AWS against the same grants.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dormouse.stored.paths import TABLE_ID_DIGITS, InstanceNames
from dormouse_cli.local.resources import ACCOUNT, Resources, translate

_NAMES = InstanceNames("dev", ACCOUNT)
"""Stand for any region, instance and account: the document names none."""
_VERBS = {
    "AbortMultipartUpload": "abort",
    "DeleteObjectVersion": "delete versions",
    "GetObjectVersion": "get",
    "ListBucketMultipartUploads": "list uploads",
    "ListBucketVersions": "list versions",
    "PutObjectTagging": "tag",
}
_ORDER = (
    *("get", "put", "delete", "delete versions", "abort", "tag"),
    *("list", "list uploads", "list versions"),
)
_TABLE_ID = "?" * TABLE_ID_DIGITS
_OWN_LOG = "its own log"
EACH_QUEUE, EACH_DEAD = "each queue with a dead-letter queue", "each dead-letter queue"
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
    ("Administer", "deletions"): DELETES_TABLES,
    ("Administer", "state"): DELETES_TABLES,
    ("Administer", "purges"): DELETES_TABLES,
    ("Administer", "exports"): DELETES_TABLES,
    ("Administer", "spark"): DELETES_TABLES,
    ("Administer", "requests"): "deletes a request after its last reply was sent",
}
"""Why a role may both put and delete below a folder of tables, and so could change an object."""

RECEIVE = frozenset(
    f"sqs:{action}"
    for action in (
        "ChangeMessageVisibility",
        "DeleteMessage",
        "GetQueueAttributes",
        "ReceiveMessage",
    )
)
SEND = frozenset({"sqs:GetQueueUrl", "sqs:SendMessage"})
COUNT = frozenset({"sqs:GetQueueAttributes", "sqs:GetQueueUrl"})
SHORT = {"receive": RECEIVE, "send": SEND, "count": COUNT}
"""Names of actions on queues that go together."""
_TEXT = """# What each role may

Each function has a role of its own, and so have Spark jobs, and `Readers`, whose credentials are
lent to engines with `LendCredentials=yes`. These are all their grants, as `make docs` finds them
in `template.yaml`. Tests check that every request is granted and that every grant is used
([security](security.md)).

## Who may what

`<table id>/data/` holds the shards of a table, `state/` its state, `run-markers/` its run markers;
`purges/`, `exports/`, `spark/` and `requests/` hold unfinished requests, `jobs/` the records of
steps of compactions, and of jobs that are set aside. Grants are for ids of exactly {digits}
characters, so none of them covers `spark-job-packages/`.
*Put* creates an object, at once or in parts; *abort* deletes the parts of an unfinished upload.
Names are without `dormouse-<instance>-`. {short}.
A role that receives from a queue also *sends* to its dead-letter queue.

| what | who may what |
|---|---|
{places}
Each role but {without_log} also has {logs} on the log group of its own function.

## Who could change an object

Buckets refuse to overwrite an object. A role that may both put and delete below a folder could
delete an object there and put another under its name. These roles may, each for its reason:

| which | why |
|---|---|
{reasons}"""


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
    match = _FOLDER.fullmatch(path)
    return match[1] if match else None


def document(granted: Mapping[str, Sequence[Grant]], names: InstanceNames) -> str:
    """Return the document about what each role is granted in an instance of these names."""
    actions_on: dict[str, dict[str, set[str]]] = {}
    for role, grants in granted.items():
        for action, resource in grants:
            place, verb = _place(role, resource, names), _verb(action)
            actions_on.setdefault(place, {}).setdefault(role, set()).add(verb)
    logs = actions_on.pop(_OWN_LOG)
    (log_actions,) = {tuple(sorted(actions)) for actions in logs.values()}
    queues = [place for place in actions_on if place.startswith("queue ")]
    dead = [place for place in queues if place.endswith("-dead`")]
    alive = [place.replace("-dead`", "`") for place in dead]
    receivers = {
        letters: [role for role, actions in actions_on[queue].items() if actions >= RECEIVE]
        for queue, letters in zip(alive, dead, strict=True)
    }
    actions_on[EACH_QUEUE] = _shared(actions_on, alive)
    actions_on[EACH_DEAD] = _shared(actions_on, dead)
    for letters, roles in receivers.items():
        for role in roles:
            actions_on[letters][role] -= SEND  # of which the text says so for all
    ordered = sorted((p for p in actions_on if any(actions_on[p].values())), key=_order)
    return _TEXT.format(
        digits=TABLE_ID_DIGITS,
        short="; ".join(f"*{name}* is {_listed(actions)}" for name, actions in SHORT.items()),
        without_log=", ".join(role for role in granted if role not in logs),
        logs=_listed(log_actions),
        places="".join(f"| {place} | {_holders(actions_on[place])} |\n" for place in ordered),
        reasons="".join(f"| {where} | {why} |\n" for where, why in _reasons()),
    )


def made_from(template: Path) -> str:
    """Return the document made from a template."""
    parameters = {"Instance": _NAMES.instance, "LendCredentials": "yes"}  # all roles that there are
    translated = translate(template, parameters)
    resources = Resources(translated, "")
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


def _verb(action: str) -> str:
    """Return an action on objects as a verb, any other as it is."""
    service, _, operation = action.partition(":")
    if service != "s3":
        return action
    return _VERBS.get(operation, operation.removesuffix("Object").removesuffix("Bucket").lower())


def _place(role: str, resource: str, names: InstanceNames) -> str:
    """Return what a resource is, without the names of an instance."""
    if resource.startswith("arn:aws:s3:::"):
        return _object_place(resource, names)
    if resource == "*":
        return "metrics of the account"
    *_, name = resource.split(":", 5)
    if name.startswith("log-group:") and name.endswith(f"-{_snake(role)}:*"):
        return _OWN_LOG
    kind = {"sqs": "queue ", "dynamodb": "table "}.get(resource.split(":")[2], "")
    prefix = f"dormouse-{names.instance}"
    name = (
        name.removeprefix("table/").replace(f"{prefix}-", "").replace(prefix, "dormouse-<instance>")
    )
    return f"{kind}`{name}`"


def _object_place(resource: str, names: InstanceNames) -> str:
    """Return where in which bucket objects are."""
    bucket, _, path = resource.removeprefix("arn:aws:s3:::").partition("/")
    folder = folder_of(resource)
    if folder is not None:
        return f"objects `{folder}/`"
    if path and path != "*" and bucket == names.data_bucket:
        return f"objects `{path.removesuffix('*')}`"
    kinds = {
        names.ingest_bucket: "ingest bucket",
        names.data_bucket: "data bucket",
        names.results_bucket: "results bucket",
    }
    return kinds[bucket] + (f", `{path}`" if path not in ("", "*") else "")


def _order(place: str) -> tuple[int, str]:
    kinds = ("objects ", "data ", "ingest ", "results ", "table ", "each ", "queue ")
    places = (at for at, kind in enumerate(kinds) if place.startswith(kind))
    return next(places, len(kinds)), place.replace("`", "")


def _shared(
    actions_on: Mapping[str, dict[str, set[str]]], places: Sequence[str]
) -> dict[str, set[str]]:
    """Return what each role may at all of these places, and take it from each of them."""
    roles = set.intersection(*(set(actions_on[place]) for place in places))
    shared = {role: set.intersection(*(actions_on[p][role] for p in places)) for role in roles}
    for role, actions in shared.items():
        for place in places:
            actions_on[place][role] -= actions
    return {role: shared[role] for role in sorted(shared)}


def _holders(actions: Mapping[str, set[str]]) -> str:
    """Return who may what: roles with the same actions together."""
    alike: dict[str, list[str]] = {}
    for role, verbs in actions.items():
        if verbs:
            alike.setdefault(_short(verbs), []).append(role)
    return "; ".join(f"{what}: {', '.join(roles)}" for what, roles in alike.items())


def _short(actions: set[str]) -> str:
    """Return actions as a text, with the names that the document explains."""
    names, rest = [], set(actions)
    for name, whole in SHORT.items():
        if whole <= rest:
            names.append(f"*{name}*")
            rest -= whole
    verbs = [verb for verb in _ORDER if verb in rest]
    return ", ".join([*names, *verbs, *(f"`{action}`" for action in sorted(rest - {*verbs}))])


def _reasons() -> Iterator[tuple[str, str]]:
    """Return which roles may put and delete in which folders, and the reason."""
    places: dict[str, dict[str, list[str]]] = {}
    for (role, folder), why in PUT_AND_DELETE.items():
        places.setdefault(why, {}).setdefault(role, []).append(f"`{folder}/`")
    for why, roles in places.items():
        yield "; ".join(f"{role} in {', '.join(folders)}" for role, folders in roles.items()), why


def _snake(role: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", role).lower()


def _listed(actions: Iterable[str]) -> str:
    return ", ".join(f"`{action}`" for action in sorted(actions))


def _many(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value
