"""The preconditions of every transaction on the state, as data.

`state.validation` has checked before what is wrong with an entry in any state. The rules follow the
operations of GCHQ's Sleeper state store; where it raises an exception, the result here is a
`Violation` that names the rule and what broke it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from dormouse.errors import InvalidRequestError
from dormouse.state import state as changes
from dormouse.state.partitions import NewShard, Partition, PartitionTree, Shard
from dormouse.state.state import Deletion

MAX_GENERATIONS_AHEAD = 1_000_000
"""How far a reset may advance the generation. Usually it is by one; in a rebuilt state it is up to
that of the table. After a generation near the greatest integer, no table can be reset again."""


MAX_DELETIONS = 1_000
"""How many deletions may hide rows at once. Readers test rows by each whose keys they read."""


class Rule(Enum):
    """The rule that a transaction broke; the value describes the subject of the violation."""

    STALE_GENERATION = "the table was reset after this was queued"
    ALREADY_INITIALISED = "the table has partitions already"
    NOT_INITIALISED = "the table has no partitions yet"
    KEY_TYPES_UNFIT = "a table needs at least one row key, each of a type that has an order"
    KEY_UNFIT = "it does not fit the row keys of this table"
    ID_UNFIT = "an id has 1 to 128 printable ASCII characters other than a slash"
    NAMED_TWICE = "it is named more than once"
    OUT_OF_BOUNDS = "a number is negative or too large"
    SPLITS_NOT_ASCENDING = "the keys at which leaves meet must ascend without repeats"
    SOURCE_INGESTED = "the source was ingested already"
    SOURCES_SEALED = "more sources were sealed after the search for its sources"
    SEALED_BEFORE = "the versions to seal are already sealed, or in the future"
    SEGMENT_MISPLACED = "the segment does not begin where the remaining segments end"
    SEGMENT_MISCOUNTED = (
        "the number of sources in the segment is not that of the sources it replaces"
    )
    NOT_AT_BEGINNING = "segments can be adopted only at the start of a log"
    SHARD_EXISTS = "the shard exists already"
    NOT_THE_VERSION = "its snapshot is not that of the version to restore"
    SHARD_MISSING = "there is no such shard"
    SHARD_REFERENCED = "the shard is still referenced"
    ROWS_NOT_COUNTED = "the rows taken from each input must be counted exactly once"
    ROWS_NOT_CONSERVED = (
        "the outputs do not have the rows taken from the inputs, less those removed"
    )
    SHARD_DISPUTED = "the shard is disputed"
    DISPUTE_MISSING = "the shard is not disputed, or was disputed again since"
    SHARD_EMPTY = "the shard has no rows or no partition"
    PARTITION_MISSING = "there is no such partition"
    PARTITION_SPLIT = "the partition was split already"
    OUTSIDE_PARTITION = "the shard has keys outside its partitions"
    ROWS_COUNTED_TWICE = "the shard's references overlap"
    ROWS_MISCOUNTED = "the rows of the shard's references do not add up to its rows"
    REFERENCE_MISSING = "the shard has no reference in the partition"
    REFERENCE_ASSIGNED = "the reference is the input of another job"
    ROWS_TAKEN = "rows of the shard in the partition are in other shards already"
    REFERENCE_NOT_ASSIGNED = "the reference is not an input of this job"
    NO_INPUTS = "a job needs at least one input, each once"
    JOB_EXISTS = "the job exists already"
    JOB_RELEASED = "a job with this id was released before"
    JOB_MISSING = "there is no such job"
    NO_SPLITS = "the transaction has no splits"
    DELETION_UNFIT = "a deletion has a condition and ascending ranges of keys, and no number yet"
    DELETION_EXISTS = "the deletion exists already"
    TOO_MANY_DELETIONS = "as many deletions as there may be are not applied to all shards yet"
    DELETION_MISSING = "there is no such deletion"
    DELETION_NEEDED = "the deletion may still hide rows of a shard"
    SPLIT_OUTSIDE_PARTITION = "the split key does not lie strictly within the partition"


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule, and the id (of a source, shard, partition or job) that broke it."""

    rule: Rule
    subject: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.rule.value}"


def violations(state: changes.TableState, entry: changes.Entry) -> tuple[Violation, ...]:
    """Return every reason why `entry` must not be applied to `state`; none if it may be.

    Requires: `entry_violations` has found nothing.
    """
    transaction = entry.transaction
    if not len(state.partitions) and not isinstance(transaction, changes.InitialisePartitions):
        return (Violation(Rule.NOT_INITIALISED, "partitions"),)
    if isinstance(transaction, changes.ResetTable | changes.RestoreTable):
        return tuple(_reset(state, transaction))
    if entry.generation != state.generation:
        return (Violation(Rule.STALE_GENERATION, f"generation {entry.generation}"),)
    return tuple(_broken(state, transaction, max(entry.time_ms, state.time_ms)))


def _broken(  # noqa: C901  # a case a kind
    state: changes.TableState, transaction: changes.Transaction, now_ms: int
) -> Iterable[Violation]:
    match transaction:
        case changes.InitialisePartitions():
            is_new = not len(state.partitions)
            return () if is_new else (Violation(Rule.ALREADY_INITIALISED, "partitions"),)
        case changes.AddShards():
            return _add(state, transaction)
        case changes.AssignJob():
            return _assign(state, transaction, now_ms)
        case changes.ReleaseJob(job=job):
            return () if job in state.jobs else (Violation(Rule.JOB_MISSING, job),)
        case changes.ReplaceShards():
            return _replace(state, transaction)
        case changes.SplitPartition():
            return _split(state.partitions, transaction.partition, transaction.at)
        case changes.ExtendTree():
            return _extend(state.partitions, transaction)
        case changes.DeleteShards():
            return _delete(state, transaction)
        case changes.DisputeShards(shards=shards):
            return [
                Violation(Rule.SHARD_MISSING, each) for each in shards if each not in state.shards
            ]
        case changes.ResolveDisputes():
            return _resolve(state, transaction)
        case changes.HideRows() | changes.ForgetDeletions():
            return _hide(state, transaction)
        case changes.SealSources():
            return _seal(state, transaction)
        case changes.AdoptSegments():
            is_new = not len(state.sources) and not state.all_source_segments
            return () if is_new else (Violation(Rule.NOT_AT_BEGINNING, "segments"),)
        case changes.ResetTable() | changes.RestoreTable():
            return ()


def _reset(
    state: changes.TableState, reset: changes.ResetTable | changes.RestoreTable
) -> Iterator[Violation]:
    if reset.generation <= state.generation:
        yield Violation(Rule.STALE_GENERATION, f"generation {reset.generation}")
    if reset.generation > state.generation + MAX_GENERATIONS_AHEAD:
        yield Violation(Rule.OUT_OF_BOUNDS, f"generation {reset.generation}")


def _add(state: changes.TableState, add: changes.AddShards) -> Iterator[Violation]:
    for source in add.sources:
        if source in state.sources:
            yield Violation(Rule.SOURCE_INGESTED, source)
    if add.sources and add.looked_up_to != state.sealed_to:
        yield Violation(Rule.SOURCES_SEALED, add.job)
    if add.deletion is not None:
        yield from _deletion(state, add.deletion)
    yield from _new_shards(state, add.shards)


def _new_shards(state: changes.TableState, shards: tuple[NewShard, ...]) -> Iterator[Violation]:
    for new in shards:
        if new.shard.id in state.shards:
            yield Violation(Rule.SHARD_EXISTS, new.shard.id)
        if not _is_within_one(state, new):
            yield from _placement(state, new)


def _is_within_one(state: changes.TableState, new: NewShard) -> bool:
    """Return whether a shard lies in one partition, as most do; then its placement is sound."""
    if len(new.rows_by_partition) != 1:
        return False
    partition = state.partitions.by_id.get(new.rows_by_partition[0][0])
    return partition is not None and _hold_its_ends((partition,), new.shard)


def _placement(state: changes.TableState, new: NewShard) -> Iterator[Violation]:
    places: list[Partition] = []
    for partition, _ in new.rows_by_partition:
        place = state.partitions.by_id.get(partition)
        if place is None:
            yield Violation(Rule.PARTITION_MISSING, partition)
        else:
            places.append(place)
    if len(places) < len(new.rows_by_partition):
        return
    if not _hold_its_ends(places, new.shard):
        yield Violation(Rule.OUTSIDE_PARTITION, new.shard.id)
    if len(places) > 1 and _overlap(state, [partition.id for partition in places]):
        yield Violation(Rule.ROWS_COUNTED_TWICE, new.shard.id)


def _hold_its_ends(partitions: Iterable[Partition], shard: Shard) -> bool:
    """Return whether a shard can lie in partitions, by its least and its greatest key.

    It may have gaps between these, so a partition need not hold any of its rows. But each range
    must overlap, and both keys are rows, which some partition holds.
    """
    low, high = shard.low, shard.high
    holds_low = holds_high = False
    for partition in partitions:
        span = partition.range
        if not span.overlaps_span(low, high):
            return False
        holds_low = holds_low or span.contains(low)
        holds_high = holds_high or span.contains(high)
    return holds_low and holds_high


def _overlap(state: changes.TableState, partitions: list[str]) -> bool:
    above = {a for p in partitions for a in state.partitions.ancestors(p)}
    return bool(above.intersection(partitions))


def _assign(
    state: changes.TableState, assign: changes.AssignJob, now_ms: int
) -> Iterator[Violation]:
    if assign.job in state.jobs:
        yield Violation(Rule.JOB_EXISTS, assign.job)
    if state.has_committed(changes.transaction_id(changes.ReleaseJob(assign.job)), now_ms):
        # Otherwise a later release of this job would be mistaken for a repetition of the first one.
        yield Violation(Rule.JOB_RELEASED, assign.job)
    for shard in assign.inputs:
        yield from _input(state, assign.partition, shard)


def _input(state: changes.TableState, partition: str, shard: str) -> Iterator[Violation]:
    """Yield why a shard cannot become an input. In a split partition all its rows must be free:
    joined references would bring back those that a job took.
    """
    own = state.reference(partition, shard)
    references = [own] if own is not None else list(state.references_below(partition, shard))
    if not references:
        yield Violation(Rule.REFERENCE_MISSING, shard)
    elif any(reference.job is not None for reference in references):
        yield Violation(Rule.REFERENCE_ASSIGNED, shard)
    elif own is None:
        span = state.partitions.get(partition).range
        if any(taking.range.overlaps(span) for taking in state.taken.get(shard, ())):
            yield Violation(Rule.ROWS_TAKEN, shard)


def _replace(state: changes.TableState, done: changes.ReplaceShards) -> Iterator[Violation]:
    job = state.jobs.get(done.job)
    if job is None:
        yield Violation(Rule.JOB_MISSING, done.job)
    elif set(job.inputs) != set(done.inputs) or job.partition != done.partition:
        yield Violation(Rule.REFERENCE_NOT_ASSIGNED, done.job)
    for shard in done.inputs:
        reference = state.reference(done.partition, shard)
        if reference is None:
            yield Violation(Rule.REFERENCE_MISSING, shard)
        elif reference.job != done.job:
            yield Violation(Rule.REFERENCE_NOT_ASSIGNED, shard)
    for shard, rows in done.rows_taken:
        there = state.shards.get(shard)
        if there is not None and rows > there.rows:
            yield Violation(Rule.ROWS_NOT_COUNTED, shard)
    yield from _new_shards(state, done.outputs)
    if done.partition in state.partitions:
        span = state.partitions.get(done.partition).range
        for new in done.outputs:
            if not span.contains_span(new.shard.low, new.shard.high):
                yield Violation(Rule.OUTSIDE_PARTITION, new.shard.id)


def _split(tree: PartitionTree, partition_id: str, at: bytes) -> Iterator[Violation]:
    if partition_id not in tree:
        yield Violation(Rule.PARTITION_MISSING, partition_id)
        return
    partition = tree.get(partition_id)
    if not partition.is_leaf:
        yield Violation(Rule.PARTITION_SPLIT, partition_id)
    elif not (partition.range.low < at and partition.range.contains(at)):
        yield Violation(Rule.SPLIT_OUTSIDE_PARTITION, partition_id)


def _extend(tree: PartitionTree, extend: changes.ExtendTree) -> Iterator[Violation]:
    for partition_id, at in extend.splits:
        broken = list(_split(tree, partition_id, at))
        yield from broken
        if not broken:
            tree = tree.split(partition_id, at)


def _delete(state: changes.TableState, deletion: changes.DeleteShards) -> Iterator[Violation]:
    for shard in deletion.shards:
        if shard not in state.shards:
            yield Violation(Rule.SHARD_MISSING, shard)
        elif state.reference_counts.get(shard, 0) > 0:
            yield Violation(Rule.SHARD_REFERENCED, shard)
        elif shard in state.disputed:
            yield Violation(Rule.SHARD_DISPUTED, shard)


def _resolve(state: changes.TableState, resolution: changes.ResolveDisputes) -> Iterator[Violation]:
    for shard, since_ms in resolution.disputes:
        dispute = state.disputed.get(shard)
        if dispute is None or dispute.since_ms != since_ms:
            yield Violation(Rule.DISPUTE_MISSING, shard)


def _hide(
    state: changes.TableState, change: changes.HideRows | changes.ForgetDeletions
) -> Iterator[Violation]:
    if isinstance(change, changes.HideRows):
        if len(state.deletions) >= MAX_DELETIONS:
            yield Violation(Rule.TOO_MANY_DELETIONS, change.deletion.id)
        yield from _deletion(state, change.deletion)
        return
    by_number = {each.number: each for each in state.deletions}
    for number in change.numbers:
        if number not in by_number:
            yield Violation(Rule.DELETION_MISSING, f"deletion {number}")
    forgotten = [by_number[number] for number in change.numbers if number in by_number]
    for number in () if change.is_proved else needed_deletions(state, forgotten):
        yield Violation(Rule.DELETION_NEEDED, f"deletion {number}")


def _deletion(state: changes.TableState, deletion: changes.Deletion) -> Iterator[Violation]:
    if any(each.id == deletion.id for each in state.deletions):
        yield Violation(Rule.DELETION_EXISTS, deletion.id)
    number = deletion.number  # only a rebuild gives it, in their order
    if number and state.deletions and number <= state.deletions[-1].number:
        yield Violation(Rule.DELETION_UNFIT, deletion.id)


def needed_deletions(state: changes.TableState, deletions: Iterable[changes.Deletion]) -> list[int]:
    """Return the numbers of those deletions that may still hide rows of a shard, or of one that
    comes, in the table, or that tell of sources.
    """
    numbers, rest = list[int](), list[changes.Deletion]()
    for each in deletions:
        if (each.below and _lasts(state, each)) or any(s in state.sources for s in each.sources):
            numbers.append(each.number)
        elif not each.below:
            rest.append(each)
    for shard in state.shards.values() if rest else ():
        if state.reference_counts.get(shard.id, 0):
            numbers += [each.number for each in rest if each.may_hide(shard)]
            rest = [each for each in rest if not each.may_hide(shard)]
    return sorted(numbers)


def _lasts(state: changes.TableState, deletion: changes.Deletion) -> bool:
    """Return whether no other deletion hides all that one does, or a repeated job still needs it
    to write what it wrote before.
    """
    own = deletion.below, deletion.number
    more = [each.number for each in state.deletions if (each.below, each.number) > own]
    runs = (job.sequence for job in state.jobs.values())
    return not more or any(deletion.number <= run < min(more) for run in runs)


def _seal(state: changes.TableState, seal: changes.SealSources) -> Iterator[Violation]:
    """Check that a segment seals exactly what the state will drop: no source more, none less.

    Example: segments 0-10 and 10-20 exist, and sources came with versions 21, 25 and 31. A new
    segment up to 30 that replaces the second must start after 10, and must count the sources of
    that second segment plus two.
    """
    new, there = seal.segment, state.source_segments
    if not state.sealed_to < new.up_to <= state.version:
        yield Violation(Rule.SEALED_BEFORE, new.id)
    keeping = len(there) - len(seal.replaced)
    last = there[max(keeping, 0) :]
    earlier = there[: max(keeping, 0)]
    after = earlier[-1].up_to if earlier else 0
    names = {segment.id for segment in state.all_source_segments}
    is_last = tuple(segment.id for segment in last) == seal.replaced
    if not is_last or new.after != after or new.id in names:
        yield Violation(Rule.SEGMENT_MISPLACED, new.id)
    elif new.count != sum(s.count for s in last) + len(state.sources_up_to(new.up_to)):
        yield Violation(Rule.SEGMENT_MISCOUNTED, new.id)


# What a state store returns: outcomes and reports of commits, and records of versions.


REBUILD = "`dormouse rebuild NAME` rebuilds the state of the table from its shards"
"""What to do about a state that is damaged or lost."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The transaction is part of the table from `version` on."""

    version: int


@dataclass(frozen=True, slots=True)
class AlreadyCommitted:
    """This or another writer committed the same transaction before; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The transaction broke rules at its position in the log; nothing was changed."""

    violations: tuple[Violation, ...]

    def __str__(self) -> str:
        return "; ".join(str(v) for v in self.violations)


Outcome = Committed | AlreadyCommitted | Rejected


@dataclass(frozen=True, slots=True)
class CommitReport:
    """What it cost to commit one delta, or to refuse it as a whole before it was written.

    `attempts` counts the updates of the log, `size_bytes` the bytes stored in all attempts.
    `transactions` counts those of all threads that shared the delta, `rejected` broke rules.
    """

    version: int
    attempts: int
    size_bytes: int
    milliseconds: int
    transactions: int
    rejected: int


class RejectedError(InvalidRequestError):
    """A commit that was required to succeed was rejected; `violations` say why."""

    def __init__(self, rejected: Rejected) -> None:
        super().__init__(f"the commit was rejected: {rejected}")
        self.violations = rejected.violations


def accepted(outcome: Outcome) -> Committed | AlreadyCommitted:
    """Return an outcome other than a rejection. Raises RejectedError: nothing was changed."""
    if isinstance(outcome, Rejected):
        raise RejectedError(outcome)
    return outcome


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """A kept version: when it was made, by which changes and jobs, and how many rows it has.

    `changes` has the kind of each accepted transaction, and is empty if none was accepted. `added`
    are the shards that ingests added; a compaction adds none. `deleted` are the deletions.
    """

    version: int
    time_ms: int
    changes: tuple[str, ...]
    jobs: tuple[str, ...]
    rows: int
    added: tuple[Shard, ...] = ()
    deleted: tuple[Deletion, ...] = ()
