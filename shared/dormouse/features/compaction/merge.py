"""A compaction, or a range of keys of one: the inputs merged, by the table's rules, into shards.

`compact` says what is to be merged, and commits it; where it is done, in one process or in
many, is up to who calls this.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from dormouse.arrow.row_counter import RowCounter, Tally
from dormouse.engine.merging import Slice, merge_slices
from dormouse.engine.row_rules import apply_row_rules
from dormouse.features.purge.row_matcher import RowMatcher
from dormouse.keys.histogram import KeyHistogram, merge_histograms
from dormouse.keys.ranges import KeyRange
from dormouse.model.partitions import Partition
from dormouse.model.shards import Job, NewShard, Shard
from dormouse.ports import Storage
from dormouse.shards.writing import ShardContext, write_shards
from dormouse.stored.paths import make_shard_id
from dormouse.tables.row_rules import row_rules
from dormouse.tables.table import Table

EVERYTHING = KeyRange()


@dataclass(frozen=True, slots=True)
class Compaction:
    """An assigned job with all that must be known to run it. Rows `removed` matches are left out.

    `keys` tells where the rows of the inputs lie.
    """

    table: Table
    job: Job
    partition: Partition
    inputs: tuple[Shard, ...]
    context: ShardContext
    keys: tuple[KeyHistogram, ...] = ()
    removed: RowMatcher | None = None

    @property
    def size_bytes(self) -> int:
        """What the inputs take in storage."""
        return sum(shard.size_bytes for shard in self.inputs)

    @property
    def known(self) -> KeyHistogram:
        """What is known of where the rows of all inputs together lie."""
        return merge_histograms(self.keys)


@dataclass(frozen=True, slots=True)
class Merged:
    """What became of a compaction, or of a part: its outputs, and rows on three points of the way.

    `rows_removed` is what a purge and the rules of the table have counted that they left out.
    `ended` tells whether an output says that it is the last.
    """

    outputs: tuple[NewShard, ...]
    rows_read: int
    rows_kept: int
    rows_removed: int
    ended: bool

    @property
    def rows_written(self) -> int:
        """The rows of the outputs."""
        return sum(new.shard.rows for new in self.outputs)


def merge_inputs(
    storage: Storage,
    compaction: Compaction,
    *,
    scratch: Path,
    memory_bytes: int,
    span: KeyRange = EVERYTHING,
    part: int | None = None,
) -> Merged:
    """Merge what of the inputs lies in `span`, all of it if not given, and write it.

    Of a compaction that is done in parts, this is the `part` of that number.

    Raises:
        NotFoundError: an input is gone.
        CorruptDataError: one is damaged.
        AlreadyExistsError: another run of the job made something else of the same inputs.
    """
    table, job = compaction.table, compaction.job
    wanted = compaction.partition.range.intersection(span)
    read = RowCounter(
        merge_slices(
            storage,
            table.id,
            [Slice(shard, wanted) for shard in compaction.inputs],
            table.schema,
            scratch=scratch,
            memory_bytes=memory_bytes,
        )
    )
    removed = Tally()
    left = read if compaction.removed is None else compaction.removed.kept(read, removed)
    # as of the job's assignment, so that its next run makes of the inputs what this one does
    rules = row_rules(table.schema, table.properties)
    kept = RowCounter(apply_row_rules(left, table.schema, rules, job.assigned_ms, removed))
    outputs = write_shards(
        storage,
        kept,
        replace(compaction.context, part=part),
        [compaction.partition],
        lambda n: make_shard_id(job.id, n),
        scratch=scratch,
        target_bytes=table.properties.shard_target_bytes,
    )
    ended = part is None and bool(outputs)
    return Merged(tuple(outputs), read.rows, kept.rows, removed.rows, ended)
