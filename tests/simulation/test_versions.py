"""What the simulation finds wrong with tags and restores, told step by step instead of drawn."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from dormouse.features import garbage
from dormouse.messages.requests import CompactTable, RestoreVersion, TagVersion
from dormouse.state import fold
from dormouse.state.state import TableState
from dormouse.tables.table import Table
from tests.simulation.event_log import Violation
from tests.simulation.final_checks import check_rest, check_tags, come_to_rest, wait
from tests.simulation.simulation import Simulation
from tests.simulation.versions import tags_of

NAME = "ants"


class Story:
    """A run without faults, in which users do what a test says."""

    def __init__(self, folder: Path) -> None:
        self.simulation = Simulation(7, folder, steps=0)
        self.simulation.stop_faults()
        self.workload = self.simulation.workload
        self.tagged = frozenset[str]()

    @property
    def table(self) -> Table:
        found = self.simulation.instance.tables.named(NAME)
        assert found is not None
        return found

    @property
    def version(self) -> int:
        """The newest version."""
        return self.simulation.services.store(self.table).current().version

    def files(self, count: int) -> None:
        """Drop files, and have them ingested."""
        for _ in range(count):
            self.workload.drop()
            wait(self.simulation)

    def asks(self, request: TagVersion | RestoreVersion | CompactTable) -> None:
        self.workload.ask(request)
        wait(self.simulation)

    def tagged_then_merged(self) -> None:
        """Tag a version of two files, and merge its shards with others, which are collected."""
        self.workload.create(NAME)
        self.files(2)
        self.asks(TagVersion("t", NAME, self.version, "red"))
        self.tagged = self.simulation.oracle(self.table.id).taken
        self.files(2)
        self.asks(CompactTable("c", NAME, all=True))

    def ends(self) -> None:
        come_to_rest(self.simulation)
        check_rest(self.simulation)


def test_a_tagged_version_is_restored_and_all_comes_to_rest(tmp_path: Path) -> None:
    story = Story(tmp_path)
    with story.simulation.instance.running():
        story.tagged_then_merged()
        assert list(tags_of(story.simulation.instance, story.table)) == ["red"]
        story.asks(RestoreVersion("r", NAME, "red"))
        assert story.table.generation == 1
        assert story.tagged
        assert story.simulation.oracle(story.table.id).taken == story.tagged
        story.files(1)
        check_tags(story.simulation)
        story.ends()


def test_a_pin_that_holds_nothing_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def all_of(store: object, state: TableState, shards: Iterable[str]) -> list[str]:
        return list(shards)

    monkeypatch.setattr(garbage, "unpinned", all_of)
    story = Story(tmp_path)
    running = story.simulation.instance.running()
    with running, pytest.raises(Violation, match="which pinned version"):
        story.tagged_then_merged()


def test_a_restore_without_the_rows_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def emptied(state: TableState, earlier: TableState, generation: int) -> TableState:
        return state.reset(generation, earlier.partitions, state.key_types)

    monkeypatch.setattr(fold, "restored", emptied)
    story = Story(tmp_path)
    with story.simulation.instance.running():
        story.tagged_then_merged()
        with pytest.raises(Violation, match="has other rows than"):
            story.asks(RestoreVersion("r", NAME, "red"))
