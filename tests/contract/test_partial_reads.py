"""A process that begins reads a few keys' part of the state: it is what the whole state says."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from dormouse.keys import Key, KeyRange
from dormouse.state.fold import Verdict
from dormouse.state.state import PartOfState, Transaction
from tests.contract.test_random_histories import StoreMachine
from tests.support.depth import examples
from tests.support.strategies import short_keys, short_ranges
from tests.unit.statestore.faults import small_pages
from tests.unit.statestore.parts import indexed_early, plan

SEEN: Counter[bool] = Counter()
"""How often a part was read, and how often the whole state instead."""


class Machine(StoreMachine):
    """The machine of stores, with processes that begin and look for a few keys."""

    def go(self, transaction: Transaction) -> Verdict:
        """Commit, and keep what is read quickly, so that few commits follow it."""
        verdict = super().go(transaction)
        if self.count % 3:
            self.writers[0].maintain()
        return verdict

    @rule(wanted=short_ranges(), key=short_keys)
    def processes_that_begin_look_for_keys(self, wanted: KeyRange, key: Key) -> None:
        for ranges in ([wanted], [KeyRange.exactly(key)], [KeyRange.exactly((c,)) for c in "adg"]):
            part = self.process().part(lambda ranges=ranges: ranges)
            SEEN[isinstance(part, PartOfState)] += 1
            assert (part.version, part.generation) == (self.state.version, self.state.generation)
            assert part.key_types == self.state.key_types
            for span in ranges:
                assert plan(part, span) == plan(self.state, span)


@pytest.mark.parametrize("kept_in", ["objects", "items"])
def test_a_part_is_what_the_whole_state_says_after_any_history(kept_in: str) -> None:
    class OfKind(Machine):
        in_items = kept_in == "items"

    SEEN.clear()
    machine: type[RuleBasedStateMachine] = OfKind
    with small_pages(2), indexed_early():
        run_state_machine_as_test(
            machine,
            settings=settings(max_examples=examples(60), stateful_step_count=40, deadline=None),
        )
    assert SEEN[True], "parts were read, not only whole states"
