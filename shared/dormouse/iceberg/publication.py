"""Plan the publication of a state as Iceberg metadata: which objects to put, and what to remember.

A publication is one to three snapshots: the empty table, if it was reset; the shards that ingests
added, also those that compactions took since; and the state. So a reader who follows the snapshots
that append gets each ingested row once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dormouse.iceberg.changes import Changes
from dormouse.iceberg.draft import Draft, Publication, Published, Source
from dormouse.iceberg.files.liveness import LiveShard, cut_into_manifests, live_shards
from dormouse.iceberg.files.manifests import (
    NewObject,
    Place,
    content_name,
    data_name,
    delete_name,
)
from dormouse.iceberg.files.vectors import RowRange
from dormouse.iceberg.metadata import listed_schema
from dormouse.iceberg.previous import Previous
from dormouse.model.state import TableState

__all__ = ["NewObject", "Plan", "Publication", "Published", "Source", "plan_publication"]


@dataclass(frozen=True, slots=True)
class Plan:
    """A publication that lacks nothing but the row numbers of some dead rows.

    `unranked` has the shards of those, with the key ranges, by shard id.
    """

    unranked: Mapping[str, LiveShard]
    _draft: Draft

    def publication(self, dead_rows: Mapping[str, Sequence[RowRange]]) -> Publication:
        """Return the publication, given the dead rows of each shard in `unranked`, by shard id."""
        return self._draft.publication(dead_rows)


def plan_publication(
    source: Source,
    state: TableState,
    changes: Changes | None,
    previous: Previous | None,
    *,
    now_ms: int,
    purged: bool = False,
) -> Plan:
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
    manifests = cut_into_manifests(live_shards(state))
    known = {content_name(file["file_path"]): file for file in kept.deletes} if kept else {}
    partly = [live for shards in manifests for live in shards if live.dead]
    unranked = {live.shard.id: live for live in partly if delete_name(place, live) not in known}
    lineage = {}
    if kept is not None and source.format_version >= 3:
        lineage = kept.lineage({data_name(place, [live.shard for live in m]) for m in manifests})
    draft = Draft(source, place, state, changes, kept, now_ms, manifests, known, lineage, purged)
    return Plan(unranked, draft)


def _fits(previous: Previous, source: Source) -> bool:
    """Return whether earlier snapshots can be listed: they have the format with all that it has
    now, and are where they were.
    """
    is_numbered = all(r.get("first_row_id") is not None for r in previous.data_manifests)
    return (
        previous.root == source.root
        and previous.metadata["format-version"] == source.format_version
        and (source.format_version < 3 or is_numbered)
    )
