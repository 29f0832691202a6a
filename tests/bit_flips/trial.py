"""A table of two shards, and what each stage makes of it while one bit of the first is flipped."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.arrow.types import arrow_schema
from dormouse.errors import CorruptDataError
from dormouse.features.checking import Damage, check
from dormouse.features.compaction import compact
from dormouse.features.export import load_manifest
from dormouse.features.purge_rows import prove_purge
from dormouse.keys import KeyRange
from dormouse.messages.stages import CompactionJob
from dormouse.ports import Cache
from dormouse.query.rows import LOOK_UP_BYTES
from dormouse.shards import footer, parquet
from dormouse.state.state import AssignJob, ResolveDisputes
from dormouse.stored.paths import shard_path
from tests.support.damage import flipped, regions, rewrite
from tests.support.every_type import EVERY_TYPE, row_of_every_type
from tests.support.purges import purge_request
from tests.support.queries import query_rows
from tests.support.world import World

ROWS = 300
PURGED = "l % 3 = 0"
LONGEST_LOG = 100
"""A longer log would take its time to read, which is not what is tried here."""
REFUSED, HARMLESS, WRONG = "refused", "harmless", "wrong"


class Refusal(Exception):
    """Stands for an answer that no bytes are to be believed."""


@dataclass(frozen=True)
class Flip:
    """A bit of the shard: the kind of bytes it is among, its byte, and its place in that."""

    region: str
    place: int
    bit: int


class Trial:
    """The table; `judged` returns what a stage makes of a flip."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._worlds = self._exports = 0
        self._begin()
        self.stages: dict[str, Callable[[], object]] = {
            "compact": self._compacted,
            "export": self._exported,
            "purge proof": self._proof,
            "query, whole": lambda: self._query(look_up_bytes=0),
            "query, looked up": self._query,
            "point look-up": lambda: self._query(KeyRange.exactly(self.key)),
            "check --bytes": self._checked,
        }
        self._ask_for_export()
        self.expected = {name: stage() for name, stage in self.stages.items() if name != "compact"}
        self.expected["compact"] = self._query()

    def flips(self, number: int, seed: int) -> Iterator[Flip]:
        """Yield flips, as many in each kind of bytes."""
        draws = random.Random(seed)
        found = {name: [r for r in some if r] for name, some in regions(self.body).items()}
        for at in range(number):
            name = list(found)[at % len(found)]
            yield Flip(name, draws.choice(draws.choice(found[name])), draws.randrange(8))

    def judged(self, stage: str, flip: Flip) -> str:
        """Flip a bit, run a stage, and put the bit back; whatever is not foreseen is wrong."""
        if stage == "export":
            self._ask_for_export()
        with self._flipped(flip):
            try:
                found = self.stages[stage]()
            except (CorruptDataError, Refusal):
                return REFUSED
            except Exception:  # whatever else it is: a table of all flips is wanted
                return WRONG
        return HARMLESS if found == self.expected[stage] else WRONG

    @contextmanager
    def _flipped(self, flip: Flip) -> Iterator[None]:
        rewrite(self.file, flipped(self.body, flip.place, flip.bit))
        try:
            yield
        finally:
            if self.file.exists():
                rewrite(self.file, self.body)

    def _begin(self) -> None:
        self._worlds += 1
        world = self.world = World(self.folder / str(self._worlds))
        world.services = replace(world.services, cache=Cache(0))
        rows = [row_of_every_type(n) for n in range(ROWS)]
        with (
            patch.object(parquet, "FIRST_ROW_GROUP_ROWS", 40),
            patch.object(footer, "BLOCK_BYTES", 2048),
        ):
            self.table = world.create("t", EVERY_TYPE)
            world.set_online(self.table, False)
            for part in range(2):
                world.drop(f"t/{part}.parquet", _file(rows[part::2]))
            world.settle()
        self.state = world.state(self.table)
        self.shard = min(self.state.shards)
        self.key = self.state.shards[self.shard].max_key
        self.file = world.folder / "data" / shard_path(self.table.id, self.shard)
        self.body = self.file.read_bytes()

    def _compacted(self) -> object:
        """Run a compaction; if it commits, its rows are found, and the trial starts over."""
        self.world.clock.advance(seconds=1)  # each dispute has a time of its own
        store, job = self.world.new_store(self.table), self.world.ids.new()
        store.commit(AssignJob(job, "root", tuple(store.current().shards)), generation=0)
        compact(self.world.services, CompactionJob(self.table.id, 0, job))
        state = self.world.state(self.table)
        if self.shard in state.disputed:
            assert not state.jobs
            assert self.world.shard_objects(self.table) == set(state.shards)
            resolution = ResolveDisputes(((self.shard, state.disputed[self.shard].since_ms),))
            store.commit(resolution, generation=0)
            if state.version > LONGEST_LOG:
                self._begin()
            raise Refusal
        self.state = state
        found = self._query()
        self._begin()
        return found

    def _ask_for_export(self) -> None:
        """Begin an export of its own for the next run of the stage, while all bytes are sound."""
        self._exports += 1
        self.world.export(self.table, to=f"out{self._exports}")
        (self._export_job,) = self.world.queue
        self.world.queue.clear()

    def _exported(self) -> object:
        self.world.deliver(self._export_job)
        to = f"out{self._exports}"
        found = load_manifest(self.world.results, to)
        if found is None:
            raise Refusal
        folder = self.world.folder / "results" / to
        return pa.concat_tables(pq.read_table(folder / file.name) for file in found.files)

    def _proof(self) -> object:
        request = purge_request(self.table.schema, PURGED)
        proof = prove_purge(self.world.services, self.table, request)
        if any(remains.rows is None for remains in proof.remains):
            raise Refusal
        return proof.rows, proof.shards

    def _query(self, *wanted: KeyRange, look_up_bytes: int = LOOK_UP_BYTES) -> object:
        result = query_rows(
            self.world.storage,
            self.table,
            self.state,
            wanted,
            now_ms=0,
            scratch=self.world.services.scratch,
            memory_bytes=64 * 1024 * 1024,
            look_up_bytes=look_up_bytes,
        )
        return result.reader.read_all()

    def _checked(self) -> object:
        found = check(self.world.services, self.table, all_bytes=True).findings
        if any(finding.damage is Damage.SHARD_DAMAGED for finding in found):
            raise Refusal
        return found


def _file(rows: Sequence[dict[str, object]]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows), arrow_schema(EVERY_TYPE)), sink)
    return sink.getvalue()
