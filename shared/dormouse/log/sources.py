"""Which sources a table has ingested: those in its state, and those in sealed segments.

A look-up reads the record of each source's bucket in each segment, several at once, and joins what
lies close together; only where that says that the source may be there, it reads the bucket's ids.
Nothing of a segment is kept, so memory depends on the sources that are looked up and not on those
that are remembered. What cannot be read is an error, and never says that a source is not there.
"""

import io
import re
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dormouse.errors import CorruptDataError, InvariantError
from dormouse.log.blobs import fetched
from dormouse.log.columns import Column, open_file
from dormouse.ports import Objects, Storage
from dormouse.state.state import SourceSegment, TableState
from dormouse.stored import checksums
from dormouse.stored.checksums import crc32
from dormouse.stored.paths import SOURCES

# The stored form of a segment of remembered sources: a Parquet file with an index beside the ids.
#
# Its one column has the 16 bytes of each source id, sorted, uncompressed, in one page. So the
# offset of the n-th id follows from n, and any reader of Parquet reads all of them. The index lies
# between the column and the footer, where such readers do not look. Ids are digests, so they are
# spread evenly: their first bytes divide them into buckets of about a thousand. The records of
# buckets have one size, so the offset of a record follows from its bucket. A record says where in
# the column the bucket's ids are, and has the last two bytes of each.
#
# To look up a source takes one or two small reads. The first fetches the record of its bucket. In
# 98 of 100 cases an absent id shares its last two bytes with none of the bucket's 1,024 ids, so the
# record alone shows that it is absent. Otherwise the second read fetches the ids of the bucket, 16
# KB. Each record and each bucket has a checksum, and so has the whole file.

KIND, FORMAT = "sources", 1
ID_BYTES = 16
IDS_PER_BUCKET = 1024
"""On average. More make larger reads, fewer leave more room unused. Part of the stored form."""
_TAIL_BYTES = 2
_HEAD = struct.Struct(">III")  # the first row, how many, and the checksum of their ids
_CHECKSUM = struct.Struct(">I")
_SCHEMA = pa.schema([pa.field("source", pa.binary(ID_BYTES), nullable=False)])
_NAMED = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Cover:
    """Which sources a segment has: those of one log and generation of a table, by version."""

    table_id: str
    log: str
    generation: int
    after: int
    up_to: int


def digest_of(source: str) -> bytes:
    """Return the 16 bytes by which a source is remembered: those its id shows, if it does."""
    if _NAMED.fullmatch(source):
        return bytes.fromhex(source)
    return blake2b(source.encode(), digest_size=ID_BYTES, person=b"named otherwise").digest()


def digests_of(sources: Iterable[str]) -> Column:
    """Return the digests of sources as a column."""
    body = b"".join(map(digest_of, sources))
    return _column(body)


def bucket_of(digest: bytes, count: int) -> int:
    """Return the bucket into which an id falls, of those of a segment of `count` ids."""
    return int.from_bytes(digest[:8], "big") * _buckets(count) >> 64


def encode_sources(
    segment_id: str, cover: Cover, parts: Iterable[Column]
) -> tuple[SourceSegment, bytes]:
    """Return the stored form of a segment with the ids of all parts, and what the state says of it.
    Raises InvariantError: an id is in it twice, or there is none.
    """
    ids = _sorted(parts)
    count = len(ids)
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink,
        _SCHEMA,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
        data_page_size=2**31 - 1,
        max_rows_per_page=2**31 - 1,
    ) as writer:
        writer.write_table(pa.table([ids], schema=_SCHEMA), row_group_size=count)
        index_at, (slots, records) = sink.tell(), _index(_bytes(ids), count)
        for record in records:
            sink.write(record)
        facts = {
            "dormouse.kind": KIND,
            "dormouse.format": str(FORMAT),
            "dormouse.table": cover.table_id,
            "dormouse.log": cover.log,
            "dormouse.generation": str(cover.generation),
            "dormouse.versions": f"{cover.after} {cover.up_to}",
            "dormouse.index": f"{index_at} {slots}",
            "dormouse.checksum": checksums.BLANK,
        }
        writer.add_key_value_metadata(facts)
    body = checksums.with_checksum(sink.getvalue())
    segment = SourceSegment(segment_id, cover.after, cover.up_to, count, len(body), index_at, slots)
    return segment, body


def decode_sources(segment_id: str, body: bytes, where: str) -> tuple[SourceSegment, Cover, Column]:
    """Return what a whole segment is, and its ids; `where` names it in errors.
    Raises CorruptDataError: it is damaged, no segment of sources, or from a later version of
    Dormouse.
    """
    file, facts = open_file(body, KIND, FORMAT, where)
    try:
        after, up_to = map(int, facts["dormouse.versions"].split())
        index_at, slots = map(int, facts["dormouse.index"].split())
        generation = int(facts["dormouse.generation"])
        cover = Cover(facts["dormouse.table"], facts["dormouse.log"], generation, after, up_to)
        ids = file.read(use_threads=False)["source"].combine_chunks()
    except (pa.ArrowException, OSError, LookupError, ValueError) as error:
        raise CorruptDataError(f"{where} is not a readable segment of sources: {error}") from error
    segment = SourceSegment(segment_id, after, up_to, len(ids), len(body), index_at, slots)
    return segment, cover, ids


def record_range(segment: SourceSegment, bucket: int) -> tuple[int, int]:
    """Return where the record of a bucket begins and ends."""
    size = _record_bytes(segment.slots)
    start = segment.index_at + bucket * size
    return start, start + size


def ids_range(segment: SourceSegment, record: bytes, where: str) -> tuple[int, int, int]:
    """Return where the ids of a bucket lie, and their checksum. Raises CorruptDataError."""
    body, checksum = record[: -_CHECKSUM.size], record[-_CHECKSUM.size :]
    if len(record) != _record_bytes(segment.slots) or checksum != _CHECKSUM.pack(crc32(body)):
        raise CorruptDataError(f"the index of {where} is damaged")
    first, count, crc = _HEAD.unpack_from(body)
    ids_at = segment.index_at - ID_BYTES * segment.count
    start = ids_at + ID_BYTES * first
    return start, start + ID_BYTES * count, crc


def may_have(record: bytes, digest: bytes) -> bool:
    """Return whether an id can be in the bucket of a record that is sound."""
    count = _HEAD.unpack_from(record)[1]
    tail, place = digest[-_TAIL_BYTES:], _HEAD.size
    end = place + _TAIL_BYTES * count
    at = record.find(tail, place, end)
    while at >= 0 and (at - place) % _TAIL_BYTES:
        at = record.find(tail, at + 1, end)
    return at >= 0


def ids_in(body: bytes, crc: int, where: str) -> frozenset[bytes]:
    """Return the ids of a bucket. Raises CorruptDataError: they lack its record's checksum."""
    if crc32(body) != crc:
        raise CorruptDataError(f"ids in {where} are damaged")
    return frozenset(body[at : at + ID_BYTES] for at in range(0, len(body), ID_BYTES))


def _index(ids: memoryview, count: int) -> tuple[int, Iterator[bytes]]:
    """Return how many ids a record has room for, and the records."""
    buckets = _buckets(count)
    starts = [
        bisect_left(
            range(count),
            -(-bucket * 2**64 // buckets),
            key=lambda row: int.from_bytes(ids[ID_BYTES * row : ID_BYTES * row + 8], "big"),
        )
        for bucket in range(buckets)
    ]
    ends = [*starts[1:], count]
    slots = max(end - start for start, end in zip(starts, ends, strict=True))
    tails = _bytes(pc.binary_slice(_column(ids), ID_BYTES - _TAIL_BYTES, ID_BYTES))

    def records() -> Iterator[bytes]:
        for start, end in zip(starts, ends, strict=True):
            head = _HEAD.pack(start, end - start, crc32(ids[ID_BYTES * start : ID_BYTES * end]))
            part = bytes(tails[_TAIL_BYTES * start : _TAIL_BYTES * end])
            record = head + part.ljust(_TAIL_BYTES * slots, b"\0")
            yield record + _CHECKSUM.pack(crc32(record))

    return slots, records()


def _buckets(count: int) -> int:
    return -(-count // IDS_PER_BUCKET)


def _record_bytes(slots: int) -> int:
    return _HEAD.size + _TAIL_BYTES * slots + _CHECKSUM.size


def _sorted(parts: Iterable[Column]) -> Column:
    every = pa.concat_arrays([*parts])
    if not len(every):
        raise InvariantError("there are no sources to seal")
    ids = every.take(pc.sort_indices(every))
    if len(ids) > 1 and pc.any(pc.equal(ids[:-1], ids[1:])).as_py():
        raise InvariantError("a source is to be sealed twice: it was ingested twice")
    return ids


def _column(body: bytes | memoryview) -> Column:
    buffers = [None, pa.py_buffer(body)]
    return pa.Array.from_buffers(pa.binary(ID_BYTES), len(body) // ID_BYTES, buffers)


def _bytes(column: Column) -> memoryview:
    """Return the values of a column of fixed width, one after the other."""
    width = column.type.byte_width
    data = memoryview(column.buffers()[1] or b"").cast("B")
    return data[column.offset * width : (column.offset + len(column)) * width]


READ_BYTES = 1024 * 1024
"""What one read of an index brings at most."""
GAP_BYTES = 16 * 1024
"""Records closer together than this are read together: that is cheaper than another request."""
READS_AT_ONCE = 16
HINT = "bring it back from a backup or an older object version; until then nothing is ingested"


@dataclass(frozen=True, slots=True)
class _Read:
    """Buckets of one segment whose records lie close together, and the ids looked for in each."""

    segment: SourceSegment
    buckets: tuple[tuple[int, tuple[bytes, ...]], ...]


def ingested_of(
    objects: Objects, table_id: str, state: TableState, sources: Iterable[str]
) -> frozenset[str]:
    """Return which of these sources the table has ingested, as the state of some version knows it.

    Raises:
        NotFoundError: a segment is gone: it was merged into another, and a newer state knows that.
        CorruptDataError: a segment is damaged.
    """
    every = frozenset(sources)
    recent = frozenset(source for source in every if source in state.sources)
    by_digest = {digest_of(source): source for source in every - recent}
    if not by_digest or not state.all_source_segments:
        return recent
    order = sorted(by_digest)
    reads = [read for segment in state.all_source_segments for read in _reads(segment, order)]
    answers = fetched(partial(_look, objects, table_id), reads, READS_AT_ONCE)
    sealed = {by_digest[digest] for digests in answers for digest in digests}
    return recent | sealed


def read_segment(
    storage: Storage, table_id: str, segment_id: str
) -> tuple[SourceSegment, Cover, Column]:
    """Return all of a segment, whose every byte is checked.

    Raises:
        NotFoundError: it is not there.
        CorruptDataError: it is damaged, or another table's.
    """
    path = SOURCES.path(table_id, segment_id)
    segment, cover, ids = decode_sources(segment_id, storage.get(path), path)
    if cover.table_id != table_id:
        raise CorruptDataError(f"{path} is a segment of table {cover.table_id}", hint=HINT)
    return segment, cover, ids


def _reads(segment: SourceSegment, ids: Sequence[bytes]) -> Iterator[_Read]:
    """Group ids that ascend by bucket, and buckets by what is read at once."""
    buckets: dict[int, list[bytes]] = {}
    for digest in ids:
        buckets.setdefault(bucket_of(digest, segment.count), []).append(digest)
    together: list[tuple[int, tuple[bytes, ...]]] = []
    for bucket, digests in buckets.items():
        if together:
            start, end = record_range(segment, together[0][0])[0], record_range(segment, bucket)[1]
            gap = record_range(segment, bucket)[0] - record_range(segment, together[-1][0])[1]
            if gap > GAP_BYTES or end - start > READ_BYTES:
                yield _Read(segment, tuple(together))
                together = []
        together.append((bucket, tuple(digests)))
    if together:
        yield _Read(segment, tuple(together))


def _look(objects: Objects, table_id: str, read: _Read) -> list[bytes]:
    """Return which of the ids that are looked for are there."""
    segment = read.segment
    path = SOURCES.path(table_id, segment.id)
    start, end = (
        record_range(segment, read.buckets[0][0])[0],
        record_range(segment, read.buckets[-1][0])[1],
    )
    present: list[bytes] = []
    with objects.open(path, segment.size_bytes) as file:

        def part(start: int, end: int) -> bytes:
            file.seek(start)
            body = file.read(end - start)
            if len(body) != end - start:
                raise CorruptDataError(f"{path} is cut off", hint=HINT)
            return body

        records = part(start, end)
        for bucket, digests in read.buckets:
            at = record_range(segment, bucket)
            record = records[at[0] - start : at[1] - start]
            ids_from, ids_to, crc = ids_range(segment, record, path)
            likely = [digest for digest in digests if may_have(record, digest)]
            if likely:
                ids = ids_in(part(ids_from, ids_to), crc, path)
                present += [digest for digest in likely if digest in ids]
    return present
