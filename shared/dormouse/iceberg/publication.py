"""Plan the publication of a state as Iceberg metadata: which objects to put, and what to remember.

A publication is one to three snapshots: the empty table, if it was reset; the shards that ingests
added, also those that compactions took since; and the state. So a reader who follows the snapshots
that append gets each ingested row once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dormouse.iceberg.avro import DELETES, FOLDED_SEQUENCE, RowRange
from dormouse.iceberg.liveness import (
    LiveShard,
    cut_into_manifests,
    live_shards,
    quick_shards,
    with_rivals,
)
from dormouse.iceberg.manifests import (
    DeleteFile,
    ManifestFile,
    NewObject,
    Place,
    RowLineage,
    content_name,
    data_manifest,
    data_name,
    delete_file,
    delete_manifest,
    delete_name,
)
from dormouse.iceberg.metadata import (
    APPENDED,
    EMPTIED,
    Chain,
    Previous,
    PublicationStep,
    Totals,
    compose,
    is_same,
    listed_schema,
    make_snapshot,
    retained,
    snapshot_id,
)
from dormouse.state.partitions import Shard
from dormouse.state.state import TableState
from dormouse.state.store import VersionRecord
from dormouse.tables.table import Table

# What happened to a table between two publications, as far as readers of changes need it.

_RESET, _RESTORED = "reset table", "restore version"
"""What the history says of a table that was emptied, or got the rows of an earlier version."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The shards that ingests added, in the order of the log, also if compactions took them since.

    If the table was reset in between, they are those added since the last reset. `restored` says
    that this reset gave the table the rows of an earlier version.
    """

    added: tuple[Shard, ...] = ()
    reset: bool = False
    restored: bool = False


def changes_since(history: Sequence[VersionRecord], after: int, to: int) -> Changes | None:
    """Return the changes after version `after` up to `to`; None if the history does not have them
    all.
    """
    records = [record for record in history if after < record.version <= to]
    if [record.version for record in records] != list(range(after + 1, to + 1)):
        return None
    changes = Changes()
    for record in records:
        if _RESET in record.changes or _RESTORED in record.changes:
            changes = Changes(reset=True, restored=_RESTORED in record.changes)
        added = (*changes.added, *record.added)
        changes = Changes(added, changes.reset, changes.restored)
    return changes


# A publication as far as it follows from the state: its snapshots, and the objects to put.


@dataclass(frozen=True, slots=True)
class PublicationSource:
    """What is published: a table, and the URI of the data root, without a slash at its end.

    `sequence` is the last sequence number that is known of its publications, and `next_row_id` the
    first id of a row that none of them used. Earlier snapshots are listed for the table's
    `gc_delay_seconds`.
    """

    table: Table
    root: str
    format_version: int = 2
    sequence: int = 0
    next_row_id: int = 0


@dataclass(frozen=True, slots=True)
class Published:
    """What must be remembered of a publication: the path of its metadata in the data root, and
    which version of which log it shows. `sequence` is Iceberg's number of the snapshot.
    """

    metadata: str
    log: str
    version: int
    state_ms: int
    sequence: int
    snapshot_id: int


@dataclass(frozen=True, slots=True)
class Publication:
    """The objects to put, in this order, and what to remember then.

    There are none if the metadata that is published shows the state already.
    """

    objects: tuple[NewObject, ...]
    record: Published


@dataclass(frozen=True, slots=True)
class Draft:
    """What a publication is made of. `previous` is None if no earlier snapshot is to be listed.

    `manifests` has the shards of each manifest, and `deletes` the files that are published of dead
    rows, by `content_name`. `lineage` has that of published shards whose manifests change, by id.
    """

    source: PublicationSource
    place: Place
    state: TableState
    changes: Changes | None
    previous: Previous | None
    now_ms: int
    manifests: Sequence[Sequence[LiveShard]]
    deletes: Mapping[str, Mapping[str, Any]]
    lineage: Mapping[str, RowLineage]
    purged: bool

    @property
    def _time_ms(self) -> int:
        """The time of the version. Times never go back, as readers check, even if the clock of a
        rebuilt state begins before that of the state before.
        """
        earlier_ms = self.previous.metadata["last-updated-ms"] if self.previous else 0
        return max(self.state.time_ms, earlier_ms)

    def publication(self, dead_rows: Mapping[str, Sequence[RowRange]]) -> Publication:
        """Return the publication, given the dead rows of each shard that has none published."""
        deletes = self._delete_files(dead_rows)
        folded = self._folded(deletes)
        totals = self._totals(deletes)
        steps = self._steps(folded, totals) if self._is_new(folded) else []
        objects = [item.object for item in deletes]
        chain, made = self._chain(), []
        for step in steps:
            snapshot, manifests, chain = make_snapshot(
                self.place,
                chain,
                step,
                version=self.state.version,
                time_ms=self._time_ms,
                schema_id=self.place.listed_schema["schema-id"],
            )
            made.append(snapshot)
            objects += [item.object for item in manifests]
        return self._with_metadata(made, chain, objects)

    def _with_metadata(
        self,
        made: Sequence[Mapping[str, Any]],
        chain: Chain,
        objects: Sequence[NewObject | None],
    ) -> Publication:
        """Return the publication of new snapshots, which may be none, if its metadata is new."""
        listed = self.previous.snapshots if self.previous else []
        keep_ms = self.source.table.properties.gc_delay_seconds * 1000
        snapshots = [*retained(listed, self.now_ms, keep_ms), *made]
        sequence = max(chain.sequence, self.place.sequence)
        metadata = compose(
            self.place,
            self.previous.metadata if self.previous else None,
            snapshots,
            sequence=sequence,
            time_ms=self._time_ms,
            is_quick=bool(quick_shards(self.state)),
        )
        if self.previous is not None and is_same(metadata.content, self.previous.metadata):
            return Publication((), self._record(self.previous.path, self.place.sequence - 1, chain))
        new = {item.path: item for item in (*objects, metadata) if item is not None}
        return Publication(tuple(new.values()), self._record(metadata.path, sequence, chain))

    def _record(self, path: str, sequence: int, chain: Chain) -> Published:
        state = self.state
        snapshot = chain.parent or 0
        return Published(
            path, self.source.table.log, state.version, state.time_ms, sequence, snapshot
        )

    def _delete_files(self, dead_rows: Mapping[str, Sequence[RowRange]]) -> list[DeleteFile]:
        """Return the files of dead rows. A shard whose dead ranges have no rows needs none."""
        found = []
        for live in (live for shards in self.manifests for live in shards if live.is_partly_dead):
            known = self.deletes.get(delete_name(self.place, live))
            if known is not None:
                found.append(DeleteFile(known))
            elif rows := dead_rows[live.shard.id]:
                found.append(delete_file(self.place, live, rows))
        return found

    def _folded(self, deletes: Sequence[DeleteFile]) -> list[ManifestFile]:
        """Return the manifests of the state, whatever happened before."""
        records = self.previous.manifests if self.previous else ()
        known = {content_name(record["manifest_path"]): record for record in records}
        lineage, sequence = self._lineage(known)
        folded = [
            data_manifest(self.place, [live.shard for live in shards], known, lineage=lineage)
            for shards in self.manifests
        ]
        if deletes:
            folded.append(delete_manifest(self.place, deletes, known, sequence))
        return folded

    def _lineage(self, known: Collection[str]) -> tuple[dict[str, RowLineage] | None, int]:
        """Return the lineage of the shards in all manifests but the `known` ones, and the sequence
        number of what is dead of them. Format 2 needs none.

        A shard that is appended has its numbers from then on. One that a compaction made has those
        of new rows, from among the ids that its manifest is given as a new one (`with_row_ids`).
        """
        if self.place.format_version < 3:
            return None, FOLDED_SEQUENCE
        lineage, at = dict(self.lineage), self.source.next_row_id
        appended = self._appended(self.changes or Changes())
        first = self.place.sequence + self._is_emptied
        at = _number(lineage, [shard for part in appended for shard in part], at, first)
        last = first + bool(appended)
        for part in self.manifests:
            shards = [live.shard for live in part]
            if data_name(self.place, shards) not in known:
                _number(lineage, shards, at, last)
                at += sum(shard.rows for shard in shards)
        # at first, the snapshot of what is appended lists what is dead of it
        return lineage, last if self.previous else first

    def _totals(self, deletes: Sequence[DeleteFile]) -> Totals:
        dead = sum(item.file["record_count"] for item in deletes)
        shards = [live.shard for part in self.manifests for live in part]
        return replace(Totals().plus(shards), delete_files=len(deletes), dead_rows=dead)

    def _is_new(self, folded: Sequence[ManifestFile]) -> bool:
        """Return whether readers would see other rows than in the snapshot before, or must learn
        of appended ones.
        """
        if self.previous is None:
            return True
        if self.previous.current["snapshot-id"] == snapshot_id(
            self.source.table, self.state.version
        ):
            return False
        if self.changes and self.changes.added:
            return True
        before = [record["manifest_path"] for record in self.previous.manifests]
        return before != [manifest.record["manifest_path"] for manifest in folded]

    def _chain(self) -> Chain:
        """Return where the first snapshot of the publication is added."""
        parent = self.previous.current["snapshot-id"] if self.previous else None
        return Chain(parent, self.place.sequence - 1, self.source.next_row_id)

    @property
    def _is_emptied(self) -> bool:
        """Whether the first snapshot is that of the table without rows, after a reset."""
        changes = self.changes or Changes()
        return self.previous is not None and changes.reset and not changes.restored

    def _steps(self, folded: Sequence[ManifestFile], totals: Totals) -> list[PublicationStep]:
        """Return the snapshots to make, the one of the state last."""
        own = snapshot_id(self.source.table, self.state.version)
        steps, before = [], self._totals_before(totals)
        changes, base = self.changes or Changes(), self._base(folded)
        if self._is_emptied:
            base, before = [], Totals()
            steps.append(PublicationStep(EMPTIED + own, "delete", (), Totals()))
        if appended := self._appended(changes):
            added_in = APPENDED + own, self.place.sequence + len(steps)
            news = [data_manifest(self.place, part, {}, added_in) for part in appended]
            added = [shard for part in appended for shard in part]
            before = before.plus(added)
            how = self._operation(base)
            steps.append(PublicationStep(APPENDED + own, how, [*base, *news], before, added))
        is_known = self.changes is not None or (self.previous is None and not self.purged)
        is_same = is_known and totals.live_rows == before.live_rows and not changes.restored
        if changes.added and not appended:
            is_same = False  # as many rows, of which some are others
        return [*steps, PublicationStep(own, "replace" if is_same else "overwrite", folded, totals)]

    def _appended(self, changes: Changes) -> list[list[Shard]]:
        """Return the shards that are new to readers, in the manifests to make of them.

        At first these are all there are. Nothing is said of rows that were purged since, nor of
        those added to rows that were restored; nor in a table that keeps the latest rows, as who
        follows appended rows would take tombstones for rows.
        """
        if self.purged or changes.restored or self.source.table.properties.keep == "latest":
            return []
        if self.previous is None:
            return [[live.shard for live in shards] for shards in self.manifests]
        return [list(changes.added)] if changes.added else []

    def _base(self, folded: Sequence[ManifestFile]) -> list[ManifestFile]:
        """Return what the snapshot of appended shards lists beside these. At first, that is which
        of their rows are dead.
        """
        if self.previous is None:
            return [item for item in folded if item.record["content"] == DELETES]
        return [ManifestFile(record) for record in self.previous.manifests]

    def _operation(self, base: Sequence[ManifestFile]) -> str:
        """Return what the snapshot of new shards does: it appends, unless some of their rows are
        dead.

        That can only be at first. Readers who follow appended snapshots ignore what is dead: they
        would get a row twice whose other copy a compaction wrote. Of an overwriting snapshot they
        say that they cannot follow it.
        """
        return "overwrite" if self.previous is None and base else "append"

    def _totals_before(self, totals: Totals) -> Totals:
        if self.previous is None:
            return Totals(delete_files=totals.delete_files, dead_rows=totals.dead_rows)
        return Totals.of(self.previous.current)


def _number(
    lineage: dict[str, RowLineage], shards: Iterable[Shard], next_row_id: int, sequence: int
) -> int:
    """Add the lineage of new rows for all shards that have none; return the id after theirs."""
    for shard in shards:
        if shard.id not in lineage:
            lineage[shard.id] = RowLineage(next_row_id, sequence)
            next_row_id += shard.rows
    return next_row_id


@dataclass(frozen=True, slots=True)
class PublicationPlan:
    """A publication that lacks nothing but the row numbers of some dead rows.

    `unranked` has the shards of those, with the key ranges, by shard id; `live` has all shards.
    """

    unranked: Mapping[str, LiveShard]
    live: Mapping[str, LiveShard]
    _draft: Draft

    def publication(self, dead_rows: Mapping[str, Sequence[RowRange]]) -> Publication:
        """Return the publication, given the dead rows of each shard in `unranked`, by shard id."""
        return self._draft.publication(dead_rows)


def plan_publication(
    source: PublicationSource,
    state: TableState,
    changes: Changes | None,
    previous: Previous | None,
    *,
    now_ms: int,
    purged: bool = False,
) -> PublicationPlan:
    """Plan the publication of a state after `previous`.

    Without `changes`, it is not said what was appended since. If rows were purged, no earlier
    snapshot is listed, since it may name them.

    Raises: in format 3, as `read_previous`: manifests that change are read for the lineage of rows.
    """
    earlier = 0 if previous is None else int(previous.metadata["last-sequence-number"])
    table = source.table
    sequence = max(source.sequence, earlier) + 1
    kept = None if previous is None or purged or not _fits(previous, source) else previous
    listed = listed_schema(table.schema, kept.metadata if kept else None, sequence)
    place = Place(table.id, source.root, table.schema, source.format_version, sequence, listed)
    groups = live_shards(state)
    keeps_latest = table.properties.keep == "latest"
    manifests = cut_into_manifests(with_rivals(groups) if keeps_latest else groups)
    known = {content_name(file["file_path"]): file for file in kept.deletes} if kept else {}
    partly = [live for shards in manifests for live in shards if live.is_partly_dead]
    unranked = {live.shard.id: live for live in partly if delete_name(place, live) not in known}
    lineage = {}
    if kept is not None and source.format_version >= 3:
        lineage = kept.lineage({data_name(place, [live.shard for live in m]) for m in manifests})
    live = {each.shard.id: each for shards in manifests for each in shards}
    draft = Draft(source, place, state, changes, kept, now_ms, manifests, known, lineage, purged)
    return PublicationPlan(unranked, live, draft)


def _fits(previous: Previous, source: PublicationSource) -> bool:
    """Return whether earlier snapshots can be listed: they have the format with all that it has
    now, and are where they were.
    """
    is_numbered = all(r.get("first_row_id") is not None for r in previous.data_manifests)
    return (
        previous.root == source.root
        and previous.metadata["format-version"] == source.format_version
        and (source.format_version < 3 or is_numbered)
    )
