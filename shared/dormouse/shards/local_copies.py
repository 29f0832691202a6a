"""Local files with the parts of shards that a merge reads: fetched in
few ranged reads, and verified.

DataFusion reads only these files, so exactly the bytes that were verified are merged. A file
contains, at their original offsets, the blocks that one window of the merge needs, and a footer of
its own (`write_short_footer`); the rest is a hole. If a condition asks the statistics of the shard,
its row groups and everything after its data are in the file instead. While one window is merged,
the next ones are fetched; the files of past windows are deleted. Used by `rows.merging`.

With a condition, a shard that is a file of this machine, on the same disk, is not copied: its file
has another name in the window's folder, and is read once to verify it.
"""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, count, groupby
from pathlib import Path

from msgspec import structs

from dormouse.errors import DamagedShardError, damaged_shard
from dormouse.keys import KeyRange
from dormouse.ports import StreamedObjects
from dormouse.schema.schema import Field
from dormouse.shards.crcs import Section, sections_behind
from dormouse.shards.decoding import write_short_footer
from dormouse.shards.footer import ByteSpan
from dormouse.shards.parquet import CHECKSUM_KEY
from dormouse.shards.reading import READS_AT_ONCE, Blocks, check_sections, coalesce, stream_sections
from dormouse.storage import PIECE_BYTES, read_pieces, writing_files
from dormouse.stored import checksums
from dormouse.stored.paths import shard_path
from dormouse.system import OwnFolder

MAX_GET_BYTES = 8 * 1024 * 1024
"""The most that one ranged read fetches: fewer and larger ones would begin to merge later."""
WINDOWS_AHEAD = 2
"""How many windows are fetched while one is merged."""
MIN_READS_AT_ONCE = 4
READS_OF_FILES = 2
"""How many files of this machine are verified at once: they need not wait for a network."""
SHARE_OF_MEMORY = 16
"""The reads in flight hold at most this fraction (1/16) of the available memory."""


def reads_at_once(memory_bytes: int) -> int:
    """Return how many reads are in flight at once; each holds one piece of its response."""
    most = memory_bytes // (SHARE_OF_MEMORY * PIECE_BYTES)
    return max(MIN_READS_AT_ONCE, min(READS_AT_ONCE, most))


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A local file of a shard; `is_part` says that its footer describes only what is read of it."""

    path: Path
    is_part: bool


@dataclass(frozen=True, slots=True)
class SharedGroup:
    """A row group of which windows that follow each other need blocks. The file of the first has
    all that the later ones need.
    """

    number: int
    file: Path
    window: Path


@dataclass(frozen=True, slots=True)
class MergeWindow:
    """Row groups that are merged together, each with the local file
    that contains what is read of it.

    They hold all rows with keys in `span`, and a few others. `ends` are what follows the data in
    each copied shard. A shard's end is fetched once, for the first window that reads the shard.
    `describe` ends the copies of shards whose footers were not read. What is in `taken_over` comes
    from files of the window before: some bytes, from one file to another.
    """

    span: KeyRange
    blocks: list[Blocks]
    files: list[LocalFile]
    folder: OwnFolder
    gets: list[Future[bytes]]
    ends: list[tuple[Path, Future[bytes]]]
    describe: list[Callable[[], None]]
    taken_over: list[tuple[Path, Path, list[ByteSpan]]]

    @property
    def scratch(self) -> Path:
        """A folder for files that are needed no longer than the window."""
        return Path(self.folder.name)

    def wait(self) -> None:
        """Wait until everything requested is in the files and verified."""
        for get in self.gets:
            get.result()
        with writing_files(self.scratch):
            for local, get in self.ends:
                end = get.result()
                with local.open("r+b") as file:
                    file.seek(-len(end), os.SEEK_END)
                    file.write(end)
            for describe in self.describe:
                describe()

    def take_over(self) -> None:
        """Copy what the files of the window before have for this one, once these are verified."""
        with writing_files(self.scratch):
            for source, target, spans in self.taken_over:
                with source.open("rb") as whole, target.open("r+b") as file:
                    for start, end in spans:
                        file.seek(start)
                        for piece in read_pieces(whole, start, end):
                            file.write(piece)

    def discard(self) -> None:
        """Cancel reads in flight and delete the files."""
        for get in self.gets:
            get.cancel()
        wait(self.gets)
        self.folder.cleanup()


@dataclass(slots=True)
class LocalCopies:
    """Fetches what the windows of one merge read: some `fields`, of shards of one table.

    At most `WINDOWS_AHEAD` windows and the current one are in `scratch` at a time. What is in
    memory does not depend on their size: the reads in flight are written to the files piece by
    piece.

    `last` has the last block that will be read of slices, by shard and range: over a network, the
    row group at the end of a window is fetched as far as that, in one read, and the next window
    takes it over. Its columns would take a read each, in both windows.
    """

    objects: StreamedObjects
    table_id: str
    fields: Sequence[Field]
    scratch: Path
    memory_bytes: int
    last: Mapping[tuple[str, KeyRange], int] = field(default_factory=dict)
    _ends: dict[str, Future[bytes]] = field(default_factory=dict)
    _newest: Path | None = None
    _shared: dict[tuple[str, KeyRange], SharedGroup] = field(default_factory=dict)

    def windows(self, windows: Iterator[tuple[KeyRange, list[Blocks]]]) -> Generator[MergeWindow]:
        """Yield the windows, verified; its files exist until the next one is requested.

        Little is fetched ahead of the first windows, because a query with a limit may need no more.

        Raises:
            NotFoundError: a shard is gone.
            DamagedShardError: a shard is damaged; its window is not yielded.
            UnavailableError: a shard could not be read.
            DiskFullError: the disk of `scratch` is full.
        """
        current: MergeWindow | None = None
        following: deque[MergeWindow] = deque()
        with self._threads() as threads:
            try:
                self._fetch_ahead(threads, windows, following, 1)
                for number in count(1):
                    if not following:
                        return
                    current = following.popleft()
                    current.wait()
                    self._fetch_ahead(threads, windows, following, min(number, WINDOWS_AHEAD))
                    yield current
                    current.discard()
            finally:
                for window in (*following, current):
                    if window is not None:
                        window.discard()

    def only_window(self, blocks: list[Blocks]) -> MergeWindow:
        """Return one window of all keys, verified. It has no threads any more, and its files exist
        until it is discarded.
        Raises DormouseError: as `windows` does.
        """
        with self._threads() as threads:
            window = self._fetch_window(threads, KeyRange(), blocks)
            try:
                window.wait()
            except BaseException:
                window.discard()
                raise
        return window

    def _threads(self) -> ThreadPoolExecutor:
        remote = reads_at_once(self.memory_bytes)
        return ThreadPoolExecutor(remote if self.objects.is_remote else READS_OF_FILES)

    def _fetch_ahead(
        self,
        threads: Executor,
        windows: Iterator[tuple[KeyRange, list[Blocks]]],
        following: deque[MergeWindow],
        most: int,
    ) -> None:
        """Start to fetch the next windows, until `most` are following; the first of them takes over
        what the current one has.
        """
        while len(following) < most and (window := next(windows, None)) is not None:
            following.append(self._fetch_window(threads, *window))
        if following:
            following[0].take_over()

    def _fetch_window(self, threads: Executor, span: KeyRange, blocks: list[Blocks]) -> MergeWindow:
        with writing_files(self.scratch):
            folder = OwnFolder(dir=self.scratch, prefix="window-")
        window = MergeWindow(span, blocks, [], folder, [], [], [], [])
        try:
            for number, groups in enumerate(blocks):
                local = window.scratch / f"{number}-{groups.slice.shard.id}.parquet"
                self._fetch_file(threads, window, groups, local)
        except BaseException:
            window.discard()
            raise
        self._newest = window.scratch
        return window

    def _fetch_file(
        self, threads: Executor, window: MergeWindow, groups: Blocks, local: Path
    ) -> None:
        """Link the file of a shard to `local`, or begin to copy what the window reads of it."""
        path, shard = self._path(groups), groups.slice.shard
        is_part = groups.index.footer is None
        is_linked = not is_part and self.objects.link(path, local)
        if is_linked:
            _check_size(local, path, shard.size_bytes)
        else:
            with writing_files(self.scratch):
                _make_hole(local, shard.size_bytes)
        copy = None if is_linked else local
        window.files.append(LocalFile(local, is_part))
        numbers = self._not_shared(window, groups, local) if is_part else groups.numbers
        window.gets.extend(self._fetch(threads, groups, numbers, copy))
        if is_part:
            end = partial(write_short_footer, local, groups, self.fields, path)
            window.describe.append(end)
        elif copy is not None:
            window.ends.append((copy, self._ends[shard.id]))

    def _not_shared(self, window: MergeWindow, groups: Blocks, local: Path) -> Sequence[int]:
        """Return the blocks to fetch: all that are read of the last row group, and none of a row
        group that is in a file of the window before, from which they are taken over.
        """
        layout, place = groups.index.stored.layout, (groups.slice.shard.id, groups.slice.range)
        group, last = layout.row_group_of(groups.numbers[-1]), self.last.get(place, -1)
        shared, before = self._shared.get(place), self._newest
        rest = range(groups.numbers[-1] + 1, min(layout.firsts[group + 1], last + 1))
        numbers = [*groups.numbers, *rest]
        if last >= 0:
            self._shared[place] = SharedGroup(group, local, window.scratch)
        if shared is None or shared.window != before:
            return numbers
        there = [number for number in numbers if layout.row_group_of(number) == shared.number]
        if there:
            sections = groups.index.sections(there, self.fields)
            spans = [(section.start, section.end) for section in sections]
            window.taken_over.append((shared.file, local, spans))
        return numbers[len(there) :]

    def _fetch(
        self, threads: Executor, groups: Blocks, numbers: Sequence[int], copy: Path | None
    ) -> Iterator[Future[bytes]]:
        shard = groups.slice.shard
        sections = list(groups.index.sections(numbers, self.fields))
        if copy is None:
            check = partial(check_sections, self.objects, self._path(groups), shard.size_bytes)
            yield from (threads.submit(check, few) for few in _in_parts(sections))
            sections = []
        if groups.index.footer is not None and shard.id not in self._ends:
            end = self._page_indexes(groups)
            sections.append(structs.replace(end, end=shard.size_bytes, crc=None))
        for together in coalesce(sections, MAX_GET_BYTES):
            get = threads.submit(self._get, groups, together, copy)
            if any(section.group is None for section in together):
                self._ends[shard.id] = get
            yield get

    def _get(self, groups: Blocks, sections: Sequence[Section], copy: Path | None) -> bytes:
        """Read some sections of a shard at once, verify them, and write them to its copy.

        The end of the shard is not written; it is returned if it is among the sections.
        """
        shard = groups.slice.shard
        end = bytearray()
        arriving = stream_sections(self.objects, self._path(groups), shard.size_bytes, sections)
        with writing_files(self.scratch), copy.open("r+b") if copy else nullcontext() as file:
            for section, offset, part in arriving:
                if section.group is None:
                    end += part
                elif file is not None:
                    file.seek(offset)
                    file.write(part)
        if end:
            self._check_end(groups, memoryview(end))
        return bytes(end)

    def _check_end(self, groups: Blocks, end: memoryview) -> None:
        """Check the page indexes, and that the footer after them is the one read before."""
        path, indexes = self._path(groups), self._page_indexes(groups)
        indexes.check(path, end[: indexes.end - indexes.start])
        footer = bytes(end[indexes.end - indexes.start :])
        try:
            checksums.verify(footer)
        except ValueError as error:
            raise damaged_shard(path, str(error)) from error
        checksum = (groups.index.metadata.metadata or {}).get(CHECKSUM_KEY.encode())
        if checksum is None or checksum not in footer:
            raise DamagedShardError(f"{path} has another footer than it had before", path=path)

    def _page_indexes(self, groups: Blocks) -> Section:
        path, size_bytes = self._path(groups), groups.slice.shard.size_bytes
        return sections_behind(groups.index.metadata, groups.index.stored, path, size_bytes)[0]

    def _path(self, groups: Blocks) -> str:
        return shard_path(self.table_id, groups.slice.shard.id)


def _in_parts(sections: Iterable[Section]) -> Iterator[list[Section]]:
    """Yield sections in parts of about `MAX_GET_BYTES`, which are verified side by side."""
    ends = accumulate(section.end - section.start for section in sections)
    pairs = zip(ends, sections, strict=True)
    for _, part in groupby(pairs, lambda each: each[0] // MAX_GET_BYTES):
        yield [section for _, section in part]


def _check_size(local: Path, path: str, size_bytes: int) -> None:
    """Check the size of the file that a shard is: DataFusion looks for the footer at its end."""
    local_bytes = local.stat().st_size
    if local_bytes != size_bytes:
        raise damaged_shard(path, f"it has {local_bytes:,} bytes, not {size_bytes:,}")


def _make_hole(local: Path, size_bytes: int) -> None:
    """Make a file of a size in which nothing is written yet."""
    with local.open("wb") as file:
        file.truncate(size_bytes)
