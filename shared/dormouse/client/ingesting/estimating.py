"""Split points for a new table, estimated from files of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dormouse.client.ingesting.key_sample import KeySample
from dormouse.errors import InvalidRequestError, NotFoundError, RefusedSourceError
from dormouse.features.planning.splitting import even_split_points
from dormouse.keys.ranges import Key
from dormouse.schema.schema import Schema
from dormouse.sources.counted_reading import counted_reading
from dormouse.sources.formats import read_source
from dormouse.tables.csv_dialect import csv_dialect
from dormouse.tables.properties import parse_properties

SAMPLED_PER_PARTITION = 200
"""With so many, the standard deviation of a partition's rows is about 7 %."""
SAMPLED_AT_LEAST = 20_000
SAMPLED_AT_MOST = 1_000_000
"""A bound for memory; with more than a 200th as many partitions, parts are less equal."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Split points; the number of rows read, and of keys in the sample."""

    points: tuple[Key, ...]
    rows: int
    sampled: int


def estimate_splits(
    schema: Schema,
    files: Sequence[str | Path],
    partitions: int,
    *,
    seed: int = 0,
    properties: Mapping[str, object] | None = None,
) -> Estimate:
    """Return points that split the rows of files into `partitions` equal parts, or fewer.

    There are fewer if many rows share their keys. The files are of any format that is
    ingested; `properties` of the future table define the CSV dialect. The points come from a
    uniform sample of the keys, which is the same for the same `seed`.

    Raises:
        NotFoundError: there is no such file.
        RefusedSourceError: a file does not fit the schema; the message names it.
        InvalidRequestError: fewer than one partition, or no files.
    """
    if partitions < 1 or not files:
        raise InvalidRequestError("an estimate needs at least one partition and one file")
    most = min(max(SAMPLED_AT_LEAST, SAMPLED_PER_PARTITION * partitions), SAMPLED_AT_MOST)
    sample = KeySample(schema, most, seed)
    dialect = csv_dialect(parse_properties(properties or {}))
    for path in map(Path, files):
        if not path.is_file():
            raise NotFoundError(f"there is no file {str(path)!r}")
        try:
            with counted_reading(path):
                for batch in read_source(path, path.as_posix(), schema, dialect):
                    sample.add(batch)
        except RefusedSourceError as error:
            raise RefusedSourceError(f"{path}: {error}", hint=error.hint) from error
    keys = sample.sorted_keys()
    return Estimate(tuple(even_split_points(keys, partitions)), sample.rows, len(keys))
