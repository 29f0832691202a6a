"""A purge: which rows of a table are to be removed, and which shards were found to hold them.

What is stored of a purge has the keys or values that must be forgotten, so it is deleted when the
purge is finished.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from operator import attrgetter

import msgspec
from msgspec import structs

from dormouse.access import EVERYTHING
from dormouse.errors import CorruptDataError
from dormouse.features import requests
from dormouse.features.delete_rows import Note, build_deletions, hide_rows
from dormouse.features.long_jobs import SelectedRows
from dormouse.features.requests import Kind, delete_below, list_jobs
from dormouse.features.versions import read_version, refuse_tagged, release_tags
from dormouse.jobs import SweepCheck, grouped, record
from dormouse.keys import KeyRange
from dormouse.messages.requests import Counts, PurgeRows
from dormouse.messages.stages import OutboundMessage, PurgeStep, TableChanged
from dormouse.ports import Services
from dormouse.query.selection import decode_selection, store_selection
from dormouse.state.jobs import Assigned, TrackedJob
from dormouse.state.partitions import ROOT, Partition, PartitionTree, Reference, Shard
from dormouse.state.state import Deletion, TableState
from dormouse.stored import paths
from dormouse.tables.properties import SparkOptions
from dormouse.tables.row_rules import check_groups
from dormouse.tables.table import Table

MAX_REWRITE_INPUTS = 50
"""The most shards that one job rewrites."""
MAX_JOB_BYTES = 1024**3
"""The most bytes that one job rewrites in a function, within its time-out; a single shard may be
larger."""
JOINED_BYTES = 8 * 1024**2
"""The most bytes of several partitions that one job rewrites. Of smaller jobs, most of the time is
none of reading and writing."""


class PurgeRequest(SelectedRows, frozen=True, forbid_unknown_fields=True):
    """A purge: `selection` has the rows to remove, by a condition or by keys or prefixes of them.

    Its names are those of `schema`, since a name can be given to another column later. `generation`
    is the table's when the purge was requested. If `spark` has options, Spark rewrites the shards,
    else compaction does. `deletions` have hidden the rows since then; those that came later stay.
    """

    id: str
    deletions: tuple[Deletion, ...]  # always stored: an earlier release stored none
    generation: int = 0
    spark: SparkOptions | None = None

    @property
    def requested_ms(self) -> int:
        """When the purge was requested."""
        return self.selection.time_ms

    def can_match(self, shard: Shard) -> bool:
        """Return whether a shard's least and greatest key allow it to hold rows that match."""
        return any(span.overlaps_span(shard.low, shard.high) for span in self.selection.ranges)

    def may_hold(self, shard: Shard) -> bool:
        """Return whether a shard may hold rows to remove, which were there at the request."""
        return any(each.may_hide(shard) for each in self.deletions)


class ShardMatches(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The shards checked so far: `matching` hold rows to remove, `clean` hold none.

    Shards never change, so a result stays valid.
    """

    matching: frozenset[str] = frozenset()
    clean: frozenset[str] = frozenset()

    def __contains__(self, shard: str) -> bool:
        return shard in self.matching or shard in self.clean

    def __len__(self) -> int:
        return len(self.matching) + len(self.clean)

    def __or__(self, other: "ShardMatches") -> "ShardMatches":
        return ShardMatches(self.matching | other.matching, self.clean | other.clean)


def unchecked_shards(
    state: TableState, request: PurgeRequest, matches: ShardMatches
) -> list[Shard]:
    """Return the referenced shards that can hold rows to remove and were not checked."""
    referenced = (shard for shard, count in state.reference_counts.items() if count)
    shards = (state.shards[shard] for shard in sorted(referenced) if shard not in matches)
    return [shard for shard in shards if request.may_hold(shard)]


def references_to(state: TableState, shards: frozenset[str]) -> list[Reference]:
    """Return all references to some shards.

    References of partitions without rows to remove are included: as long as one reference is left,
    the shard's object, with the rows of all its partitions, stays.
    """
    rest = referenced_of(state, shards)
    return [each for each in state.all_references() if each.shard in rest] if rest else []


def referenced_of(state: TableState, shards: frozenset[str]) -> frozenset[str]:
    """Return those of some shards that have a reference. It looks at no reference itself: a shard
    may have one in each of many partitions.
    """
    return frozenset(shard for shard in shards if state.reference_counts.get(shard))


def rewrite_jobs(
    state: TableState, references: Iterable[Reference], max_bytes: float = MAX_JOB_BYTES
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the partition and the input shards of each job that rewrites `references`, which are
    all references to some shards.

    References that a job already holds are skipped, and those to disputed shards: the purge
    continues once the dispute is resolved. A job rewrites a shard for as many leaves as it can, and
    small shards of neighbouring leaves together. It has at most `MAX_REWRITE_INPUTS` shards and
    `max_bytes`, unless one shard is larger. Four free shards of 400, 400, 400 and 1200 bytes in a
    partition, with `max_bytes=1000`, give jobs of 400 + 400, 400, and 1200.
    """
    by_shard: dict[str, list[Reference]] = {}
    for reference in references:
        if reference.shard not in state.disputed:
            by_shard.setdefault(reference.shard, []).append(reference)
    free: dict[str, list[Shard]] = {}
    whole: dict[str, list[Shard]] = {}
    for shard, own in by_shard.items():
        # Only a shard whose every row is free can be rewritten once for all its leaves.
        is_whole = not state.taken.get(shard) and all(each.job is None for each in own)
        for partition in _partitions_to_rewrite(state, shard, own):
            (whole if is_whole else free).setdefault(partition, []).append(state.shards[shard])
    for partition, shards in _places(state.partitions, whole) if whole else ():
        free.setdefault(partition, []).extend(shards)
    for partition in sorted(free):
        ordered = sorted(free[partition], key=lambda shard: (shard.low, shard.id))
        for group in grouped(ordered, MAX_REWRITE_INPUTS, (attrgetter("size_bytes"), max_bytes)):
            yield partition, tuple(shard.id for shard in group)


def _partitions_to_rewrite(
    state: TableState, shard: str, references: Iterable[Reference]
) -> Iterator[str]:
    """Return the partitions in which jobs can rewrite a shard, as few as possible."""
    tree = state.partitions
    free: list[KeyRange] = []
    others = [taking.range for taking in state.taken.get(shard, ())]
    for reference in references:
        span = tree.get(reference.partition).range
        (others if reference.job else free).append(span)
    return _join(tree, tree.get(ROOT), free, others) if free else iter(())


def _join(
    tree: PartitionTree, partition: Partition, free: Sequence[KeyRange], others: Sequence[KeyRange]
) -> Iterator[str]:
    """Yield the highest partitions that have none of the keys of `others`, but have several of the
    ranges `free`, or one leaf with such a range.

    Example: leaves a to h, and a job has taken the rows of c. The partitions are ab, d, and efgh.
    """
    children = [tree.get(child) for child in partition.children or ()]
    parts = [[span for span in free if child.range.covers(span)] for child in children]
    if not children or (not others and all(parts)):
        yield partition.id
        return
    for child, part in zip(children, parts, strict=True):
        if part:
            inside = [span for span in others if span.overlaps(child.range)]
            yield from _join(tree, child, part, inside)


def _places(
    tree: PartitionTree, whole: Mapping[str, list[Shard]]
) -> Iterator[tuple[str, list[Shard]]]:
    """Yield the partitions in which to rewrite shards that are free wherever they have rows, given
    the lowest partition that has all rows of each.
    """
    if last := (yield from _together(tree, tree.get(ROOT), whole)):
        yield last


def _together(
    tree: PartitionTree, partition: Partition, whole: Mapping[str, list[Shard]]
) -> Generator[tuple[str, list[Shard]], None, tuple[str, list[Shard]] | None]:
    """Yield partitions with shards to rewrite there, a few small shards in a common higher one.

    Return the last of them, for which there may be more beside it. Example: leaves a to d have a
    shard each, of 3, 4, 5 and 6 MiB. The partitions are ab, c and d.
    """
    parts = []
    for child in partition.children or ():
        if part := (yield from _together(tree, tree.get(child), whole)):
            parts.append(part)
    if partition.id in whole:
        parts.append((partition.id, whole[partition.id]))
    if len(parts) < 2:
        return parts[0] if parts else None
    joined = [shard for _, shards in parts for shard in shards]
    size_bytes = sum(shard.size_bytes for shard in joined)
    if len(joined) <= MAX_REWRITE_INPUTS and size_bytes <= JOINED_BYTES:
        return partition.id, joined
    yield from parts  # together they are too many: nothing above can join them either
    return None


REQUEST = Kind(
    "the request of a purge",
    PurgeRequest,
    "request the purge again, and delete this object: which rows it was to remove is lost",
)
MATCHES = Kind("the shard matches of a purge", ShardMatches)


@dataclass(frozen=True, slots=True)
class RemainingObject:
    """An object that holds matching rows, or may: `rows` is None if it cannot be read, and 0 if it
    only names keys of removed rows.

    `reason` says why it still exists; `until_ms` from when on it can be deleted, None if unknown.
    """

    path: str
    rows: int | None
    reason: str
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Proof:
    """The result at one version: how many rows match, and which objects hold such rows."""

    version: int
    rows: int
    objects: int
    shards: int
    remains: tuple[RemainingObject, ...]

    @property
    def is_complete(self) -> bool:
        """Return whether neither the table nor any object holds a matching row."""
        return not self.rows and not self.remains


def load_purge(services: Services, table_id: str, purge_id: str) -> PurgeRequest | None:
    """Return the request of a purge; None if the purge is finished.
    Raises CorruptDataError: the stored request is damaged.
    """
    return REQUEST.get(services.storage, paths.PURGES.path(table_id, purge_id))


def load_purge_notes(services: Services, table_id: str) -> Iterator[Note]:
    """Yield the deletions of running purges, as `load_notes` returns others. Raises as that."""
    for purge_id in list_jobs(services.storage, paths.PURGES.prefix(table_id))[0]:
        if (request := load_purge(services, table_id, purge_id)) is not None:
            yield from (Note(request.generation, each) for each in request.deletions)


def load_matches(services: Services, table_id: str, purge_id: str) -> ShardMatches:
    """Return the shard matches that the steps of a purge have saved.

    A damaged object is skipped: the shards in it are checked again.
    """
    matches = ShardMatches()
    for item in services.storage.list(paths.PURGES.parts(table_id, purge_id)):
        with suppress(CorruptDataError):  # none is left if another delivery finished the purge
            matches |= MATCHES.get(services.storage, item.path) or ShardMatches()
    return matches


def save_matches(services: Services, table_id: str, purge_id: str, matches: ShardMatches) -> None:
    """Save the shards that a step has checked, for later steps."""
    path = paths.purge_matches_path(table_id, purge_id, services.ids.new())
    MATCHES.put(services.storage, path, matches)


def delete_purge(services: Services, table_id: str, purge_id: str) -> None:
    """Delete the stored state of a purge; its request last, so that a redelivery finds the rest."""
    delete_below(services.storage, paths.PURGES.parts(table_id, purge_id))
    services.storage.delete([paths.PURGES.path(table_id, purge_id)])


# Objects that may hold purged rows until garbage collection deletes them.
#
# No query reads them any more. They are listed once, when the purge is finished, and the list is
# saved beside the request.


class Remaining(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The paths of objects that may hold purged rows."""

    paths: tuple[str, ...]


REMAINING = Kind(
    "a list of remaining objects", Remaining, "delete this object: the next step lists them again"
)


def remaining_objects(check: requests.JobCheck) -> list[str]:
    """Return the paths of objects that no reference needed when the purge finished and still exist.

    The purge has checked every referenced shard, so once these objects are deleted, no object holds
    a row to remove, or its key.
    """
    from dormouse.features.publishing import list_replaced  # loads what knows Iceberg

    # Listed before the state is read: a shard committed in between counts as referenced.
    names = [o.path for o in check.services.storage.list(paths.data_prefix(check.table.id))]
    state = check.services.store(check.table).current()
    unreferenced = [
        path for path in names if not state.reference_counts.get(paths.shard_id_of(path) or "", 0)
    ]
    unreferenced += list_replaced(check.services, check.table)
    path = requests.request_left_path(check.table.id, check.key)
    storage = check.services.storage
    first = Remaining(tuple(unreferenced))
    earlier = REMAINING.get(storage, path) or REMAINING.save(storage, path, first)
    return sorted({*unreferenced} & {*earlier.paths})


# purge_rows: save the request of a purge, and start its first step.


class PurgeWork(requests.StoredWork, frozen=True, tag="purge"):
    """The purge of a request."""

    def unfinished_messages(self, services: Services, table: Table) -> list[OutboundMessage]:
        """Return the message of a step, if the purge is running."""
        is_left = load_purge(services, table.id, self.ids[0]) is not None
        return [OutboundMessage("purges", PurgeStep(table.id, self.ids[0]))] if is_left else []

    def outcomes(self, check: requests.JobCheck) -> Iterator[requests.JobOutcome]:
        """Yield the outcome of the purge: pending until all objects with its rows are deleted."""
        (purge_id,) = self.ids
        if load_purge(check.services, check.table.id, purge_id) is not None:
            yield check.unfinished(self.kind, purge_id, check.record(purge_id))
            return
        record = check.record(purge_id)
        rest = remaining_objects(check) if record is not None and record.state == "finished" else []
        outcome = requests.JobOutcome(self.kind, purge_id)
        if rest:
            reason = (
                "the table has none of its rows any more, but objects that may hold such rows "
                f"are not deleted yet: {len(rest)}, among them {rest[0]}"
            )
            yield replace(outcome, state="unfinished", reason=reason, is_pending=True)
            return
        counts = Counts(finished=1, removed=record.rows if record is not None else 0)
        yield check.ended(replace(outcome, counts=counts), record)

    def extra_wait_ms(self, table: Table) -> int:
        """Return the delays until garbage collection and audit have deleted such objects."""
        properties = table.properties
        return (properties.gc_delay_seconds + properties.orphan_age_seconds) * 1000


def request_purge(services: Services, table: Table, request: PurgeRows) -> requests.RequestResult:
    """Hide the rows, and save the request beside the table's shards, where a redelivery finds it. A
    crash between the two leaves hidden rows, as a deletion does.
    Raises InvalidRequestError: it selects no rows, or rows that this table cannot remove
    separately; or the table has tags, and they are not to be released; or too many deletions are
    not applied yet.
    """
    table, state = read_version(services, table)
    purge, now_ms = build_purge_request(table, request), services.clock.now_ms()
    # before tags are released: a purge that is refused releases none
    deletions = list(build_deletions(table, purge.id, request.selection, now_ms))
    if request.release_tags:
        release_tags(services, table)
    refuse_tagged(services, table, "rows")
    selection = replace(purge.selection, version=state.version, time_ms=now_ms)
    rows = store_selection(selection, purge.schema)
    path = paths.PURGES.path(table.id, purge.id)
    last = services.tracker.get(table.id, purge.id)
    is_finished = last is not None and last.state == "finished"
    if not is_finished and not any(services.storage.list(path)):  # what came since stays
        hidden = hide_rows(services, table, state, deletions)
        purge = structs.replace(purge, generation=state.generation, rows=rows, deletions=hidden)
        REQUEST.put(services.storage, path, purge)
    # The record has no key or value of the purge: records are kept longer than those may be.
    record(services, TrackedJob(table.id, purge.id, "purge"), Assigned(subject=request.request_id))
    messages = [
        OutboundMessage("purges", PurgeStep(table.id, purge.id)),
        OutboundMessage("table-changes", TableChanged(table.id)),
    ]
    return requests.RequestResult(messages, PurgeWork((purge.id,)))


def purge_id_of(request_id: str) -> str:
    """Return the id of the purge of a request, derived from the request's id."""
    return blake2b(request_id.encode(), digest_size=8).hexdigest()


def build_purge_request(table: Table, request: PurgeRows) -> PurgeRequest:
    """Return the rows to remove, checked against the table, without generation and time.
    Raises InvalidRequestError: it selects no rows, or rows that this table cannot remove
    separately.
    """
    message, schema = request.selection, table.schema
    requests.check_only_rows(message, "purge")
    selection = decode_selection(
        message, schema, permission=EVERYTHING, version=0, time_ms=0, of_rows=False
    )
    names = selection.tested_columns
    names |= {field.name for field in schema.keys[: max(map(len, message.keys), default=0)]}
    if table.properties.keep == "all" or message.keys:
        check_groups(table.name, schema, table.properties, names, "purge")
    rows = store_selection(selection, schema)
    return PurgeRequest(rows, purge_id_of(request.request_id), (), spark=request.spark or None)


def overdue_purges(check: SweepCheck) -> Iterator[OutboundMessage]:
    """Yield a step for each purge that is due; delete the objects that finished purges left."""
    storage = check.services.storage
    # A step that is still running when another finishes the purge leaves shard matches behind.
    requested_ms, leftovers = list_jobs(storage, paths.PURGES.prefix(check.table.id))
    storage.delete(leftovers)
    now_ms = check.services.clock.now_ms()
    for purge_id, time_ms in sorted(requested_ms.items()):
        if check.is_due(time_ms) or check.is_lost(purge_id):
            yield OutboundMessage("purges", PurgeStep(check.table.id, purge_id, now_ms))
