"""check: compare a table's state with its stored objects, without changing anything.

Ingests, compactions and garbage collection continue meanwhile, and an object and the state can only
be read one after the other. So whatever seems damaged is checked again with a newer state, and
only damage that is still found is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from dormouse.errors import CorruptDataError, NotFoundError
from dormouse.features.checking.disputes import dispute_findings
from dormouse.features.checking.findings import (
    Damage,
    Finding,
    footer_findings,
    missing_object,
    other_size,
    overdue_findings,
    reference_findings,
    state_findings,
    unknown_object_findings,
)
from dormouse.model.shards import Shard
from dormouse.model.state import TableState
from dormouse.ports.services import Services, StoredObject
from dormouse.readers.auditing import audit_shard
from dormouse.shards.format.footer import read_footer
from dormouse.statestore.source_lookup import read_segment
from dormouse.stored.paths import data_prefix, shard_path, sources_prefix, sources_segment_of
from dormouse.tables.table import Table

FOOTERS_AT_ONCE = 8
_WITHOUT_STATE = (Damage.STATE_UNREADABLE, Damage.STATE_LOST)

Progress = Callable[[int, int], None]
"""Called with the number of shards checked so far, and of all shards to check."""


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
    found = {(finding.damage, finding.subject) for finding in again}
    confirmed = tuple(f for f in first.findings if (f.damage, f.subject) in found)
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
    except (CorruptDataError, NotFoundError) as error:
        unreadable = Finding(Damage.STATE_UNREADABLE, "state", error.explanation)
        return CheckReport(findings=(unreadable,))
    broken = state_findings(state)
    if broken and broken[0].damage in _WITHOUT_STATE:
        return CheckReport(state.version, findings=tuple(broken))
    # Listed after the state was read, so every object in the state had been put by then.
    objects = {o.path: o for o in services.storage.list(data_prefix(table.id))}
    now_ms = services.clock.now_ms()
    ages = {path: stored.modified_ms for path, stored in objects.items()}
    referenced = [shard for shard in state.shards.values() if shard.id not in state.unreferenced]
    checked = [s for s in referenced if suspects is None or s.id in suspects]
    findings = [
        *broken,
        *reference_findings(state),
        *_shard_findings(services, table, state, checked, objects, watch, all_bytes),
        *dispute_findings(services, table, state),
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
    listed = services.storage.list(sources_prefix(table.id))
    sizes = {sources_segment_of(stored.path): stored.size_bytes for stored in listed}
    for segment in state.all_source_segments:
        found = sizes.get(segment.id)
        if found != segment.size_bytes:
            wrong = (
                "is missing"
                if found is None
                else f"has {found:,} bytes, not {segment.size_bytes:,}"
            )
            yield Finding(Damage.SOURCES_LOST, segment.id, f"the segment {wrong}")
        elif all_bytes:
            try:
                read, _, _ = read_segment(services.storage, table.id, segment.id)
            except (NotFoundError, CorruptDataError) as error:
                yield Finding(Damage.SOURCES_LOST, segment.id, str(error))
                continue
            if read != segment:
                yield Finding(Damage.SOURCES_LOST, segment.id, "it differs from the state's entry")


def _shard_findings(
    services: Services,
    table: Table,
    state: TableState,
    shards: Iterable[Shard],
    objects: dict[str, StoredObject],
    watch: Progress | None,
    all_bytes: bool,
) -> list[Finding]:
    def check_one(shard: Shard) -> list[Finding]:
        return _check_shard(services, table, state, shard, objects, all_bytes)

    ordered = sorted(shards, key=lambda shard: shard.id)
    findings: list[Finding] = []
    with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:
        for done, found in enumerate(pool.map(check_one, ordered), start=1):
            findings += found
            if watch is not None:
                watch(done, len(ordered))
    return findings


def _check_shard(
    services: Services,
    table: Table,
    state: TableState,
    shard: Shard,
    objects: dict[str, StoredObject],
    all_bytes: bool,
) -> list[Finding]:
    path = shard_path(table.id, shard.id)
    stored = objects.get(path)
    if stored is None:
        return [missing_object(shard)]
    if stored.size_bytes != shard.size_bytes:
        return [other_size(shard, stored.size_bytes)]
    try:
        footer = read_footer(services.storage, path, shard.size_bytes)
        if all_bytes:
            audit_shard(services.storage, path, shard.size_bytes)
    except NotFoundError:
        return [missing_object(shard)]
    except CorruptDataError as error:
        return [Finding(Damage.SHARD_DAMAGED, shard.id, str(error))]
    return list(footer_findings(state, table.id, shard, footer))
