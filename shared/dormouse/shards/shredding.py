"""The columns that a shard has of the values at some paths in its documents."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from dormouse.arrow.documents import kind_of, typed, typed_columns, values_at
from dormouse.arrow.types import Array
from dormouse.schema.schema import MAX_LEAF_COLUMNS, Field, Schema
from dormouse.schema.types import Primitive
from dormouse.shards.footer import MOST_COLUMNS
from dormouse.tables.shredding import MOST_PATHS, ShreddedPath

LOOKED_AT = 1_000
"""By so many documents paths are chosen."""
LEAST_ROWS = 1_000
"""Of shards that begin with fewer rows, nothing would be left out by what a path has."""
LEAST_SHARE = 2
"""A path is chosen if at least one of so many documents has it."""
MOST_PATH = 4
"""The longest path that is chosen."""
REPETITION = 4
"""A path with texts is chosen if each occurs so often on average: others are as long again."""
_CHOSEN = {"number": Primitive.LONG, "string": Primitive.STRING}


class Shredder:
    """Adds these columns to the rows of one shard."""

    def __init__(self, paths: Sequence[ShreddedPath]) -> None:
        """Add the columns of `paths`."""
        by_id = {path.field.id: path for path in paths}  # of two with one id, one is left out
        self._paths = list(by_id.values())
        self.fields: list[Field] = [path.field for path in self._paths]
        self.partial: set[int] = set()
        """The ids of those that lack a number which is no whole number of 64 bits."""

    def added(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with these columns."""
        if not self._paths:
            return batch
        found: dict[int, Array] = {}
        for column in {path.column.name: path.column for path in self._paths}.values():
            of_column = [path for path in self._paths if path.column.id == column.id]
            wanted = [(path.path, path.kind) for path in of_column]
            columns = typed_columns(batch.column(column.name), wanted)
            for path, (values, is_whole) in zip(of_column, columns, strict=True):
                found[path.field.id] = values
                self.partial |= set() if is_whole else {path.field.id}
        schema = batch.schema
        for field in self.fields:
            schema = schema.append(pa.field(field.name, found[field.id].type))
        columns_of_all: list[Any] = [*batch.columns, *(found[f.id] for f in self.fields)]
        return pa.RecordBatch.from_arrays(columns_of_all, schema=schema)


def shredder_for(
    paths: Sequence[ShreddedPath] | None, schema: Schema, first: pa.RecordBatch
) -> Shredder:
    """Return what adds the columns of some paths to a shard that begins with the rows `first`; if
    the paths are None, of those that most documents have.
    """
    if paths is not None:
        names = {field.id for field in schema.fields}
        most = MAX_LEAF_COLUMNS - schema.leaf_columns
        return Shredder([path for path in paths if path.column.id in names][:most])
    documents = [field for field in schema.fields if field.type is Primitive.DYNAMIC]
    if not documents or first.num_rows < LEAST_ROWS:
        return Shredder([])
    most = min(MOST_PATHS, MOST_COLUMNS - schema.leaf_columns)
    chosen: list[ShreddedPath] = []
    for field in documents:
        texts = first.column(field.name).slice(0, LOOKED_AT).to_pylist()
        chosen += _common(field, values_at(texts, [()])[0])
    return Shredder(chosen[: max(0, most)])


def _common(column: Field, documents: Sequence[object]) -> list[ShreddedPath]:
    """Return the paths that most documents have, with values of one kind, the commonest first."""
    counts: Counter[tuple[tuple[str, ...], str]] = Counter()
    texts: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
    for document in documents:
        for path, value in _leaves(document, ()):
            kind = kind_of(value)
            is_long = kind != "number" or typed([value], Primitive.LONG)[0].is_valid
            counts[path, kind if is_long else "fraction"] += 1
            if isinstance(value, str):
                texts[path].add(value)
    of_path: Counter[tuple[str, ...]] = Counter()
    for (path, kind), count in counts.items():
        of_path[path] += count if kind != "null" else 0
    chosen = [
        ShreddedPath(column, path, _CHOSEN[kind])
        for (path, kind), count in sorted(counts.items(), key=lambda each: (-each[1], each[0]))
        if kind in _CHOSEN and count == of_path[path] and count * LEAST_SHARE >= len(documents)
    ]
    return [
        each
        for each in chosen
        if len(texts[tuple(map(str, each.path))]) * REPETITION <= len(documents)
    ]


def _leaves(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    if isinstance(value, dict):
        if len(path) < MOST_PATH:
            for name, part in value.items():
                yield from _leaves(part, (*path, name))
    elif path and not isinstance(value, list):
        yield path, value
