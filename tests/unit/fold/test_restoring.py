"""Whatever happened since, a restored state has what the version had, or says what is gone."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dormouse.log.log import fold_delta
from dormouse.log.snapshot import decode_snapshot, encode_snapshot
from dormouse.state.fold import Verdict, apply
from dormouse.state.rules import Rule
from dormouse.state.state import Entry, ReleaseJob, RestoreTable, TableState
from dormouse.state.validation import broken_invariants
from tests.support.depth import examples
from tests.unit.statestore.histories import Delta, histories


def stored(state: TableState) -> TableState:
    """Return a state as a reader of its snapshot has it."""
    return decode_snapshot("t", encode_snapshot("t", state), "a snapshot")


def released(state: TableState) -> TableState:
    for job in sorted(state.jobs):
        state, _ = apply(state, Entry(ReleaseJob(job), state.time_ms, state.generation))
    return state


def states_of(deltas: list[Delta]) -> list[TableState]:
    states = [TableState()]
    for delta in deltas:
        states.append(fold_delta(states[-1], delta.entries)[0])
    return states


def restore(state: TableState, earlier: TableState) -> tuple[TableState, Verdict]:
    wanted = RestoreTable(state.generation + 1, earlier.version)
    return apply(state, Entry(wanted, state.time_ms + 1, state.generation), earlier)


@settings(max_examples=examples(80), deadline=None)
@given(deltas=histories(), at=st.integers(1, 100), is_stored=st.booleans())
def test_the_version_is_back_or_a_shard_of_it_is_gone(
    deltas: list[Delta], at: int, is_stored: bool
) -> None:
    states = states_of(deltas)
    earlier, state = states[1 + at % (len(states) - 1)], states[-1]
    needed = {shard for shard, count in earlier.reference_counts.items() if count}
    if is_stored:
        earlier, state = stored(earlier), stored(state)
    after, verdict = restore(state, earlier)
    if verdict.violations:
        assert after is state
        assert {each.rule for each in verdict.violations} == {Rule.SHARD_MISSING}
        assert {each.subject for each in verdict.violations} == needed - set(state.shards)
        return
    expected = released(earlier)
    assert not broken_invariants(after, whole=True)
    assert not broken_invariants(after)
    assert after.references == expected.references
    assert (after.rows, after.partitions.by_id) == (expected.rows, expected.partitions.by_id)
    assert (after.sources, after.source_segments) == (earlier.sources, earlier.source_segments)
    assert after.sealed_to == earlier.sealed_to
    assert after.generation == state.generation + 1
    assert (after.shards, after.disputed) == (state.shards, state.disputed)
    assert not after.jobs
    assert stored(after) == after
    for shard, since_ms in after.unreferenced.items():
        assert since_ms == state.unreferenced.get(shard, after.time_ms)


@settings(max_examples=examples(30), deadline=None)
@given(deltas=histories(longest=5))
def test_only_the_snapshot_of_the_version_is_restored(deltas: list[Delta]) -> None:
    """Without it, or with another, the entry is rejected, and so is an earlier generation."""
    states = states_of(deltas)
    state = states[-1]
    wanted = RestoreTable(state.generation + 1, state.version)
    for earlier in (None, states[1] if len(states) > 2 else None):
        after, verdict = apply(state, Entry(wanted, 0, state.generation), earlier)
        assert after is state
        assert [each.rule for each in verdict.violations] == [Rule.NOT_THE_VERSION]
    stale = RestoreTable(state.generation, state.version)
    _, verdict = apply(state, Entry(stale, 0, state.generation), state)
    assert [each.rule for each in verdict.violations] == [Rule.STALE_GENERATION]
