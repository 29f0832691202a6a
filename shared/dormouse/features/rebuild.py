"""rebuild: build a table's state from the footers of its shards, after the state was lost.

Order: the registry notes the id of the new log, so that a deletion of the table finds that log,
however the rebuild ends. The old log is closed, so that no commit can land that the rebuild would
miss, and no reset can begin of which the registry, read afterwards, does not know. Then the shards
are listed, the new state is committed to the new log and read back, and the registry names the new
log. After a crash before that, the table can be rebuilt again. Messages in flight are redelivered,
and their commits go to the new log. Files of which no footer tells are sent again at last, as the
next audit would.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from msgspec import structs

from dormouse.errors import ContendedError, CorruptDataError, InvariantError, NotFoundError
from dormouse.features.batch_files import missed_files
from dormouse.features.delete_rows import Note, keep_notes, load_notes
from dormouse.features.purge import load_purge_notes
from dormouse.features.rebuild_plan import (
    FoundShard,
    PlacedShard,
    RebuildPlan,
    Refusal,
    plan_rebuild,
)
from dormouse.features.reset import load_restored
from dormouse.features.seal_sources import load_segments
from dormouse.features.spark import list_spark_requests
from dormouse.jobs import Progress, map_watched
from dormouse.log.engine import StateStore
from dormouse.log.pages import first_version
from dormouse.messages.stages import OutboundMessage, TableChanged
from dormouse.ports import Services, Storage, StoredObject
from dormouse.query.rows import count_slices
from dormouse.rows.deletions import id_of_job
from dormouse.shards.footer import FOOTER_READ_THREADS, read_footer
from dormouse.shards.reading import READS_AT_ONCE, Slice
from dormouse.shards.run_markers import read_run_markers
from dormouse.state import state as changes
from dormouse.state.fold import apply
from dormouse.state.partitions import ROOT, NewShard, OverlayMap, PartitionTree, Shard
from dormouse.state.state import TableState
from dormouse.state.validation import broken_invariants
from dormouse.stored.paths import data_prefix, is_index_object, shard_id_of
from dormouse.tables.table import Table


def _transactions(plan: RebuildPlan) -> Iterator[changes.Transaction]:
    """Yield the transactions that make the planned state of an empty one, in order.

    A shard is added with all its rows. Where they were merged into other shards, a compaction
    without outputs removes them again. So the state knows shards that nothing references, and
    garbage collection deletes them.

    Example: shard r-0 is live in leaf 1 and merged in leaf 0. It is added to the root, which gives
    it a reference in each leaf. Then job merged-0 replaces r-0 in leaf 0 by no shards.
    """
    yield changes.InitialisePartitions(plan.tree.splits, plan.key_types)
    if plan.generation:
        yield changes.ResetTable(plan.generation, plan.tree.splits)
    if plan.segments:
        yield changes.AdoptSegments(plan.segments)
    shards = (NewShard(p.shard, p.counted or ((ROOT, p.shard.rows),)) for p in plan.shards)
    yield changes.AddShards("rebuild", plan.sources, tuple(shards))
    for deletion in plan.deletions:  # hides rows of the shards with lesser numbers than its own
        yield changes.HideRows(structs.replace(deletion, time_ms=0))
    merged: dict[str, list[str]] = {}
    for item in plan.shards:
        for leaf in item.merged:
            merged.setdefault(leaf, []).append(item.shard.id)
    for leaf, shards_of_leaf in sorted(merged.items()):
        job = f"merged-{leaf}"
        yield changes.AssignJob(job, leaf, tuple(shards_of_leaf))
        yield changes.ReplaceShards(job, leaf, tuple(shards_of_leaf), ())


def planned_state(plan: RebuildPlan, now_ms: int) -> TableState:
    """Return the state with which a new log begins, in one version: what a plan says.
    Raises InvariantError: a transaction is rejected, or the state breaks an invariant or has other
    live rows than planned.
    """
    version = first_version(now_ms)
    state = TableState(version - 1)
    broken: list[str] = []
    for transaction in _transactions(plan):
        state, verdict = apply(state, changes.Entry(transaction, now_ms, state.generation))
        broken += map(str, verdict.violations)
    state = replace(state, version=version)
    broken += broken_invariants(state, whole=True)
    live = {(leaf, item.shard.id) for item in plan.shards for leaf in item.live}
    if live != {(r.partition, r.shard) for r in state.all_references()}:
        broken.append("it references other rows than planned")
    if broken:
        raise InvariantError(f"the plan of a rebuild is unsound: {'; '.join(broken[:5])}")
    return state


MAX_LISTED_REASONS = 20
HINT = "restore the objects named, or move them out of the data prefix; nothing was changed"


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """The state that a rebuild makes, and each object that it leaves out, with the reason."""

    state: TableState
    left_out: tuple[tuple[str, str], ...]


def preview_rebuild(
    services: Services, table: Table, watch: Progress | None = None
) -> RebuildReport:
    """Return the state that a rebuild would make now; change nothing.
    Raises CorruptDataError: shards contradict each other, or cannot be read; the message names
    them.
    """
    plan = _plan(services, table, watch)
    return RebuildReport(planned_state(plan, services.clock.now_ms()), plan.left_out)


def rebuild(
    services: Services, table: Table, watch: Progress | None = None
) -> tuple[RebuildReport, list[OutboundMessage]]:
    """Rebuild the state of the table, and destroy what is left of the old one.

    Raises:
        CorruptDataError: shards contradict each other, or cannot be read; the message names them.
        ContendedError: another process rebuilt the table meanwhile.
        NotFoundError: the table is deleted, or in deletion.
        InvariantError: the state read back differs from the plan; the table still has no state.
    """
    # of a state that is lost, those of before are known
    with suppress(CorruptDataError, NotFoundError):
        keep_notes(services, table, services.store(table).current())
    _plan(services, table, watch)  # it may be refused, so it comes before the old log is closed
    log = services.ids.new()
    # noted, so that a deletion of the table finds the new log; the present one is kept
    services.tables.change(
        table.id, lambda newest: replace(_same_log(newest, table), logs=(*newest.logs, log))
    )
    services.store(table).terminate()
    closed = _registered(services, table)
    plan = _plan(services, closed, watch)
    store = services.store(replace(closed, log=log))
    new = commit_plan(store, table.name, plan, services.clock.now_ms())
    try:
        services.tables.change(  # no version from before a purge is left
            table.id, lambda newest: replace(_same_log(newest, table), log=log, purged_version=0)
        )
    except (ContendedError, NotFoundError):
        store.destroy()
        raise
    services.store(table).destroy()
    rebuilt, (spark, _) = _registered(services, table), list_spark_requests(services, table.id)
    changed = OutboundMessage("table-changes", TableChanged(table.id))
    messages = [changed, *missed_files(services, rebuilt, (each.job for each in spark))]
    return RebuildReport(new, plan.left_out), messages


def _registered(services: Services, table: Table) -> Table:
    newest = services.tables.get(table.id)
    if newest is None:
        raise NotFoundError(f"table {table.name!r} was deleted")
    return newest


def _same_log(newest: Table, before: Table) -> Table:
    if newest.log == before.log:
        return newest
    raise ContendedError(
        f"another process rebuilt table {before.name!r} meanwhile",
        hint="check the table, and rebuild it again only if it is still damaged",
    )


def commit_plan(store: StateStore, name: str, plan: RebuildPlan, now_ms: int) -> TableState:
    """Begin an empty log with the planned state, and read it back; return it.
    Raises InvariantError: the state read back differs from the plan; it is destroyed.
    """
    expected = planned_state(plan, now_ms)
    store.begin(expected)
    if (difference := _difference(expected, store.current())) is not None:
        store.destroy()
        raise InvariantError(f"the new state of table {name!r} has other {difference} than planned")
    return expected


def _difference(expected: TableState, state: TableState) -> str | None:
    """Return the part in which the states differ, apart from versions and times; None if equal."""
    parts = (
        ("partitions", state.partitions.by_id == expected.partitions.by_id),
        ("shards", state.shards == expected.shards),
        ("references", state.references == expected.references),
        ("sealed sources", state.all_source_segments == expected.all_source_segments),
        ("sources", set(state.sources) == set(expected.sources)),
    )
    return next((name for name, is_same in parts if not is_same), None)


def _plan(services: Services, table: Table, watch: Progress | None) -> RebuildPlan:
    objects = list(services.storage.list(data_prefix(table.id)))
    own = (o for o in objects if shard_id_of(o.path) is not None)
    shard_objects = [o for o in own if not is_index_object(o.path)]
    foreign = tuple((o.path, "it is not a shard") for o in objects if shard_id_of(o.path) is None)
    # Read before the shards: a collection that runs meanwhile may delete the last shard that a
    # marker mentions, and then the marker.
    markers = read_run_markers(services.storage, table.id)
    segments, damaged = load_segments(services, table)
    shards, reasons = _read(services, table, shard_objects, watch)
    reasons += damaged
    restored = load_restored(services.storage, table)
    plan: RebuildPlan | Refusal = (
        Refusal(tuple(reasons))
        if reasons
        else plan_rebuild(
            shards, table.schema.widest_key_types, markers, table.generation, restored
        )
    )
    if isinstance(plan, Refusal):
        listing = "; ".join(plan.reasons[:MAX_LISTED_REASONS])
        raise CorruptDataError(f"table {table.name!r} cannot be rebuilt: {listing}", hint=HINT)
    plan = replace(plan, left_out=plan.left_out + foreign, segments=segments)
    plan = with_counts(services, table, plan)
    notes = [*load_notes(services, table.id), *load_purge_notes(services, table.id)]
    return _with_deletions(plan, notes, shards, restored)


def with_counts(services: Services, table: Table, plan: RebuildPlan) -> RebuildPlan:
    """Return a plan with the rows of each shard in each of its leaves, counted by its keys: the
    state would halve them, and does where they cannot be read.
    """
    count = partial(_counted, services.storage, table, plan.tree)
    return replace(plan, shards=tuple(map_watched(count, plan.shards, READS_AT_ONCE)))


def _counted(storage: Storage, table: Table, tree: PartitionTree, item: PlacedShard) -> PlacedShard:
    leaves = [*item.live, *item.merged]
    if item.counted or len(leaves) < 2:
        return item
    slices = [Slice(item.shard, tree.get(leaf).range) for leaf in leaves]
    try:
        rows = count_slices(storage, table, slices)
    except (CorruptDataError, NotFoundError):
        return item
    counted = {leaf: count for leaf, count in zip(leaves, rows, strict=True) if count}
    live, merged = (tuple(filter(counted.get, some)) for some in (item.live, item.merged))
    return replace(item, live=live, merged=merged, counted=tuple(counted.items()))


def _with_deletions(
    plan: RebuildPlan,
    notes: Sequence[Note],
    shards: Sequence[FoundShard],
    restored: TableState | None,
) -> RebuildPlan:
    """Return the plan with the deletions of the version it began with, and those that are noted of
    its generation; and with numbers: as that version has them, or as commits in the order of their
    times would get them (`fold.next_number`), of shards when they were written. A deletion of the
    same millisecond hides rows, as it may have come later; one that came with shards, by their job,
    hides none of theirs.
    """
    before = restored.shards if restored else OverlayMap[str, Shard]()
    noted = [note.deletion for note in notes if note.generation == plan.generation]
    first = {each.id: each for each in (restored.deletions if restored else ())}
    provenances = {each.shard.id: each.provenance for each in shards}
    # of a copy, the number is older than the time
    commits = {(min(each.time_ms, each.number), each.number, each.id) for each in noted}
    origins = [provenances[item.shard.id] for item in plan.shards]
    commits |= {(each.written_ms, 0, each.job) for each in origins}
    numbers = {each.id: each.number for each in first.values()}
    last = max([*numbers.values(), *(each.sequence for each in before.values())], default=0)
    for at, _, name in sorted(commits):
        if name not in numbers:
            last = numbers[name] = max(last + 1, at)
    by_id = {each.id: each for each in noted} | first
    deletions = [structs.replace(each, number=numbers[each.id]) for each in by_id.values()]

    def numbered(item: PlacedShard) -> PlacedShard:
        earlier, origin = before.get(item.shard.id), provenances[item.shard.id]
        own = numbers.get(id_of_job(origin.job, origin.generation), 0)
        number = earlier.sequence if earlier else max(own, numbers[origin.job])
        version = earlier.version if earlier else item.shard.version
        return replace(item, shard=structs.replace(item.shard, sequence=number, version=version))

    sources = {*plan.sources, *(source for each in deletions for source in each.sources)}
    return replace(
        plan,
        shards=tuple(map(numbered, plan.shards)),
        sources=tuple(sorted(sources)),
        deletions=tuple(sorted(deletions, key=lambda each: each.number)),
    )


def _read(
    services: Services, table: Table, objects: Sequence[StoredObject], watch: Progress | None
) -> tuple[list[FoundShard], list[str]]:
    """Read all footers; return the shards, and why others cannot be used."""
    read = partial(_read_shard, services, table)
    results = map_watched(read, objects, FOOTER_READ_THREADS, watch)
    shards = [each for each in results if isinstance(each, FoundShard)]
    return shards, [each for each in results if isinstance(each, str)]


def _read_shard(services: Services, table: Table, item: StoredObject) -> FoundShard | str | None:
    """Return a shard, or why it cannot be used; None if it was deleted after it was listed."""
    try:
        footer = read_footer(services.storage, item.path, item.size_bytes)
    except NotFoundError:
        return None
    except CorruptDataError as error:
        return error.explanation
    if (footer.table_id, footer.shard_id) != (table.id, shard_id_of(item.path)):
        return f"{item.path} is shard {footer.shard_id} of table {footer.table_id}"
    of_files = not footer.provenance.lineage.inputs
    shard = structs.replace(footer.shard(item.size_bytes), version=-1 if of_files else 0)
    return FoundShard(shard, footer.provenance)
