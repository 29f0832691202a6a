"""check: compare a table's state with its stored objects, without changing anything.

Ingests, compactions and garbage collection continue meanwhile, and an object and the state can only
be read one after the other. So whatever seems damaged is checked again with a newer state, and
only damage that is still found is reported.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain

from dormouse import errors
from dormouse.features.garbage import candidates, collectable, unpinned
from dormouse.jobs import Progress, finalise, map_watched, record
from dormouse.keys import Key, encode_key, show_key
from dormouse.log.engine import StateStore
from dormouse.log.sources import read_segment
from dormouse.messages.stages import OutboundMessage
from dormouse.ports import Services, StoredObject
from dormouse.query.rows import count_slices
from dormouse.shards.footer import ShardFooter, read_behind_rows, read_footer
from dormouse.shards.reading import Slice, audit_shard, verify_shard
from dormouse.state.jobs import Failed, TrackedJob
from dormouse.state.partitions import Shard
from dormouse.state.rules import Rejected
from dormouse.state.state import DisputeReason, ResolveDisputes, TableState, dispute_id
from dormouse.state.validation import broken_invariants
from dormouse.stored import paths
from dormouse.tables.properties import Properties
from dormouse.tables.table import Table

# Damage to a table, as findings that say what is wrong and what a person can do.
#
# `features.checking` reads storage and calls these pure functions.

MAX_LISTED_JOBS = 20


class Damage(Enum):
    """A kind of damage; the value is what to do about it."""

    STATE_UNREADABLE = "restore the missing object from a backup, or run `dormouse rebuild`"
    STATE_LOST = "run `dormouse rebuild`: it rebuilds the state from the shards"
    STATE_BROKEN = "take the table offline, keep its state as evidence, and run `dormouse rebuild`"
    SHARD_MISSING = "restore the object from an older version of it, or from a backup"
    SHARD_DAMAGED = "restore the object as it was written, from an older version or a backup"
    INDEX_DAMAGED = (
        "nothing is lost: the end of the shard is read in its place; merge the shard to replace it"
    )
    SHARD_DIFFERS = "restore the object that the state references, or run `dormouse rebuild`"
    ROWS_LOST = (
        "look for the rows in the shard, which is kept; when they are restored or not needed, "
        "`dormouse check NAME --acknowledge SHARD` allows its deletion"
    )
    BYTES_DAMAGED = (
        "restore the object as it was written, from an older version or a backup; then "
        "`dormouse check NAME --acknowledge SHARD` allows compactions to merge it again"
    )
    SOURCES_LOST = (
        "restore the segment as it was written, from an older version or a backup; until then "
        "nothing is ingested, since it is unknown which files were ingested before"
    )
    GARBAGE_OVERDUE = (
        "check that the schedule runs the sweep, and find out why gc-candidates has dead letters"
    )
    ORPHAN = "check that the schedule runs the sweep's audit, which deletes orphans"
    FOREIGN_OBJECT = "find out which program put it there, and delete it"


SWEPT_SECONDS = 3600
"""Within this time, several sweeps come: one every five minutes."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One case of damage: its kind, the id or path of what is damaged, and the details."""

    damage: Damage
    subject: str
    detail: str


def missing_object(shard: Shard) -> Finding:
    """Return the finding that a referenced shard has no object."""
    rows = f"{shard.rows:,} row{'s'[: shard.rows != 1]}"
    return Finding(Damage.SHARD_MISSING, shard.id, f"the object is missing, and with it {rows}")


def footer_findings(
    state: TableState, table_id: str, shard: Shard, footer: ShardFooter
) -> Iterator[Finding]:
    """Yield the differences between the footer of a shard and its entry in the state."""

    def differs(detail: str) -> Finding:
        return Finding(Damage.SHARD_DIFFERS, shard.id, f"the object {detail}")

    if (footer.table_id, footer.shard_id) != (table_id, shard.id):
        yield differs(f"is shard {footer.shard_id} of table {footer.table_id}")
        return
    if footer.rows != shard.rows:
        yield differs(f"has {footer.rows} rows, not {shard.rows}")
    keys, keys_in_state = (footer.min_key, footer.max_key), (shard.min_key, shard.max_key)
    if keys != keys_in_state:
        yield differs(f"has keys from {_span(keys)}, not from {_span(keys_in_state)}")
    written_for = footer.provenance.range
    ends = (end for end in (written_for.low, written_for.high) if end is not None)
    if not all(state.partitions.leaf_containing(end).range.low == end for end in ends):
        yield differs("was written for a range that does not end at partition boundaries")
    elif not written_for.contains_span(encode_key(footer.min_key), encode_key(footer.max_key)):
        yield differs("has keys outside the range for which it was written")


def reference_findings(state: TableState) -> Iterator[Finding]:
    """Yield the references whose row count does not fit that of their shard."""
    for reference in state.all_references():
        shard = state.shards.get(reference.shard)
        partition = state.partitions.by_id.get(reference.partition)
        if shard is None or partition is None:
            continue  # the invariants report it
        is_whole = reference.exact and partition.range.contains_span(shard.low, shard.high)
        if not (shard.rows if is_whole else 0) <= reference.rows <= shard.rows:
            detail = f"{reference.rows} of its {shard.rows} rows are counted in partition "
            yield Finding(Damage.STATE_BROKEN, shard.id, detail + reference.partition)


def overdue_findings(
    store: StateStore, state: TableState, now_ms: int, properties: Properties
) -> list[Finding]:
    """Return the shards that should have been deleted: their delay ended a whole delay ago, and
    long enough for a sweep to have come, also after one that was killed.
    """
    delay_seconds = properties.gc_delay_seconds + max(properties.gc_delay_seconds, SWEPT_SECONDS)
    due, _ = collectable(state, state.unreferenced, now_ms, delay_seconds)
    return [
        Finding(
            Damage.GARBAGE_OVERDUE,
            shard,
            f"it has been unreferenced for {_age(now_ms - state.unreferenced[shard])}",
        )
        for shard in unpinned(store, state, due)
    ]


def dispute_finding(
    state: TableState, shard_id: str, recounted: Mapping[str, int] | None
) -> Finding:
    """Return the finding of a disputed shard, with its jobs and the rows that each took.

    `recounted` has the number of rows that the shard has in the partition of each job; None if they
    were not counted again, or cannot be.

    Example: jobs a and b took 60 and 30 of the 100 rows of a shard. Counted again, the shard has 60
    rows in the partition of a, and 40 in that of b. So job b lost 10 rows, and the detail is "jobs
    took 90 of its 100 rows: job b took 30 of 40 in partition 1; correct: a".
    """
    jobs = state.jobs_in_dispute(shard_id)
    if state.disputed[shard_id].reason is DisputeReason.BYTES_DAMAGED:
        detail = f"its bytes differ from those that were written, as found by {_listed(jobs)}"
        return Finding(Damage.BYTES_DAMAGED, shard_id, detail)
    takings = state.taken.get(shard_id, ())
    count, rows = sum(taking.rows or 0 for taking in takings), state.shards[shard_id].rows
    detail = f"jobs took {count:,} of its {rows:,} rows"
    if recounted is None:
        return Finding(Damage.ROWS_LOST, shard_id, f"{detail}: {_listed(jobs)}")
    wrong = [
        f"job {taking.job} took {taking.rows or 0:,} of {recounted[taking.job]:,} in partition "
        f"{taking.partition}"
        for taking in takings
        if taking.rows != recounted[taking.job]
    ]
    right = [taking.job for taking in takings if taking.rows == recounted[taking.job]]
    parts = [*wrong[:MAX_LISTED_JOBS], *([f"correct: {_listed(right)}"] if right else [])]
    return Finding(Damage.ROWS_LOST, shard_id, f"{detail}: {'; '.join(parts)}")


def _listed(jobs: Sequence[str]) -> str:
    more = f" and {len(jobs) - MAX_LISTED_JOBS} more" if len(jobs) > MAX_LISTED_JOBS else ""
    return ", ".join(jobs[:MAX_LISTED_JOBS]) + more


def unknown_object_findings(
    store: StateStore,
    state: TableState,
    modified_ms: Mapping[str, int],
    now_ms: int,
    properties: Properties,
) -> Iterator[Finding]:
    """Yield the objects of the data prefix that are old enough to be orphans, or are no shards.

    `modified_ms` has the time of the last change of each object, by path.
    """
    before_ms = now_ms - properties.orphan_age_seconds * 1000
    old = {path: paths.shard_id_of(path) for path, ms in modified_ms.items() if ms <= before_ms}
    unknown = {  # neither of the state nor an output of an assigned job
        path: shard
        for path, shard in old.items()
        if not shard or shard not in state.shards and paths.run_of_shard(shard)[0] not in state.jobs
    }
    orphaned = frozenset(unpinned(store, state, filter(None, unknown.values())))
    for path, shard in unknown.items():
        if not shard:
            yield Finding(Damage.FOREIGN_OBJECT, path, "the object is not a shard")
        elif shard in orphaned:
            age = _age(now_ms - modified_ms[path])
            yield Finding(Damage.ORPHAN, path, f"no commit has referenced it for {age}")


def _span(keys: tuple[Key, Key]) -> str:
    return f"({show_key(keys[0])}) to ({show_key(keys[1])})"


def _age(age_ms: int) -> str:
    hours, minutes = divmod(age_ms // 60_000, 60)
    return f"{hours // 24} days" if hours >= 48 else f"{hours} h {minutes} min"


# Disputed shards: record them, find them, and resolve disputes as a person decides.
#
# `measure` publishes their number, from which the alarm follows. The tracker records each with its
# jobs; if a run crashes before it records a dispute, `check` still finds it in the state.


def record_disputes(
    services: Services, table: Table, state: TableState, shards: Iterable[str]
) -> None:
    """Record those of `shards` that are disputed, each with the jobs that took rows from it."""
    for shard in sorted(set(shards)):
        if shard in state.disputed:
            finding = dispute_finding(state, shard, None)
            reason, job_id = f"{finding.damage.name.lower()}: {finding.detail}", dispute_id(shard)
            record(services, TrackedJob(table.id, job_id, "dispute"), Failed(reason, subject=shard))


def is_sound(services: Services, table: Table, shard: Shard) -> bool:
    """Read a shard again; return whether all its bytes are as they were written.

    If they are, those that a job found damaged were damaged in transit or in memory.
    """
    path = paths.shard_path(table.id, shard.id)
    try:
        verify_shard(services.storage, path, table.id, shard)
    except (errors.DamagedShardError, errors.NotFoundError):
        return False
    return True


def _recounted(
    services: Services, table: Table, state: TableState, shard: str
) -> dict[str, int] | None:
    """Return how many rows a shard has in the partition of each job that took rows from it.

    None if the object is missing or damaged: other findings report that.
    """
    takings = state.taken.get(shard, ())
    slices = [Slice(state.shards[shard], taking.range) for taking in takings]
    try:
        counts = count_slices(services.storage, table, slices)
    except (errors.CorruptDataError, errors.NotFoundError):
        return None
    return {taking.job: rows for taking, rows in zip(takings, counts, strict=True)}


def acknowledge(services: Services, table: Table, shards: Sequence[str]) -> list[OutboundMessage]:
    """Resolve the disputes over some shards, because a person has decided so.

    From now on, garbage collection may delete those that nothing references; return its messages.

    Raises:
        InvalidRequestError: a shard is not disputed; nothing was resolved.
        ContendedError: a dispute was resolved or raised at the same time; nothing was resolved.
    """
    store = services.store(table)
    state = store.current()
    ids = sorted(set(shards))
    if unknown := [shard for shard in ids if shard not in state.disputed]:
        raise errors.InvalidRequestError(
            f"table {table.name!r} has no dispute over shard {unknown[0]!r}; nothing was resolved",
            hint=f"`dormouse check {table.name}` lists the disputed shards",
        )
    resolution = ResolveDisputes(tuple((shard, state.disputed[shard].since_ms) for shard in ids))
    (outcome,) = store.commit(resolution, generation=state.generation)
    if isinstance(outcome, Rejected):
        raise errors.ContendedError(
            f"nothing was resolved, because the table changed meanwhile: {outcome}",
            hint=f"check the table again with `dormouse check {table.name}`",
        )
    for shard in ids:
        finalise(services, table.id, dispute_id(shard), failed=True)
    newest = store.current()
    return candidates(table, newest, [shard for shard in ids if shard in newest.unreferenced])


FOOTERS_AT_ONCE = 8
_WITHOUT_STATE = (Damage.STATE_UNREADABLE, Damage.STATE_LOST)


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check compared, at one version, and the damage that it found."""

    version: int = 0
    shards: int = 0
    rows: int = 0
    findings: tuple[Finding, ...] = ()


def check(
    services: Services, table: Table, watch: Progress | None = None, *, all_bytes: bool = False
) -> CheckReport:
    """Verify that the table's state is consistent, and that it matches the stored objects.

    With `all_bytes`, every byte of the shards is read and verified by checksum.

    Raises:
        UnavailableError: storage or state cannot be read at present, so nothing is known.
        ServiceRefusedError: a server ignores conditions of writes, so nothing there can be relied
            on.
    """
    services.check_conditions()
    first = _check_once(services, table, None, watch, all_bytes)
    if not first.findings or first.findings[0].damage in _WITHOUT_STATE:
        return first
    suspects = {finding.subject for finding in first.findings}
    again = set(_check_once(services, table, suspects, None, all_bytes).findings)
    pairs = {(finding.damage, finding.subject) for finding in again}
    confirmed = tuple(f for f in first.findings if (f.damage, f.subject) in pairs)
    return CheckReport(first.version, first.shards, first.rows, confirmed)


def _check_once(
    services: Services,
    table: Table,
    suspects: set[str] | None,
    watch: Progress | None,
    all_bytes: bool,
) -> CheckReport:
    """Check everything once; if `suspects` are given, only those of the shards."""
    try:
        state = services.store(table).current()
    except (errors.CorruptDataError, errors.NotFoundError) as error:
        unreadable = Finding(Damage.STATE_UNREADABLE, "state", error.explanation)
        return CheckReport(findings=(unreadable,))
    if not len(state.partitions):
        detail = "it has no partitions, which every table has from its creation"
        return CheckReport(state.version, findings=(Finding(Damage.STATE_LOST, "state", detail),))
    broken = broken_invariants(state, whole=True)
    # Listed after the state was read, so every object in the state had been put by then.
    objects = {o.path: o for o in services.storage.list(paths.data_prefix(table.id))}
    now_ms = services.clock.now_ms()
    ages = {path: item.modified_ms for path, item in objects.items()}
    referenced = [shard for shard in state.shards.values() if shard.id not in state.unreferenced]
    checked = sorted(s.id for s in referenced if suspects is None or s.id in suspects)

    def check_one(shard: str) -> list[Finding]:
        return _check_shard(services, table, state, state.shards[shard], objects, all_bytes)

    findings = [
        *(Finding(Damage.STATE_BROKEN, "state", sentence) for sentence in broken),
        *reference_findings(state),
        *chain.from_iterable(map_watched(check_one, checked, FOOTERS_AT_ONCE, watch)),
        *(
            dispute_finding(state, shard, _recounted(services, table, state, shard))
            for shard in sorted(state.disputed)
        ),
        *_segment_findings(services, table, state, all_bytes),
        *overdue_findings(services.store(table), state, now_ms, table.properties),
        *unknown_object_findings(services.store(table), state, ages, now_ms, table.properties),
    ]
    return CheckReport(state.version, len(referenced), state.rows, tuple(findings))


def _segment_findings(
    services: Services, table: Table, state: TableState, all_bytes: bool
) -> Iterator[Finding]:
    """Yield the source segments that are missing or have another size.

    With `all_bytes`, they are read, and those that differ from the state are found as well.
    """
    objects = services.storage.list(paths.SOURCES.prefix(table.id))
    sizes = {paths.SOURCES.name_of(item.path): item.size_bytes for item in objects}
    for segment in state.all_source_segments:
        size_bytes = sizes.get(segment.id)
        if size_bytes != segment.size_bytes:
            wrong = (
                "is missing"
                if size_bytes is None
                else f"has {size_bytes:,} bytes, not {segment.size_bytes:,}"
            )
            yield Finding(Damage.SOURCES_LOST, segment.id, f"the segment {wrong}")
        elif all_bytes:
            try:
                content, _, _ = read_segment(services.storage, table.id, segment.id)
            except (errors.NotFoundError, errors.CorruptDataError) as error:
                yield Finding(Damage.SOURCES_LOST, segment.id, str(error))
                continue
            if content != segment:
                yield Finding(Damage.SOURCES_LOST, segment.id, "it differs from the state's entry")


def _check_shard(
    services: Services,
    table: Table,
    state: TableState,
    shard: Shard,
    objects: dict[str, StoredObject],
    all_bytes: bool,
) -> list[Finding]:
    path = paths.shard_path(table.id, shard.id)
    item = objects.get(path)
    if item is None:
        return [missing_object(shard)]
    if item.size_bytes != shard.size_bytes:
        detail = f"the object has {item.size_bytes:,} bytes, not {shard.size_bytes:,}"
        return [Finding(Damage.SHARD_DAMAGED, shard.id, detail)]
    try:
        footer = read_footer(services.storage, path, shard.size_bytes)
        if all_bytes:
            audit_shard(services.storage, path, shard.size_bytes)
    except errors.NotFoundError:
        return [missing_object(shard)]
    except errors.CorruptDataError as error:
        return [Finding(Damage.SHARD_DAMAGED, shard.id, str(error))]
    findings = list(footer_findings(state, table.id, shard, footer))
    if paths.has_index_object(shard.id):
        findings += _index_findings(services, table, shard, objects, all_bytes)
    return findings


def _index_findings(
    services: Services,
    table: Table,
    shard: Shard,
    objects: dict[str, StoredObject],
    all_bytes: bool,
) -> Iterator[Finding]:
    """Yield whether the index object of a sound shard is missing, or differs from its end."""
    item = objects.get(paths.index_path(table.id, shard.id))
    if item is None:
        yield Finding(Damage.INDEX_DAMAGED, shard.id, "it has no index object")
    elif all_bytes:
        storage = services.storage
        if storage.get(item.path) != read_behind_rows(storage, table.id, shard):
            yield Finding(Damage.INDEX_DAMAGED, shard.id, f"{item.path} differs from its end")
