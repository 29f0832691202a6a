"""A table as readers of Iceberg find it: where its metadata is, and how each engine reads that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dormouse.client.waiting import administer
from dormouse.messages.requests import PublishIceberg
from dormouse.showing import HtmlText, Listing, Shown, show_facts
from dormouse.state.versions import iso_time
from dormouse.stored.paths import iceberg_prefix
from dormouse.tables.table import is_mirrored, published_name

if TYPE_CHECKING:
    from dormouse.client.table import TableHandle
    from dormouse.features.publishing import PublishedFile
    from dormouse.iceberg.views import View


@dataclass(frozen=True, slots=True, repr=False)
class PublishedTable(Shown):
    """What is published of a table. `metadata` is the URI that engines open, and `folder` that of
    all that is published; `versions` are those that readers can ask for, the newest last.

    `stored_name` is the name of the table in catalogs. A table with row rules also has `view`
    there, under its own name; `no_view` says why it has none. `has_glue` says whether it is to have
    an entry in Glue, and `in_glue` its name there; empty if that is not there, or behind.

    `lag_seconds` is for how long a change of the table has waited to be published. `quick_shards`
    is the number of shards that were written before the table was published: until compactions have
    rewritten them, Spark with Iceberg before 1.11 reads the table slowly.
    """

    name: str
    metadata: str
    folder: str
    version: int
    versions: tuple[int, ...]
    rows: int
    files: int
    dead_rows: int
    format_version: int
    published_ms: int
    lag_seconds: float
    quick_shards: int
    has_glue: bool
    in_glue: str
    stored_name: str
    view: View | None
    no_view: str

    @property
    def in_catalogs(self) -> Mapping[str, str]:
        """What a table with row rules is in catalogs, and any table in Glue, in words."""
        glue = {"table in Glue": self.in_glue or "not yet, or behind"} if self.has_glue else {}
        if self.stored_name == self.name:
            return glue
        queries = self.view.sql if self.view else {}
        return glue | {
            f"table {self.stored_name}": "the stored rows, before filters and aggregations",
            f"view {self.name}": self.no_view or "the rows, in Spark and Trino by a REST catalog",
            **{f"query of the view, {dialect}": sql for dialect, sql in queries.items()},
        }

    @property
    def engines(self) -> Mapping[str, str]:
        """For each engine, a line that reads this metadata."""
        return engine_lines(self.stored_name, self.metadata, self.folder)

    @property
    def facts(self) -> dict[str, object]:
        """All this by what people call it, with the lines of `engines`."""
        return {
            "metadata": self.metadata,
            "version": self.version,
            "published": iso_time(self.published_ms),
            "behind, seconds": round(self.lag_seconds),
            "rows": self.rows,
            "files": self.files,
            "dead rows in them": self.dead_rows,
            "shards to rewrite for old Spark": self.quick_shards,
            "versions": f"{len(self.versions)}, from {self.versions[0]} on",
            "format": self.format_version,
            **self.in_catalogs,
            **self.engines,
        }

    def _shown(self) -> tuple[str, HtmlText]:
        return show_facts(f"table {self.name!r}, as published", self.facts)


@dataclass(frozen=True, slots=True)
class IcebergTable:
    """What a table publishes for readers of Iceberg, with the property `iceberg` set to ``on``."""

    handle: TableHandle

    def show(self) -> PublishedTable:
        """Return what readers find now.

        Raises:
            InvalidRequestError: the table is not published.
            NotFoundError: it is not published yet, or was deleted.
            CorruptDataError: what is published is damaged.
        """
        from dormouse.features.measure import lag_ms
        from dormouse.features.publishing import published_record
        from dormouse.iceberg.liveness import quick_shards
        from dormouse.iceberg.metadata import MetadataFile, Totals
        from dormouse.iceberg.views import view_of, why_no_view
        from dormouse.storage import FILE_SCHEME

        services, table = self.handle.services, self.handle.current()
        record = published_record(services, table)
        file = MetadataFile.read(record.metadata, services.storage.get)
        state, totals = services.store(table).current(), Totals.of(file.current)
        root = file.root.removeprefix(FILE_SCHEME)
        return PublishedTable(
            table.name,
            f"{root}/{file.path}",
            f"{root}/{iceberg_prefix(table.id)}".rstrip("/"),
            file.versions[-1],
            file.versions,
            totals.live_rows,
            totals.files,
            totals.dead_rows,
            file.metadata["format-version"],
            record.checkpoints[-1].published_ms,
            lag_ms(services, table, state) / 1000,
            len(quick_shards(state)),
            is_mirrored(table.properties),
            record.mirror if record.mirrored == record.metadata else "",
            published_name(table),
            view_of(table),
            why_no_view(table),
        )

    def publish(self, *, everything: bool = False) -> None:
        """Ask for what is new to be published at once; with `everything`, for all to be published
        again, as if nothing were.

        Raises:
            InvalidRequestError: the table is not published.
            NotFoundError: the table was deleted.
        """
        administer(self.handle, PublishIceberg, self.handle.current().name, everything)

    def check(self) -> list[str]:
        """Return what of the published objects is lost or damaged; nothing if all is there.
        Raises: as `show`.
        """
        from dormouse.features.publishing import problems

        return list(problems(self.handle.services, self.handle.current()))

    def files(self) -> Listing[PublishedFile]:
        """Return the files that readers of the newest published version open. Raises as `show`."""
        from dormouse.features.publishing import published_files

        files = published_files(self.handle.services, self.handle.current())
        return Listing(files, "files", ("uri", "holds"), lambda each: (each.uri, holds(each)))


def holds(file: PublishedFile) -> str:
    """Return what a published file holds, in words."""
    if file.is_deletes:
        return "dead rows"
    return "rows, which old Spark reads slowly" if file.is_quick else "rows"


def engine_lines(name: str, metadata: str, folder: str) -> dict[str, str]:
    """Return, for each engine, a line that reads published metadata, or makes a table of it."""
    file = metadata.removeprefix(f"{folder}/")
    bare = "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
    clickhouse = "icebergS3" if folder.startswith("s3://") else "icebergLocal"
    return {
        "PyIceberg": f'StaticTable.from_metadata("{metadata}").scan().to_arrow()',
        "DuckDB": f"SELECT * FROM iceberg_scan('{metadata}')",
        "Polars": f'polars.scan_iceberg("{metadata}").collect()',
        "ClickHouse": f"SELECT * FROM {clickhouse}('{folder}', "
        f"SETTINGS iceberg_metadata_file_path = '{file}')",
        "Spark": f'spark.read.format("iceberg").load("{metadata}")',
        "Trino": f"CALL CATALOG.system.register_table(schema_name => 'SCHEMA', "
        f"table_name => '{bare}', table_location => '{folder}', "
        f"metadata_file_name => '{file.rpartition('/')[2]}')",
    }
