"""Which sources a table has ingested: those in its state, and those in sealed segments.

A look-up reads the record of each source's bucket in each segment, several at once, and joins what
lies close together; only where that says that the source may be there, it reads the bucket's ids.
Nothing of a segment is kept, so memory depends on the sources that are looked up and not on those
that are remembered. What cannot be read is an error, and never says that a source is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from dormouse.errors import CorruptDataError
from dormouse.model.source_segments import SourceSegment
from dormouse.model.state import TableState
from dormouse.ports.services import Objects, Storage
from dormouse.statestore.snapshot.columns import Column
from dormouse.statestore.source_codec import (
    Cover,
    bucket_of,
    decode_sources,
    digest_of,
    ids_in,
    ids_range,
    may_have,
    record_range,
)
from dormouse.stored.paths import sources_path

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
    wanted: tuple[tuple[int, tuple[bytes, ...]], ...]


def ingested_of(
    objects: Objects, table_id: str, state: TableState, sources: Iterable[str]
) -> frozenset[str]:
    """Return which of these sources the table has ingested, as the state of some version knows it.

    Raises:
        NotFoundError: a segment is gone: it was merged into another, and a newer state knows that.
        CorruptDataError: a segment is damaged.
    """
    every = frozenset(sources)
    known = frozenset(source for source in every if source in state.sources)
    named = {digest_of(source): source for source in every - known}
    if not named or not state.all_source_segments:
        return known
    wanted = sorted(named)
    reads = [read for segment in state.all_source_segments for read in _reads(segment, wanted)]
    look = partial(_look, objects, table_id)
    found = {named[digest] for digests in _side_by_side(look, reads) for digest in digests}
    return known | found


def read_segment(
    storage: Storage, table_id: str, segment_id: str
) -> tuple[SourceSegment, Cover, Column]:
    """Return all of a segment, whose every byte is checked.

    Raises:
        NotFoundError: it is not there.
        CorruptDataError: it is damaged, or another table's.
    """
    path = sources_path(table_id, segment_id)
    named, cover, ids = decode_sources(segment_id, storage.get(path), path)
    if cover.table_id != table_id:
        raise CorruptDataError(f"{path} is a segment of table {cover.table_id}", hint=HINT)
    return named, cover, ids


def _reads(segment: SourceSegment, wanted: Sequence[bytes]) -> Iterator[_Read]:
    """Group ids that ascend by bucket, and buckets by what is read at once."""
    buckets: dict[int, list[bytes]] = {}
    for digest in wanted:
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
    path = sources_path(table_id, segment.id)
    start, end = (
        record_range(segment, read.wanted[0][0])[0],
        record_range(segment, read.wanted[-1][0])[1],
    )
    found: list[bytes] = []
    with objects.open(path, segment.size_bytes) as file:

        def part(start: int, end: int) -> bytes:
            file.seek(start)
            body = file.read(end - start)
            if len(body) != end - start:
                raise CorruptDataError(f"{path} is cut off", hint=HINT)
            return body

        records = part(start, end)
        for bucket, digests in read.wanted:
            at = record_range(segment, bucket)
            record = records[at[0] - start : at[1] - start]
            ids_from, ids_to, crc = ids_range(segment, record, path)
            likely = [digest for digest in digests if may_have(record, digest)]
            if likely:
                held = ids_in(part(ids_from, ids_to), crc, path)
                found += [digest for digest in likely if digest in held]
    return found


def _side_by_side(
    look: Callable[[_Read], list[bytes]], reads: Sequence[_Read]
) -> Iterator[list[bytes]]:
    if len(reads) < 2:
        yield from map(look, reads)
        return
    with ThreadPoolExecutor(min(len(reads), READS_AT_ONCE)) as pool:
        yield from pool.map(look, reads)
