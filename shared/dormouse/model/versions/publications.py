"""What is published of a table for readers of Iceberg, and since when: the record of a publication.

The record names the metadata that readers find now, and has checkpoints of what they found before.
Garbage collection goes by these: a reader may use a version for as long after it was replaced as
queries may, which is the table's delay. So what was current at the beginning of the delay decides,
and everything since then is newer.

Checkpoints are thinned. That is safe: without one, an earlier one decides, and more is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from dormouse.model.state import TableState

CHECKPOINTS_IN_DELAY = 64
"""About how many checkpoints of one delay are kept; more would only make the record longer."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What readers found from `published_ms` on: a version of one state of the table.

    `metadata` is the path of its metadata in the data bucket; empty if nothing was published.
    `state_ms` is the time of the version, by the clock of the state.
    """

    published_ms: int
    state_id: str
    generation: int
    version: int
    state_ms: int
    metadata: str

    def covers(self, state_id: str, state: TableState) -> bool:
        """Return whether this is no older than a state."""
        return (self.state_id, self.generation) == (state_id, state.generation) and (
            self.version >= state.version
        )


@dataclass(frozen=True, slots=True)
class PublicationRecord:
    """The record of a table's publication.

    `sequence` is the number of the newest metadata. `root` is where the objects were that it names,
    and `content` a fingerprint of what decides it beside the state, such as the schema. Without
    checkpoints, a first publication has begun and is not done.

    `again` asks for more than what has changed: ``all`` for everything from the state, and
    ``purged`` for metadata in which nothing of earlier versions is left.

    `mirror` is the name in Glue under which there may be an entry; it is set before that is made,
    and empty once it is deleted. `mirrored` is the metadata that the entry named last.
    """

    sequence: int = 0
    root: str = ""
    content: str = ""
    checkpoints: tuple[Checkpoint, ...] = ()
    again: Literal["", "all", "purged"] = ""
    mirror: str = ""
    mirrored: str = ""

    @property
    def newest(self) -> Checkpoint | None:
        """What readers find now; None before the first publication is done."""
        return self.checkpoints[-1] if self.checkpoints else None

    @property
    def metadata(self) -> str:
        """The path of the metadata that readers find now; empty if there is none."""
        return self.checkpoints[-1].metadata if self.checkpoints else ""

    def found_at(self, time_ms: int) -> Checkpoint | None:
        """Return what readers found at a time; None if that is not known."""
        earlier = [each for each in self.checkpoints if each.published_ms <= time_ms]
        return earlier[-1] if earlier else None

    def since(self, time_ms: int) -> tuple[Checkpoint, ...]:
        """Return what readers found at a time, if that is known, and everything after it."""
        later = [each for each in self.checkpoints if each.published_ms > time_ms]
        return self.checkpoints[max(0, len(self.checkpoints) - len(later) - 1) :]

    def with_checkpoint(self, added: Checkpoint, delay_ms: int) -> PublicationRecord:
        """Return the record with a checkpoint added, without those that decide nothing any more.

        Times never go back, even if a clock does.
        """
        last = self.newest
        now_ms = max(added.published_ms, last.published_ms if last else 0)
        added = replace(added, published_ms=now_ms)
        extended = replace(self, checkpoints=_thinned([*self.checkpoints, added], delay_ms))
        return replace(extended, checkpoints=extended.since(now_ms - delay_ms))

    def unneeded(
        self, state_id: str, state: TableState, shards: Iterable[str], oldest_ms: int
    ) -> list[str]:
        """Return those of a state's unreferenced shards that no version has that readers found
        at `oldest_ms` or later.

        A shard whose time is that of the published version is kept: the clock of a state may
        show one time for several commits.
        """
        found = self.found_at(oldest_ms)
        if found is None:
            return []
        if not found.metadata or found.covers(state_id, state):
            return list(shards)
        if (found.state_id, found.generation) != (state_id, state.generation):
            return []
        return [shard for shard in shards if state.unreferenced[shard] < found.state_ms]


def _thinned(checkpoints: list[Checkpoint], delay_ms: int) -> tuple[Checkpoint, ...]:
    """Return checkpoints without the last but one, if its neighbours are close to each other."""
    if len(checkpoints) > 2:
        before, _, newest = checkpoints[-3:]
        if newest.published_ms - before.published_ms < delay_ms // CHECKPOINTS_IN_DELAY:
            return (*checkpoints[:-2], newest)
    return tuple(checkpoints)
