"""What is published keeps its shards: checkpoints may be thinned, and clocks may be wrong."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.state.state import TableState
from dormouse.state.versions import CHECKPOINTS_IN_DELAY, Checkpoint, PublicationRecord

DELAY_MS = 6_400
LOG = "t"


def state_at(version: int, time_ms: int, generation: int = 0, **unreferenced: int) -> TableState:
    return replace(
        TableState(),
        version=version,
        time_ms=time_ms,
        generation=generation,
        unreferenced=unreferenced,
    )


def checkpoint(published_ms: int, version: int, state_ms: int, metadata: str = "m") -> Checkpoint:
    return Checkpoint(published_ms, LOG, 0, version, state_ms, metadata)


def record_of(*checkpoints: Checkpoint) -> PublicationRecord:
    return PublicationRecord(checkpoints=checkpoints)


def test_nothing_is_free_before_a_first_publication_is_old_enough() -> None:
    state = state_at(3, 100, s=50)
    assert record_of().unneeded(LOG, state, ["s"], 10**9) == []
    young = record_of(checkpoint(1_000, 3, 100))
    assert young.unneeded(LOG, state, ["s"], 999) == []
    assert young.unneeded(LOG, state, ["s"], 1_000) == ["s"]


def test_a_shard_replaced_at_the_time_of_the_published_version_is_kept() -> None:
    state = state_at(5, 100, before=99, same=100, after=101)
    record = record_of(checkpoint(1_000, 4, 100))
    assert record.unneeded(LOG, state, ["before", "same", "after"], 2_000) == ["before"]


def test_all_is_free_once_the_newest_version_was_published_for_the_delay() -> None:
    state = state_at(4, 100, same=100)
    record = record_of(checkpoint(1_000, 3, 90), checkpoint(2_000, 4, 100))
    assert record.unneeded(LOG, state, ["same"], 1_999) == []
    assert record.unneeded(LOG, state, ["same"], 2_000) == ["same"]


@pytest.mark.parametrize(
    "published", [Checkpoint(0, "t/older", 0, 9, 500, "m"), Checkpoint(0, LOG, 1, 9, 500, "m")]
)
def test_nothing_is_free_while_readers_have_another_state_or_generation(
    published: Checkpoint,
) -> None:
    assert record_of(published).unneeded(LOG, state_at(3, 100, s=50), ["s"], 1_000) == []


def test_all_is_free_once_nothing_was_published_for_the_delay() -> None:
    record = record_of(checkpoint(1_000, 3, 100), checkpoint(2_000, 3, 100, metadata=""))
    state = state_at(9, 900, s=800)
    assert record.unneeded(LOG, state, ["s"], 1_999) == []
    assert record.unneeded(LOG, state, ["s"], 2_000) == ["s"]


def test_times_of_checkpoints_never_go_back() -> None:
    record = record_of(checkpoint(5_000, 3, 100))
    later = record.with_checkpoint(checkpoint(4_000, 4, 110), DELAY_MS)
    assert [each.published_ms for each in later.checkpoints] == [5_000, 5_000]
    assert later.metadata == "m"


def test_many_publications_leave_a_bounded_number_of_checkpoints() -> None:
    record = PublicationRecord()
    for number in range(5 * DELAY_MS):
        record = record.with_checkpoint(checkpoint(number, number, number), DELAY_MS)
        assert len(record.checkpoints) <= 2 * CHECKPOINTS_IN_DELAY + 3
    first = record.checkpoints[0]
    assert first.published_ms <= 4 * DELAY_MS <= record.checkpoints[1].published_ms


@dataclass
class History:
    """A table that is published by a clock that may be wrong; each shard has the versions that
    reference it, from the first up to the one that replaced it.
    """

    now_ms: int = 10_000
    state_ms: int = 10_000
    version: int = 0
    begun: dict[str, int] = field(default_factory=dict)
    ended: dict[str, tuple[int, int]] = field(default_factory=dict)
    found: list[tuple[int, int]] = field(default_factory=list)
    record: PublicationRecord = field(default_factory=PublicationRecord)
    deleted: set[str] = field(default_factory=set)

    def commit(self, clock_ms: int) -> None:
        """Replace the oldest shard by a new one."""
        self.version += 1
        self.state_ms = max(self.state_ms, clock_ms)
        for shard in sorted(set(self.begun) - set(self.ended))[:1]:
            self.ended[shard] = (self.version, self.state_ms)
        self.begun[f"s{self.version:05d}"] = self.version

    def publish(self) -> None:
        """Publish the newest version."""
        added = Checkpoint(self.now_ms, LOG, 0, self.version, self.state_ms, f"m{self.version}")
        self.record = self.record.with_checkpoint(added, DELAY_MS)
        self.found.append((self.now_ms, self.version))

    def collect(self) -> None:
        """Delete what is due, as garbage collection does."""
        unreferenced = {s: ms for s, (_, ms) in self.ended.items() if s not in self.deleted}
        due = sorted(s for s, ms in unreferenced.items() if ms <= self.now_ms - DELAY_MS)
        state = replace(state_at(self.version, self.state_ms), unreferenced=unreferenced)
        self.deleted |= set(self.record.unneeded(LOG, state, due, self.now_ms - DELAY_MS))

    def readable(self) -> set[str]:
        """Return the shards of each version that readers found within the delay."""
        oldest_ms = self.now_ms - DELAY_MS
        since = [at for at, (ms, _) in enumerate(self.found) if ms <= oldest_ms]
        versions = [version for _, version in self.found[since[-1] if since else 0 :]]
        return {
            shard
            for shard, begun in self.begun.items()
            for version in versions
            if begun <= version and version < self.ended.get(shard, (10**9, 0))[0]
        }


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["commit", "publish", "collect"]),
            st.sampled_from([0, 0, 1, 40, 100, 900, DELAY_MS]),
            st.sampled_from([0, 0, 0, -500, -20_000, 300]),
        ),
        max_size=120,
    )
)
def test_no_shard_is_deleted_that_readers_found_within_the_delay(
    steps: list[tuple[str, int, int]],
) -> None:
    history = History()
    for kind, pause_ms, skew_ms in steps:
        history.now_ms += pause_ms
        if kind == "commit":
            history.commit(history.now_ms + skew_ms)
        elif kind == "publish":
            history.publish()
        else:
            history.collect()
        assert not history.deleted & history.readable()


def test_all_garbage_goes_once_publications_go_on() -> None:
    history = History()
    for _ in range(50):
        history.now_ms += 100
        history.commit(history.now_ms)
        history.publish()
    history.now_ms += DELAY_MS + 1
    history.publish()
    history.now_ms += DELAY_MS + 1
    history.collect()
    assert history.deleted == set(history.ended)
