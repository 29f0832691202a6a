"""Take digests of rows, with numpy, from all bytes of all rows; and look whether they are in order.

Texts are hashed by their words of eight bytes, those of mixed rows, which have several lengths, by
their CRC-32.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.rows.data import KEYS, Digest, sum_of

Words = np.ndarray
"""A row of unsigned numbers for each value, which are in the order of the values."""
BATCH_ROWS = 131_072
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SIGN = np.uint64(1 << 63)


def show(files: Sequence[str], kind: str, in_order: bool) -> None:
    """Print the digest of files as a JSON list."""
    digest = sorted_digest_of_files if in_order else digest_of_files
    print(json.dumps(digest(map(Path, files), kind)))


def digest_of(batches: Iterable[pa.RecordBatch], kind: str = "narrow") -> Digest:
    """Return the digest of all rows of some batches."""
    return sum_of(_digest(_columns(batch, kind)) for batch in batches if batch.num_rows)


def digest_of_files(files: Iterable[Path], kind: str = "narrow") -> Digest:
    """Return the digest of all rows of some Parquet files."""
    return digest_of((batch for file in files for batch in _batches(file)), kind)


def sorted_digest_of_files(files: Iterable[Path], kind: str = "narrow") -> Digest:
    """Return the digest of files whose rows are in key order, in some order of the files.

    Raises:
        ValueError: they are not.
    """
    digest, ends = Digest(), []
    for file in files:
        first: tuple[int, ...] = ()
        last: tuple[int, ...] = ()
        for batch in _batches(file):
            columns = _columns(batch, kind)
            keys = np.concatenate([columns[key] for key in KEYS], axis=1)
            begins = tuple(map(int, keys[0]))
            if last > begins or not _ascends(keys):
                raise ValueError("the rows are not in order")
            first, last = first or begins, tuple(map(int, keys[-1]))
            digest = digest.plus(_digest(columns))
        if first:
            ends.append((first, last))
    ends.sort()
    if any(last > first for (_, last), (first, _) in zip(ends, ends[1:], strict=False)):
        raise ValueError("the rows are not in order")
    return digest


def _batches(file: Path) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(file) as opened:
        yield from (b for b in opened.iter_batches(BATCH_ROWS) if b.num_rows)


def _columns(batch: pa.RecordBatch, kind: str) -> dict[str, Words]:
    words: dict[str, Callable[[pa.Array], Words]] = {"value": _crcs} if kind == "mixed" else {}
    return {
        name: words.get(name, _words)(column)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }


def _crcs(texts: pa.Array) -> Words:
    values = texts.cast(pa.binary()).to_pylist()
    return np.array([[crc32(value), len(value)] for value in values], np.uint64)


def _digest(columns: dict[str, Words]) -> Digest:
    rows = len(next(iter(columns.values())))
    hashes = np.zeros(rows, np.uint64)
    for name in sorted(columns):
        for word in columns[name].T:
            hashes = (hashes ^ word) * _FACTOR
            hashes ^= hashes >> np.uint64(32)
    return Digest(rows, int(hashes.sum(dtype=np.uint64)))


def _words(column: pa.Array) -> Words:
    """Return the values as unsigned numbers; the benchmarks' texts all have one length.

    Raises:
        ValueError: there is a null, or texts have several lengths.
    """
    if column.null_count:
        raise ValueError("there are nulls, which the benchmarks' rows do not have")
    if pa.types.is_integer(column.type):
        numbers = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
        return (numbers.view(np.uint64) ^ _SIGN).reshape(-1, 1)
    texts = column.cast(pa.string())
    _, ends_buffer, bytes_buffer = texts.buffers()
    ends = np.frombuffer(ends_buffer, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    length = int(ends[-1] - ends[0]) // len(texts)
    if (np.diff(ends) != length).any():
        raise ValueError("texts have several lengths, which those of the benchmarks do not have")
    letters = np.frombuffer(bytes_buffer, np.uint8)[ends[0] : ends[-1]].reshape(-1, length)
    padded = np.zeros((len(texts), -(-length // 8) * 8), np.uint8)
    padded[:, :length] = letters
    return padded.view(">u8").astype(np.uint64)


def _ascends(keys: Words) -> bool:
    """Return whether each row of numbers is at least the one before."""
    before, after = keys[:-1], keys[1:]
    in_order = np.ones(len(before), bool)
    for word in reversed(range(keys.shape[1])):
        lower, same = before[:, word] < after[:, word], before[:, word] == after[:, word]
        in_order = lower | (same & in_order)
    return bool(in_order.all())
