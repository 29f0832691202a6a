"""Local files with the parts of shards that a merge reads: fetched in
few ranged reads, and verified.

DataFusion reads only these files, so exactly the bytes that were verified are merged. A file has
the size of its shard. It contains, at their original offsets, the column chunks that one window of
the merge needs, and everything after the data; the rest is a hole. While one window is merged, the
next is fetched; the files of past windows are deleted. Used by `engine.merging`.
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
from dormouse.stored.paths import shard_path

GETS_AT_ONCE = 4
MAX_GET_BYTES, MIN_GET_BYTES = 8 * 1024 * 1024, 1024 * 1024
"""Bounds on the size of one ranged read: large reads are few, small ones need little memory."""
SHARE_OF_MEMORY = 16
"""The reads in flight hold at most this fraction (1/16) of the available memory."""


@dataclass(frozen=True, slots=True)
class MergeWindow:
    """Row groups that are merged together, each with the local file
    that contains what is read of it.
    """

    found: list[RowGroups]
    files: list[Path]
    folder: tempfile.TemporaryDirectory[str]
    gets: list[Future[None]]

    def wait(self) -> None:
        """Wait until everything requested is in the files and verified."""
        for get in self.gets:
            get.result()

    def discard(self) -> None:
        """Cancel reads in flight and delete the files."""
        for get in self.gets:
            get.cancel()
        wait(self.gets)
        self.folder.cleanup()


@dataclass(slots=True)
class LocalCopies:
    """Fetches what the windows of one merge read: some `fields`, of shards of one table.

    At most two windows are in `scratch` at a time, and a share of `memory_bytes` is in memory.
    """

    objects: Objects
    table_id: str
    fields: Sequence[Field]
    scratch: Path
    memory_bytes: int
    _ends: dict[str, bytes] = field(default_factory=dict)

    def windows(self, wanted: Iterator[list[RowGroups]]) -> Generator[MergeWindow]:
        """Yield the windows, verified; the files of a window exist until the next window is
        requested.

        Raises:
            NotFoundError: a shard is gone.
            DamagedShardError: a shard is damaged; its window is not yielded.
        """
        current: MergeWindow | None = None
        with ThreadPoolExecutor(GETS_AT_ONCE) as threads:
            following = self._fetch_window(threads, wanted)
            try:
                while following is not None:
                    current, following = following, None
                    current.wait()
                    for found, local in zip(current.found, current.files, strict=True):
                        if found.index.crcs is None:
                            self._check_pages(found, local)
                    # not earlier: the end of a shard is fetched once, by its first window
                    following = self._fetch_window(threads, wanted)
                    yield current
                    current.discard()
            finally:
                for window in (current, following):
                    if window is not None:
                        window.discard()

    def _fetch_window(
        self, threads: Executor, wanted: Iterator[list[RowGroups]]
    ) -> MergeWindow | None:
        found = next(wanted, None)
        if found is None:
            return None
        folder = tempfile.TemporaryDirectory(dir=self.scratch, prefix="window-")
        files = [Path(folder.name) / f"{n}-{g.slice.shard.id}.parquet" for n, g in enumerate(found)]
        window = MergeWindow(found, files, folder, [])
        try:
            for groups, local in zip(found, files, strict=True):
                window.gets.extend(self._fetch(threads, groups, local))
        except BaseException:
            window.discard()
            raise
        return window

    def _fetch(self, threads: Executor, groups: RowGroups, local: Path) -> Iterator[Future[None]]:
        shard = groups.slice.shard
        sections = list(sections_of(groups, groups.numbers, self.fields, self.table_id))
        known = self._ends.get(shard.id)
        with local.open("wb") as file:
            file.truncate(shard.size_bytes)
            if known is None:
                sections.append(replace(self._page_indexes(groups), end=shard.size_bytes, crc=None))
            else:
                os.pwrite(file.fileno(), known, shard.size_bytes - len(known))
        for together in coalesce(sections, self._get_bytes):
            yield threads.submit(self._get, groups, together, local)

    @property
    def _get_bytes(self) -> int:
        share_bytes = self.memory_bytes // (SHARE_OF_MEMORY * GETS_AT_ONCE)
        return max(MIN_GET_BYTES, min(MAX_GET_BYTES, share_bytes))

    def _get(self, groups: RowGroups, sections: Sequence[Section], local: Path) -> None:
        """Read some sections of a shard at once, verify them, and write them to its file."""
        shard = groups.slice.shard
        body = memoryview(
            read_sections(self.objects, self._path(groups), shard.size_bytes, sections)
        )
        start, _ = byte_span(sections)
        with local.open("r+b") as file:
            for section in sections:
                verified = body[section.start - start : section.end - start]
                if section.group is None:
                    self._check_end(groups, verified)
                    self._ends[shard.id] = bytes(verified)
                os.pwrite(file.fileno(), verified, section.start)

    def _check_end(self, groups: RowGroups, end: memoryview) -> None:
        """Check the page indexes, and that the footer after them is
        the footer that was read before.
        """
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
        """Verify the rows of a shard without CRCs by the checksums
        of its pages, by reading them.
        """
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
