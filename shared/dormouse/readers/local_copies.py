"""What a merge reads of shards, in local files: fetched in few ranged reads, proven, then merged.

The engine reads nothing but these files, so the bytes that are merged are the bytes that were
proven. A file has the size of its shard and, at their own places, the column chunks that a step of
the merge needs and all that follows the data; the rest is a hole. While one step is merged, the
next is fetched; what is past is deleted. Used by `merging`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.arrow.evolution import stored_names
from dormouse.errors import DamagedShardError
from dormouse.ports import Objects
from dormouse.readers.ranged_reads import byte_span, coalesce, read_sections
from dormouse.readers.reading import RowGroups, sections_of
from dormouse.schema.schema import Field
from dormouse.shards.crcs import Section, page_index_section
from dormouse.shards.parquet import CHECKSUM_KEY
from dormouse.stored import checksums
from dormouse.stored.names import shard_path

GETS_AT_ONCE = 4
MAX_GET_BYTES, MIN_GET_BYTES = 8 * 1024 * 1024, 1024 * 1024
"""What one ranged read brings: large ones are few, small ones take little memory."""
SHARE_OF_MEMORY = 16
"""The reads that are under way hold up to this part of the memory there is."""


@dataclass(frozen=True, slots=True)
class MergeWindow:
    """Row groups that are merged together, each with the local file that has what is read of it."""

    found: list[RowGroups]
    files: list[Path]
    folder: tempfile.TemporaryDirectory[str]
    gets: list[Future[None]]

    def wait(self) -> None:
        """Wait until all that was asked for is in the files and proven."""
        for get in self.gets:
            get.result()

    def discard(self) -> None:
        """Leave nothing of the step, neither reads under way nor files."""
        for get in self.gets:
            get.cancel()
        wait(self.gets)
        self.folder.cleanup()


@dataclass(slots=True)
class LocalCopies:
    """Fetches what the steps of one merge read: some `fields`, of shards of one table.

    At most two steps are in `scratch` at a time, and a share of `memory_bytes` in memory.
    """

    objects: Objects
    table_id: str
    fields: Sequence[Field]
    scratch: Path
    memory_bytes: int
    _ends: dict[str, bytes] = field(default_factory=dict)

    def steps(self, wanted: Iterator[list[RowGroups]]) -> Generator[MergeWindow, None, None]:
        """Yield the steps, proven; the files of each are there until the next is asked for.

        Raises:
            NotFoundError: a shard is gone.
            DamagedShardError: a shard is damaged; its step is not yielded.
        """
        current: MergeWindow | None = None
        with ThreadPoolExecutor(GETS_AT_ONCE) as threads:
            following = self._begin(threads, wanted)
            try:
                while following is not None:
                    current, following = following, None
                    current.wait()
                    for found, local in zip(current.found, current.files, strict=True):
                        if found.index.crcs is None:
                            self._check_pages(found, local)
                    # not before, since the ends of shards are fetched once, by their first step
                    following = self._begin(threads, wanted)
                    yield current
                    current.discard()
            finally:
                for step in (current, following):
                    if step is not None:
                        step.discard()

    def _begin(self, threads: Executor, wanted: Iterator[list[RowGroups]]) -> MergeWindow | None:
        found = next(wanted, None)
        if found is None:
            return None
        folder = tempfile.TemporaryDirectory(dir=self.scratch, prefix="step-")
        files = [Path(folder.name) / f"{n}-{g.slice.shard.id}.parquet" for n, g in enumerate(found)]
        step = MergeWindow(found, files, folder, [])
        try:
            for groups, local in zip(found, files, strict=True):
                step.gets.extend(self._fetch(threads, groups, local))
        except BaseException:
            step.discard()
            raise
        return step

    def _fetch(self, threads: Executor, groups: RowGroups, local: Path) -> Iterator[Future[None]]:
        shard = groups.slice.shard
        parts = list(sections_of(groups, groups.numbers, self.fields, self.table_id))
        known = self._ends.get(shard.id)
        with local.open("wb") as file:
            file.truncate(shard.size_bytes)
            if known is None:
                parts.append(replace(self._page_indexes(groups), end=shard.size_bytes, crc=None))
            else:
                os.pwrite(file.fileno(), known, shard.size_bytes - len(known))
        for some in coalesce(parts, self._get_bytes):
            yield threads.submit(self._get, groups, some, local)

    @property
    def _get_bytes(self) -> int:
        share_bytes = self.memory_bytes // (SHARE_OF_MEMORY * GETS_AT_ONCE)
        return max(MIN_GET_BYTES, min(MAX_GET_BYTES, share_bytes))

    def _get(self, groups: RowGroups, parts: Sequence[Section], local: Path) -> None:
        """Read some parts of a shard at once, and write to its file what is proven of them."""
        shard = groups.slice.shard
        body = memoryview(read_sections(self.objects, self._path(groups), shard.size_bytes, parts))
        start, _ = byte_span(parts)
        with local.open("r+b") as file:
            for part in parts:
                proven = body[part.start - start : part.end - start]
                if part.group is None:
                    self._check_end(groups, proven)
                    self._ends[shard.id] = bytes(proven)
                os.pwrite(file.fileno(), proven, part.start)

    def _check_end(self, groups: RowGroups, end: memoryview) -> None:
        """Check the page indexes, and that the footer after them is that which was read before."""
        path, indexes = self._path(groups), self._page_indexes(groups)
        indexes.check(path, end[: indexes.end - indexes.start])
        footer = bytes(end[indexes.end - indexes.start :])
        try:
            checksums.verify(footer)
        except ValueError as error:
            raise DamagedShardError(f"{path} is damaged: {error}", path=path) from error
        known = (groups.metadata.metadata or {}).get(CHECKSUM_KEY.encode())
        if known is None or known not in footer:
            raise DamagedShardError(f"{path} has another footer than it had before", path=path)

    def _check_pages(self, groups: RowGroups, local: Path) -> None:
        """Check the rows of a shard that has no CRCs but those of its pages, by reading them."""
        path = self._path(groups)
        try:
            with pq.ParquetFile(
                local, metadata=groups.metadata, page_checksum_verification=True
            ) as file:
                columns = list(stored_names(groups.index.names, self.fields).values())
                for _ in file.iter_batches(
                    row_groups=list(groups.numbers), columns=columns, use_threads=False
                ):
                    pass
        except (pa.ArrowException, OSError) as error:
            raise DamagedShardError(f"{path} is damaged: {error}", path=path) from error

    def _page_indexes(self, groups: RowGroups) -> Section:
        size_bytes = groups.slice.shard.size_bytes
        return page_index_section(
            groups.metadata, groups.index.crcs, self._path(groups), size_bytes
        )

    def _path(self, groups: RowGroups) -> str:
        return shard_path(self.table_id, groups.slice.shard.id)
