"""Tables as DataFrames: ``spark.read.format("dormouse").option("table", "flights").load()``.

A DataFrame is one version of its table, chosen when it is made: whatever is run on it sees the same
rows. Each leaf partition is a partition of Spark's; executors read shards alone, never the state.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from dormouse.aws.wiring import wire
from dormouse.client.versions import parse_as_of, state_as_of
from dormouse.errors import InvalidRequestError, NotFoundError
from dormouse.model.conditions import Condition
from dormouse.model.keys import KeyRange
from dormouse.model.schema import Primitive, Schema
from dormouse.model.tables import Table
from dormouse.settings import Settings
from dormouse.shards.predicates import Predicate, parse_predicate
from dormouse.shards.querying import query_parts, slices_to_read
from dormouse.shards.ranges import ranges_to_read
from dormouse.shards.reading import Slice
from dormouse.shards.text import parse_key_part
from dormouse.stages.requests.json_keys import key_of_json
from dormouse_spark.access import InstanceReach, Reach
from dormouse_spark.types import spark_schema

OPTIONS = ("instance", "table", "from", "to", "where", "as_of")


def register(spark: SparkSession) -> None:
    """Let a session read the format ``dormouse``."""
    spark.dataSource.register(DormouseSource)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The rows of one version of a table that are asked for, and how they are reached."""

    table: Table
    version: int
    parts: tuple[tuple[Slice, ...], ...]
    where: Condition | None
    now_ms: int
    reach: Reach

    def rows(self, parts: Iterable[tuple[Slice, ...]]) -> Iterator[pa.RecordBatch]:
        """Give the rows of some parts that match, as the table's rules make them."""
        access = self.reach()
        schema = self.table.schema
        result = query_parts(
            access.storage,
            self.table,
            self.version,
            [list(part) for part in parts],
            where=None if self.where is None else Predicate(self.where, schema),
            now_ms=self.now_ms,
            memory_bytes=access.memory_bytes,
        )
        yield from result.reader


class DormouseSource(DataSource):
    """The format ``dormouse``.

    Options: `instance` and `table` name the table. `from`, inclusive, and `to`, exclusive, bound
    the row keys: each the first part of a key, or a JSON list of parts. `where` is a condition in
    SQL, `as_of` a version or a time.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        """Choose the version, and find out what is to be read of it.

        Raises:
            InvalidRequestError: an option is unknown or missing, or does not fit the table.
            NotFoundError: there is no such table, or that version is not kept any more.
        """
        super().__init__(dict(options))
        self.snapshot = _snapshot({name.lower(): value for name, value in options.items()})

    @classmethod
    def name(cls) -> str:
        """Give the name of the format."""
        return "dormouse"

    def schema(self) -> StructType:
        """Give the table's columns."""
        return spark_schema(self.snapshot.table.schema)

    def reader(self, schema: StructType) -> TableReader:
        """Give what reads the rows.

        Raises:
            InvalidRequestError: other columns are asked for than the table has.
        """
        if schema != self.schema():
            raise InvalidRequestError(
                "the columns of a table cannot be chosen by a schema",
                hint="leave it out, and select columns of the DataFrame",
            )
        return TableReader(self.snapshot)


@dataclass
class Leaf(InputPartition):
    """A partition of Spark's: what shards have of a leaf."""

    slices: tuple[Slice, ...]


class TableReader(DataSourceReader):
    """Reads a snapshot, leaf by leaf."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Read what `snapshot` says."""
        self.snapshot = snapshot

    def partitions(self) -> list[InputPartition]:
        """Give one for each leaf with rows; one without any if there is none."""
        return [Leaf(part) for part in self.snapshot.parts] or [Leaf(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the rows of a leaf, in key order."""
        assert isinstance(partition, Leaf)
        yield from self.snapshot.rows([partition.slices] if partition.slices else [])


def _snapshot(options: Mapping[str, str]) -> Snapshot:
    if unknown := sorted(options.keys() - set(OPTIONS)):
        raise InvalidRequestError(
            f"there is no option {unknown[0]!r}", hint=f"there are {', '.join(OPTIONS)}"
        )
    if "table" not in options:
        raise InvalidRequestError("which table is meant is not said", hint="give the option table")
    wiring = wire(Settings.from_environment(instance=options.get("instance")))
    services = wiring.services
    table = services.tables.named(options["table"])
    if table is None or table.deleting:
        raise NotFoundError(f"there is no table {options['table']!r}")
    as_of = parse_as_of(options["as_of"]) if "as_of" in options else None
    state = state_as_of(services.store(table), as_of)
    where = parse_predicate(options["where"], table.schema) if "where" in options else None
    condition = None if where is None else where.condition
    wanted = ranges_to_read(table.schema, [_range(options, table.schema)], condition)
    return Snapshot(
        table=table,
        version=state.version,
        parts=tuple(tuple(part) for part in slices_to_read(state, wanted)),
        where=condition,
        now_ms=services.clock.now_ms(),
        reach=InstanceReach(wiring.settings),
    )


def _range(options: Mapping[str, str], schema: Schema) -> KeyRange:
    ends = {}
    for name in ("from", "to"):
        text = options.get(name, "")
        if text.startswith("["):
            ends[name] = key_of_json(schema, _list(text, name), f"option {name}")
        elif text:
            ends[name] = (parse_key_part(text, Primitive(schema.row_keys[0].type)),)
    return KeyRange(ends.get("from", ()), ends.get("to"))


def _list(text: str, name: str) -> tuple[object, ...]:
    try:
        return tuple(json.loads(text))
    except ValueError as error:
        raise InvalidRequestError(f"option {name}: {text!r} is no JSON list: {error}") from error
