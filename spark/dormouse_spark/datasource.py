"""Tables as DataFrames: ``spark.read.format("dormouse").option("table", "flights").load()``.

A DataFrame is one version of its table, chosen when it is created, so every action on it sees the
same rows. Each leaf partition becomes a Spark partition; executors read shards only, never the
state. From Spark 4.1 on, filters can be pushed down to the source; the options can restrict what is
read with any version.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import SparkSession, datasource
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from dormouse.access import EVERYTHING
from dormouse.arrow.types import conform
from dormouse.errors import InvalidRequestError, NotFoundError
from dormouse.features.versions import read_as_of
from dormouse.key_codec import KeyCodec, parse_part
from dormouse.keys import KeyRange
from dormouse.query.rows import query_slices
from dormouse.query.selection import Selection, select, selected_ranges, slices_to_read
from dormouse.schema.schema import Schema
from dormouse.settings import Settings
from dormouse.shards.reading import Slice
from dormouse.sql.conditions import Condition, parse_condition
from dormouse.state.state import TableState
from dormouse.state.versions import parse_as_of
from dormouse.tables.table import Table
from dormouse_spark.access import AccessFactory, opened
from dormouse_spark.pushdown import push_down
from dormouse_spark.types import spark_arrow_schema, spark_schema

OPTIONS = ("instance", "table", "from", "to", "where", "as_of")
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""The session setting that enables pushdown; without it, Spark
refuses sources that accept filters."""

Parts: TypeAlias = tuple[tuple[Slice, ...], ...]
"""Slices of shards, grouped by ranges of keys, in key order."""


def register(spark: SparkSession, *, push_filters: bool = False) -> None:
    """Let a session read the format ``dormouse``.

    With `push_filters`, the source evaluates filters. Then load a new DataFrame for each query:
    Spark 4.1 to 4.3 also apply the filters of one query to later queries of the same DataFrame that
    push none, so rows would be missing.
    Raises InvalidRequestError: this version of Spark has no filter pushdown for Python sources.
    """
    if push_filters:
        if not hasattr(datasource, "Filter"):
            raise InvalidRequestError(
                "this version of Spark has no filter pushdown for sources written in Python",
                hint="use Spark 4.1 or newer, or the options from, to and where",
            )
        spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(FilteredSource if push_filters else DormouseSource)


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """A selection of rows of a table, and the slices of shards that contain them, leaf by leaf.

    `leaves` has the slices of each leaf with any; `open_access` opens the instance on an executor.
    """

    table: Table
    selection: Selection
    leaves: tuple[Parts, ...]
    open_access: AccessFactory

    def narrowed(self, condition: Condition) -> TableSnapshot:
        """Return the snapshot of the rows for which `condition` is true.

        Requires: it implies the condition of the selection.
        """
        selection = replace(self.selection, condition=condition)
        ranges = selected_ranges(self.table, selection)
        leaves = (_narrowed(leaf, ranges) for leaf in self.leaves)
        return replace(self, selection=selection, leaves=tuple(leaf for leaf in leaves if leaf))

    def rows(self, parts: Parts) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some slices that match, after the table's filters and aggregations."""
        slices = [list(part) for part in parts]
        result = query_slices(self.open_access(), self.table, slices, self.selection)
        schema = spark_arrow_schema(result.schema)
        for batch in result:
            yield conform(batch, schema)


class DormouseSource(DataSource):
    """The format ``dormouse``.

    Options: `instance` and `table` name the table. `from` (inclusive) and `to` (exclusive) bound
    the row keys, then the sort keys: each is the first part of a key, or a JSON list of parts.
    `where` is a condition in SQL, `as_of` a version or a time.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        """Choose the version, and plan what is read of it.

        Raises:
            InvalidRequestError: an option is unknown or missing, or does not fit the table.
            NotFoundError: there is no such table, or the version is not readable any more.
        """
        super().__init__(dict(options))
        self.snapshot = _table_snapshot({name.lower(): value for name, value in options.items()})

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "dormouse"

    def schema(self) -> StructType:
        """Return the columns that are read."""
        return spark_schema(self.snapshot.table.schema.opened, self.snapshot.selection.columns)

    def reader(self, schema: StructType) -> TableReader:
        """Return the reader of the rows.
        Raises InvalidRequestError: a schema was given that differs from the table's.
        """
        if schema != self.schema():
            raise InvalidRequestError(
                "the columns of a table cannot be chosen by a schema",
                hint="leave it out, and select columns of the DataFrame",
            )
        return TableReader(self.snapshot)


class FilteredSource(DormouseSource):
    """The format ``dormouse`` for a session with filter pushdown."""

    def reader(self, schema: StructType) -> TableReader:
        """Return the reader of the rows, which accepts filters."""
        super().reader(schema)
        return FilteredReader(self.snapshot)


@dataclass
class Leaf(InputPartition):
    """A Spark partition: the slices of shards in one leaf."""

    parts: Parts


class TableReader(DataSourceReader):
    """Reads a snapshot, leaf by leaf."""

    def __init__(self, snapshot: TableSnapshot, *, is_sent: bool = False) -> None:
        """Read `snapshot`; a reader that `is_sent` to a task has only
        the leaf that Spark passes to it.
        """
        self.snapshot, self._is_sent = snapshot, is_sent

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the reader without the leaves, which Spark sends to each task separately."""
        return _sent, (type(self), replace(self.snapshot, leaves=()))

    def partitions(self) -> list[InputPartition]:
        """Return one Spark partition for each leaf with rows; one
        empty partition if there is none.
        """
        assert not self._is_sent, "a reader that was sent to a task knows no leaves"
        return [Leaf(leaf) for leaf in self.snapshot.leaves] or [Leaf(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a leaf, in key order."""
        assert isinstance(partition, Leaf)
        yield from self.snapshot.rows(partition.parts)


class FilteredReader(TableReader):
    """Reads the rows of a snapshot that pass the pushed filters."""

    def pushFilters(self, filters: list[object]) -> Iterable[object]:  # noqa: N802  # Spark's name
        """Accept the filters that can be evaluated here; return the others."""
        pushed = push_down(filters, self.snapshot.table.schema, self.snapshot.selection.condition)
        if pushed.condition is not None:
            self.snapshot = self.snapshot.narrowed(pushed.condition)
        return pushed.left


def _sent(kind: type[TableReader], snapshot: TableSnapshot) -> TableReader:
    return kind(snapshot, is_sent=True)


def _table_snapshot(options: Mapping[str, str]) -> TableSnapshot:
    if unknown := sorted(options.keys() - set(OPTIONS)):
        raise InvalidRequestError(
            f"there is no option {unknown[0]!r}", hint=f"there are {', '.join(OPTIONS)}"
        )
    if "table" not in options:
        raise InvalidRequestError(
            "the option table is missing", hint="it is the name of the table to read"
        )
    settings = Settings.from_environment(instance=options.get("instance"))
    with opened(settings) as (services, open_access):
        table = services.tables.named(options["table"])
        if table is None or table.deleting:
            raise NotFoundError(f"there is no table {options['table']!r}")
        as_of = parse_as_of(options["as_of"]) if "as_of" in options else None
        table, state = read_as_of(services, table, as_of)
        now_ms = services.clock.now_ms()
    where = None
    if "where" in options:
        where = parse_condition(options["where"], table.schema, now_ms=now_ms, of_rows=True)
    selection = select(
        table.schema,
        state.version,
        now_ms,
        [_range(options, table.schema)],
        permission=EVERYTHING,  # AWS decides about what this job reads
        condition=where,
    )
    return snapshot_of(table, state, selection, open_access)


def snapshot_of(
    table: Table, state: TableState, selection: Selection, open_access: AccessFactory
) -> TableSnapshot:
    """Return a selection of rows of a state of a table, leaf by leaf."""
    leaves = by_leaf(state, selected_ranges(table, selection))
    return TableSnapshot(table, selection, tuple(leaves), open_access)


def by_leaf(state: TableState, ranges: Sequence[KeyRange]) -> Iterator[Parts]:
    """Yield the slices that disjoint ranges need, leaf by leaf in key order."""

    def leaf(part: Sequence[Slice]) -> str:
        return state.partitions.leaf_containing(part[0].range.low).id

    for _, parts in groupby(slices_to_read(state, ranges), leaf):
        yield tuple(map(tuple, parts))


def _narrowed(leaf: Parts, ranges: Sequence[KeyRange]) -> Parts:
    """Return the slices of a leaf, restricted to disjoint ascending ranges."""
    ends = [span.high for span in ranges if span.high is not None]
    narrow = []
    for part in leaf:
        whole = part[0].range
        for span in ranges[bisect_right(ends, whole.low) :]:
            if whole.high is not None and span.low >= whole.high:
                break
            common = whole.intersection(span)
            slices = [s for s in part if common.overlaps_span(s.shard.low, s.shard.high)]
            if slices and not common.is_empty():
                narrow.append(tuple(replace(each, range=common) for each in slices))
    return tuple(narrow)


def _range(options: Mapping[str, str], schema: Schema) -> KeyRange:
    ends = {}
    for name in ("from", "to"):
        text = options.get(name, "")
        if text.startswith("["):
            ends[name] = KeyCodec(schema).from_json(_list(text, name), f"option {name}")
        elif text:
            ends[name] = (parse_part(text, schema.row_keys[0].type),)
    return KeyRange(ends.get("from", ()), ends.get("to"))


def _list(text: str, name: str) -> tuple[object, ...]:
    try:
        return tuple(json.loads(text))
    except ValueError as error:
        raise InvalidRequestError(f"option {name}: {text!r} is not a JSON list: {error}") from error
