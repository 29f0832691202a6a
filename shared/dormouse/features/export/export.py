"""An export of one version of a table: its selection, its tasks, and the files they wrote.

All that the tasks need is fixed when the export begins: the schema, the row rules, and which shards
hold the rows. So all tasks read the same rows, whatever changes in the table meanwhile; a pin of
the version keeps those shards (`export.pins`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from msgspec import UNSET, UnsetType

from dormouse.model.jobs.job_events import TrackedJob
from dormouse.query.selection import Selection
from dormouse.query.selection_codec import StoredSelection, load_selection, store_selection
from dormouse.schema.schema import Schema
from dormouse.stored.decoding import raise_corrupt
from dormouse.stored.json_objects import decode_stored, encode_stored
from dormouse.tables.properties import properties_of
from dormouse.tables.spark_options import SparkOptions
from dormouse.tables.table import Table


@dataclass(frozen=True, slots=True)
class Export:
    """Which rows are exported, and where to.

    `to` is the prefix in the results bucket. `selection` says which rows and columns of which
    version are read. `cut` is the id of the task files: if several deliveries plan tasks at
    once, the export that is saved first names the files that are used. `tasks` is their number, and
    `size_bytes` about how much of shards they read. If `spark` has options, one Spark job sized for
    `size_bytes` runs all tasks; otherwise functions do. With `skip_damaged`, rows of shards that
    are lost or damaged are left out, and the manifest names these shards.
    """

    id: str
    to: str
    table_id: str
    table_name: str
    schema: Schema
    selection: Selection
    filters: str = ""
    aggregations: str = ""
    cut: str = ""
    tasks: int = 0
    size_bytes: int = 0
    spark: SparkOptions | None = None
    skip_damaged: bool = False

    @property
    def tracked_job(self) -> TrackedJob:
        """Its job in the tracker."""
        return TrackedJob(self.table_id, self.id, "export")

    @property
    def table(self) -> Table:
        """The table when the export began, with the properties that reading its rows needs."""
        rules = {"filters": self.filters, "aggregations": self.aggregations}
        properties = properties_of({}, rules)
        return Table(self.table_id, self.table_name, self.schema, properties)


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """A file of an export; `name` is relative to the export's prefix."""

    name: str
    rows: int
    size_bytes: int


class SkippedShard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A shard of which an export left out all rows, because it is lost or damaged: the path of its
    object in the data root, how many rows it had, and their least and greatest row key as JSON.
    Rows are counted that were not selected, too, and those that are dead.
    """

    shard: str
    rows: int
    min_key: tuple[object, ...]
    max_key: tuple[object, ...]
    reason: str


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON form of an export."""

    id: str
    to: str
    table_id: str
    table_name: str
    selection: StoredSelection
    filters: str
    aggregations: str
    cut: str
    tasks: int
    size_bytes: int | UnsetType = UNSET
    spark: SparkOptions | UnsetType = UNSET
    skip_damaged: bool | UnsetType = UNSET


class _StoredFiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    files: tuple[ExportedFile, ...]
    skipped: tuple[SkippedShard, ...] | UnsetType = UNSET


FORMAT = 1
TASK = "a task of an export"
"""The kind of the stored objects that have the pieces of tasks."""
_EXPORT, _FILES = "an export", "the files of a task of an export"
_ASK_AGAIN = (
    "request the export again, and delete the object <table id>/exports/<export id>.json; the "
    "sweep deletes its other objects"
)
_ENDED = "the export has failed: request it again"


def encode_export(export: Export, path: str) -> bytes:
    """Return the stored form of an export, for `path`."""
    body = _Stored(
        export.id,
        export.to,
        export.table_id,
        export.table_name,
        store_selection(export.selection, export.schema),
        export.filters,
        export.aggregations,
        export.cut,
        export.tasks,
        export.size_bytes or UNSET,
        export.spark or UNSET,
        export.skip_damaged or UNSET,
    )
    return encode_stored(_EXPORT, FORMAT, path, body)


def decode_export(stored: bytes, path: str) -> Export:
    """Parse the result of `encode_export`.

    Raises:
        CorruptDataError: the object at `path` is damaged or is no export.
    """
    with raise_corrupt(f"{path} is no export", hint=_ASK_AGAIN):
        body = decode_stored(_EXPORT, FORMAT, path, stored, _Stored)
        schema, selection = load_selection(body.selection)
        return Export(
            body.id,
            body.to,
            body.table_id,
            body.table_name,
            schema,
            selection,
            body.filters,
            body.aggregations,
            body.cut,
            body.tasks,
            body.size_bytes or 0,
            body.spark or None,
            bool(body.skip_damaged),
        )


def encode_files(
    files: Sequence[ExportedFile], path: str, skipped: Sequence[SkippedShard] = ()
) -> bytes:
    """Return the stored form of the list of files of a finished task, for `path`, and of the shards
    that it left out.
    """
    body = _StoredFiles(tuple(files), tuple(skipped) or UNSET)
    return encode_stored(_FILES, FORMAT, path, body)


def decode_files(
    stored: bytes, path: str
) -> tuple[tuple[ExportedFile, ...], tuple[SkippedShard, ...]]:
    """Parse the result of `encode_files`.

    Raises:
        CorruptDataError: the object at `path` is damaged or is no list of files.
    """
    with raise_corrupt(f"{path} names no files of an export", hint=_ENDED):
        body = decode_stored(_FILES, FORMAT, path, stored, _StoredFiles)
        return body.files, body.skipped or ()
