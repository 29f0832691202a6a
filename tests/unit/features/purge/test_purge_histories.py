"""Purges in random histories: messages out of order, twice and lost, deaths, ingests and splits."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest

from dormouse.stored.paths import PURGES, data_prefix
from dormouse.tables.table import Table
from tests.support.depth import in_turn
from tests.support.world import Crash, World, letters

WANTED = "letter IN ('b', 'q')"
ALPHABET = "abcdmnqz"


def stored(world: World, table: Table) -> set[object]:
    """Return the letters that any object holds."""
    found: set[object] = set()
    for item in world.storage.list(data_prefix(table.id)):
        rows = pq.read_table(world.folder / "data" / item.path, columns=["letter"])
        found.update(rows["letter"].to_pylist())
    return found


class History:
    """A table in use; `rows` counts what was dropped."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = Random(seed)
        self.world = World(folder, has_spark=False)
        self.table = self.world.create(
            compaction_files=self.random.choice([2, 3, 12]),
            split_threshold_rows=self.random.choice([10, 25, 1000]),
            gc_delay_seconds=30,
            job_retry_seconds=300,
            orphan_age_seconds=3600,
            ingest_file_strategy=self.random.choice(["auto", "one_reference_per_leaf"]),
            compaction_spark_bytes=self.random.choice([0, 1, 4000, 12000]),
        )
        self.rows: Counter[str] = Counter()
        self.files = 0

    def drop(self) -> None:
        text = "".join(self.random.choices(ALPHABET, k=self.random.randint(1, 9)))
        self.world.drop(f"letters/{self.files}.parquet", letters(text, at=100 * self.files))
        self.rows.update(text)
        self.files += 1

    def deliver(self) -> None:
        """Deliver some message, or lose it, or deliver it twice, or die in the midst of it."""
        world, chance = self.world, self.random.random()
        if not world.queue:
            return
        message = self.random.choice(world.queue)
        world.queue.remove(message)
        if chance < 0.1 and not message.queue.startswith("ingest-jobs"):
            return  # as if it were lost; files, and those set aside, would be missed by days
        if chance < 0.3:
            world.queue.append(message)
        if chance > 0.8:
            world.before_next_commit(world.crash)
        try:
            world.queue += world.deliver(message)
        except Crash:
            world.queue.append(message)
        world.hooks.clear()

    def run(self, turns: int) -> None:
        for _ in range(turns):
            self.random.choices([self.drop, self.deliver], weights=[1, 6])[0]()
            self.world.clock.advance(seconds=self.random.choice([0, 1, 20]))

    def rest(self) -> None:
        """Deliver what there is and let the schedule find what was lost, until nothing changes."""
        world, quiet = self.world, 0
        for _ in range(100):
            before = world.state(self.table).version, world.shard_objects(self.table)
            waiting = list(world.queue)
            world.queue.clear()
            for message in waiting:
                world.queue += world.deliver(message)
            same = before == (world.state(self.table).version, world.shard_objects(self.table))
            quiet = quiet + 1 if same else 0
            if quiet == 4:
                assert list(world.storage.list(PURGES.prefix(self.table.id))) == []
                return
            world.clock.advance(seconds=300)
            world.redrive()
            world.age_objects(seconds=7200)  # files have the time of the day, not the world's
            world.sweep(audit=True)
        raise AssertionError("it never came to rest")


@pytest.mark.parametrize("seed", in_turn(range(5), parts=4))
def test_whatever_happens_the_matching_rows_go_and_no_other(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path, seed)
    world, table = history.world, history.table
    history.run(30)
    world.purge(table, WANTED)
    history.run(60)
    history.rest()
    world.purge(table, WANTED)  # for what was ingested since the first
    history.rest()
    kept = Counter({letter: rows for letter, rows in history.rows.items() if letter not in "bq"})
    assert Counter(str(row["letter"]) for row in world.rows(table)) == kept
    assert not {"b", "q"} & stored(world, table)
    assert world.shard_objects(table) == set(world.state(table).shards)
