"""What the record of a job says after any events, in any order of delivery."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dormouse.state.jobs import (
    Accepted,
    Assigned,
    Failed,
    Finished,
    JobEvent,
    JobRecord,
    Refused,
    Started,
    TrackedJob,
    fold_event,
)

JOB = TrackedJob("t", "j", "compaction")
KINDS = (Accepted, Assigned, Started, Finished, Failed, Refused)
numbers, texts = st.integers(0, 9), st.sampled_from(("", "x"))
events: st.SearchStrategy[JobEvent] = st.builds(
    lambda kind, *said: kind(*said),
    st.sampled_from(KINDS),
    texts,
    texts,
    numbers,
    numbers,
    numbers,
    numbers,
)
histories = st.lists(st.tuples(events, st.integers(1, 4)), max_size=8)


def folded(history: list[tuple[JobEvent, int]]) -> JobRecord | None:
    kept = None
    for event, at_ms in history:
        kept = fold_event(kept, JOB, event, at_ms) or kept
    return kept


@given(histories)
def test_a_record_says_what_its_newest_event_said(history: list[tuple[JobEvent, int]]) -> None:
    kept = None
    for event, at_ms in history:
        after = fold_event(kept, JOB, event, at_ms)
        is_late = kept is not None and at_ms < kept.updated_ms
        is_done = kept is not None and kept.state == "finished" and isinstance(event, Assigned)
        assert (after is None) == (is_late or is_done)
        if after is not None:
            reason, rows = event.reason, (event.rows, event.rows_read)
            if isinstance(event, Started):  # an attempt begins with what the one before has written
                rows = (kept.rows, kept.rows_read) if kept is not None else (0, 0)
                if kept is not None and kept.state == "finished":  # it comes again, and was done
                    reason = kept.reason
            said = (event.state, reason, *rows, at_ms)
            assert (after.state, after.reason, after.rows, after.rows_read, after.updated_ms) == (
                said
            )
        kept = after or kept


@given(histories)
def test_attempts_are_the_starts_and_crashes_those_since_the_last_end(
    history: list[tuple[JobEvent, int]],
) -> None:
    in_order = [(event, at_ms) for at_ms, (event, _) in enumerate(history, start=1)]
    kept = folded(in_order)
    starts = crashes = 0
    for event, _ in in_order:
        starts += isinstance(event, Started)
        crashes = (
            0
            if isinstance(event, Finished | Failed | Refused)
            else crashes + isinstance(event, Started)
        )
    assert (kept.attempts, kept.crashed_attempts) == (starts, crashes) if kept else not history


def test_the_end_of_an_attempt_is_forgotten_when_the_next_starts() -> None:
    ended = folded([(Started(subject="a", files=2), 1), (Failed("no disk"), 2)])
    assert ended == JobRecord(
        "t",
        "j",
        "compaction",
        "failed",
        "a",
        "no disk",
        updated_ms=2,
        files=2,
        started_ms=1,
        finished_ms=2,
        attempts=1,
    )
    again = fold_event(ended, JOB, Started(), 3)
    assert again is not None
    assert (again.started_ms, again.finished_ms, again.subject, again.files) == (3, 0, "a", 2)


def test_events_that_say_the_same_are_equal_only_if_they_are_of_one_kind() -> None:
    assert Failed("x") == Failed("x")
    assert Failed("x") != Refused("x")


def test_a_finished_job_is_not_shown_as_assigned_by_the_stage_that_handed_it_on() -> None:
    finished = fold_event(None, JOB, Finished(rows=1), 1)
    assert fold_event(finished, JOB, Assigned("handed on"), 2) is None
    failed = fold_event(finished, JOB, Failed(), 2)
    again = fold_event(failed, JOB, Assigned("handed on"), 3)
    assert again is not None and again.state == "assigned"
