"""Short runs of the simulation, each of a seed of its own; and faults that it must find."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dormouse.arrow.types import Tally
from dormouse.features import compaction as compacting
from dormouse.features import deletion, garbage, planning, sweep
from dormouse.items.blobs import ItemBlobs, ObjectBlobs
from dormouse.log import sources
from dormouse.log.engine import StateStore
from dormouse.messages.requests import (
    AlterSchema,
    CompactTable,
    DeleteTable,
    ExportRows,
    PurgeRows,
    Request,
    SetProperties,
)
from dormouse.rows.merging import merged_rows
from dormouse.rows.predicates import apply_row_rules
from dormouse.shards.reading import Slice
from dormouse.shards.writer import ShardWriter
from dormouse.state import fold
from dormouse.state.state import TableState
from dormouse.tables.table import Tombstone
from tests.simulation.event_log import Violation
from tests.simulation.run import run
from tests.support.adapters import MemoryTables
from tests.support.depth import in_turn
from tests.support.hooked_pages import HookedPages

SEEDS = range(1, 101)
SEEDS_A_TEST = 10
FOLDER_SEEDS = range(201, 207)
STEPS = 250
FEW_SEEDS = range(1, 101)
"""So many seeds find each of the faults below; the first ten find most."""


@pytest.mark.parametrize("first", in_turn(SEEDS[::SEEDS_A_TEST], parts=5))
def test_whatever_goes_wrong_rows_are_those_of_the_files_and_all_comes_to_rest(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        run(seed, STEPS)


def test_so_they_are_with_the_state_of_a_folder() -> None:
    for seed in in_turn(FOLDER_SEEDS, parts=3):
        run(seed, STEPS, in_folder=True)


def test_a_seed_gives_the_same_story_each_time() -> None:
    story = run(4, STEPS).events.digest()
    assert run(4, STEPS).events.digest() == story
    assert run(5, STEPS).events.digest() != story


def _collectable_at_once(
    state: object, candidates: Iterable[str], now_ms: int, delay_seconds: int
) -> tuple[list[str], list[str]]:
    return sorted(set(candidates) & set(state.unreferenced)), []  # type: ignore[attr-defined]


def _loses_a_row_of_split_inputs(
    storage: object, table_id: str, slices: list[Slice], *args: object, **named: object
) -> Iterator[pa.RecordBatch]:
    """Merge as ever, but for a row of what lies in other partitions, too."""
    whole = all(slice.is_whole for slice in slices)
    for number, batch in enumerate(merged_rows(storage, table_id, slices, *args, **named)):  # type: ignore[arg-type]
        yield batch if whole or number else batch.slice(1)


Plant = Callable[[pytest.MonkeyPatch], None]


def _instead(where: object, name: str, fault: object) -> Plant:
    return lambda monkeypatch: monkeypatch.setattr(where, name, fault)


def _nothing(*_: object) -> None:
    """Do nothing, and say nothing of it."""


def _not_done(request: type[Request]) -> Plant:
    where = "dormouse.features." + request.path.replace(":", ".")
    return lambda monkeypatch: monkeypatch.setattr(where, _nothing)


def _buried(_: object, table_id: str) -> Tombstone:
    """Believe of any id that its table was deleted."""
    return Tombstone(table_id, "", 0, True, "s3")


def _one_row_less(batches: Iterable[pa.RecordBatch], *given: object) -> Iterator[pa.RecordBatch]:
    """Leave a row of each batch out, and count it as what the rules removed."""
    tally = next(each for each in given if isinstance(each, Tally))
    for batch in apply_row_rules(batches, *given):  # type: ignore[arg-type]
        tally.rows += 1
        yield batch.slice(1)


def _not_sealed(
    storage: object, table_id: str, state: TableState, asked: Iterable[str]
) -> frozenset[str]:
    return frozenset(source for source in asked if source in state.sources)


_written_as_it_is = ShardWriter.write


def _without_minus_zero(draft: ShardWriter, leaf: object, batch: pa.RecordBatch) -> None:
    columns = [
        pc.add(column, pa.scalar(0.0, column.type)) if pa.types.is_floating(column.type) else column
        for column in batch.columns
    ]
    _written_as_it_is(draft, leaf, pa.RecordBatch.from_arrays(columns, schema=batch.schema))  # type: ignore[arg-type]


PLANTED: dict[str, Plant] = {
    "what has no proof of a deletion is deleted": _instead(MemoryTables, "tombstone", _buried),
    "a merge loses rows, and takes them for removed": _instead(
        compacting, "apply_row_rules", _one_row_less
    ),
    "sealed sources are forgotten": _instead(sources, "ingested_of", _not_sealed),
    "minus zero becomes zero": _instead(ShardWriter, "write", _without_minus_zero),
    "a commit against the rules counts": _instead(fold, "violations", lambda state, entry: ()),
    "garbage is collected without its delay": _instead(
        garbage, "collectable", _collectable_at_once
    ),
    "an audit takes what is being written for orphans": _instead(
        garbage,
        "orphans",
        lambda state, modified_ms, oldest_ms: [s for s in modified_ms if s not in state.shards],
    ),
    "files whose notification was lost are not looked for": _instead(
        sweep, "missed_files", lambda *_: []
    ),
    "the shards of a deleted table stay": _instead(
        deletion, "table_prefix", lambda table_id: f"{table_id}/state/"
    ),
    "the blobs of a deleted table stay": _instead(StateStore, "_delete_blobs", _nothing),
    "the pages of a deleted table stay": _instead(HookedPages, "delete_pages", _nothing),
    "objects that nobody needs stay": _instead(ObjectBlobs, "delete_stale", _nothing),
    "items that nobody needs stay": _instead(ItemBlobs, "delete_stale", _nothing),
    "all compactions are assigned at once": _instead(
        planning, "within_limit", lambda plans, running, limit: list(plans)
    ),
    "a merge loses a row of inputs that were split": _instead(
        compacting, "merged_rows", _loses_a_row_of_split_inputs
    ),
    "the end of a collection is not recorded": _instead(garbage, "record", _nothing),
    "a purge is not begun": _not_done(PurgeRows),
    "an export is not begun": _not_done(ExportRows),
    "a schema stays as it is": _not_done(AlterSchema),
    "a compaction is not begun": _not_done(CompactTable),
    "a table is not deleted": _not_done(DeleteTable),
    "properties stay as they are": _not_done(SetProperties),
}


FOUND_BY = {
    "a compaction is not begun": 19,
    "garbage is collected without its delay": 15,
    "files whose notification was lost are not looked for": 23,
    "a commit against the rules counts": 9,
    "an audit takes what is being written for orphans": 11,
    "objects that nobody needs stay": 13,
    "all compactions are assigned at once": 13,
    "an export is not begun": 4,
}
"""Seeds that are tried first; as the code changes, others find these faults, which takes longer."""


@pytest.mark.parametrize("planted", in_turn(list(PLANTED)))
def test_a_fault_that_is_planted_is_found(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED[planted](monkeypatch)
    with pytest.raises(Violation) as found:
        for seed in dict.fromkeys([FOUND_BY.get(planted, FEW_SEEDS[0]), *FEW_SEEDS]):
            run(seed, STEPS)
    assert "seed" in str(found.value)
    assert "make sim SEED=" in str(found.value)
