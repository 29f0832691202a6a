"""Messages from outside are refused if they are malformed or have ids that Dormouse never makes."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import pytest

from dormouse.aws.handling import changed_run, created_objects
from dormouse.errors import InvalidRequestError
from dormouse.messages.requests import decode_admin
from dormouse.messages.stages import (
    STAGE_OF,
    CompactionJob,
    ExportTask,
    GarbageCandidates,
    IngestJob,
    PurgeStep,
    TableChanged,
    decode,
    encode,
)

DEEP = "[" * 100_000 + "]" * 100_000
JOB = {"type": "ingest_job", "table_id": "t", "generation": 0, "job_id": "j", "sources": []}
SOURCE = {"bucket": "b", "key": "k", "etag": "e", "size_bytes": 1}


@pytest.mark.parametrize(
    ("decoder", "body"),
    [
        (decode_admin, '{"type":"create_table","request_id":"a","name":"x","schema":{"a":%s}}'),
        (
            decode_admin,
            '{"type":"set_properties","request_id":"a","name":"x","properties":{"a":%s}}',
        ),
        (partial(created_objects, bucket="b"), '{"a":%s}'),
        (changed_run, '{"a":%s}'),
    ],
)
def test_what_is_nested_too_deep_to_be_read_is_refused(
    decoder: Callable[[str], object], body: str
) -> None:
    with pytest.raises(InvalidRequestError, match="nested too deep"):
        decoder(body % DEEP)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (TableChanged, {"type": "table_changed", "table_id": ""}),
        (TableChanged, {"type": "table_changed", "table_id": "../other"}),
        (TableChanged, {"type": "table_changed", "table_id": "t\n"}),
        (TableChanged, {"type": "table_changed", "table_id": "t" * 2000}),
        (CompactionJob, {"type": "compaction_job", "table_id": "t", "generation": 0, "job_id": ""}),
        (
            GarbageCandidates,
            {"type": "garbage_candidates", "table_id": "t", "generation": 0, "shards": ["../x"]},
        ),
        (ExportTask, {"type": "export_task", "table_id": "t", "export_id": "e", "task": -1}),
        (IngestJob, JOB | {"generation": 2**63}),
        (IngestJob, JOB | {"generation": -1}),
        (IngestJob, JOB | {"sources": [SOURCE | {"size_bytes": 10**30}]}),
        (IngestJob, JOB | {"sources": [SOURCE | {"key": "k" * 2000}]}),
        (IngestJob, JOB | {"sources": [SOURCE | {"etag": "e" * 2000}]}),
    ],
)
def test_ids_and_numbers_that_no_store_takes_are_refused(
    kind: type[TableChanged], body: dict[str, object]
) -> None:
    with pytest.raises(InvalidRequestError, match=f"not a valid {kind.__name__} message"):
        decode(json.dumps(body), kind)


@pytest.mark.parametrize(
    ("body", "meant"),
    [
        ('{"type": "set_onlin", "request_id": "r", "name": "t", "online": true}', "set_online"),
        ('{"type": "set_online", "request_id": "r", "nam": "t", "online": true}', "name"),
    ],
)
def test_a_misspelt_field_or_type_is_refused_with_the_one_that_was_meant(
    body: str, meant: str
) -> None:
    with pytest.raises(InvalidRequestError, match=rf"did you mean {meant}\?\n"):
        decode_admin(body)


def test_a_requested_purge_step_is_encoded_as_before_sweeps_sent_any() -> None:
    """Functions about to be replaced refuse a field that they do not know."""
    old = '{"type":"purge_step","table_id":"t","purge_id":"p","v":1}'
    assert encode(PurgeStep("t", "p")) == old
    assert decode(encode(PurgeStep("t", "p", 7)), PurgeStep).begun_ms == 7


def test_jobs_for_spark_are_held_to_the_same() -> None:
    decode_job = STAGE_OF["spark-jobs"].decode
    assert decode_job(json.dumps(JOB)) == decode(json.dumps(JOB), IngestJob)
    with pytest.raises(InvalidRequestError, match="not a valid message for dispatch_spark"):
        decode_job(json.dumps(JOB | {"table_id": ""}))


@pytest.mark.parametrize("key", ["", "k" * 2000])
def test_a_notification_of_what_cannot_be_an_object_is_refused(key: str) -> None:
    """Its neighbours would be in one job with it, and that job would never be done."""
    record = {
        "eventName": "ObjectCreated:Put",
        "s3": {"bucket": {"name": "b"}, "object": {"key": key, "size": 1}},
    }
    with pytest.raises(InvalidRequestError, match="no key of S3"):
        created_objects(json.dumps({"Records": [record]}), "b")


@pytest.mark.parametrize("later", [{"v": 2}, {"only": "what a later release says"}, {"type": "x"}])
def test_a_message_of_a_later_form_is_refused_and_never_half_understood(
    later: dict[str, object],
) -> None:
    body = {"type": "table_changed", "table_id": "t"}
    assert decode(json.dumps(body), TableChanged) == TableChanged("t")
    with pytest.raises(InvalidRequestError, match="not a valid TableChanged message"):
        decode(json.dumps(body | later), TableChanged)


@pytest.mark.parametrize("verb", ["purge_rows", "export_rows"])
def test_a_request_of_another_version_is_refused_with_what_to_do(verb: str) -> None:
    body = f'{{"type":"{verb}","request_id":"r","name":"t","selection":{{}},"v":%s}}'
    assert decode_admin(body % 1)
    for version in (0, 2):
        with pytest.raises(InvalidRequestError, match=r"\$\.v") as raised:
            decode_admin(body % version)
        assert "docs/messages" in raised.value.hint
