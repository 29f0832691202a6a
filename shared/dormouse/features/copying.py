"""copy_table: copy a table to another instance; the source is only read.

The id of the copy follows from the source's id and the name of the copy, so a copy that was killed
is continued by the next call: what it has copied is still there. Order of writes in the target: a
marker of the log to begin, run markers, segments and shards, the state in that log, and at last the
registry's entry. Until then nobody sees the table. Objects without an entry are reported as
`unregistered`, never deleted.

Each call begins a log of its own, so calls may overlap: the one that registers the table first
wins, and destroys the other logs, whose calls then end with an error. What wins has a marker for
each log that any call began, or the call that puts one later finds the table registered and begins
nothing.

A collection may delete shards of the source while they are copied. Then the newest state of the
source is planned again; what was copied before is not copied again.
"""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import count
from pathlib import Path

from msgspec import structs

from dormouse import errors
from dormouse.features.delete_rows import keep_notes
from dormouse.features.garbage import check_storage_class
from dormouse.features.rebuild import commit_plan, planned_state, with_counts
from dormouse.features.rebuild_plan import PlacedShard, RebuildPlan
from dormouse.features.reset import put_restored
from dormouse.features.tables import check_published_names
from dormouse.jobs import Progress, map_watched
from dormouse.keys import KeyRange, prefix_successor
from dormouse.log.sources import encode_sources, read_segment
from dormouse.messages.stages import OutboundMessage, TableChanged
from dormouse.ports import Services, Storage
from dormouse.schema.schema import Schema
from dormouse.shards import writer
from dormouse.shards.run_markers import RunMarker, put_run_marker, read_run_markers
from dormouse.state.fold import apply
from dormouse.state.partitions import PartitionTree, Reference, Shard
from dormouse.state.state import Entry, ReleaseJob, SourceSegment, TableState
from dormouse.stored import paths
from dormouse.system import OwnFolder
from dormouse.tables.encryption import rewrapped
from dormouse.tables.properties import KNOWN
from dormouse.tables.table import Origin, Table, check_name

# Copy the objects of a table below the id of another, perhaps in another instance.
#
# Each is put once, whole, after every byte of it was verified. So an object that is there already
# was copied before.

THREADS = 4
READ_BYTES = 8 * 1024 * 1024
_ATTEMPTS = 2


@dataclass(frozen=True, slots=True)
class Copying:
    """A table of one instance, and the id below which its objects are copied in another."""

    source: Services
    table: Table
    target: Services
    table_id: str

    def rewrapped(self, schema: Schema) -> Schema:
        """Return a schema with its data keys encrypted for the copy. Raises as `rewrapped`."""
        of, to = (self.source.keys, self.table.id), (self.target.keys, self.table_id)
        return rewrapped(schema, of, to)

    def copy_shards(self, shards: Sequence[Shard], watch: Progress | None) -> int:
        """Copy the shards that are not there yet; return how many these were.

        Raises:
            NotFoundError: a shard of the source is gone.
            DamagedShardError: a shard of the source is damaged.
        """
        there = self._sizes()
        rest = [one for one in shards if not self._has(there, one)]
        map_watched(self._copy_shard, rest, THREADS, watch, done=len(shards) - len(rest))
        there = self._sizes()
        if not all(self._has(there, one) for one in shards):
            raise errors.InvariantError(
                f"shards are missing below {paths.data_prefix(self.table_id)}"
            )
        return len(rest)

    def copy_segments(self, segments: Iterable[SourceSegment]) -> tuple[SourceSegment, ...]:
        """Copy segments of sources; return them as the copy's state names them.

        Raises:
            NotFoundError: a segment was merged into another and deleted.
            CorruptDataError: a segment is damaged.
        """
        copied = []
        for segment in segments:
            _, cover, ids = read_segment(self.source.storage, self.table.id, segment.id)
            there = replace(cover, table_id=self.table_id)
            copy, body = encode_sources(segment.id, there, [ids])
            self.target.storage.put(paths.SOURCES.path(self.table_id, segment.id), body)
            copied.append(copy)
        return tuple(copied)

    def copy_run_markers(self, plan: RebuildPlan) -> None:
        """Copy the markers of the runs that are part of the planned state."""
        live = {item.shard.id: item.live for item in plan.shards}
        runs = {paths.run_of_shard(shard)[0] for shard in live}
        for marker in read_run_markers(self.source.storage, self.table.id):
            if marker.run in runs or _is_complete(marker, plan, live):
                put_run_marker(self.target.storage, self.table_id, marker)

    def others(self, shards: Iterable[Shard]) -> list[str]:
        """Return the paths of shards that earlier calls copied, and that are none of these."""
        names = {path for each in shards for path in paths.paths_of_shard(self.table_id, each.id)}
        return sorted(self._sizes().keys() - names)

    def _copy_shard(self, shard: Shard) -> None:
        path = paths.shard_path(self.table.id, shard.id)
        with OwnFolder(dir=self.target.scratch) as folder:
            local = Path(folder) / "shard"
            for attempt in range(1, _ATTEMPTS + 1):
                _download(self.source.storage, path, shard.size_bytes, local)
                try:
                    metadata = writer.verify_local_shard(local, path, self.table.id, shard)
                    break
                except errors.DamagedShardError:  # it may have been damaged on its way
                    if attempt == _ATTEMPTS:
                        raise
            writer.readdress_shard(local, metadata, self.table.id, self.table_id)
            self.target.storage.upload(self._path(shard), local)
            writer.put_index_object(
                self.target.storage, self.table_id, shard, writer.LocalObject(local)
            )

    def _has(self, there: Mapping[str, int], shard: Shard) -> bool:
        names = paths.paths_of_shard(self.table_id, shard.id)
        return there.keys() >= {*names} and there[self._path(shard)] == shard.size_bytes

    def _path(self, shard: Shard) -> str:
        return paths.shard_path(self.table_id, shard.id)

    def _sizes(self) -> dict[str, int]:
        objects = self.target.storage.list(paths.data_prefix(self.table_id))
        return {item.path: item.size_bytes for item in objects}


def _is_complete(marker: RunMarker, plan: RebuildPlan, live: Mapping[str, Sequence[str]]) -> bool:
    """Return whether a run without outputs has replaced its inputs in the planned state."""
    span, inputs = marker.provenance.range, marker.provenance.lineage.inputs
    leaves = {leaf for shard in inputs for leaf in live.get(shard, ())}
    return not marker.numbers and not any(
        plan.tree.get(leaf).range.overlaps(span) for leaf in leaves
    )


def _download(storage: Storage, path: str, size_bytes: int, local: Path) -> None:
    with storage.open(path, size_bytes) as content, local.open("wb") as file:
        shutil.copyfileobj(content, file, READ_BYTES)


def plan_copy(state: TableState) -> RebuildPlan:
    """Return the plan of a state with the rows, partitions and sources of `state`.

    Jobs are not copied: their inputs are free. Nor are shards that nothing references.
    Raises InvalidRequestError: shards are disputed, so it is not known which rows the table has.
    """
    if state.disputed:
        raise errors.InvalidRequestError(
            f"{len(state.disputed)} shards are disputed, so the table's rows are not certain",
            hint="`dormouse check NAME` names them and says what to do; nothing was copied",
        )
    for job in sorted(state.jobs):
        state, _ = apply(state, Entry(ReleaseJob(job), state.time_ms, state.generation))
    places: dict[str, dict[str, Reference]] = {}
    for reference in state.all_references():
        places.setdefault(reference.shard, {})[reference.partition] = reference
    tree = state.partitions
    return RebuildPlan(
        tree,
        tuple(_placed(tree, state.shards[shard], places[shard]) for shard in sorted(places)),
        tuple(sorted(state.sources)),
        (),
        state.key_types,
        state.generation,
        state.all_source_segments,
        tuple(structs.replace(each, purge_id="") for each in state.deletions),
    )


def _placed(tree: PartitionTree, shard: Shard, references: Mapping[str, Reference]) -> PlacedShard:
    span = KeyRange(shard.min_key, prefix_successor(shard.max_key))
    leaves = [
        leaf.id
        for leaf in tree.leaves_overlapping(span)
        if leaf.range.overlaps_span(shard.low, shard.high)
    ]
    rows = sum(reference.rows for reference in references.values())
    # A leaf of which the writer counted no rows has no reference, and had none before.
    if rows == shard.rows and all(one.exact for one in references.values()):
        counted = tuple((leaf, references[leaf].rows) for leaf in leaves if leaf in references)
        return PlacedShard(shard, tuple(leaf for leaf, _ in counted), (), counted)
    merged = tuple(leaf for leaf in leaves if leaf not in references)
    return PlacedShard(shard, tuple(leaf for leaf in leaves if leaf in references), merged)


ATTEMPTS = 20
"""How often the source's newest state is planned because shards of the last one were deleted."""
OF_THE_INSTANCE = frozenset({"state_store"})
"""Properties that are not of the rows: where they are not set for the table, the target decides."""


@dataclass(frozen=True, slots=True)
class CopyReport:
    """The copy, the version of the source that it has, and how many shards this call copied.

    `was_complete` says that an earlier call had finished it.
    """

    table: Table
    version: int
    rows: int
    shards: int
    copied: int
    was_complete: bool = False


def copy_table(
    source: Services,
    table: Table,
    bucket: str,
    target: Services,
    name: str,
    watch: Progress | None = None,
) -> tuple[CopyReport, list[OutboundMessage]]:
    """Copy the newest version of a table of `source` into `target`, as table `name`; `bucket` is
    where the source's files were ingested from. Return the messages to send in the target.

    Raises:
        AlreadyExistsError: the target has a table of that name, other than this very copy.
        NotFoundError: the table was deleted.
        CorruptDataError: a shard or a segment of the source is damaged or lost.
        ContendedError: another process copies it too, or shards were collected all the time.
        ForbiddenError, InvalidRequestError: a key of encrypted columns cannot be used, or copied.
    """
    table_id = _copy_id(table, target, check_name(name))
    if (entry := target.tables.get(table_id)) is not None:
        return _finished(source, table, target, entry), _messages(table_id)
    _check_free(target, name)
    check_published_names(target, replace(table, id=table_id, name=name))
    check_storage_class(target, table.properties)
    copying = Copying(source, table, target, table_id)
    copying.rewrapped(table.schema)  # what cannot be is refused before anything is copied
    log = target.ids.new()
    target.storage.put(paths.COPYING.path(table_id, log), b"")
    if target.tables.get(table_id) is not None:
        raise _overtaken(name)
    state, plan, copied = _copy_objects(copying, watch)
    others = copying.others(item.shard for item in plan.shards)
    newest = _registered(source, table)
    if newest.generation != state.generation:
        raise errors.ContendedError(
            f"table {table.name!r} was reset while it was copied", hint="copy it again"
        )
    names = (*newest.origins, Origin("", newest.name))
    copy = replace(
        newest,
        id=table_id,
        name=name,
        schema=copying.rewrapped(newest.schema),
        created_ms=target.clock.now_ms(),
        log=log,
        logs=_logs(target, table_id),
        tree="",
        reset_ms=0,
        purged_version=0,
        renamed_ms=0,
        applied_requests=(_request(table, state.version),),
        origins=tuple(dict.fromkeys(Origin(n.bucket or bucket, n.table_name) for n in names)),
        restored=log if newest.restored else "",
    ).with_settings(_settings(newest, target.tables.defaults()), target.tables.defaults())
    expected = _register(target, copy, plan)
    keep_notes(target, copy, state)
    target.storage.delete(others)  # nothing names them, and what was written since has other names
    _destroy_other_logs(target, copy)
    report = CopyReport(copy, state.version, expected.rows, len(plan.shards), copied)
    return report, _messages(table_id)


def _copy_id(table: Table, target: Services, name: str) -> str:
    """Return the id under which the table is copied, or was: the first that was not used up.

    An id is used up if the copy was deleted, or renamed.
    """
    for number in count():
        text = "\0".join(("copy", table.id, name, str(number)))
        table_id = blake2b(text.encode(), digest_size=paths.TABLE_ID_DIGITS // 2).hexdigest()
        entry = target.tables.get(table_id)
        if entry is not None and entry.name == name and not entry.deleting:
            return table_id
        if entry is None and target.tables.tombstone(table_id) is None:
            return table_id
    raise AssertionError("there is always another number")


def _check_free(target: Services, name: str) -> None:
    if (other := target.tables.named(name)) is not None:
        state = "is being deleted" if other.deleting else "is there already"
        raise errors.AlreadyExistsError(
            f"a table {name!r} {state} in the target", hint="give the copy another name"
        )


def _finished(source: Services, table: Table, target: Services, entry: Table) -> CopyReport:
    """Return the report of a copy that an earlier call registered, if the source is as it was.
    Raises AlreadyExistsError: the source has changed since.
    """
    state = source.store(_registered(source, table)).current()
    if _request(table, state.version) not in entry.applied_requests:
        raise errors.AlreadyExistsError(
            f"table {entry.name!r} is a complete copy of an earlier version of this table",
            hint="to copy the newest version, give the copy another name, or delete that one first",
        )
    _destroy_other_logs(target, entry)
    there = target.store(entry).current()
    shards = len(there.shards) - len(there.unreferenced)
    return CopyReport(entry, state.version, there.rows, shards, 0, was_complete=True)


def _copy_objects(copying: Copying, watch: Progress | None) -> tuple[TableState, RebuildPlan, int]:
    """Copy all objects of the newest state; return it, its plan, and how many shards were copied.
    Raises CorruptDataError: an object of the newest state is damaged or lost.
    """
    copied = 0
    for _ in range(ATTEMPTS):
        store = copying.source.store(_registered(copying.source, copying.table))
        state = store.current()
        plan = plan_copy(state)
        try:
            copying.copy_run_markers(plan)
            segments = copying.copy_segments(plan.segments)
            copied += copying.copy_shards([item.shard for item in plan.shards], watch)
            plan = with_counts(copying.source, copying.table, plan)
        except errors.NotFoundError as error:
            if store.current().version == state.version:
                raise errors.CorruptDataError(
                    f"the state of table {copying.table.name!r} names an object that is lost: "
                    f"{error.explanation}",
                    hint="`dormouse check` says what the table lacks; the copy is not complete",
                ) from error
            continue
        return state, replace(plan, segments=segments), copied
    raise errors.ContendedError(
        f"shards of table {copying.table.name!r} were deleted while they were copied, "
        f"{ATTEMPTS} times",
        hint="raise its gc_delay_seconds, or take it offline, and copy it again: it continues",
    )


def _register(target: Services, copy: Table, plan: RebuildPlan) -> TableState:
    """Commit the state of the copy, and make the table visible.

    Raises:
        ContendedError: another call has registered the copy.
        AlreadyExistsError: another table has taken the name.
    """
    store = target.store(copy)
    if copy.restored:  # else all its objects are of the generation that it starts with
        put_restored(target.storage, copy.id, copy.restored, planned_state(plan, copy.created_ms))
    try:
        expected = commit_plan(store, copy.name, plan, target.clock.now_ms())
        target.tables.create(copy)
    except (errors.AlreadyExistsError, errors.NotFoundError) as error:
        store.destroy()
        if target.tables.get(copy.id) is None:
            raise
        raise _overtaken(copy.name) from error
    return expected


def _destroy_other_logs(target: Services, copy: Table) -> None:
    """Destroy the logs that other calls began, and delete the markers of all."""
    for log in _logs(target, copy.id):
        if log != copy.log:
            target.store(replace(copy, log=log)).destroy()
        target.storage.delete([paths.COPYING.path(copy.id, log)])


def _logs(target: Services, table_id: str) -> tuple[str, ...]:
    prefix = paths.COPYING.prefix(table_id)
    return tuple(item.path.removeprefix(prefix) for item in target.storage.list(prefix))


def _settings(table: Table, defaults: Mapping[str, int | str]) -> dict[str, int | str]:
    """Return the properties that the copy needs of its own, to have all those of the table."""
    alike = table.with_settings(table.settings, defaults).properties
    differing = {
        name: getattr(table.properties, name)
        for name in KNOWN.keys() - OF_THE_INSTANCE
        if getattr(table.properties, name) != getattr(alike, name)
    }
    return table.settings | differing


def _registered(source: Services, table: Table) -> Table:
    entry = source.table(table.id)
    if entry is None:
        raise errors.NotFoundError(f"table {table.name!r} was deleted while it was copied")
    return entry


def _request(table: Table, version: int) -> str:
    """Return the id of the request to copy one version of a table."""
    return f"copy-{table.id}-{version}"


def _messages(table_id: str) -> list[OutboundMessage]:
    return [OutboundMessage("table-changes", TableChanged(table_id))]


def _overtaken(name: str) -> errors.ContendedError:
    return errors.ContendedError(
        f"another process has copied table {name!r} meanwhile", hint="its copy is complete"
    )
