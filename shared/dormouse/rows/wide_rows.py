"""Merge rows that are wide, those among which some are, and those of many columns, with as little
of each input in memory as possible.

DataFusion holds about eleven batches of each input, of at least a row each, and its allocator
keeps much of what is freed: 50 inputs with values of a megabyte took a gigabyte. Here an input
holds a short batch, the page that it is in and the stored column chunk of that. Of many columns,
DataFusion takes batches of a few dozen rows, and longer than it takes to merge row groups here.
"""

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.arrow.order import fit_range, row_span, rows_in_ranges, sort_in_memory, sort_key
from dormouse.arrow.types import evolved_rows, halved, of_shard
from dormouse.errors import BRING_BACK, CorruptDataError
from dormouse.keys import Key, KeyRange
from dormouse.schema.schema import Field, Schema
from dormouse.shards.footer import MANY_COLUMNS, VALUE_BYTES
from dormouse.shards.local_copies import LocalFile
from dormouse.shards.reading import Blocks
from dormouse.shards.stored_index import PAGE_ROWS

# What row groups take in memory when they are merged, from the indexes of their shards.
#
# A merge decides for each of its windows how long batches are and how many inputs it may have at
# once: by the row groups that it reads there, not by the widest of all. So a few wide rows at one
# end of the keys do not make the merge of all others slow.

PAGE_BYTES = 1024 * 1024
"""About the most that a page takes, unless its rows are wider than the first of their shard."""
CHUNK_BYTES = 3 * 1024
"""What DataFusion takes for each column chunk of a window, besides its bytes: measured, about."""
READER_BYTES, ZSTD_READER_BYTES = 4 * 1024, 24 * 1024
"""What it takes for each column that it reads of an input, besides the bytes that are stored and
decoded. A decoder of zstd takes 96 KB of address space until its column chunk is read; short pages
touch a quarter of it."""

UNEVEN = 2
"""Rows count as wider than most of their shard beyond this many times what its least block has on
the average."""
SMALL_GROUP_BYTES = 16 * 1024
"""Row groups that take no more do not say how wide rows are: a single row of six columns seems to
take 200 bytes, as the headers of its pages count. Batches would be a third as long for its sake."""
LEAST_BLOCKS = 4
"""With fewer blocks read of a shard, all of its rows count as possibly uneven."""


@dataclass(frozen=True, slots=True)
class GroupSize:
    """The rows of each block of a row group, and about what some columns take decoded there; what
    they take in the file, decoded of a page of each, and by the readers of these columns.
    """

    blocks: Sequence[tuple[int, int]]
    stored_bytes: int
    pages_bytes: int
    readers_bytes: int
    columns: int

    @property
    def window_bytes(self) -> int:
        """What a window that reads it takes: its bytes, and what describes its chunks if they are
        so many that this matters.
        """
        return self.stored_bytes + CHUNK_BYTES * max(0, self.columns - MANY_COLUMNS)

    @property
    def decoded_bytes(self) -> int:
        """What the columns take decoded."""
        return sum(decoded_bytes for _, decoded_bytes in self.blocks)

    @property
    def row_bytes(self) -> float:
        """What a row takes decoded, on the average of the block with the widest."""
        return max(decoded_bytes / max(1, rows) for rows, decoded_bytes in self.blocks)

    def uneven_bytes(self, usual_bytes: float) -> float:
        """Return what a block takes beyond rows of so many bytes."""
        return max(decoded - UNEVEN * usual_bytes * rows for rows, decoded in self.blocks)


Sizes = Mapping[str, Mapping[int, GroupSize]]
"""Sizes of row groups, by the id of the shard and the number of the row group."""


def sizes_of(
    blocks: Iterable[Blocks], fields: Collection[Field]
) -> dict[str, dict[int, GroupSize]]:
    """Return the size of each row group, of some columns."""
    sizes: dict[str, dict[int, GroupSize]] = {}
    for groups in blocks:
        leaves = [leaf for _, leaf in groups.index.leaves(fields)]
        of_shard = sizes.setdefault(groups.slice.shard.id, {})
        of_shard.update((number, _size_of(groups, number, leaves)) for number in groups.row_groups)
    return sizes


def _size_of(part: Blocks, number: int, leaves: Sequence[int]) -> GroupSize:
    index, stored = part.index, part.index.stored
    blocks = stored.layout.blocks_of(number)
    in_blocks = [
        [stored.memory_bytes(block, leaf) + VALUE_BYTES * index.rows(block) for block in blocks]
        for leaf in leaves
    ]
    pages = [-(-index.rows(block) // PAGE_ROWS) for block in blocks]
    spans = [index.chunk_span(number, leaf) for leaf in leaves]
    return GroupSize(
        [(index.rows(block), sum(each)) for block, *each in zip(blocks, *in_blocks, strict=True)],
        sum(end - start for start, end in spans),
        sum(
            min(PAGE_BYTES, max(size // count for size, count in zip(sizes, pages, strict=True)))
            for sizes in in_blocks
        ),
        sum(ZSTD_READER_BYTES if stored.is_compressed(leaf) else READER_BYTES for leaf in leaves),
        len(leaves),
    )


def _usual_row_bytes(sizes: Collection[GroupSize]) -> float:
    """Return what most rows of a shard take at least; 0 if it has too few blocks to say."""
    if sum(len(size.blocks) for size in sizes) < LEAST_BLOCKS:
        return 0
    return min(decoded / max(1, rows) for size in sizes for rows, decoded in size.blocks)


@dataclass(frozen=True, slots=True)
class Widest:
    """The most that the row groups of a window take: a row on the average of one, and of the one
    that takes most what is stored, decoded, decoded of a page of each column, and its readers.

    `uneven_bytes` is what rows that are wider than most of their shard take together, if those of
    all shards meet: the widest of each. The shard with most has so many `columns`.
    """

    row_bytes: float
    stored_bytes: int
    decoded_bytes: int
    pages_bytes: int
    readers_bytes: int
    columns: int
    uneven_bytes: float

    @staticmethod
    def of(sizes: Sizes, blocks: Sequence[Blocks]) -> "Widest":
        """Return it for the row groups of a window. Requires: there is one."""
        of_blocks = [[sizes[g.slice.shard.id][number] for number in g.row_groups] for g in blocks]
        usual = [_usual_row_bytes(sizes[g.slice.shard.id].values()) for g in blocks]
        everything = [size for some in of_blocks for size in some]
        many = [size for size in everything if size.decoded_bytes > SMALL_GROUP_BYTES] or everything
        return Widest(
            max(size.row_bytes for size in many),
            max(size.stored_bytes for size in everything),
            max(size.decoded_bytes for size in everything),
            max(size.pages_bytes for size in everything),
            max(size.readers_bytes for size in everything),
            max(size.columns for size in everything),
            sum(
                max(0, *(size.uneven_bytes(least) for size in some))
                for some, least in zip(of_blocks, usual, strict=True)
            ),
        )


WIDE_ROW_BYTES = 32 * 1024
"""Rows that are wider on average are merged one by one."""
MOST_COLUMNS = 300
"""Rows of more columns are merged here as well."""
BATCH_BYTES = 128 * 1024
"""About what is decoded at once of a row group in which most rows are narrow, and at most what is
passed on at once, but for a single row."""
COLUMN_BYTES = 16 * 1024
"""It is that much for each column, if these are many: a batch costs time for each."""
TAKEN_BYTES = 7 * 1024 * 1024
"""About the most that is taken at once of all inputs: those that end with about the same keys would
have all of their batches taken at once, and be in memory three times."""
UNEVEN_BYTES = 64 * 1024 * 1024
"""Rows are also merged here if those that are wider than most could take more than this at once."""
ROWS_PER_INPUT = 2
"""What is held of an input besides the row group: a row, and the next one while it is decoded."""


@dataclass(frozen=True, slots=True)
class WideRows:
    """The rows of some row groups of a local file, in key order; of all if no `groups` are given.

    `stored` has how those `fields` that the file has are stored there, by their names in the table;
    the file of no shard has its columns as they are `wanted`. `path` is what the file is called in
    errors. `groups` are the numbers of row groups, and what a row of each takes
    decoded, in bytes. `leaves` are the places of the Parquet columns that are read, by default all:
    their paths do not tell a column "a.b" from the member b of a column "a".
    """

    local: Path
    path: str
    wanted: pa.Schema
    fields: Sequence[Field] = ()
    stored: Mapping[str, Field] | None = None
    span: KeyRange = KeyRange()
    groups: Mapping[int, float] | None = None
    leaves: list[int] | None = None
    constants: Mapping[str, int | str | None] = field(default_factory=dict)

    @classmethod
    def of_shard(
        cls,
        local: LocalFile,
        path: str,
        blocks: Blocks,
        target: pa.Schema,
        schema: Schema,
        sizes: Mapping[int, GroupSize],
    ) -> "WideRows":
        """Return the rows of a slice of the shard at `path`, with the columns `target` of `schema`,
        from a local copy. `sizes` are those of its row groups.
        """
        fields = [field for field in schema.fields if field.name in target.names]
        fields_there = blocks.index.stored_fields(fields)
        span = KeyRange() if blocks.slice.is_whole else fit_range(blocks.slice.range, schema)
        leaves = [leaf for _, leaf in blocks.index.leaves(fields)]
        if local.is_part:  # it has no other columns, and its row groups are joined blocks
            groups = [blocks.index.stored.layout.row_group_of(some[0]) for some in blocks.joined]
            rows = {place: sizes[number].row_bytes for place, number in enumerate(groups)}
        else:
            rows = {number: sizes[number].row_bytes for number in blocks.row_groups}
        constants = blocks.slice.shard.constants
        part = None if local.is_part else leaves
        return cls(local.path, path, target, fields, fields_there, span, rows, part, constants)

    @classmethod
    def of_file(cls, local: Path, columns: pa.Schema) -> "WideRows":
        """Return all rows of a file."""
        return cls(local, str(local), columns)

    def batches(self, schema: Schema) -> Iterator[pa.RecordBatch]:
        """Yield rows in short batches, wide ones one by one. Raises CorruptDataError: of a file."""
        for batch in self._batches():
            yield from rows_in_ranges(batch, [self.span], schema)

    @property
    def batch_bytes(self) -> int:
        """What is decoded at once."""
        return max(BATCH_BYTES, COLUMN_BYTES * len(self.wanted))

    def _row_group(
        self, file: pq.ParquetFile, number: int, row_bytes: float
    ) -> Iterable[pa.RecordBatch]:
        """Return the rows of a row group: at once if it takes no more than a batch, since what
        reads batches holds what is stored of a row group as well.
        """
        most = max(1, int(self.batch_bytes / max(1.0, row_bytes)))
        if file.metadata.row_group(number).num_rows <= most:
            table = file.reader.read_row_group(
                number, column_indices=self.leaves, use_threads=False
            )
            return table.to_batches()
        return file.reader.iter_batches(
            most, row_groups=[number], column_indices=self.leaves, use_threads=False
        )

    def _batches(self) -> Iterator[pa.RecordBatch]:
        stored = self.stored
        names = {} if stored is None else {each.name: name for name, each in stored.items()}
        try:
            with pq.ParquetFile(self.local, pre_buffer=False) as file:
                groups = _row_bytes(file.metadata) if self.groups is None else self.groups
                for number, row_bytes in groups.items():
                    for batch in self._row_group(file, number, row_bytes):
                        if stored is not None:
                            here = {names[n]: stored[names[n]] for n in batch.schema.names}
                            batch = evolved_rows(batch, here, self.fields)  # noqa: PLW2901
                        yield of_shard(batch, self.wanted, self.constants)
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # of the system: Arrow's own have no number
            raise CorruptDataError(f"{self.path} is damaged: {error}", hint=BRING_BACK) from error


def _row_bytes(metadata: pq.FileMetaData) -> dict[int, float]:
    """Return what a row of each row group takes in a file without dictionaries."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return {n: group.total_byte_size / max(1, group.num_rows) for n, group in enumerate(groups)}


def merge_rows(inputs: Sequence[WideRows], schema: Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all inputs in the order of their keys.

    Of each input there is one batch, of which a part is taken next. Up to the least of the last
    keys of these parts, all rows are there: they are taken from the batches that have some, and
    sorted. Wide rows are thus taken one by one, and narrow ones, which may lie among them, many at
    once.

    For example, with the parts (a, d, f), (b, c) and (e, g), the least last key is c: a, b and c
    are taken, and the second input's next part is due.

    Requires: the inputs have all keys, as their first columns.
    """
    batch_bytes = [each.batch_bytes for each in inputs]
    parts_of_batch = -(-sum(batch_bytes) // TAKEN_BYTES)
    heads = [_Input(each.batches(schema), schema, parts_of_batch) for each in inputs]
    waiting = [(each.first, number) for number, each in enumerate(heads) if each.advance()]
    heapq.heapify(waiting)
    while waiting:
        end = min(heads[number].last for _, number in waiting)
        parts = []
        while waiting and waiting[0][0] <= end:
            _, number = waiting[0]
            parts.append(heads[number].take(end))
            if heads[number].advance():
                heapq.heapreplace(waiting, (heads[number].first, number))
            else:
                heapq.heappop(waiting)
        for batch in parts if len(parts) == 1 else sort_in_memory(parts, schema):
            yield from halved(batch, max(batch_bytes))


class _Input:
    """The batch of an input that is merged, as far as it was not taken: its first key, and the last
    one of the part that is taken next.
    """

    first: Key
    last: Key

    def __init__(self, batches: Iterator[pa.RecordBatch], schema: Schema, parts: int) -> None:
        """Begin before the first of sorted batches, each of which is taken in so many parts."""
        self._batches, self._schema, self._parts = batches, schema, parts
        self._rows: pa.RecordBatch | None = None
        self._part_rows = self._next_rows = 0

    def advance(self) -> bool:
        """Go on to the next batch if all of this one was taken; return False at the end."""
        if self._rows is None:
            self._rows = next(self._batches, None)
            if self._rows is None:
                return False
            self._part_rows = -(-self._rows.num_rows // self._parts)
        self._next_rows = min(self._part_rows, self._rows.num_rows)
        self.first = sort_key(self._rows, 0, self._schema)
        self.last = sort_key(self._rows, self._next_rows - 1, self._schema)
        return True

    def take(self, end: Key) -> pa.RecordBatch:
        """Return the rows up to a key, that with it as well. Requires: there is one."""
        assert self._rows is not None
        if self.last <= end and self._next_rows == self._rows.num_rows:
            rows, self._rows = self._rows, None
            return rows
        count = row_span(self._rows, end, self._schema)[1]
        rest = self._rows.slice(count)
        rows, self._rows = self._rows.slice(0, count), rest if rest.num_rows else None
        return rows
