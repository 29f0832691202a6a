"""docs/roles.md says what roles are granted, and why some could change what is stored."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from itertools import chain

import pytest

from dormouse.messages.stages import STAGES as QUEUE_STAGES
from dormouse.stored.paths import SPARK_CODE, TABLE_ID_DIGITS, shard_path
from tests.template.conftest import NAMES, ROLES, ROOT, Template
from tests.template.grants import grants
from tests.template.iam import Need, creating, is_granted, sending_parts, statements
from tools.generated.granted import (
    EACH_DEAD,
    EACH_QUEUE,
    PUT_AND_DELETE,
    SHORT,
    Grant,
    document,
    folder_of,
    grants_in,
    policies_of,
)

DATA = f"arn:aws:s3:::{NAMES.data_bucket}/"
CODE = f"{DATA}{SPARK_CODE}/"
WRITES = ("s3:PutObject", "s3:DeleteObject")


def test_the_document_is_made_from_the_template_as_it_is(template: Template) -> None:
    granted = {name: [*grants(template, role)] for role, name in ROLES.items()}
    granted["ReadersRole"] = [
        *chain.from_iterable(map(grants_in, policies_of(template.properties("ReadersRole"), {})))
    ]
    in_order = [
        logical_id
        for logical_id, resource in template.translated.resources.items()
        if resource["Type"] == "AWS::IAM::Role"
    ]
    made = document({role.removesuffix("Role"): granted[role] for role in in_order}, NAMES)
    assert (ROOT / "docs" / "roles.md").read_text() == made, "run: make docs"


def documented() -> dict[str, set[tuple[str, str]]]:
    """Return what the document grants each role on queues and tables: actions by where."""
    found: dict[str, set[tuple[str, str]]] = {}
    page = (ROOT / "docs" / "roles.md").read_text()
    short = {f"*{name}*": actions for name, actions in SHORT.items()}
    rows = re.findall(r"^\| (queue|table) `(.+?)` \| (.+) \|$", page, re.M)
    for each, end in ((EACH_QUEUE, ""), (EACH_DEAD, "-dead")):
        (cell,) = re.findall(rf"^\| {each} \| (.+) \|$", page, re.M)
        rows += [("queue", stage.queue + end, cell) for stage in QUEUE_STAGES]
    for kind, place, cell in rows:
        for holders in cell.split("; "):
            actions, _, roles = holders.rpartition(": ")
            for role in roles.split(", "):
                for action in actions.split(", "):
                    whole = short.get(action, {action.strip("`")})
                    found.setdefault(role, set()).update(
                        (f"{kind} {place}", each) for each in whole
                    )
    for granted in found.values():
        for stage in QUEUE_STAGES:
            if (f"queue {stage.queue}", "sqs:ReceiveMessage") in granted:
                granted.update((f"queue {stage.queue}-dead", action) for action in SHORT["send"])
    return found


@pytest.mark.parametrize("role", ROLES)
def test_the_document_has_each_grant_on_queues_and_tables_and_no_other(
    template: Template, role: str
) -> None:
    kinds = {"sqs": "queue", "dynamodb": "table"}
    wanted = set()
    for action, resource in grants(template, role):
        service, name = action.partition(":")[0], resource.rpartition(":")[2].rpartition("/")[2]
        if service in kinds:
            place = name.removeprefix(f"dormouse-{NAMES.instance}-")
            wanted.add((f"{kinds[service]} {place}", action))
    assert documented().get(ROLES[role].removesuffix("Role"), set()) == wanted


def put_and_deleted(grants: Iterable[Grant]) -> set[str]:
    """Return the folders of tables below which somebody with these grants may put and delete."""
    may: dict[str, set[str]] = {}
    for grant in grants:
        if folder := folder_of(grant.resource):
            may.setdefault(folder, set()).add(grant.action)
    return {
        folder for folder, actions in may.items() if {"s3:PutObject", "s3:DeleteObject"} <= actions
    }


def test_each_role_that_puts_and_deletes_below_a_folder_has_a_reason_and_no_reason_is_idle(
    template: Template,
) -> None:
    found = {
        (name.removesuffix("Role"), folder)
        for role, name in ROLES.items()
        for folder in put_and_deleted(grants(template, role))
    }
    assert found == {*PUT_AND_DELETE}


def test_what_reads_bytes_of_others_in_a_function_deletes_nothing(template: Template) -> None:
    reading = [
        role
        for role in ROLES
        if Grant("s3:GetObject", f"arn:aws:s3:::{NAMES.ingest_bucket}/*") in grants(template, role)
    ]
    assert reading == ["ingest", "serve_http", "spark_job"]
    for role in ("ingest", "serve_http"):
        assert "s3:DeleteObject" not in {grant.action for grant in grants(template, role)}


@pytest.mark.parametrize("role", ROLES)
def test_no_role_may_write_where_the_code_of_spark_jobs_lies_but_who_brings_it(
    template: Template, role: str
) -> None:
    bringing = ("dispatch_spark", "s3:PutObject", f"{CODE}*")
    for below in ("data/a", "data/a/b.parquet", "state/deltas/a", "exports/a", "spark/a", "a"):
        for action, resource in grants(template, role):
            if action in WRITES and (role, action, resource) != bringing:
                assert not fnmatchcase(f"{CODE}{below}", resource), resource


@pytest.mark.parametrize("role", ROLES)
def test_grants_are_for_ids_of_tables_alone(template: Template, role: str) -> None:
    for action, resource in grants(template, role):
        if resource.startswith(DATA) and not resource.startswith(CODE):
            assert folder_of(resource), f"{action} on {resource}"


def test_ids_of_tables_have_the_length_that_grants_are_for(template: Template) -> None:
    path = shard_path("0" * TABLE_ID_DIGITS, "a")
    (resource,) = {
        g.resource for g in grants(template, "collect_garbage") if "/data/" in g.resource
    }
    assert fnmatchcase(f"{DATA}{path}", resource)
    assert re.search(r"/(\?+)/data/\*$", resource)


@pytest.mark.parametrize("role", ROLES)
def test_no_object_that_a_role_may_put_can_be_overwritten_at_once_or_in_parts(
    template: Template, role: str
) -> None:
    granted = [s for document in template.policies(role) for s in statements(document)]
    denied = [s for guard in template.guards() for s in statements(guard) if s.effect == "Deny"]
    for action, resource in grants(template, role):
        # Files may be dropped again under one name: the ingest bucket keeps each version.
        if action == "s3:PutObject" and NAMES.ingest_bucket not in resource:
            path = resource.replace("?", "0").replace("*", "a")
            assert is_granted(creating(path), granted)
            assert not is_granted(creating(path), [*granted, *denied]), resource
            assert not is_granted(Need(action, path), [*granted, *denied]), "a key is missing"
            once = creating(path).with_key("s3:if-none-match", "*")
            assert is_granted(once, [*granted, *denied])
            assert is_granted(sending_parts(path), [*granted, *denied]), "no object comes of it"


SENDS_PARTS = {
    "ingest": {"data", "rejected"},
    "compact": {"data"},
    "export_rows": {""},
    "answer_query": {""},
    "spark_job": {"data", "rejected", ""},
    "administer": {"data"},
    "sweep": {"data"},
}
"""Which roles may abort uploads, where: those that write shards or exports, and those that find
what a crash left. The results bucket has no folders of tables.
"""


@pytest.mark.parametrize("role", ROLES)
def test_who_sends_parts_may_abort_an_upload_and_who_finds_those_of_others_lists_them(
    template: Template, role: str
) -> None:
    found = [*grants(template, role)]
    aborts = {
        folder_of(resource) or ""
        for action, resource in found
        if action == "s3:AbortMultipartUpload"
    }
    assert aborts == SENDS_PARTS.get(role, set())
    lists = {r for a, r in found if a == "s3:ListBucketMultipartUploads"}
    of_all = {f"arn:aws:s3:::{NAMES.data_bucket}"}
    assert lists == (of_all if role in ("administer", "sweep") else set())
    assert "s3:ListMultipartUploadParts" not in {action for action, _ in found}


@pytest.mark.parametrize("logical_id", ["DataBucket", "ResultsBucket"])
def test_a_bucket_ends_by_itself_what_no_audit_finds(template: Template, logical_id: str) -> None:
    rules = template.properties(logical_id)["LifecycleConfiguration"]["Rules"]
    ended = [rule for rule in rules if "AbortIncompleteMultipartUpload" in rule]
    assert [rule["AbortIncompleteMultipartUpload"] for rule in ended] == [
        {"DaysAfterInitiation": 1}
    ]
    assert ended[0]["Status"] == "Enabled"
    assert not {"Prefix", "Filter"} & {*ended[0]}, "it is for all paths"


def test_no_grant_for_the_folders_of_tables_covers_the_code_of_spark_jobs() -> None:
    covered = re.compile(f".{{{TABLE_ID_DIGITS}}}/.*")  # as IAM reads "?" and "*": slashes too
    assert not any(covered.fullmatch(f"{SPARK_CODE}/{'x' * n}/data/x") for n in range(20))
    assert covered.fullmatch("spark-code/abcde/data/x")
