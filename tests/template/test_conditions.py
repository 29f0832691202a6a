"""The conditions that docs/security.md relies on are there, and there are no others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.template.conftest import NAMES, REGION, Template

EVENTS = f"arn:aws:events:{REGION}:{NAMES.account}"
SPARK = f"arn:aws:emr-serverless:{REGION}:{NAMES.account}"
TRUST = "(trust)"
"""The name of a trust, which has no Sid."""
PLACES = {
    "OwnBucketsOnly": {"EveryRolePolicy"},
    "EncryptedTransportOnly": {
        "IngestBucketPolicy",
        "DataBucketPolicy",
        "ResultsBucketPolicy",
        "FilesQueuePolicy",
        "IngestTopicPolicy",
        "SparkRunsQueuePolicy",
        "SparkRunsDeadQueuePolicy",
        "QueuesPolicy",
    },
    "NothingIsOverwritten": {"DataBucketPolicy", "ResultsBucketPolicy"},
    "OnlyFromTheIngestBucket": {"FilesQueuePolicy", "IngestTopicPolicy"},
    "OnlyFromTheRule": {"SparkRunsQueuePolicy", "SparkRunsDeadQueuePolicy"},
    "GiveRunsTheirRole": {"DispatchSparkRole"},
    "PinVersions": {"AnswerQueryRole"},
    "EncryptDataKeys": {"AdministerRole"},
    "DecryptColumns": {"IngestRole", "CompactRole", "ServeHttpRole", "SparkJobRole"},
    "ReadPublished": {"ReadersRole"},
    TRUST: {"SparkJobRole"},
}
"""Which resources have statements with a condition, by their Sid."""
KEYS_OF_COLUMNS = {
    "ForAnyValue:StringLike": {"kms:ResourceAliases": f"alias/dormouse/{NAMES.instance}/*"}
}
CONDITIONS = {
    "OwnBucketsOnly": {"StringNotEqualsIfExists": {"aws:ResourceAccount": NAMES.account}},
    "EncryptedTransportOnly": {"Bool": {"aws:SecureTransport": "false"}},
    "NothingIsOverwritten": {
        "Null": {"s3:if-none-match": "true"},
        "BoolIfExists": {"s3:ObjectCreationOperation": "true"},
    },
    "OnlyFromTheIngestBucket": {
        "ArnEquals": {"aws:SourceArn": f"arn:aws:s3:::{NAMES.ingest_bucket}"},
        "StringEquals": {"aws:SourceAccount": NAMES.account},
    },
    "OnlyFromTheRule": {
        "ArnEquals": {"aws:SourceArn": f"{EVENTS}:rule/{NAMES.queue('spark-runs')}"}
    },
    "GiveRunsTheirRole": {"StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}},
    "EncryptDataKeys": KEYS_OF_COLUMNS,
    "DecryptColumns": KEYS_OF_COLUMNS,
    "PinVersions": {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["*#P"]}},
    "ReadPublished": {"StringEquals": {"aws:ResourceAccount": NAMES.account}},
    TRUST: {
        "StringEquals": {"aws:SourceAccount": NAMES.account},
        "ArnEquals": {"aws:SourceArn": f"{SPARK}:/applications/dormouse-{NAMES.instance}"},
    },
}
RELIED_ON = {
    (place, sid): condition for sid, condition in CONDITIONS.items() for place in PLACES[sid]
}


def conditions(template: Template) -> dict[tuple[str, str], object]:
    """Return the condition of each statement that has one, by its resource and its Sid."""
    return {
        (logical_id, statement.get("Sid", TRUST)): statement["Condition"]
        for logical_id in template.translated.resources
        for statement in statements_in(template.properties(logical_id))
        if "Condition" in statement
    }


def statements_in(value: Any) -> Iterator[dict[str, Any]]:
    """Return the statements of all policies somewhere in a resource, be they chosen by an `If`."""
    if isinstance(value, dict):
        if "Effect" in value:
            yield value
        value = list(value.values())
    for part in value if isinstance(value, list) else ():
        yield from statements_in(part)


def test_each_condition_is_one_that_is_relied_on_and_none_is_missing(template: Template) -> None:
    assert conditions(template) == RELIED_ON


@pytest.mark.parametrize(("logical_id", "sid"), sorted(RELIED_ON))
def test_a_condition_that_is_taken_away_is_missed(
    template: Template, logical_id: str, sid: str
) -> None:
    def open_wide(resource: dict[str, Any]) -> None:
        (statement,) = (
            found for found in statements_in(resource) if found.get("Sid", TRUST) == sid
        )
        del statement["Condition"]

    damaged = conditions(template.changed(logical_id, open_wide))
    assert {*RELIED_ON} - {*damaged} == {(logical_id, sid)}
