"""One table as a client sees it: query, ingest, versions, status, repair."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import inf
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from msgspec import structs

from dormouse.client import waiting
from dormouse.client.versions import (
    RowQuery,
    Tag,
    Version,
    as_of_to_json,
    tag_of,
    tags_of,
    versions_of,
)
from dormouse.client.waiting import IngestBucket, Polling, Queues
from dormouse.errors import NotFoundError
from dormouse.features.requests import list_jobs
from dormouse.features.versions import read_as_of, tagged
from dormouse.jobs import Progress
from dormouse.key_codec import KeyCodec, KeyLike, Keys, KeyValue, Ranges
from dormouse.messages import requests, stages
from dormouse.ports import Services
from dormouse.schema.row_tags import NO_TAGS
from dormouse.schema.schema import CHANGE, Field, Schema, check_fields, check_list
from dormouse.schema.types import FieldType
from dormouse.showing import HtmlText, Listing, Shown, show_table
from dormouse.state.jobs import JobRecord, Metric
from dormouse.state.sources import Source
from dormouse.state.state import TableState
from dormouse.state.versions import AsOf
from dormouse.stored.decoding import check_types
from dormouse.stored.paths import PURGES, SPARK_JOBS
from dormouse.tables.encryption import subject_of
from dormouse.tables.properties import SparkOptions
from dormouse.tables.table import Table

if TYPE_CHECKING:
    from dormouse.client.contents import RowTags, TableFile, TablePartition, TableShard
    from dormouse.client.iceberg import IcebergTable
    from dormouse.client.ingesting import Ingested, Ingestible, TableWriter
    from dormouse.client.origins import RowOrigin
    from dormouse.client.requested import Export, Purge
    from dormouse.features.checking import CheckReport
    from dormouse.features.purge import Proof
    from dormouse.features.rebuild import RebuildReport
    from dormouse.files.frames import Frame
    from dormouse.query.result import QueryResult


_T = TypeVar("_T")

FILE_BYTES = 128 * 1024 * 1024
"""The size in memory of the rows of one file of a writer; compressed, it is a fraction of that."""


@dataclass(frozen=True, slots=True, repr=False)
class TableHandle(Shown):
    """A table of an instance, as it was when it was opened, and the services to reach it."""

    table: Table
    services: Services
    queues: Queues
    bucket: IngestBucket
    polling: Polling

    @property
    def name(self) -> str:
        """The table's name."""
        return self.table.name

    @property
    def schema(self) -> Schema:
        """The table's schema."""
        return self.table.schema.opened

    def state(self) -> TableState:
        """Return the table's newest state. Raises NotFoundError: the table was deleted."""
        return read_as_of(self.services, self.current(), None)[1]

    def current(self) -> Table:
        """Return the table as the registry has it now: its state may be in another log since.
        Raises NotFoundError: the table was deleted.
        """
        table = self.services.table(self.table.id)
        if table is None:
            raise NotFoundError(f"table {self.name!r} was deleted")
        return table

    def latest(self) -> TableHandle:
        """Return the table as `current` has it, to be reached in the same way. Raises as that."""
        return replace(self, table=self.current())

    def query(
        self,
        ranges: Ranges | None = None,
        *,
        exact: Keys | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        as_of: AsOf | None = None,
        run: Literal["here", "remote"] = "here",
        timeout_seconds: float = waiting.WAIT_SECONDS,
    ) -> QueryResult:
        """Return the rows, sorted by the keys, streamed, of one version of the table.

        The result is a stream of Arrow batches: iterate over it, read it whole by its `read_all`,
        or hand it to a library that reads Arrow streams.

        Args:
            ranges: pairs of keys or prefixes, the first inclusive, the second exclusive, None for
                an open end; a row is returned if it is in any of them.
            exact: a key or prefix whose rows are wanted, or a list of these. Without `ranges` and
                `exact`, every row is returned.
            where: a condition in SQL on any columns, which must also be true of a row.
            columns: the columns to return; by default all.
            limit: the largest number of rows to return.
            as_of: the version, the tag, or the time at which the table is read; by default the
                newest version.
            run: ``"remote"`` sends a message, and the instance reads the rows: so this process
                needs no right to read the data bucket, and little memory and network.
            timeout_seconds: how long a remote query may take; the call waits for its end, and
                cancels it when it is interrupted.

        Raises:
            InvalidRequestError: a key, column or condition does not fit the schema.
            NotFoundError: that version is not kept any more, is yet to come, or has rows of an
                earlier schema.
            TimedOutError: a remote query took longer than `timeout_seconds`.
        """
        if run != "here":
            from dormouse.client.queries import check_run

            check_run(run)
            rows = RowQuery(ranges, exact, where, columns, limit, as_of)
            return self._ask(rows.message(self.schema), timeout_seconds)
        from dormouse.query.rows import query_rows
        from dormouse.query.selection import selected_ranges

        now_ms = self.services.clock.now_ms()
        rows = RowQuery(_listed(ranges), _listed(exact), where, _listed(columns), limit)
        table, state = read_as_of(
            self.services,
            self.current(),
            as_of,
            ranges_of=lambda known: selected_ranges(known, rows.select(known, 0, now_ms)),
        )
        selection = rows.select(table, state.version, now_ms)
        return query_rows(self.services, table, state, selection).for_programs()

    def count(
        self,
        ranges: Ranges | None = None,
        *,
        exact: Keys | None = None,
        where: str | None = None,
        as_of: AsOf | None = None,
    ) -> int:
        """Count the rows that `query` would return, reading as few of them as possible."""
        return self._count(self.current(), RowQuery(ranges, exact, where, as_of=as_of))

    def count_under(self, filters: str | None = None, aggregations: str | None = None) -> int:
        """Count the rows that the table would show if it had other filters or aggregations.
        Raises InvalidRequestError: they are no rules for rows of this schema.
        """
        table = self.current()
        texts = ("filters", filters), ("aggregations", aggregations)
        rules = {name: text for name, text in texts if text is not None}
        table = replace(table, properties=structs.replace(table.properties, **rules))
        return self._count(table, RowQuery())

    def _count(self, table: Table, rows: RowQuery) -> int:
        from dormouse.query.rows import count_rows

        _, state = read_as_of(self.services, table, rows.as_of)
        selection = rows.select(table, state.version, self.services.clock.now_ms())
        return count_rows(self.services, table, state, selection)

    def _ask(self, selection: stages.SelectionMessage, timeout_seconds: float) -> QueryResult:
        from dormouse.client.queries import ask

        # Parquet has all types of tables, and checksums
        query_id = self.services.ids.new()
        message = stages.AnswerQuery(query_id=query_id, table=self.name, selection=selection)
        query = ask(self.services, self.queues, self.polling, message, timeout_seconds)
        return query.answer(timeout_seconds).for_programs()

    def export(
        self,
        ranges: Ranges | None = None,
        *,
        to: str = "",
        exact: Keys | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        as_of: AsOf | None = None,
        spark: SparkOptions | None = None,
        skip_damaged: bool = False,
    ) -> Export:
        """Export the rows that `query` returns to Parquet files in the results bucket.

        The files are written below the prefix `to`, which must be empty; by default it is the
        table's name and the export's id. `Export.wait` returns when all are complete. With `spark`,
        Spark writes them; else the table's properties decide.

        An export ends with an error if a shard is lost or damaged. With `skip_damaged`, every shard
        is verified first, and those are left out whole: `Manifest.skipped` has each of them, with
        its rows, its least and greatest key, and what is wrong with it.

        Raises:
            InvalidRequestError: as `query`, or `to` is not a valid prefix.
            NotFoundError: the table was deleted, or that version is not kept any more.
            AlreadyExistsError: there are objects below `to`.
        """
        from dormouse.client.requested import Export
        from dormouse.features.export import destination, export_id_of

        table, request_id = self.current(), self.services.ids.new()
        rows = RowQuery(ranges, exact, where, columns, as_of=as_of).message(table.schema)
        request = requests.ExportRows(request_id, table.name, to, rows, spark, skip_damaged)
        waiting.carry_out(self, request)
        return Export(self, table, export_id_of(request_id), destination(request))

    def ingest(
        self,
        what: Ingestible,
        name: str | None = None,
        *,
        again: bool = False,
        idempotency_key: str | None = None,
        on_error: Literal["refuse", "skip"] | None = None,
        tags: Mapping[str, str] = NO_TAGS,
        wait: bool | None = None,
        watch: Callable[[Source], None] | None = None,
    ) -> Ingested:
        """Drop a frame, files, or the files of folders into the ingest bucket, in the table's
        folder.

        A frame is whatever speaks Arrow: of pandas, Polars, DuckDB, pyarrow, nanoarrow. It is
        checked here, and becomes rows as a whole, in one commit: in a folder, without a file there
        if the call waits. `name` is what a single file, or
        the file of a frame, is called there. The call ends when all is uploaded; `Ingested.wait`
        ends when it is rows of the table. Files are also named by URLs, such as
        ``s3://other/a.csv``, which are copied here first. With `wait` the call waits for that
        too; in a folder, where this process does the work, it does so unless `wait` is false.

        A file that the table has ingested adds nothing, however long ago that was, if it has the
        same name and content. With `again` it does: it is dropped in a folder of its own. A frame
        that is ingested a second time with the same `idempotency_key` adds nothing while the table
        has the first one, and `Ingested.known` then names it; after a restore or a reset that took
        its rows away, the frame is added again.

        A CSV or JSON file with rows that cannot be read is refused, or with ``on_error="skip"``
        ingested without these, which are then in a file that `jobs` names; by default the property
        `ingest_on_error` of the table decides. It is the same file either way.

        All rows get the row `tags`, up to 16 keys with values, which stay with them: conditions ask
        for them by ``tag('key')``. The same file with other tags is another one.

        Raises:
            NotFoundError: there is no such file; then nothing was uploaded.
            InvalidRequestError: a name or an argument does not do; nothing was uploaded.
            RefusedSourceError: the frame does not fit the table; nothing was uploaded. Or, with
                `wait`, a file was refused; the others are ingested.
        """
        from dormouse.client.ingesting import Drop

        waits = self.polling.works_here if wait is None else wait
        at_once = waits and self.polling.works_here
        handle = self.latest()  # its folder has the table's newest name
        drop = Drop(handle, again, idempotency_key, on_error, tags, at_once, watch)
        files = drop.ingest(what, name)
        if waits:
            files.wait(timeout_seconds=inf)
        return files

    def writer(
        self,
        *,
        file_bytes: int = FILE_BYTES,
        idempotency_key: str | None = None,
        tags: Mapping[str, str] = NO_TAGS,
    ) -> TableWriter:
        """Return a writer of single rows: ``with table.writer() as w: w.write({"id": 42})``.

        It drops a file whenever the rows that were written take `file_bytes` of memory. With an
        `idempotency_key`, a writer that is given the same rows again adds nothing. All rows get the
        row `tags`, as those of `ingest`.
        Raises InvalidRequestError: no idempotency key is like this, or no row tags are.
        """
        from dormouse.client.ingesting import TableWriter

        return TableWriter(self, file_bytes=file_bytes, idempotency_key=idempotency_key, tags=tags)

    def alter(
        self,
        *,
        add: Iterable[Field] = (),
        drop: Iterable[str] = (),
        rename: Mapping[str, str] | None = None,
        units: Mapping[str, str] | None = None,
        types: Mapping[str, FieldType | str] | None = None,
    ) -> TableHandle:
        """Add columns to the table, drop some, rename some, give some wider types; return the table
        as it is then.

        Added columns can be null, and are in the rows there are. A dropped column is gone with its
        values: one of the same name that is added later, or at once, has none of them. `rename` has
        the new names by the old ones, `types` the new types: int becomes long, float double, a
        decimal one of more digits and the same scale, a timestamp one of nanoseconds. All of this
        goes for members of structs, too, which are named by their column, a dot and their name,
        within lists as `points.element.x`, within maps as `points.value.x`: an added field can be
        called so, and `rename={"payload.a": "b"}` and `types={"payload.n": "long"}`. `units` say
        what numbers in files count. Files that are not ingested yet are judged by the schema there
        is when they are ingested.

        Raises:
            NotFoundError: the table was deleted.
            InvalidRequestError: a change cannot be honoured; then nothing is changed.
        """
        dropped = tuple(check_list("drop", drop))
        fields = check_fields("add", add)
        wider = {p: t if isinstance(t, str) else t.to_json() for p, t in (types or {}).items()}
        waiting.administer(
            self,
            requests.AlterSchema,
            self.current().name,
            tuple(field.to_json() for field in fields),
            dropped,
            dict(rename or {}),
            dict(units or {}),
            wider,
        )
        return self.latest()

    def status(self) -> waiting.Status:
        """Return the table in numbers."""
        table = self.current()
        own, files_waiting = self._pending(table)
        pending = own + sum(self.queues.depths(waiting.WORKING_QUEUES).values())
        _, state = read_as_of(self.services, table, None)
        return waiting.Status(
            rows=state.rows,
            size_bytes=state.size_bytes,
            shards=len(state.shards) - len(state.unreferenced),
            references=state.reference_count,
            partitions=len(state.partitions),
            leaf_partitions=sum(1 for _ in state.partitions.leaves()),
            version=state.version,
            files_waiting=files_waiting,
            pending=pending,
        )

    def metrics(self) -> dict[Metric, float]:
        """Return the metrics that the table publishes every minute, as they are now.
        Raises NotFoundError: the table was deleted.
        """
        from dormouse.features.measure import current_metrics

        return current_metrics(self.services, self.current())

    def partitions(
        self, *, everything: bool = False, as_of: AsOf | None = None
    ) -> Listing[TablePartition]:
        """Return the leaf partitions in key order, and split ones that still hold rows.

        With `everything`, all split ones are listed, too. Raises as `query` with `as_of`.
        """
        from dormouse.client.contents import partitions_of

        table, state = read_as_of(self.services, self.current(), as_of)
        return partitions_of(table.schema, state, everything=everything)

    def shards(self, *, as_of: AsOf | None = None) -> Listing[TableShard]:
        """Return the shards with rows that count, by their first key. Raises as `query`."""
        from dormouse.client.contents import shards_of

        table, state = read_as_of(self.services, self.current(), as_of)
        return shards_of(table.schema, state)

    def why(self, key: KeyLike, *, as_of: AsOf | None = None) -> list[RowOrigin]:
        """Return where each row of a key comes from: its file and line, its commit, the shard that
        holds it, and those that this was merged from.

        The file and the commit are known of rows that were ingested with the property
        `row_origin=on`; of others, the files that may have them. Raises as `query`.
        """
        from dormouse.client.origins import why

        return why(self, key, as_of)

    def row_tags(self, *, as_of: AsOf | None = None) -> list[RowTags]:
        """Return which row tags rows of the table have, and how many rows have just these. Raises
        as `query`.

        Rows are read of shards whose rows differ in them, or do not all count.
        """
        from dormouse.client.contents import RowTags
        from dormouse.query.rows import count_by_tags
        from dormouse.schema.row_tags import tags_of

        table, state = read_as_of(self.services, self.current(), as_of)
        counts = count_by_tags(self.services, table, state, self.services.clock.now_ms())
        return [RowTags(tags_of(text), rows) for text, rows in sorted(counts.items())]

    def files(self, *, as_of: AsOf | None = None) -> Listing[TableFile]:
        """Return the table's Parquet files, by their first key, as URIs. Raises as `query`.

        They are there for as long as the version is kept.
        """
        from dormouse.client.contents import files_of

        table, state = read_as_of(self.services, self.current(), as_of)
        return files_of(self.services.storage, table.id, table.schema, state)

    def jobs(self) -> Listing[JobRecord]:
        """Return the table's jobs, those that wait to be run, files that wait, and files dropped
        before it was there.

        Records of what has begun live for seven days.
        """
        from dormouse.client.contents import jobs_of

        return jobs_of(self.services, self.current())

    def wait(
        self, timeout_seconds: float = waiting.WAIT_SECONDS, *, watch: waiting.Watch | None = None
    ) -> None:
        """Wait until nothing is pending, for this table or in the working queues.

        Raises:
            TimedOutError: work was still pending after `timeout_seconds`.
            DeadLetterError: only a dead letter is left of some work.
        """
        self.polling.until_nothing(
            lambda: self.pending() + sum(self.queues.depths(waiting.WORKING_QUEUES).values()),
            timeout_seconds=timeout_seconds,
            looks=2,
            watch=watch,
            awaited=self.polling.awaited(self, self.pending_names),
        )

    def pending(self) -> int:
        """Return the table's own pending work: files neither ingested nor refused, jobs, purges.

        A job that Spark has done is pending until `track_spark` knows it, and sends what follows.
        """
        return self._pending(self.current())[0]

    def pending_names(self) -> Iterator[waiting.Named]:
        """Yield how messages name the table's own pending work: its files, jobs and purges."""
        from dormouse.client.contents import files_that_wait

        lookup, files = files_that_wait(self.services, self.current())
        yield from waiting.source_names(files)
        yield from ((job_id,) for job_id in dict.fromkeys([*lookup.state.jobs, *self._requested()]))

    def _pending(self, table: Table) -> tuple[int, int]:
        """Return the pending work of the table, and how much of it is files that wait."""
        from dormouse.client.contents import files_that_wait

        lookup, files = files_that_wait(self.services, table)
        count = len(lookup.state.jobs) + len(files)
        return count or len(self._requested()), len(files)

    def _requested(self) -> list[str]:
        """Return the ids of requests that have not ended: of Spark's jobs, and of purges, whose
        steps wait for each other, and remove rows until the last.
        """
        prefixes = (SPARK_JOBS.prefix(self.table.id), PURGES.prefix(self.table.id))
        return [id_ for each in prefixes for id_ in list_jobs(self.services.storage, each)[0]]

    def versions(self) -> Listing[Version]:
        """Return the versions that can be read, the newest first, each with its tags.

        Raises:
            NotFoundError: the table was deleted.
            CorruptDataError: a tag is damaged.
        """
        return versions_of(self.services, self.current())

    def changes(
        self,
        since: AsOf,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
        deleted: bool = False,
        before: bool = False,
    ) -> QueryResult:
        """Return the rows that were ingested after a version, given by number, tag or time, and not
        deleted since.

        With `deleted`, a first column `_change` is ``insert`` for these rows, and rows of that
        version that were deleted since follow, with ``delete``; the version must be readable. A
        second one, `_version`, has the version with which a row came; of those that are gone, the
        last one that may have taken them.

        They are read from the shards as ingest wrote them, in no particular order: rows that
        compactions rewrote come once, and the table's filters and aggregations are not applied
        again. The result's version is the one to ask for the next changes since.

        Of a table that keeps the latest rows, these are the rows that differ in both versions:
        `_change` is ``update`` for those that were there; with `before` as well, what these were
        comes too, as ``before``. The version must be readable, unless it is 0.

        Raises:
            InvalidRequestError: it is neither a version nor a tag nor a time with a zone; or a
                column or the condition does not fit the schema.
            NotFoundError: the version is yet to come, or its changes are not kept any more; or the
                table was reset, restored or rebuilt since, or deleted.
        """
        from dormouse.client.changes import WantedChanges, changes_of

        request = WantedChanges(columns, where, limit, deleted or before, before)
        return changes_of(self.services, self.current(), since, request)

    def tag(self, version: AsOf, name: str, *, move: bool = False) -> Tag:
        """Name a version, by its number, another tag or a time; it is kept until `untag`. With
        `move`, the name may be that of another version: so it is a place in the changes that is
        kept.

        Raises:
            InvalidRequestError: it cannot be the name of a tag.
            AlreadyExistsError: the table has such a tag, of another version, and it is not to move.
            NotFoundError: the version is not kept any more, or is yet to come.
            ContendedError: it took too long; nothing is tagged.
        """
        table = self.current()
        _, state = read_as_of(self.services, table, version)
        waiting.administer(self, requests.TagVersion, table.name, state.version, name, move)
        return tag_of(tagged(self.services, table, name))

    def untag(self, name: str) -> None:
        """Remove a tag; what only its version needs is deleted in time.
        Raises NotFoundError: the table has no such tag, or was deleted.
        """
        waiting.administer(self, requests.UntagVersion, self.current().name, name)

    def tags(self) -> Listing[Tag]:
        """Return the tags of the table, by version. Raises CorruptDataError if one is damaged."""
        return tags_of(self.services, self.current())

    def restore(self, version: AsOf) -> int:
        """Make an earlier version the newest, by its number, a tag or a time; return the number of
        the newest version then.

        All rows and partitions are those of that version. Jobs are released, and files that were
        ingested since can be ingested again. What was newest before can be restored in turn for as
        long as it is kept.

        Raises:
            InvalidRequestError: it is neither a version nor a tag nor a time, or is the newest.
            NotFoundError: the version is not kept, or a shard of it is gone; or the table was
                deleted.
            ContendedError: the table was reset meanwhile; try again.
            CorruptDataError: what the version needs is damaged.
        """
        name, as_of = self.current().name, as_of_to_json(version)
        waiting.administer(self, requests.RestoreVersion, name, as_of)
        return self.services.store(self.current()).current().version

    @property
    def iceberg(self) -> IcebergTable:
        """What the table publishes for readers of Iceberg."""
        from dormouse.client.iceberg import IcebergTable

        return IcebergTable(self)

    def check(self, watch: Progress | None = None, *, all_bytes: bool = False) -> CheckReport:
        """Verify that the table's state is consistent and matches its shards; change nothing.

        With `all_bytes`, every byte of the shards is verified by checksum; else only their footers
        are read. `watch` is called with the number of shards done, and of all.
        Raises NotFoundError: the table was deleted.
        """
        from dormouse.features.checking import check

        return check(self.services, self.current(), watch, all_bytes=all_bytes)

    def rebuild(self, *, dry_run: bool = False, watch: Progress | None = None) -> RebuildReport:
        """Rebuild the table's state from the footers of its shards; `dry_run` changes nothing.

        Use it when the state is lost or damaged: the new state replaces what is left of it.

        Raises:
            NotFoundError: the table was deleted.
            CorruptDataError: shards contradict each other or cannot be read; the message names
                them. Nothing was changed.
        """
        from dormouse.features.rebuild import preview_rebuild, rebuild

        table = self.current()
        if dry_run:
            return preview_rebuild(self.services, table, watch)
        result, messages = rebuild(self.services, table, watch)
        self.queues.send(messages)
        return result

    def delete(self, where: str = "", keys: Keys | Frame | None = None) -> int:
        """Delete all rows that match a condition or begin with a key; return the first version
        without them. `keys` is one key or prefix, or a list, as `exact` of a query; a frame of keys
        has the columns of row keys.

        They are hidden from all readers at once. Rows that come later are not affected, and earlier
        versions keep them. Compactions leave them out of what they write: `purge` removes rows from
        every object.

        A table that keeps the latest rows takes a frame of any length, as one file of rows that
        delete: it also needs the sort keys and the column `latest_by`, if the table has these.

        Raises:
            InvalidRequestError: not exactly one of both is given, or it does not fit the table; or
                too many deletions are not applied to all shards yet.
            RefusedSourceError: the frame does not fit the table.
            NotFoundError: the table was deleted.
        """
        from dormouse.files.frames import frame_reader, is_frame

        name = self.current().name
        if is_frame(keys):
            rows = frame_reader(keys).read_all()
            if self.current().properties.keep == "latest" and not where:
                self.ingest(rows.append_column(CHANGE.name, [["delete"] * len(rows)])).wait()
                return self.services.store(self.current()).current().version
            keys = rows.to_pylist()
        selection = self._selected(where, cast("Keys | None", keys))
        waiting.administer(self, requests.DeleteRows, name, selection)
        return self.services.store(self.current()).current().version

    def purge(
        self,
        where: str = "",
        keys: Keys | None = None,
        *,
        spark: SparkOptions | None = None,
        release_tags: bool = False,
    ) -> Purge:
        """Remove all rows that match a condition or begin with a key, from every object. Rows that
        come later are not affected.

        `Purge.wait` returns when none of them is left in the table; `Purge.proof` shows which
        objects still hold any. With `spark`, Spark rewrites the shards that hold such rows.

        Raises:
            InvalidRequestError: not exactly one of both is given, or it does not fit the table; or
                tags hold versions with such rows, and are not to be released.
            NotFoundError: the table was deleted.
        """
        from dormouse.client.requested import Purge
        from dormouse.features.purge import build_purge_request

        table, selection = self.current(), self._selected(where, keys)
        request = requests.PurgeRows(
            self.services.ids.new(), table.name, selection, release_tags, spark
        )
        waiting.carry_out(self, request)
        rows = build_purge_request(table, request)
        return Purge(self, table, rows.id, rows)

    def prove_purge(
        self, where: str = "", keys: Keys | None = None, *, watch: Progress | None = None
    ) -> Proof:
        """Look for rows that match, in the table and in every object.

        `watch` is called with the number of objects done, and of all.

        Raises:
            InvalidRequestError: as `purge`.
            NotFoundError: the table was deleted.
        """
        from dormouse.features.purge import build_purge_request
        from dormouse.features.purge_rows import prove_purge

        table, selection = self.current(), self._selected(where, keys)
        request = check_types(requests.PurgeRows(self.services.ids.new(), table.name, selection))
        return prove_purge(self.services, table, build_purge_request(table, request), watch)

    def forget(self, subjects: Sequence[KeyValue]) -> int:
        """Forget the keys of subjects, values of the `subject_column`: what their rows have in
        encrypted columns is null from then on, in all versions and copies. Return how many had a
        key until then; now none has. Processes that have read a key use it for up to a minute.

        Raises:
            InvalidRequestError: the table has no keys of subjects, or one is no value of them.
            NotFoundError: the table was deleted.
        """
        from dormouse.features.administration import administer
        from dormouse.key_codec import part_from_python, part_to_json

        table = self.current()
        column = subject_of(table.schema)
        values = check_list("subjects", subjects)
        parts = tuple(part_to_json(part_from_python(each, column), column) for each in values)
        request_id = self.services.ids.new()
        request = requests.ForgetSubjects(request_id, table.name, parts, reply=True)
        (answer,) = administer(self.services, request, once=True)
        assert isinstance(answer.message, requests.Reply), "it is answered at once"
        return answer.message.counts.keys

    def _selected(self, where: str, keys: Keys | None) -> stages.SelectionMessage:
        return stages.SelectionMessage(keys=KeyCodec(self.schema).keys_to_json(keys), where=where)

    def _shown(self) -> tuple[str, HtmlText]:
        """Show the keys in one line, or all columns in a notebook; the instance is not asked."""
        keys = [f"row keys {', '.join(field.name for field in self.schema.row_keys)}"]
        if self.schema.sort_keys:
            keys.append(f"sort keys {', '.join(field.name for field in self.schema.sort_keys)}")
        columns = f"{len(self.schema.fields):,} columns"
        title = f"table {self.name!r} ({'; '.join([*keys, columns])})"
        described = self.table.schema.described()
        return title, show_table(title, ("column", "type", "role"), described)[1]


def _listed(values: _T) -> _T | list[Any]:
    """Return what can be gone through more than once."""
    return list(values) if isinstance(values, Iterator) else values


def listed_jobs(records: Iterable[JobRecord]) -> Listing[JobRecord]:
    """Return records as a list that shows itself."""
    columns = ("state", "kind", "subject", "rows", "seconds", "attempts", "reason")
    return Listing(records, "jobs", columns)


def listed_tables(tables: Iterable[TableHandle]) -> Listing[TableHandle]:
    """Return tables as a list that shows itself."""

    def row(handle: TableHandle) -> Sequence[object]:
        created = datetime.fromtimestamp(handle.table.created_ms // 1000, UTC)
        made = created.isoformat(sep=" ", timespec="minutes").removesuffix("+00:00")
        keys = ", ".join(field.name for field in handle.schema.row_keys)
        return handle.name, keys, len(handle.schema.fields), made

    return Listing(tables, "tables", ("name", "row keys", "columns", "created"), row)
