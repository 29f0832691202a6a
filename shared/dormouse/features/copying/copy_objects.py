"""Copy the objects of a table below the id of another, perhaps in another instance.

Each is put once, whole, after every byte of it was verified. So an object that is there already was
copied before.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from dormouse.errors import DamagedShardError, InvariantError
from dormouse.features.rebuild.plan_rebuild import RebuildPlan
from dormouse.model.shards import Shard
from dormouse.model.source_segments import SourceSegment
from dormouse.ports.services import Services, Storage
from dormouse.shards.writing.readdressing import readdress_shard, verify_local_shard
from dormouse.shards.writing.run_markers import RunMarker, put_run_marker, read_run_markers
from dormouse.statestore.source_codec import encode_sources
from dormouse.statestore.source_lookup import read_segment
from dormouse.stored.paths import data_prefix, run_of_shard, shard_path, sources_path
from dormouse.tables.table import Table

Progress = Callable[[int, int], None]
"""Called with the number of shards that are copied, and of all shards."""

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

    def copy_shards(self, shards: Sequence[Shard], watch: Progress | None) -> int:
        """Copy the shards that are not there yet; return how many these were.

        Raises:
            NotFoundError: a shard of the source is gone.
            DamagedShardError: a shard of the source is damaged.
        """
        there = self._sizes()
        missing = [one for one in shards if there.get(self._path(one)) != one.size_bytes]
        done = len(shards) - len(missing)
        pool = ThreadPoolExecutor(THREADS)
        try:
            for count, _ in enumerate(pool.map(self._copy_shard, missing), start=done + 1):
                if watch is not None:
                    watch(count, len(shards))
        finally:
            pool.shutdown(cancel_futures=True)
        there = self._sizes()
        if any(there.get(self._path(one)) != one.size_bytes for one in shards):
            raise InvariantError(f"shards are missing below {data_prefix(self.table_id)}")
        return len(missing)

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
            named, body = encode_sources(segment.id, there, [ids])
            self.target.storage.put(sources_path(self.table_id, segment.id), body)
            copied.append(named)
        return tuple(copied)

    def copy_run_markers(self, plan: RebuildPlan) -> None:
        """Copy the markers of the runs that are part of the planned state."""
        live = {placed.shard.id: placed.live for placed in plan.shards}
        runs = {run_of_shard(shard)[0] for shard in live}
        for marker in read_run_markers(self.source.storage, self.table.id):
            if marker.run in runs or _is_complete(marker, plan, live):
                put_run_marker(self.target.storage, self.table_id, marker)

    def others(self, shards: Iterable[Shard]) -> list[str]:
        """Return the paths of shards that earlier calls copied, and that are none of these."""
        return sorted(self._sizes().keys() - {self._path(shard) for shard in shards})

    def _copy_shard(self, shard: Shard) -> None:
        path = shard_path(self.table.id, shard.id)
        with tempfile.TemporaryDirectory(dir=self.target.scratch) as folder:
            local = Path(folder) / "shard"
            for attempt in range(1, _ATTEMPTS + 1):
                _download(self.source.storage, path, shard.size_bytes, local)
                try:
                    metadata = verify_local_shard(local, path, self.table.id, shard)
                    break
                except DamagedShardError:  # it may have been damaged on its way
                    if attempt == _ATTEMPTS:
                        raise
            readdress_shard(local, metadata, self.table.id, self.table_id)
            self.target.storage.upload(self._path(shard), local)

    def _path(self, shard: Shard) -> str:
        return shard_path(self.table_id, shard.id)

    def _sizes(self) -> dict[str, int]:
        listed = self.target.storage.list(data_prefix(self.table_id))
        return {stored.path: stored.size_bytes for stored in listed}


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
