"""Versions of a table: how they are named, pinned and published, and what shards say of theirs."""

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from numbers import Integral
from typing import Literal, TypeAlias

from dormouse.errors import InvalidRequestError
from dormouse.keys import KeyRange, union_ranges
from dormouse.state.state import TableState
from dormouse.stored.paths import make_shard_id, run_of_shard

AsOf: TypeAlias = int | str | dt.datetime
"""A version, a tag, or an aware time; as text, too."""

_TAG = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND = dt.timedelta(milliseconds=1)


def is_tag(text: str) -> bool:
    """Return whether a tag can be named so: no tag looks like a version or a time."""
    return _TAG.fullmatch(text) is not None


def check_tag(tag: str) -> None:
    """Refuse what cannot be the name of a tag. Raises InvalidRequestError."""
    if not is_tag(tag):
        raise InvalidRequestError(
            f"{tag!r} cannot be the name of a tag",
            hint="use up to 128 letters, digits, dots, dashes and underscores, a letter first",
        )


def parse_as_of(text: str) -> AsOf:
    """Parse a number, a tag, or a time (UTC without a zone). Raises InvalidRequestError."""
    if is_tag(text):
        return text
    if re.fullmatch(r"\d{1,18}", text, re.ASCII):
        return int(text)
    try:
        if re.fullmatch(r"\d+", text):  # Python takes 19 digits for a time
            raise ValueError(text)
        time = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidRequestError(
            f"{text!r} is neither a version nor a tag nor a time",
            hint="a version is a whole number, a time is as 2026-01-31T12:00:00Z",
        ) from error
    return time if time.tzinfo else time.replace(tzinfo=dt.UTC)


def checked_as_of(as_of: object) -> AsOf:
    """Return a version as its number, a tag or a time; text is parsed.
    Raises InvalidRequestError: it cannot be a version of any table, or is a time without a zone.
    """
    if isinstance(as_of, str):
        return parse_as_of(as_of)
    if isinstance(as_of, dt.datetime):
        if as_of.tzinfo is None:
            raise InvalidRequestError(
                f"the time {as_of} has no time zone", hint="give it one, as UTC"
            )
        return as_of
    if isinstance(as_of, bool) or not isinstance(as_of, Integral) or as_of < 0:
        raise InvalidRequestError(
            f"{as_of!r} is not a version of a table",
            hint="give its number, its tag, or a time with its zone",
        )
    return int(as_of)


def milliseconds_of(time: dt.datetime) -> int:
    """Return an aware time as milliseconds since 1970, rounded down."""
    return (time - _EPOCH) // _MILLISECOND


def iso_time(time_ms: int) -> str:
    """Return milliseconds since 1970 as `parse_as_of` takes them: 2026-01-31T12:00:00.000Z."""
    time = _EPOCH + time_ms * _MILLISECOND
    return time.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


# A pin: what keeps one version of a table readable, its state and its shards.
#
# It belongs to an owner, which has at most one pin on a table. The state of the version is kept in
# a snapshot of the pin's own; the shards that it references are not deleted while there is the pin.


class OwnerKind(StrEnum):
    """What a version is pinned for."""

    TAG = "tag"
    QUERY = "query"
    EXPORT = "export"
    PUBLICATION = "publication"
    RESTORE = "restore"


@dataclass(frozen=True, slots=True)
class PinOwner:
    """Who needs a version: for a tag, `name` is the tag."""

    kind: OwnerKind
    name: str

    @property
    def key(self) -> str:
        """The key under which the pin of this owner is stored."""
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class Pin:
    """A pinned version, which was current at `time_ms` and had so many rows.

    `snapshot_id` names the snapshot of `size_bytes`. A pin that is not confirmed yet holds the
    version too, but may have come too late for it. From `expires_ms` on, the pin may be deleted; it
    holds the version until it is.
    """

    owner: PinOwner
    version: int
    time_ms: int
    generation: int
    rows: int
    snapshot_id: str
    size_bytes: int
    pinned_ms: int
    is_confirmed: bool = False
    expires_ms: int | None = None

    def is_expired(self, now_ms: int) -> bool:
        """Return whether the pin may be deleted."""
        return self.expires_ms is not None and self.expires_ms <= now_ms


# The provenance of a shard: what its footer says so that a lost state can be rebuilt.
#
# `shards.writer` writes it, `features.compaction` passes it on from inputs to outputs, and
# `features.rebuild_plan` reads it.


@dataclass(frozen=True, slots=True)
class Lineage:
    """What went into a shard before it was written.

    An ingested shard has the `sources` of its run. A compacted one has `inputs`, the shards that it
    was merged from, and what nobody could know once those are deleted:

    - `superseded`: the inputs of its inputs, and theirs, as far as they were not yet deleted, each
      with a range in which its rows were merged;
    - `completed`: the last shards of ingest runs that were merged into it, while others of the same
      run still exist;
    - `sources`: those of the runs whose last shard was merged into it, while they are remembered.
    """

    sources: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    superseded: tuple[tuple[str, KeyRange], ...] = ()
    completed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Provenance:
    """The run that wrote a shard, and the shard's place in that run.

    `range` is that of the partition for which the shard was written, or spans the leaves from the
    first to the last in which it has rows. Leaves meet at both ends of it, whatever is split later.
    `number` counts the shards of a run, which are written in order. Only the `last` one is marked,
    so a run is complete if its last shard exists. `generation` is that of the table when the shard
    was written.
    """

    range: KeyRange = KeyRange()
    job: str = ""
    written_ms: int = 0
    number: int = 0
    last: bool = True
    lineage: Lineage = Lineage()
    generation: int = 0

    @property
    def merged(self) -> Iterator[tuple[str, KeyRange]]:
        """Each shard whose rows it has, or left out, with the range of these rows."""
        yield from ((shard, self.range) for shard in self.lineage.inputs)
        yield from self.lineage.superseded


def merge_lineages(inputs: Mapping[str, Provenance], state: TableState) -> Lineage:
    """Return the lineage of a shard merged from `inputs`; `state` is the newest known.

    A shard that is gone from the state has no object any more, so the lineage need not mention it.

    Example: run r ingested r-0 and r-1 (the last, with the run's sources s). Merging r-1 with x
    gives inputs r-1, x. It also gives sources s, since a rebuild that finds only the merged shard
    must know that s is ingested; and completed r-1, as long as r-0 exists, since r-0 alone would
    look like a run that never finished. Merging the result again moves r-1 and x to superseded
    until their objects are deleted: a rebuild that finds them must not count their rows twice.
    A job that joins leaves merges what was made of a shard in some of them, not in those between:
    so the ranges of the inputs are kept.
    """
    provenances = inputs.values()
    ingested = {
        shard: provenance
        for shard, provenance in inputs.items()
        if provenance.last and not _merged(provenance)
    }
    earlier: dict[str, list[KeyRange]] = {}
    for shard, span in (each for p in provenances for each in p.merged if each[0] in state.shards):
        earlier.setdefault(shard, []).append(span)
    completed = {s for p in provenances for s in p.lineage.completed} | ingested.keys()
    carried = [p for p in provenances if _merged(p)]
    sources = {s for p in (*ingested.values(), *carried) for s in p.lineage.sources}
    return Lineage(
        sources=tuple(sorted(s for s in sources if s in state.sources)),
        inputs=tuple(inputs),
        superseded=tuple((s, span) for s in sorted(earlier) for span in union_ranges(earlier[s])),
        completed=tuple(sorted(s for s in completed if _has_siblings(s, state))),
    )


def _merged(provenance: Provenance) -> bool:
    return bool(provenance.lineage.inputs)


def _has_siblings(last: str, state: TableState) -> bool:
    run, number = run_of_shard(last)
    return any(make_shard_id(run, n) in state.shards for n in range(number))


# What is published of a table for readers of Iceberg, and since when: the record of a publication.
#
# The record names the metadata that readers find now, and has checkpoints of what they found
# before. Garbage collection goes by these: a reader may use a version for as long after it was
# replaced as queries may, which is the table's delay. So what was current at the beginning of the
# delay decides, and everything since then is newer.
#
# Checkpoints are thinned. That is safe: without one, an earlier one decides, and more is kept.

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

    def with_checkpoint(self, added: Checkpoint, delay_ms: int) -> "PublicationRecord":
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
        root = self.found_at(oldest_ms)
        if root is None:
            return []
        if not root.metadata or root.covers(state_id, state):
            return list(shards)
        if (root.state_id, root.generation) != (state_id, state.generation):
            return []
        return [shard for shard in shards if state.unreferenced[shard] < root.state_ms]


def _thinned(checkpoints: list[Checkpoint], delay_ms: int) -> tuple[Checkpoint, ...]:
    """Return checkpoints without the last but one, if its neighbours are close to each other."""
    if len(checkpoints) > 2:
        before, _, newest = checkpoints[-3:]
        if newest.published_ms - before.published_ms < delay_ms // CHECKPOINTS_IN_DELAY:
            return (*checkpoints[:-2], newest)
    return tuple(checkpoints)
