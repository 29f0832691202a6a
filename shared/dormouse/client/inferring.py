"""Schemas of new tables: written, or inferred from a file, a frame or an Arrow schema."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.arrow.order import row_key
from dormouse.errors import InvalidRequestError, NotFoundError, RefusedSourceError
from dormouse.features.planning import even_split_points
from dormouse.files.change_data import changes_in_files
from dormouse.files.formats import FoundFile, counted_reading, infer_file, read_source
from dormouse.files.frames import Frame, frame_columns
from dormouse.files.inferred import infer_path_columns
from dormouse.files.rejects import Rejects
from dormouse.key_codec import KeyCodec, KeyLike
from dormouse.keys import Key
from dormouse.schema.schema import FoundColumn, Schema, check_list, choose_schema, parse_schema
from dormouse.schema.types import FieldType, show_type
from dormouse.tables.properties import Properties, csv_dialect, parse_settings, properties_of

Like: TypeAlias = "str | Path | pa.Schema | Frame"
"""What a schema is inferred from: the path of a file, an Arrow schema, or a frame."""

Types: TypeAlias = Mapping[str, "FieldType | str"]
"""Types of columns by name, where the inferred ones will not do; text is in the short form."""


@dataclass(frozen=True, slots=True)
class Inferred:
    """A schema, and what each column was taken for. `sampled_rows` is None unless only the first
    rows of a file decided.
    """

    schema: Schema
    columns: tuple[FoundColumn, ...]
    sampled_rows: int | None = None

    @property
    def remarks(self) -> list[str]:
        """What became of columns whose types people would not expect: a line for each."""
        return [
            f"column {column.name!r} is {column.remark} where it comes from; the table has "
            f"{show_type(self.schema.field_named(column.name).type)}"
            for column in self.columns
            if column.remark
        ]


def infer_schema(
    like: Like,
    row_keys: Sequence[str],
    sort_keys: Sequence[str] = (),
    types: Types | None = None,
    *,
    properties: Mapping[str, object] | None = None,
) -> Inferred:
    """Infer the schema of a table for rows like these; nothing is created.

    `properties` are those of the table to be: they say how CSV files are written.

    Raises:
        NotFoundError: there is no such file.
        InvalidRequestError: a column has no type, or a key cannot be one.
    """
    row_keys = check_list("row_keys", row_keys)
    sort_keys = check_list("sort_keys", sort_keys)
    sampled: int | None = None
    if isinstance(like, str | Path):
        path = Path(like)
        if not path.is_file():
            raise NotFoundError(f"there is no file {str(path)!r}")
        sample = columns_of(path, properties)
        names = {column.name for column in sample.columns}
        columns, of = (*sample.columns, *infer_path_columns(path, names)), "the file"
        sampled = None if sample.is_whole else sample.rows
    else:
        columns, of = tuple(frame_columns(like)), "the frame"
    if changes := changes_in_files(Schema((), is_part=True), _properties(properties)):
        marks = {field.name for field in changes.added}  # they say what becomes of a row
        columns = tuple(
            replace(column, nullable=column.nullable and column.name != changes.by)
            for column in columns
            if column.name not in marks
        )
    return Inferred(choose_schema(columns, row_keys, sort_keys, types, of=of), columns, sampled)


def columns_of(path: Path, properties: Mapping[str, object] | None = None) -> FoundFile:
    """Return the columns of a file; `properties` say how CSV files are written.

    Raises:
        RefusedSourceError: it cannot be read, or has ended two processes that read it.
        InvalidRequestError: it has no columns.
    """
    of_table = _properties(properties)
    skips = of_table.ingest_on_error == "skip"
    with counted_reading(path):
        return infer_file(path, csv_dialect(of_table), skips=skips)


def new_schema(
    schema: Schema | str | pa.Schema | None,
    like: Like | None,
    row_keys: Sequence[str],
    sort_keys: Sequence[str],
    types: Types | None,
    properties: Mapping[str, object] | None,
) -> Schema:
    """Return the schema of a table to be created, from the arguments of `Instance.create_table`.
    Raises InvalidRequestError: not exactly one of `schema` and `like` is given, or it is invalid.
    """
    row_keys = check_list("row_keys", row_keys)
    sort_keys = check_list("sort_keys", sort_keys)
    if isinstance(schema, pa.Schema) and like is None:
        schema, like = None, schema
    if (schema is None) == (like is None):
        raise InvalidRequestError(
            "a new table needs a schema, or something like its rows",
            hint="give either schema=… or like=…",
        )
    if like is not None:
        inferred = infer_schema(like, row_keys, sort_keys, types, properties=properties)
        for remark in inferred.remarks:
            warnings.warn(remark, stacklevel=3)  # of the caller of create_table
        return inferred.schema
    if types or (isinstance(schema, Schema) and (row_keys or sort_keys)):
        raise InvalidRequestError("the schema names the keys and types itself")
    if isinstance(schema, str):
        return parse_schema(schema, row_keys, sort_keys)
    if not isinstance(schema, Schema):
        kind = f"{type(schema).__module__}.{type(schema).__qualname__}".removeprefix("builtins.")
        raise InvalidRequestError(
            f"a schema is a dormouse.Schema, text or a pyarrow.Schema, not {kind}",
            hint='write it as "id:long, name:string?", or give rows like those of the table as '
            "like=…",
        )
    return schema


def check_file(
    path: Path, schema: Schema, properties: Properties, name: str = ""
) -> tuple[int, Rejects]:
    """Read a whole file, of its path or `name`, as rows of a table with this schema and these
    properties; return how many rows it has, and what is left out of it.
    Raises RefusedSourceError: it would be refused, and why.
    """
    rejects, skips = Rejects(path.name), properties.ingest_on_error == "skip"
    with counted_reading(path):
        batches = read_source(
            path,
            name or path.as_posix(),
            schema,
            csv_dialect(properties),
            rejects=rejects if skips else None,
            changes=changes_in_files(schema, properties),
        )
        rows = sum(batch.num_rows for batch in batches)
    rejects.check(rows)
    return rows, rejects


def _properties(settings: Mapping[str, object] | None) -> Properties:
    return properties_of(parse_settings(settings or {}))


_RANDOM = "random"


class KeySample:
    """A reservoir: each row gets a random number, and those with the least numbers are kept."""

    def __init__(self, schema: Schema, most: int, seed: int) -> None:
        """Sample at most `most` rows; the same `seed` gives the same sample of the same rows."""
        self._schema = schema
        self._most = most
        self._seed = seed
        self._kept: pa.Table | None = None
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Sample from the rows of a batch, whose first columns are those of the schema."""
        width = len(self._schema.row_keys)
        numbers = pc.random(batch.num_rows, initializer=(self._seed << 40) + self.rows)
        self.rows += batch.num_rows
        sample = pa.table(
            [*batch.columns[:width], numbers], names=[*map(str, range(width)), _RANDOM]
        )
        self._kept = pa.concat_tables([self._kept, sample]) if self._kept is not None else sample
        if self._kept.num_rows > 2 * self._most:
            self._kept = self._thinned(self._kept)

    def sorted_keys(self) -> list[Key]:
        """Return the sampled keys in order; equal keys may be repeated."""
        if self._kept is None:
            return []
        width = len(self._schema.row_keys)
        keys = self._thinned(self._kept).sort_by([(str(i), "ascending") for i in range(width)])
        return [
            row_key(batch, row, self._schema)
            for batch in keys.to_batches()
            for row in range(batch.num_rows)
        ]

    def _thinned(self, table: pa.Table) -> pa.Table:
        if table.num_rows <= self._most:
            return table
        return table.take(pc.sort_indices(table[_RANDOM]).slice(0, self._most))


SAMPLED_PER_PARTITION = 200
"""With so many, the standard deviation of a partition's rows is about 7 %."""
SAMPLED_AT_LEAST = 20_000
SAMPLED_AT_MOST = 1_000_000
"""A bound for memory; with more than a 200th as many partitions, parts are less equal."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Split points as `create_table` takes them; the number of rows read, of keys in the sample."""

    points: tuple[KeyLike, ...]
    rows: int
    sampled: int


def estimate_splits(
    schema: Schema,
    files: Sequence[str | Path],
    partitions: int,
    *,
    properties: Mapping[str, object] | None = None,
) -> Estimate:
    """Return points that split the rows of files into `partitions` equal parts, or fewer.

    There are fewer if many rows share their keys. The files are of any format that is
    ingested; `properties` of the future table define the CSV dialect. The points come from a
    uniform sample of the keys, which is always the same.

    Raises:
        NotFoundError: there is no such file.
        RefusedSourceError: a file does not fit the schema; the message names it.
        InvalidRequestError: fewer than one partition, or no files.
    """
    if partitions < 1 or not files:
        raise InvalidRequestError("an estimate needs at least one partition and one file")
    most = min(max(SAMPLED_AT_LEAST, SAMPLED_PER_PARTITION * partitions), SAMPLED_AT_MOST)
    sample = KeySample(schema, most, 0)
    of_table = _properties(properties)
    dialect, changes = csv_dialect(of_table), changes_in_files(schema, of_table)
    for path in map(Path, files):
        if not path.is_file():
            raise NotFoundError(f"there is no file {str(path)!r}")
        try:
            with counted_reading(path):
                for batch in read_source(path, path.as_posix(), schema, dialect, changes=changes):
                    sample.add(batch)
        except RefusedSourceError as error:
            raise RefusedSourceError(f"{path}: {error}", hint=error.hint) from error
    keys = sample.sorted_keys()
    points = map(KeyCodec(schema).to_python, even_split_points(keys, partitions))
    return Estimate(tuple(points), sample.rows, len(keys))
