"""Merge the inputs of a compaction, or a key range of them, into shards by the table's rules.

`compact` chooses the inputs and commits the outputs. The caller decides whether one process merges
all keys, or many processes a range each.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

import pyarrow as pa

from dormouse.arrow.order import spans_in_ranges
from dormouse.arrow.row_counter import RowCounter, Tally
from dormouse.cache import Cache
from dormouse.engine.merging import Slice, merge_slices
from dormouse.engine.row_rules import apply_row_rules
from dormouse.features.purge.row_matcher import RowMatcher
from dormouse.key_forms.arrow import row_key
from dormouse.keys.histogram import KeyHistogram, merge_histograms
from dormouse.keys.ranges import KeyRange
from dormouse.model.partitions import Partition
from dormouse.model.shards import Job, NewShard, Shard
from dormouse.ports.services import Storage
from dormouse.schema.schema import Schema
from dormouse.shards.writing.division import ShardContext, write_shards
from dormouse.shards.writing.run_markers import check_no_run_marker
from dormouse.stored.paths import make_shard_id
from dormouse.tables.row_rules import row_rules
from dormouse.tables.table import Table

EVERYTHING = KeyRange()


@dataclass(frozen=True, slots=True)
class Compaction:
    """An assigned job with everything that is needed to run it.

    `leaves` are those of its partition, in key order: the partition itself, unless it is split.
    Rows that `removed` matches are purged. `keys` are the key histograms of the inputs, `read` has
    their indexes, so that each is read once.
    """

    table: Table
    job: Job
    partition: Partition
    inputs: tuple[Shard, ...]
    context: ShardContext
    leaves: tuple[Partition, ...] = ()
    keys: tuple[KeyHistogram, ...] = ()
    removed: RowMatcher | None = None
    read: Cache | None = None

    @property
    def size_bytes(self) -> int:
        """Return the stored size of the inputs."""
        return sum(shard.size_bytes for shard in self.inputs)

    @property
    def known(self) -> KeyHistogram:
        """Return the key histogram of all inputs together."""
        return merge_histograms(self.keys)


@dataclass(frozen=True, slots=True)
class Merged:
    """The outputs of a merge, or of a part of one, and its rows counted at each stage.

    `rows_read` rows of the inputs were read; a purge and the table's rules counted `rows_removed`
    that they left out; `rows_kept` were passed to the writer. `last_is_marked` is whether an
    output's footer says that it is the last of the run.
    """

    outputs: tuple[NewShard, ...]
    rows_read: int
    rows_kept: int
    rows_removed: int
    last_is_marked: bool

    @property
    def rows_written(self) -> int:
        """Return the number of rows in the outputs."""
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
    """Merge the inputs' rows in `span`, by default all rows, and write them as shards.

    `part` is the number of this part if the compaction is merged in parts.

    Raises:
        NotFoundError: an input is missing.
        CorruptDataError: an input is damaged.
        AlreadyExistsError: another run of the job wrote different outputs of the same inputs, or
            wrote them in parts.
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
            cache=compaction.read,
        )
    )
    removed = Tally()
    left = read if compaction.removed is None else compaction.removed.kept(read, removed)
    # Rules are evaluated at the time of the job's assignment, so that each run of the job writes
    # the same rows.
    rules = row_rules(table.schema, table.properties)
    kept = RowCounter(apply_row_rules(left, table.schema, rules, job.assigned_ms, removed))
    rows = [0] * len(compaction.leaves)
    outputs = write_shards(
        storage,
        _counted(kept, compaction.leaves, table.schema, rows),
        replace(compaction.context, part=part),
        [compaction.partition],
        lambda n: make_shard_id(job.id, n),
        scratch=scratch,
        target_bytes=table.properties.shard_target_bytes,
        at_the_end=lambda: check_no_run_marker(storage, table.id, job.id),
    )
    last_is_marked = part is None and bool(outputs)
    if len(compaction.leaves) > 1:
        outputs = list(_placed(outputs, compaction.leaves, rows))
    return Merged(tuple(outputs), read.rows, kept.rows, removed.rows, last_is_marked)


def _counted(
    batches: Iterable[pa.RecordBatch], leaves: Sequence[Partition], schema: Schema, rows: list[int]
) -> Iterator[pa.RecordBatch]:
    """Yield sorted batches, and add to `rows` how many rows each of several leaves has."""
    ranges = [leaf.range for leaf in leaves]
    begins = [span.min for span in ranges]
    for batch in batches:
        if len(leaves) > 1:
            for start, end in spans_in_ranges(batch, ranges, schema):
                leaf = bisect_right(begins, row_key(batch, start, schema)) - 1
                rows[leaf] += end - start
        yield batch


def _placed(
    outputs: Iterable[NewShard], leaves: Sequence[Partition], rows: Sequence[int]
) -> Iterator[NewShard]:
    """Yield the outputs, which follow each other in key order, with their rows in each leaf.

    Example: of leaves with 4 and 5 rows, outputs of 3 and 6 rows have 3 rows in the first leaf;
    and 1 there and 5 in the second.
    """
    ends = list(accumulate(rows))
    begin = 0
    for new in outputs:
        end = begin + new.shard.rows
        first, last = bisect_right(ends, begin), bisect_left(ends, end)
        spans = (
            (i, min(ends[i], end) - max(ends[i] - rows[i], begin)) for i in range(first, last + 1)
        )
        yield NewShard(new.shard, tuple((leaves[i].id, n) for i, n in spans if n))
        begin = end
