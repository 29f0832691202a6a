"""What is wrong with an entry in itself, whatever the state of its table, as data.

A store calls `entry_violations` before it writes an entry, and refuses a broken one. The fold calls
it too: if a broken entry got into a log anyway (by another release, a bug, by hand), every reader
reports the same violation. After this check, `rules` and `fold` may rely on it: keys compare,
counts are counts, ids are ids, and nothing is named twice.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from dormouse.errors import CorruptDataError
from dormouse.keys import INT64_MAX, KeyRange, decode_key
from dormouse.schema.row_tags import MOST_TEXTS_BYTES
from dormouse.schema.schema import KeyTypes, key_part_problem, key_problem
from dormouse.schema.types import is_key_type
from dormouse.state import state as changes
from dormouse.state.partitions import (
    ROOT,
    K,
    NewShard,
    OverlayMap,
    Partition,
    PartitionReferences,
    PartitionTree,
    Reference,
    V,
    partition_id_of,
)
from dormouse.state.rules import Rule, Violation

MAX_ID_LENGTH = 128
"""The longest id. With it, two thousand references fit into one DynamoDB item, and each fits
into a sort key of 1,024 bytes."""
MAX_SHARD_ROWS = 2**40
MAX_SHARD_BYTES = 2**50
"""Far more than any object has. So sums over all shards of a table have 64 bits."""
MAX_DELETION_BYTES = 64 * 1024
"""The longest deletion. All that hide rows are in each snapshot and index of a state."""
MAX_TIME_MS = 253_402_300_799_999
"""The end of the year 9999. A clock beyond it would stop the time of its table."""

_ID = re.compile(rf"[ -.0-~]{{1,{MAX_ID_LENGTH}}}")
"""Printable ASCII without a slash, since slashes separate the parts of object and item names."""


def entry_violations(entry: changes.Entry, key_types: KeyTypes) -> tuple[Violation, ...]:
    """Return every reason why `entry` can be applied to no state of a table with these key types.

    `key_types` is empty for a table that has no tree yet, or if the types of the entry's generation
    are not known. Then keys only need parts that can be stored.
    """
    return tuple(_faults(entry, key_types))


def _faults(entry: changes.Entry, types: KeyTypes) -> Iterator[Violation]:  # noqa: C901, PLR0915  # a case a kind
    yield from _number(entry.time_ms, "the time", MAX_TIME_MS)
    yield from _number(entry.generation, "the generation", INT64_MAX)
    match entry.transaction:
        case changes.InitialisePartitions(splits=splits, key_types=key_types):
            yield from _first_splits(splits, key_types)
        case changes.AddShards(job=job, sources=sources, shards=shards, deletion=deletion) as added:
            yield from _ids([job])
            yield from _number(added.looked_up_to, job, INT64_MAX)
            yield from _named_once(sources)
            yield from _shards(shards, types)
            yield from _deletion(deletion, types) if deletion else ()
        case changes.AssignJob(job=job, partition=partition, inputs=inputs) as assigned:
            yield from _inputs(job, partition, inputs)
            causes = assigned.purge_id, assigned.request_key
            yield from _ids(cause for cause in causes if cause is not None)
        case changes.ReleaseJob(job=job):
            yield from _ids([job])
        case (
            changes.ReplaceShards(
                job=job, partition=partition, inputs=inputs, outputs=outputs
            ) as done
        ):
            yield from _inputs(job, partition, inputs)
            yield from _shards(outputs, types)
            yield from _rows(done.rows_taken)
            yield from _number(done.rows_removed, job, INT64_MAX)
            yield from _conserved(done)
        case changes.SplitPartition(partition=partition, at=at, rows_left=rows_left):
            yield from _splits([(partition, at)], types)
            yield from _rows(rows_left)
        case changes.ExtendTree(splits=splits):
            yield from _splits(splits, types)
        case changes.DeleteShards(shards=shards):
            yield from _named_once(shards)
        case changes.HideRows(deletion=deletion):
            yield from _deletion(deletion, types)
        case changes.ForgetDeletions(numbers=numbers):
            yield from _twice([f"deletion {number}" for number in numbers], Rule.NAMED_TWICE)
        case changes.DisputeShards(shards=shards, job=job):
            yield from _ids([job])
            yield from _named_once(shards)
        case changes.ResolveDisputes(disputes=disputes):
            yield from _named_once([shard for shard, _ in disputes])
            for shard, since_ms in disputes:
                yield from _number(since_ms, shard, MAX_TIME_MS)
        case changes.SealSources(segment=segment, replaced=replaced):
            yield from _segments([segment])
            yield from _named_once(replaced)
        case changes.AdoptSegments(segments=segments):
            yield from _segments(segments)
        case changes.ResetTable(generation=generation, splits=splits, key_types=key_types):
            yield from _number(generation, "the new generation", INT64_MAX)
            own_types = key_types or types
            yield from (
                _first_splits(splits, own_types) if own_types else _ascending(splits, own_types)
            )
        case changes.RestoreTable(generation=generation, version=version):
            yield from _number(generation, "the new generation", INT64_MAX)
            yield from _number(version, "the version", INT64_MAX)


def _deletion(deletion: changes.Deletion, types: KeyTypes) -> Iterator[Violation]:
    yield from _ids([deletion.id])
    name = shown(deletion.id)
    end: bytes | None = b""
    texts = deletion.where, deletion.below, deletion.purge_id, *deletion.columns, *deletion.sources
    size_bytes = sum(map(len, texts))
    is_ascending = True
    for low, high in deletion.ranges:
        size_bytes += len(low) + len(high or b"")
        is_ascending &= end is not None and end <= low and (high is None or low < high)
        end = high
        for key in (low, high):
            if key:
                yield from _key(key, types, 0, f"an end of deletion {name}")
    is_whole = deletion.where and deletion.ranges and is_ascending
    is_unfit = deletion.number < 0 or deletion.time_ms or size_bytes > MAX_DELETION_BYTES
    if not is_whole or is_unfit:
        yield Violation(Rule.DELETION_UNFIT, name)


def _segments(segments: Sequence[changes.SourceSegment]) -> Iterator[Violation]:
    yield from _named_once([segment.id for segment in segments])
    for segment in segments:
        bounded = (segment.count, segment.size_bytes, segment.index_at, segment.slots)
        for number in (*bounded, segment.after, segment.up_to):
            yield from _number(number, segment.id, MAX_SHARD_BYTES)
        if not segment.count:
            yield Violation(Rule.SEGMENT_MISCOUNTED, shown(segment.id))


def _first_splits(splits: Sequence[bytes], types: KeyTypes) -> Iterator[Violation]:
    if types and all(map(is_key_type, types)):
        yield from _ascending(splits, types)
    else:
        yield Violation(Rule.KEY_TYPES_UNFIT, "key types")


def _ascending(splits: Sequence[bytes], types: KeyTypes) -> Iterator[Violation]:
    for number, key in enumerate(splits, start=1):
        yield from _key(key, types, 1, f"split point {number}")
    if b"" in splits or any(here <= before for before, here in pairwise(splits)):
        yield Violation(Rule.SPLITS_NOT_ASCENDING, "split points")


def _inputs(job: str, partition: str, inputs: Sequence[str]) -> Iterator[Violation]:
    yield from _ids([job, partition, *inputs])
    if not inputs or len(set(inputs)) < len(inputs):
        yield Violation(Rule.NO_INPUTS, shown(job))


def _conserved(done: changes.ReplaceShards) -> Iterator[Violation]:
    """Check that a job counts its rows. A job without outputs may not: a rebuild knows none."""
    if not done.outputs and not done.rows_taken and not done.rows_removed:
        return
    if sorted(shard for shard, _ in done.rows_taken) != sorted(done.inputs):
        yield Violation(Rule.ROWS_NOT_COUNTED, shown(done.job))
    taken = sum(rows for _, rows in done.rows_taken)
    if taken - done.rows_removed != sum(new.shard.rows for new in done.outputs):
        yield Violation(Rule.ROWS_NOT_CONSERVED, shown(done.job))


def _splits(splits: Sequence[tuple[str, bytes]], types: KeyTypes) -> Iterator[Violation]:
    if not splits:
        yield Violation(Rule.NO_SPLITS, "splits")
    yield from _ids(partition for partition, _ in splits)
    yield from _twice([partition for partition, _ in splits], Rule.PARTITION_SPLIT)
    for partition, at in splits:
        yield from _key(at, types, 1, f"the split of {shown(partition)}")


def _named_once(names: Sequence[str]) -> Iterator[Violation]:
    yield from _ids(names)
    yield from _twice(names, Rule.NAMED_TWICE)


def _rows(counts: Sequence[tuple[str, int]]) -> Iterator[Violation]:
    yield from _named_once([shard for shard, _ in counts])
    for shard, rows in counts:
        yield from _number(rows, shard, MAX_SHARD_ROWS)


def _shards(shards: Sequence[NewShard], types: KeyTypes) -> Iterator[Violation]:
    yield from _ids(new.shard.id for new in shards)
    yield from _twice([new.shard.id for new in shards], Rule.SHARD_EXISTS)
    for new in shards:
        yield from _shard(new, types)


def _shard(new: NewShard, types: KeyTypes) -> Iterator[Violation]:
    """Yield what is wrong with a shard. Most of a log is shards, and most of them are sound."""
    shard, name = new.shard, new.shard.id
    is_sized = 0 <= shard.size_bytes <= MAX_SHARD_BYTES and 0 <= shard.rows <= MAX_SHARD_ROWS
    is_numbered = shard.sequence >= 0 and shard.version >= -1
    if not is_sized or not is_numbered or len(shard.tags) > MOST_TEXTS_BYTES:
        yield Violation(Rule.OUT_OF_BOUNDS, shown(name))
    low = _key_fault(shard.low, types, len(types))
    high = low if shard.high == shard.low else _key_fault(shard.high, types, len(types))
    if low:
        yield Violation(Rule.KEY_UNFIT, f"the least key of shard {shown(name)} ({low})")
    if high:
        yield Violation(Rule.KEY_UNFIT, f"the greatest key of shard {shown(name)} ({high})")
    is_reversed = bool(types) and not (low or high) and shard.high < shard.low
    if shard.rows == 0 or not new.rows_by_partition or is_reversed:
        yield Violation(Rule.SHARD_EMPTY, shown(name))
    partitions, rows, least = set[str](), 0, 0
    for partition, count in new.rows_by_partition:
        if not _ID.fullmatch(partition):
            yield Violation(Rule.ID_UNFIT, shown(partition))
        partitions.add(partition)
        rows, least = rows + count, min(least, count)
    if len(partitions) < len(new.rows_by_partition):
        yield Violation(Rule.ROWS_COUNTED_TWICE, shown(name))
    if rows != shard.rows or least < 0:
        yield Violation(Rule.ROWS_MISCOUNTED, shown(name))


def _key(key: bytes, types: KeyTypes, fewest_parts: int, where: str) -> Iterator[Violation]:
    if fault := _key_fault(key, types, fewest_parts):
        yield Violation(Rule.KEY_UNFIT, f"{where} ({fault})")


def _key_fault(stored: bytes, types: KeyTypes, fewest_parts: int) -> str:
    """Return why bytes are no key of these types; an empty string if they are. Whatever holds keys
    need not decode them once more.
    """
    try:
        key = decode_key(stored)
    except CorruptDataError:
        return "it is not a stored key"
    return key_problem(key, types, fewest_parts=fewest_parts) if types else key_part_problem(key)


def _ids(ids: Iterable[str]) -> Iterator[Violation]:
    for name in ids:
        if not _ID.fullmatch(name):
            yield Violation(Rule.ID_UNFIT, shown(name))


def _twice(names: Sequence[str], rule: Rule) -> Iterator[Violation]:
    if len(set(names)) < len(names):
        for name, count in Counter(names).items():
            if count > 1:
                yield Violation(rule, shown(name))


def _number(number: int, name: str, most: int) -> Iterator[Violation]:
    if not 0 <= number <= most:
        yield Violation(Rule.OUT_OF_BOUNDS, shown(name))


def shown(name: str) -> str:
    """Return a name in a form that a violation can carry: short, printable ASCII."""
    printable = name if name.isascii() and name.isprintable() else ascii(name)
    return printable if len(printable) <= MAX_ID_LENGTH else f"{printable[:MAX_ID_LENGTH]}…"


# What is true of every state of a table, as predicates that say what is broken.
#
# A state lies over a base that was sound when it was stored. So it is enough to check what changed
# since, and what that touches; the cost depends on the changes, not on the size of the table. A
# whole check treats all of the state as changed.


def broken_invariants(state: changes.TableState, *, whole: bool = False) -> list[str]:
    """Return a sentence for each invariant that `state` breaks; none for a sound state.

    Checks what changed since the base of the state, or the `whole` state.
    """
    if not len(state.partitions):
        return ["rows without partitions"] if len(state.shards) or len(state.jobs) else []
    return [
        *broken_tree(state.partitions, whole=whole),
        *_broken_references(state, whole),
        *_broken_jobs(state, whole),
        *_broken_counts(state, whole),
        *_broken_takings(state, whole),
        *_broken_deletions(state, whole),
        *(_broken_totals(state) if whole else ()),
    ]


def _broken_deletions(state: changes.TableState, whole: bool) -> list[str]:
    broken = []
    numbers = [each.number for each in state.deletions]
    if sorted({*numbers}) != numbers or any(not 0 < n <= state.last_number for n in numbers):
        broken.append("deletions are not numbered in their order")
    for name in _changed(state.shards, whole):
        shard = state.shards.get(name)
        if shard is not None and shard.sequence > state.last_number:
            broken.append(f"shard {name} lacks what a deletion hides that is yet to come")
    return broken


def broken_tree(tree: PartitionTree, *, whole: bool = False) -> list[str]:
    """Return a sentence for each way in which the partitions fail to tile the key space.

    If every partition fits its parent and its children, and only the root has no parent, the
    partitions form a tree. They cannot form a loop, since ranges grow towards the root.
    """
    if ROOT not in tree:
        return ["there is no root partition"]
    broken = []
    if tree.get(ROOT).range != KeyRange():
        broken.append("the root does not span the key space")
    for partition_id in _touched(tree, whole):
        partition = tree.by_id.get(partition_id)
        if partition is not None:
            broken += [*_broken_parent(tree, partition), *_broken_children(tree, partition)]
    return broken


def _touched(tree: PartitionTree, whole: bool) -> set[str]:
    """Return the partitions that may no longer fit: those that changed, and their neighbours in the
    tree before and after the change.
    """
    ids: set[str] = set()
    for partition_id in _changed(tree.by_id, whole):
        before = None if whole else tree.by_id.base.get(partition_id)
        for partition in (before, tree.by_id.get(partition_id)):
            if partition is not None:
                ids.update((partition.id, partition.parent or ROOT))
                ids.update(partition.children or ())
    return ids


def _broken_parent(tree: PartitionTree, partition: Partition) -> Iterator[str]:
    if partition.id != partition_id_of(partition.range):
        yield f"partition {partition.id} has an id that does not follow from its range"
    if partition.parent is None:
        if partition.id != ROOT:
            yield f"partition {partition.id} cannot be reached from the root"
        return
    parent = tree.by_id.get(partition.parent)
    if partition.id == ROOT:
        yield "the root has a parent"
    elif parent is None or partition.id not in (parent.children or ()):
        yield f"partition {partition.id} cannot be reached from the root"


def _broken_children(tree: PartitionTree, partition: Partition) -> Iterator[str]:
    if partition.children is None:
        if partition.height:
            yield f"partition {partition.id} has no children, but a height"
        return
    left, right = (tree.by_id.get(child) for child in partition.children)
    if left is None or right is None:
        yield f"partition {partition.id} lacks a child"
        return
    middle = left.range.high
    if (
        middle is None
        or (left.range.low, right.range.high) != (partition.range.low, partition.range.high)
        or right.range.low != middle
        or left.range.is_empty()
        or right.range.is_empty()
    ):
        yield f"the children of partition {partition.id} do not tile it"
    if partition.height != 1 + max(left.height, right.height):
        yield f"partition {partition.id} has a height that does not follow from its children"
    if (left.parent, right.parent) != (partition.id, partition.id):
        yield f"a child of partition {partition.id} does not know its parent"


def _broken_references(state: changes.TableState, whole: bool) -> Iterator[str]:
    orphans = (p for p in _changed(state.partitions.by_id, whole) if p not in state.partitions)
    for partition_id in {*_changed(state.references, whole), *orphans}:
        references = state.references.get(partition_id, PartitionReferences())
        if partition_id not in state.partitions:
            if references:
                yield f"there are references in partition {partition_id}, which is unknown"
            continue
        above = [state.references.get(a) for a in state.partitions.ancestors(partition_id)]
        holding_above = [h for h in above if h]
        partition = state.partitions.get(partition_id)
        for reference in references:
            yield from _broken_reference(state, partition, reference)
            if any(reference.shard in h.by_shard for h in holding_above):
                yield f"rows of shard {reference.shard} are referenced twice"
        rows = sum(reference.rows for reference in references)
        free = sum(reference.job is None for reference in references)
        if (rows, free) != (references.rows, references.free):
            yield f"the references in partition {partition_id} are miscounted"


def _broken_reference(
    state: changes.TableState, partition: Partition, reference: Reference
) -> Iterator[str]:
    name = f"the reference of shard {reference.shard} in partition {reference.partition}"
    shard = state.shards.get(reference.shard)
    if reference.partition != partition.id:
        yield f"{name} is stored under partition {partition.id}"
    if shard is None:
        yield f"{name} has no shard"
    elif not partition.range.overlaps_span(shard.low, shard.high):
        yield f"{name} is outside the shard's keys"
    if not partition.is_leaf and reference.job is None:
        yield f"{name} is free on a split partition"
    if reference.job is not None and reference.job not in state.jobs:
        yield f"shard {reference.shard} is assigned to job {reference.job}, which is unknown"


def _broken_jobs(state: changes.TableState, whole: bool) -> Iterator[str]:
    """Check the inputs of jobs; a job can lose an input only by a change in its partition."""
    for job in state.jobs.values():
        if whole or job.partition in state.references.changes:
            for shard in job.inputs:
                reference = state.reference(job.partition, shard)
                if reference is None or reference.job != job.id:
                    yield f"job {job.id} has lost its input {shard}"


def _broken_counts(state: changes.TableState, whole: bool) -> Iterator[str]:
    """Check that the reference count of each shard changed by as much as its references did."""
    growth: Counter[str] = Counter()
    for partition_id in _changed(state.references, whole):
        references = state.references.get(partition_id, PartitionReferences())
        before = _before(state.references, partition_id, whole, PartitionReferences())
        growth.update(reference.shard for reference in references)
        growth.subtract(reference.shard for reference in before)
    ids = set(growth)
    ids.update(_changed(state.shards, whole), _changed(state.unreferenced, whole))
    ids.update(_changed(state.reference_counts, whole))
    for shard in ids:
        count = state.reference_counts.get(shard, 0)
        total = _before(state.reference_counts, shard, whole, 0) + growth[shard]
        if total != count:
            yield f"shard {shard} has {total} references but {count} are counted"
        if shard not in state.shards:
            if count or shard in state.unreferenced:
                yield f"shard {shard} is counted or listed for collection but unknown"
        elif (count == 0) != (shard in state.unreferenced):
            yield f"shard {shard} has {count} references and is wrongly listed for collection"


def _broken_takings(state: changes.TableState, whole: bool) -> Iterator[str]:
    """Check that counts of rows taken are kept only while rows are left, or for a dispute."""
    for shard_id in {*_changed(state.taken, whole), *_changed(state.shards, whole)}:
        takings, shard = state.taken.get(shard_id, ()), state.shards.get(shard_id)
        if not takings:
            continue
        if shard is None:
            yield f"rows were taken of shard {shard_id}, which is unknown"
            continue
        if not state.reference_counts.get(shard_id, 0) and shard_id not in state.disputed:
            yield f"all rows of shard {shard_id} were taken, yet the counts are still stored"
        if any(
            taking.rows is not None and not 0 <= taking.rows <= shard.rows for taking in takings
        ):
            yield f"a job took more rows from shard {shard_id} than it has"
        if len({taking.partition for taking in takings}) < len(takings):
            yield f"rows of shard {shard_id} were taken twice in one partition"
    for shard_id in {*_changed(state.disputed, whole), *_changed(state.shards, whole)}:
        if shard_id in state.disputed and shard_id not in state.shards:
            yield f"shard {shard_id} is disputed but unknown"


def _broken_totals(state: changes.TableState) -> Iterator[str]:
    totals = [(len(totals), totals.rows) for totals in state.references.values()]
    references, rows = sum(count for count, _ in totals), sum(rows for _, rows in totals)
    if (references, rows) != (state.reference_count, state.rows):
        yield (
            f"the table has {references} references and {rows} rows but "
            f"{state.reference_count} and {state.rows} are counted"
        )


def _changed(entries: OverlayMap[K, V], whole: bool) -> Iterable[K]:
    """Return the keys whose entries are to be checked; some may have been deleted."""
    return entries if whole else entries.changes


def _before(entries: OverlayMap[K, V], key: K, whole: bool, default: V) -> V:
    """Return the value in the base. A whole check starts from an empty base."""
    value = None if whole else entries.base.get(key)
    return default if value is None else value
