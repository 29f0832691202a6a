"""Plan the publication of a state as Iceberg metadata: which objects to put, and what to remember.

A publication is one to three snapshots: the empty table, if it was reset; the shards that ingests
added, also those that compactions took since; and the state. So a reader who follows the snapshots
that append gets each ingested row once.
"""

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
    ListedFile,
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
from dormouse.state.partitions import SNAPSHOTS_OF_A_COMMIT, Shard
from dormouse.state.rules import VersionRecord
from dormouse.state.state import TableState
from dormouse.stored.paths import publication_sequence
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
    """Return the changes after version `after` up to `to`; None if the history lacks some."""
    records = [record for record in history if after < record.version <= to]
    if [record.version for record in records] != list(range(after + 1, to + 1)):
        return None
    added: list[Shard] = []
    reset = restored = False
    for record in records:
        if _RESET in record.changes or _RESTORED in record.changes:
            added, reset, restored = [], True, _RESTORED in record.changes
        added += record.added
    return Changes(tuple(added), reset, restored)


@dataclass(frozen=True, slots=True)
class PublicationSource:
    """What is published: a table, and the URI of the data root, without a slash at its end.

    `sequence` is the last number that names of its publications begin with, and `next_row_id` the
    first id of a row that none of them used. Earlier snapshots are listed for the table's
    `gc_delay_seconds`.
    """

    table: Table
    root: str
    format_version: int = 2
    sequence: int = 0
    next_row_id: int = 0


@dataclass(frozen=True, slots=True)
class Publication:
    """The objects to put, in this order, and what to remember then: the path of the metadata in the
    data root, and the last number that is used up for names.

    There are no objects if the metadata that is published shows the state already.
    """

    objects: tuple[NewObject, ...]
    metadata: str
    sequence: int


@dataclass(frozen=True, slots=True)
class PublicationPlan:
    """A publication that lacks nothing but the row numbers of some dead rows: `unranked` has the
    shards of those, by id. `previous` is None if no earlier snapshot is to be listed.

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
    unranked: Mapping[str, LiveShard]
    lineage: Mapping[str, RowLineage]
    purged: bool

    @property
    def live(self) -> dict[str, LiveShard]:
        """All shards, by id."""
        return {each.shard.id: each for shards in self.manifests for each in shards}

    @property
    def _time_ms(self) -> int:
        """The time of the version. Times never go back, as readers check, even if the clock of a
        rebuilt state begins before that of the state before.
        """
        earlier_ms = self.previous.metadata["last-updated-ms"] if self.previous else 0
        return max(self.state.time_ms, earlier_ms)

    def publication(self, dead_rows: Mapping[str, Sequence[RowRange]]) -> Publication:
        """Return the publication, given the dead rows of each shard in `unranked`, by shard id."""
        deletes = self._delete_files(dead_rows)
        folded = self._folded(deletes)
        steps = self._steps(folded, self._totals(deletes)) if self._is_new(folded) else []
        objects = [item.object for item in deletes]
        parent = self.previous.current["snapshot-id"] if self.previous else None
        chain = Chain(parent, self.place.first_sequence - 1, self.source.next_row_id)
        snapshots = []
        for step in steps:
            snapshot, manifests, chain = make_snapshot(
                self.place,
                chain,
                step,
                version=self.state.version,
                time_ms=self._time_ms,
                schema_id=self.place.listed_schema["schema-id"],
            )
            snapshots.append(snapshot)
            objects += [item.object for item in manifests]
        return self._with_metadata(snapshots, chain, objects)

    def _with_metadata(
        self, made: Sequence[Mapping[str, Any]], chain: Chain, objects: Sequence[NewObject | None]
    ) -> Publication:
        """Return the publication of new snapshots, which may be none, if its metadata is new."""
        listed = self.previous.snapshots if self.previous else []
        keep_ms = self.source.table.properties.gc_delay_seconds * 1000
        snapshots = [*retained(listed, self.now_ms, keep_ms), *made]
        sequence = self.place.sequence + max(len(made) - 1, 0)
        metadata = compose(
            self.place,
            self.previous.metadata if self.previous else None,
            snapshots,
            sequence=max(chain.sequence, self.place.first_sequence),
            time_ms=self._time_ms,
            is_quick=bool(quick_shards(self.state)),
        )
        if self.previous is not None and is_same(metadata.content, self.previous.metadata):
            return Publication((), self.previous.path, self.place.sequence - 1)
        new = {item.path: item for item in (*objects, metadata) if item is not None}
        return Publication(tuple(new.values()), metadata.path, sequence)

    def _delete_files(self, dead_rows: Mapping[str, Sequence[RowRange]]) -> list[ListedFile]:
        """Return the files of dead rows. A shard whose dead ranges have no rows needs none."""
        files = []
        for live in (live for shards in self.manifests for live in shards if live.is_partly_dead):
            file = self.deletes.get(delete_name(self.place, live))
            if file is not None:
                files.append(ListedFile(file))
            elif rows := dead_rows[live.shard.id]:
                files.append(delete_file(self.place, live, rows))
        return files

    def _folded(self, deletes: Sequence[ListedFile]) -> list[ListedFile]:
        """Return the manifests of the state, whatever happened before."""
        records = self.previous.manifests if self.previous else ()
        by_name = {content_name(record["manifest_path"]): record for record in records}
        lineage, sequence = self._lineage(by_name)
        manifests = [
            data_manifest(self.place, [live.shard for live in shards], by_name, lineage=lineage)
            for shards in self.manifests
        ]
        if deletes:
            manifests.append(delete_manifest(self.place, deletes, by_name, sequence))
        return manifests

    def _lineage(self, names: Collection[str]) -> tuple[dict[str, RowLineage] | None, int]:
        """Return the lineage of the shards in all manifests but the `names` ones, and the sequence
        number of what is dead of them. Format 2 needs none.

        A shard that is appended has its numbers from then on. One that a compaction made has those
        of new rows, from among the ids that its manifest is given as a new one (`with_row_ids`).
        """
        if self.place.format_version < 3:
            return None, FOLDED_SEQUENCE
        lineage, at = dict(self.lineage), self.source.next_row_id
        appended = self._appended(self.changes or Changes())
        first = self.place.first_sequence + self._is_emptied
        added = [shard for part in appended for shard in part]
        at = _number(self.place, lineage, added, at, first)
        last = first + bool(appended)
        for part in self.manifests:
            shards = [live.shard for live in part]
            if data_name(self.place, shards) not in names:
                _number(self.place, lineage, shards, at, last)
                at += sum(shard.rows for shard in shards)
        # at first, the snapshot of what is appended lists what is dead of it
        return lineage, last if self.previous else first

    def _totals(self, deletes: Sequence[ListedFile]) -> Totals:
        dead = sum(item.record["record_count"] for item in deletes)
        shards = [live.shard for part in self.manifests for live in part]
        return replace(Totals().plus(shards), delete_files=len(deletes), dead_rows=dead)

    def _is_new(self, manifests: Sequence[ListedFile]) -> bool:
        """Return whether readers would see other rows, or must learn of appended ones."""
        if self.previous is None:
            return True
        own = snapshot_id(self.source.table, self.state.version)
        if self.previous.current["snapshot-id"] == own:
            return False
        before = [record["manifest_path"] for record in self.previous.manifests]
        is_other = before != [manifest.record["manifest_path"] for manifest in manifests]
        return is_other or bool(self.changes and self.changes.added)

    @property
    def _is_emptied(self) -> bool:
        """Whether the first snapshot is that of the table without rows, after a reset."""
        changes = self.changes or Changes()
        return self.previous is not None and changes.reset and not changes.restored

    def _steps(self, lists: Sequence[ListedFile], totals: Totals) -> list[PublicationStep]:
        """Return the snapshots to make, the one of the state last."""
        own = snapshot_id(self.source.table, self.state.version)
        steps, changes = [], self.changes or Changes()
        if self.previous is None:  # what is dead is listed beside the shards that are appended
            before = Totals(delete_files=totals.delete_files, dead_rows=totals.dead_rows)
            base = [item for item in lists if item.record["content"] == DELETES]
        else:
            before = Totals.of(self.previous.current)
            base = [ListedFile(record) for record in self.previous.manifests]
        # Readers who follow appended snapshots ignore what is dead: they would get a row twice
        # whose other copy a compaction wrote. Of an overwriting one they say they cannot follow it.
        operation = "overwrite" if self.previous is None and base else "append"
        if self._is_emptied:
            base, before = [], Totals()
            steps.append(PublicationStep(EMPTIED + own, "delete", (), Totals()))
        if appended := self._appended(changes):
            added_in = APPENDED + own, self.place.first_sequence + len(steps)
            added = [shard for part in appended for shard in part]
            lineage = dict[str, RowLineage]()
            _number(self.place, lineage, added, 0, added_in[1])
            own_numbers = lineage if self.place.keeps_row_ids else None
            news = [data_manifest(self.place, p, {}, added_in, own_numbers) for p in appended]
            before = before.plus(added)
            steps.append(PublicationStep(APPENDED + own, operation, [*base, *news], before, added))
        is_known = self.changes is not None or (self.previous is None and not self.purged)
        is_same = is_known and totals.live_rows == before.live_rows and not changes.restored
        if changes.added and not appended:
            is_same = False  # as many rows, of which some are others
        return [*steps, PublicationStep(own, "replace" if is_same else "overwrite", lists, totals)]

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


def _number(
    place: Place,
    lineage: dict[str, RowLineage],
    shards: Iterable[Shard],
    next_row_id: int,
    sequence: int,
) -> int:
    """Add the lineage of new rows for all shards that have none; return the id after theirs. Shards
    that have the number of their commit get the present one, since a rebuild gives commits others.
    """
    for shard in shards:
        known, own = lineage.get(shard.id), place.own_sequence(shard)
        if known is None:
            lineage[shard.id] = RowLineage(next_row_id, own or sequence)
            next_row_id += shard.rows
        elif own and known.sequence % SNAPSHOTS_OF_A_COMMIT == 0:
            lineage[shard.id] = replace(known, sequence=own)
    return next_row_id


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
    table, number, earlier = source.table, 0, 0
    if previous is not None:
        number = publication_sequence(previous.path) or 0
        earlier = int(previous.metadata["last-sequence-number"])
    sequence = max(source.sequence, number) + 1
    keeps_row_ids = source.format_version >= 3 and table.properties.row_origin == "ids"
    first = state.last_number * SNAPSHOTS_OF_A_COMMIT if keeps_row_ids else sequence
    base = None if previous is None or purged or not _fits(previous, source) else previous
    listed = listed_schema(table.schema, base.metadata if base else None, sequence)
    of_table = table.id, source.root, table.schema, source.format_version
    numbers = sequence, max(first, sequence, earlier + 1)
    place = Place(*of_table, *numbers, listed, keeps_row_ids)
    groups = live_shards(state)
    keeps_latest = table.properties.keep == "latest"
    manifests = cut_into_manifests(with_rivals(groups) if keeps_latest else groups)
    deletes = {content_name(file["file_path"]): file for file in base.deletes} if base else {}
    partly = [live for shards in manifests for live in shards if live.is_partly_dead]
    unranked = {live.shard.id: live for live in partly if delete_name(place, live) not in deletes}
    lineage = {}
    if base is not None and source.format_version >= 3:
        lineage = base.lineage({data_name(place, [live.shard for live in m]) for m in manifests})
    of_state = source, place, state, changes, base, now_ms, manifests, deletes
    return PublicationPlan(*of_state, unranked, lineage, purged)


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
