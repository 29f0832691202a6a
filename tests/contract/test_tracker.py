"""What the record of jobs promises, in memory, in DynamoDB and in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dormouse.aws.items import DynamoItems, attributes_of, item_of
from dormouse.errors import CorruptDataError
from dormouse.folder.sqlite import SqliteItems
from dormouse.items.records import ItemTracker, put_record, record_of
from dormouse.ports import NO_TABLE
from dormouse.schema.schema import ROW_IDS_PER_MS
from dormouse.state.jobs import (
    DAMAGED,
    Assigned,
    Failed,
    Finished,
    JobRecord,
    Refused,
    Started,
    TrackedJob,
)
from tests.contract.folders import database_in
from tests.contract.mocked_aws import dynamodb_table, mocked_aws
from tests.support.adapters import MemoryTracker
from tests.support.damaged_items import damages, some_damages
from tests.support.memory_items import MemoryItems

JOB = TrackedJob("t", "j", "ingest")
AT_MS = 1_700_000_000_999
STARTED, FINISHED = Started(subject="t/a.csv"), Finished(rows=2**40)

Tracker = ItemTracker | MemoryTracker


class DynamoTracker(ItemTracker):
    """A tracker over a table of DynamoDB, and its client."""

    def __init__(self) -> None:
        self._client = dynamodb_table("jobs", "table_id", "job_id")
        super().__init__(DynamoItems(self._client, {"jobs": "jobs"}))


@pytest.fixture(params=["memory", "items", "dynamodb", "folder"])
def tracker(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Tracker]:
    if request.param == "memory":
        yield MemoryTracker()
        return
    if request.param == "items":
        yield ItemTracker(MemoryItems())
        return
    if request.param == "folder":
        with database_in(tmp_path) as database:
            yield ItemTracker(SqliteItems(database))
        return
    with mocked_aws(monkeypatch):
        yield DynamoTracker()


def test_a_job_shows_its_newest_record(tracker: Tracker) -> None:
    assert tracker.get("t", "j") is None
    for at_ms, event in enumerate((STARTED, FINISHED), start=AT_MS):
        tracker.record(JOB, event, at_ms)
        kept = tracker.get("t", "j")
        assert kept is not None
        assert (kept.state, kept.rows, kept.updated_ms) == (event.state, event.rows, at_ms)


def test_a_record_that_comes_late_does_not_hide_a_newer_one(tracker: Tracker) -> None:
    tracker.record(JOB, FINISHED, AT_MS + 1)
    before = tracker.get("t", "j")
    tracker.record(JOB, STARTED, AT_MS)
    assert tracker.get("t", "j") == before


def test_a_finished_job_is_not_recorded_as_assigned_by_a_late_planner(tracker: Tracker) -> None:
    assigned = Assigned("it is with Spark")
    tracker.record(JOB, FINISHED, AT_MS)
    before = tracker.get("t", "j")
    tracker.record(JOB, assigned, 2**41)
    assert tracker.get("t", "j") == before
    tracker.record(replace(JOB, id="another"), assigned, 2**41)
    tracker.record(JOB, Failed(), AT_MS)
    for job_id in ("j", "another"):
        tracker.record(replace(JOB, id=job_id), assigned, 2**41)
        kept = tracker.get("t", job_id)
        assert kept is not None
        assert kept.state == "assigned"


def test_of_two_records_of_one_millisecond_the_later_counts(tracker: Tracker) -> None:
    tracker.record(JOB, STARTED, AT_MS)
    tracker.record(JOB, Failed("no disk"), AT_MS)
    kept = tracker.get("t", "j")
    assert kept is not None
    assert (kept.state, kept.reason) == ("failed", "no disk")


def test_the_record_of_a_finished_job_keeps_its_start_its_end_and_its_first_details(
    tracker: Tracker,
) -> None:
    tracker.record(JOB, replace(STARTED, files=3, size_bytes=2**40), AT_MS)
    tracker.record(JOB, replace(FINISHED, rows_read=2**41), AT_MS + 1)
    assert tracker.get("t", "j") == JobRecord(
        "t",
        "j",
        "ingest",
        "finished",
        "t/a.csv",
        rows=2**40,
        updated_ms=AT_MS + 1,
        files=3,
        size_bytes=2**40,
        rows_read=2**41,
        started_ms=AT_MS,
        finished_ms=AT_MS + 1,
        attempts=1,
    )


def test_the_purge_that_a_job_is_for_stays_in_its_record(tracker: Tracker) -> None:
    tracker.record(replace(JOB, purge_id="p"), STARTED, AT_MS)
    tracker.record(JOB, FINISHED, AT_MS + 1)
    kept = tracker.get("t", "j")
    assert kept is not None
    assert (kept.purge_id, kept.state) == ("p", "finished")


def test_every_attempt_is_counted_and_the_newest_has_no_end_until_it_ends(tracker: Tracker) -> None:
    times = iter(range(1_700_000_000_000, 1_700_000_100_000, 1000))
    for event in (STARTED, Failed("no disk"), STARTED):
        tracker.record(JOB, event, next(times))
    again = tracker.get("t", "j")
    assert again is not None
    assert (again.attempts, again.reason, again.finished_ms, again.seconds) == (2, "", 0, None)
    tracker.record(JOB, FINISHED, next(times))
    done = tracker.get("t", "j")
    assert done is not None
    assert (done.attempts, done.seconds) == (2, 1.0)


def test_what_was_refused_unseen_has_an_end_but_no_beginning(tracker: Tracker) -> None:
    tracker.record(JOB, Refused("no such table"), AT_MS)
    kept = tracker.get("t", "j")
    assert kept is not None
    assert (kept.started_ms, kept.finished_ms, kept.seconds) == (0, AT_MS, None)
    assert kept.attempts == 0


def test_records_are_those_of_one_table_in_the_order_of_jobs(tracker: Tracker) -> None:
    for table_id, job_id in (("t", "b"), ("t", "a"), ("u", "c"), (NO_TABLE, "d")):
        tracker.record(TrackedJob(table_id, job_id, "ingest"), STARTED, AT_MS)
    assert [record.job_id for record in tracker.records("t")] == ["a", "b"]
    assert [record.job_id for record in tracker.records(NO_TABLE)] == ["d"]
    assert list(tracker.records("none")) == []


def test_records_longer_than_a_page_are_whole(tracker: Tracker) -> None:
    for number in range(110):  # of 10 KB each; a page ends at 1 MB
        tracker.record(replace(JOB, id=f"{number:03}"), Failed("x" * 10_000), AT_MS)
    assert len(list(tracker.records("t"))) == 110


def test_runs_are_counted_since_the_last_one_with_a_recorded_end(tracker: Tracker) -> None:
    counts = []
    failed, assigned = Failed(), Assigned()
    for event in (STARTED, failed, STARTED, STARTED, assigned, failed, STARTED):
        tracker.record(JOB, event, AT_MS)
        kept = tracker.get("t", "j")
        assert kept is not None
        counts.append((kept.attempts, kept.crashed_attempts))
    assert counts == [(1, 1), (1, 0), (2, 1), (3, 2), (3, 2), (3, 0), (4, 1)]


def test_a_request_is_bound_to_the_table_that_was_said_first(tracker: Tracker) -> None:
    now_ms = AT_MS
    assert [tracker.bind("r", table, now_ms) for table in ("t", "u", NO_TABLE)] == ["t"] * 3
    assert tracker.bind("r", "v", now_ms, instead_of="u") == "t"
    assert tracker.bind("r", "v", now_ms, instead_of="t") == "v" == tracker.bind("r", "t", now_ms)
    assert tracker.bind("s", "u", now_ms) == "u"
    assert list(tracker.records(NO_TABLE)) == []


def test_no_two_rows_of_a_table_get_the_same_id(tracker: Tracker) -> None:
    calls = (5, AT_MS), (1, AT_MS), (2**30, AT_MS - 1), (7, AT_MS), (1, AT_MS + 10**7), (3, AT_MS)
    spans = [(tracker.reserve_row_ids("t", n, now_ms), n) for n, now_ms in calls]
    assert all(a + n <= b for (a, n), (b, _) in zip(spans, spans[1:], strict=False))
    first = AT_MS * ROW_IDS_PER_MS
    assert [spans[0][0], tracker.reserve_row_ids("u", 1, AT_MS)] == [first, first]
    assert list(tracker.records("t")) == []


def test_a_record_has_a_time_to_live_of_seven_days(monkeypatch: pytest.MonkeyPatch) -> None:
    with mocked_aws(monkeypatch):
        tracker = DynamoTracker()
        tracker.record(JOB, STARTED, AT_MS)
        (item,) = tracker._client.scan(TableName="jobs")["Items"]
        assert item["expires"] == {"N": str(1_700_000_000 + 7 * 24 * 60 * 60)}


def test_a_damaged_record_says_so_harms_no_other_and_the_next_takes_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with mocked_aws(monkeypatch):
        tracker = DynamoTracker()
        client = tracker._client
        tracker.record(replace(JOB, id="other"), STARTED, AT_MS)
        other = tracker.get("t", "other")
        tracker.record(JOB, STARTED, AT_MS)
        (good,) = [i for i in client.scan(TableName="jobs")["Items"] if i["job_id"]["S"] == "j"]
        for what, damaged in some_damages(good, ("table_id", "job_id")):
            client.put_item(TableName="jobs", Item=damaged)
            assert tracker.get("t", "j") is None, what
            shown, sound = tracker.records("t")
            assert (shown.job_id, shown.state, sound) == ("j", DAMAGED, other), what
            assert "'j' is damaged" in shown.reason, what
            tracker.record(JOB, FINISHED, AT_MS + 1)
            kept = tracker.get("t", "j")
            assert kept is not None, what
            assert (kept.state, kept.rows, kept.attempts) == ("finished", FINISHED.rows, 0), what


def test_every_damage_to_a_record_is_noticed() -> None:
    record = JobRecord(
        "t", "j", "ingest", "finished", "t/a.csv", "no disk", 2**40, AT_MS, attempts=3, started_ms=5
    )
    good = attributes_of(put_record(record, None))
    assert record_of(item_of("jobs", good)) == record
    for what, damaged in damages(good, ("table_id", "job_id")):
        assert record_of(item_of("jobs", damaged)).state == DAMAGED, what
    elsewhere = item_of("jobs", {**good, "job_id": {"S": "other"}})
    assert record_of(elsewhere).state == DAMAGED


def test_a_request_whose_table_cannot_be_read_any_more_is_about_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with mocked_aws(monkeypatch):
        tracker = DynamoTracker()
        client = tracker._client
        tracker.bind("r", "t", 7)
        (good,) = client.scan(TableName="jobs")["Items"]
        for what, damaged in damages(good, ("table_id", "job_id")):
            client.put_item(TableName="jobs", Item=damaged)
            with pytest.raises(CorruptDataError, match="'r'") as raised:
                tracker.bind("r", "u", 8)
            assert "another request_id" in raised.value.hint, what
        assert tracker.bind("s", "u", 8) == "u"


def test_records_of_one_job_at_once_do_not_lose_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    with mocked_aws(monkeypatch):
        tracker = DynamoTracker()
        put, begun = tracker._client.put_item, []

        def slow(**request: object) -> object:
            if not begun:
                begun.append(request)
                tracker.record(JOB, STARTED, AT_MS)
            return put(**request)  # type: ignore[arg-type]

        monkeypatch.setattr(tracker._client, "put_item", slow)
        tracker.record(JOB, STARTED, AT_MS)
        kept = tracker.get("t", "j")
        assert kept is not None
        assert kept.attempts == 2


def test_a_reason_longer_than_an_item_can_be_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    with mocked_aws(monkeypatch):
        tracker = DynamoTracker()
        tracker.record(JOB, Failed("bad row; " * 100_000), AT_MS)
        kept = tracker.get("t", "j")
        assert kept is not None
        assert kept.reason.startswith("bad row; bad row")


@pytest.mark.parametrize("name", ["", "j" * 2000, "\ud800"])
def test_what_cannot_be_the_name_of_a_job_is_that_of_none(tracker: Tracker, name: str) -> None:
    assert tracker.get("t", name) is None
    assert tracker.get(name, "j") is None


def test_a_job_about_something_with_a_very_long_name_is_recorded(tracker: Tracker) -> None:
    tracker.record(JOB, replace(STARTED, subject="x" * 500_000), AT_MS)
    kept = tracker.get("t", "j")
    assert kept is not None
    assert kept.subject.startswith("xxx")
