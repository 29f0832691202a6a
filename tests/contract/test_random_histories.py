"""Stores against an oracle: two processes commit whatever comes up, and all agree with the rows."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from dormouse.log.engine import StateStore
from dormouse.state.fold import Verdict
from dormouse.state.state import Transaction
from tests.support.adapters import CountingIds, FakeClock
from tests.support.depth import examples
from tests.support.hooked_pages import HookedPages
from tests.support.machine import TableMachine, verdict_of
from tests.support.memory_dynamodb import MemoryDynamoDB
from tests.support.memory_storage import MemoryStorage
from tests.support.stores import items_store, objects_store
from tests.unit.statestore.faults import small_pages


class StoreMachine(TableMachine):
    """The machine of the fold, whose changes are committed by two processes in turn."""

    in_items: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock(0)
        self.ids = CountingIds(self.clock)
        self.storage, self.pages = MemoryStorage(), HookedPages()
        self.dynamodb = MemoryDynamoDB()
        self.writers = [self.process(), self.process()]

    def process(self) -> StateStore:
        """Open the store as a process does that knows nothing yet."""
        if self.in_items:
            return items_store("t", self.dynamodb.items(), self.pages, self.clock, self.ids)
        return objects_store("t", self.storage, self.pages, self.clock, self.ids)

    def go(self, transaction: Transaction) -> Verdict:
        self.clock.ms = self.count
        generation = self.state.generation
        before = self.state
        expected = super().go(transaction)
        self.state = replace(self.state, version=before.version + 1)
        writer = self.writers[self.count % 2]
        (outcome,) = writer.commit(transaction, generation=generation)
        assert verdict_of(outcome) == expected
        return expected

    @rule()
    def maintain(self) -> None:
        self.writers[0].maintain()

    @rule()
    def another_process_takes_over(self) -> None:
        self.writers = [self.writers[1], self.process()]

    @invariant()
    def every_process_sees_what_the_fold_made(self) -> None:
        for writer in self.writers:
            assert writer.current() == self.state


def machine(kept_in: str) -> type[RuleBasedStateMachine]:
    """Make the machine of one kind of store."""

    class Machine(StoreMachine):
        in_items = kept_in == "items"

    return Machine


@pytest.mark.parametrize("kept_in", ["objects", "items"])
def test_any_history_is_the_same_to_every_process_and_to_the_oracle(kept_in: str) -> None:
    with small_pages(4):
        run_state_machine_as_test(
            machine(kept_in),
            settings=settings(max_examples=examples(25), stateful_step_count=30, deadline=None),
        )
