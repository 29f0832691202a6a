"""What the record of jobs promises, in memory and in DynamoDB."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from dormouse.aws.tracker import DynamoTracker
from dormouse.ports import NO_TABLE, JobRecord, Tracker
from tests.contract.mocked_aws import dynamodb_table, mocked_aws
from tests.support.adapters import MemoryTracker

RUNNING = JobRecord("t", "j", "ingest", "running", "t/a.csv", updated_ms=1_700_000_000_999)
FINISHED = replace(RUNNING, state="finished", rows=2**40, updated_ms=RUNNING.updated_ms + 1)


@pytest.fixture(params=["memory", "dynamodb"])
def tracker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tracker]:
    if request.param == "memory":
        yield MemoryTracker()
        return
    with mocked_aws(monkeypatch):
        yield DynamoTracker(dynamodb_table("jobs", "table_id", "job_id"), "jobs")


def test_a_job_shows_its_newest_record(tracker: Tracker) -> None:
    assert tracker.get("t", "j") is None
    for record in (RUNNING, FINISHED):
        tracker.record(record)
        assert tracker.get("t", "j") == record


def test_a_record_that_comes_late_does_not_hide_a_newer_one(tracker: Tracker) -> None:
    tracker.record(FINISHED)
    tracker.record(RUNNING)
    assert tracker.get("t", "j") == FINISHED


def test_of_two_records_of_one_millisecond_the_later_counts(tracker: Tracker) -> None:
    failed = replace(RUNNING, state="failed", reason="no disk")
    tracker.record(RUNNING)
    tracker.record(failed)
    assert tracker.get("t", "j") == failed


def test_records_are_those_of_one_table_in_the_order_of_jobs(tracker: Tracker) -> None:
    for table_id, job_id in (("t", "b"), ("t", "a"), ("u", "c"), (NO_TABLE, "d")):
        tracker.record(replace(RUNNING, table_id=table_id, job_id=job_id))
    assert [record.job_id for record in tracker.records("t")] == ["a", "b"]
    assert [record.job_id for record in tracker.records(NO_TABLE)] == ["d"]
    assert list(tracker.records("none")) == []


def test_records_longer_than_a_page_are_whole(tracker: Tracker) -> None:
    for number in range(110):  # of 10 KB each; a page ends at 1 MB
        tracker.record(replace(RUNNING, job_id=f"{number:03}", reason="x" * 10_000))
    assert len(list(tracker.records("t"))) == 110


def test_dynamodb_is_told_to_forget_a_record_after_seven_days(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with mocked_aws(monkeypatch):
        client = dynamodb_table("jobs", "table_id", "job_id")
        DynamoTracker(client, "jobs").record(RUNNING)
        (item,) = client.scan(TableName="jobs")["Items"]
        assert item["expires"] == {"N": str(1_700_000_000 + 7 * 24 * 60 * 60)}


def test_a_reason_longer_than_an_item_can_be_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    with mocked_aws(monkeypatch):
        tracker = DynamoTracker(dynamodb_table("jobs", "table_id", "job_id"), "jobs")
        tracker.record(replace(RUNNING, reason="bad row; " * 100_000))
        kept = tracker.get("t", "j")
        assert kept is not None
        assert kept.reason.startswith("bad row; bad row")
