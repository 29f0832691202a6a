"""One table as a client sees it: query, count, ingest, status, wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from msgspec import structs

from dormouse.client.operating.status import Status
from dormouse.client.reading.querying import QueriedTable
from dormouse.client.reading.versions import table_as_of
from dormouse.client.waiting import (
    WAIT_SECONDS,
    WORKING_QUEUES,
    Named,
    Watch,
    source_names,
)
from dormouse.errors import InvalidRequestError
from dormouse.key_forms.python import KeyLike, Ranges
from dormouse.messages.requests import AlterSchema
from dormouse.model.versions.as_of import AsOf
from dormouse.ports.services import JobRecord
from dormouse.schema.schema import Field
from dormouse.showing import Listing
from dormouse.tables.spark_options import SparkOptions
from dormouse.tables.table import Table

if TYPE_CHECKING:
    from dormouse.client.ingesting.dropping import Ingested, Ingestible
    from dormouse.client.ingesting.writer import TableWriter
    from dormouse.client.operating.purging import Purge
    from dormouse.client.reading.exporting import Export
    from dormouse.features.checking.check import CheckReport, Progress
    from dormouse.features.purge.proof import Proof
    from dormouse.features.rebuild.rebuild import RebuildReport
    from dormouse.model.jobs.metrics import Metric
    from dormouse.model.sources import Source


FILE_BYTES = 128 * 1024 * 1024
"""The size in memory of the rows of one file of a writer; compressed, it is a fraction of that."""


@dataclass(frozen=True, slots=True, repr=False)
class TableHandle(QueriedTable):
    """A table of an instance."""

    def alter(
        self,
        *,
        add: Iterable[Field] = (),
        drop: Iterable[str] = (),
        rename: Mapping[str, str] | None = None,
        units: Mapping[str, str] | None = None,
    ) -> TableHandle:
        """Add columns to the table, drop some, rename some; return the table as it is then.

        Added columns can be null, and are in the rows there are. A dropped column is gone with its
        values: one of the same name that is added later, or at once, has none of them. `rename` has
        the new names by the old ones; `units` say what numbers in files count. Files that are not
        ingested yet are judged by the schema there is when they are ingested.

        Raises:
            NotFoundError: the table was deleted.
            InvalidRequestError: a change cannot be honoured; then nothing is changed.
        """
        from dormouse.features.administration.administer import administer

        request = AlterSchema(
            self.services.ids.new(),
            self.current().name,
            tuple(field.to_json() for field in add),
            tuple(drop),
            dict(rename or {}),
            dict(units or {}),
        )
        self.queues.send(administer(self.services, request))
        return replace(self, table=self.current())

    def ingest(
        self,
        what: Ingestible,
        name: str | None = None,
        *,
        again: bool = False,
        idempotency_key: str | None = None,
        wait: bool | None = None,
        watch: Callable[[Source], None] | None = None,
    ) -> Ingested:
        """Drop a frame, files, or the files of folders into the ingest bucket, in the table's
        folder.

        A frame is whatever speaks Arrow: of pandas, Polars, DuckDB, pyarrow, nanoarrow. It is
        checked here, and becomes rows as a whole, in one commit. `name` is what a single file, or
        the file of a frame, is called there. The call ends when all is uploaded; `Ingested.wait`
        ends when it is rows of the table. With `wait` the call waits for that too; in a folder,
        where this process does the work, it does so unless `wait` is false.

        A file that the table has ingested adds nothing, however long ago that was, if it has the
        same name and content. With `again` it does: it is dropped in a folder of its own. A frame
        that is ingested a second time with the same `idempotency_key` adds nothing.

        Raises:
            NotFoundError: there is no such file; then nothing was uploaded.
            InvalidRequestError: a name or an argument does not do; nothing was uploaded.
            RefusedSourceError: the frame does not fit the table; nothing was uploaded. Or, with
                `wait`, a file was refused; the others are ingested.
        """
        dropped = self._drop(what, name, again, idempotency_key, watch)
        if self.polling.works_here if wait is None else wait:
            dropped.wait(timeout_seconds=inf)
        return dropped

    def _drop(
        self,
        what: Ingestible,
        name: str | None,
        again: bool,
        idempotency_key: str | None,
        watch: Callable[[Source], None] | None,
    ) -> Ingested:
        from dormouse.client.ingesting.dropping import (
            drop_files,
            files_to_drop,
            ingest_key,
            paths_of,
        )
        from dormouse.client.ingesting.frames import ingest_frame
        from dormouse.sources.frames import is_frame

        if is_frame(what):
            return ingest_frame(
                self, what, name, again=again, idempotency_key=idempotency_key, watch=watch
            )
        if idempotency_key is not None:
            raise InvalidRequestError(
                "files need no idempotency key: a file of one name and content is ingested once"
            )
        files = files_to_drop(self.name, paths_of(what))
        if name is not None:
            if len(files) != 1:
                raise InvalidRequestError("a name can be given to a single file only")
            files = [(ingest_key(self.name, name), files[0][1])]
        return drop_files(self, files, again, watch)

    def writer(
        self, *, file_bytes: int = FILE_BYTES, idempotency_key: str | None = None
    ) -> TableWriter:
        """Return a writer of single rows: ``with table.writer() as w: w.write({"id": 42})``.

        It drops a file whenever the rows that were written take `file_bytes` of memory. With an
        `idempotency_key`, a writer that is given the same rows again adds nothing.

        Raises:
            InvalidRequestError: no idempotency key is like this.
        """
        from dormouse.client.ingesting.writer import TableWriter

        return TableWriter(self, file_bytes=file_bytes, idempotency_key=idempotency_key)

    def export(
        self,
        ranges: Ranges | None = None,
        *,
        to: str = "",
        exact: KeyLike | list[KeyLike] | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        as_of: AsOf | None = None,
        spark: SparkOptions | None = None,
    ) -> Export:
        """Export the rows that `query` returns to Parquet files in the results bucket.

        The files are written below the prefix `to`, which must be empty; by default it is the
        table's name and the export's id. `Export.wait` returns when all are complete. With `spark`,
        Spark writes them; else the table's properties decide.

        Raises:
            InvalidRequestError: as `query`, or `to` is not a valid prefix.
            NotFoundError: the table was deleted, or that version is not kept any more.
            AlreadyExistsError: there are objects below `to`.
        """
        from dormouse.client.reading.exporting import export_request, start_export

        table = self.current()
        request = export_request(
            self, table, ranges, exact, where=where, columns=columns, as_of=as_of
        )
        return start_export(self, table, structs.replace(request, to=to, spark=spark))

    def status(self) -> Status:
        """Return the table in numbers."""
        table = self.current()
        own, files_waiting = self._pending(table)
        pending = own + sum(self.queues.depths(WORKING_QUEUES).values())
        _, state = table_as_of(self.services, table, None)
        return Status(
            rows=state.rows,
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

        Raises:
            NotFoundError: the table was deleted.
        """
        from dormouse.features.sweep.measure import current_metrics

        return current_metrics(self.services, self.current())

    def wait(self, timeout_seconds: float = WAIT_SECONDS, *, watch: Watch | None = None) -> None:
        """Wait until nothing is pending, for this table or in the working queues.

        Raises:
            TimedOutError: work was still pending after `timeout_seconds`.
            DeadLetterError: only a dead letter is left of some work.
        """
        self.polling.until_nothing(
            lambda: self.status().pending,
            timeout_seconds=timeout_seconds,
            looks=2,
            watch=watch,
            awaited=self.polling.awaited(self, self.pending_names),
        )

    def pending_names(self) -> Iterator[Named]:
        """Yield how messages name the table's own pending work: its files and jobs."""
        from dormouse.client.ingesting.waiting_files import files_that_wait

        known, files = files_that_wait(self.services, self.current())
        yield from source_names(files)
        yield from ((job_id,) for job_id in known.state.jobs)

    def pending(self) -> int:
        """Return the table's own pending work: files neither ingested nor refused, and jobs.

        A job that Spark has done is pending until `track_spark` knows it, and sends what follows.
        """
        return self._pending(self.current())[0]

    def _pending(self, table: Table) -> tuple[int, int]:
        """Return the pending work of the table, and how much of it is files that wait."""
        from dormouse.client.ingesting.waiting_files import files_that_wait
        from dormouse.features.spark.requests import count_incomplete

        known, files = files_that_wait(self.services, table)
        left = len(known.state.jobs) + len(files)
        return left or count_incomplete(self.services, self.table.id), len(files)

    def check(self, watch: Progress | None = None, *, all_bytes: bool = False) -> CheckReport:
        """Verify that the table's state is consistent and matches its shards; change nothing.

        With `all_bytes`, every byte of the shards is verified by checksum; else only their footers
        are read. `watch` is called with the number of shards done, and of all.

        Raises:
            NotFoundError: the table was deleted.
        """
        from dormouse.features.checking.check import check

        return check(self.services, self.current(), watch, all_bytes=all_bytes)

    def rebuild(self, *, dry_run: bool = False, watch: Progress | None = None) -> RebuildReport:
        """Rebuild the table's state from the footers of its shards; `dry_run` changes nothing.

        Use it when the state is lost or damaged: the new state replaces what is left of it.

        Raises:
            NotFoundError: the table was deleted.
            CorruptDataError: shards contradict each other or cannot be read; the message names
                them. Nothing was changed.
        """
        from dormouse.features.rebuild.rebuild import preview_rebuild, rebuild

        table = self.current()
        if dry_run:
            return preview_rebuild(self.services, table, watch)
        result, messages = rebuild(self.services, table, watch)
        self.queues.send(messages)
        return result

    def purge(
        self,
        where: str = "",
        keys: Sequence[KeyLike] = (),
        *,
        spark: SparkOptions | None = None,
        release_tags: bool = False,
    ) -> Purge:
        """Remove all rows that match a condition or begin with a key, from every object.

        `Purge.wait` returns when none is left in the table; `Purge.proof` shows which objects
        still hold any. With `spark`, Spark rewrites the shards that hold such rows.

        Raises:
            InvalidRequestError: not exactly one of both is given, or it does not fit the table; or
                tags hold versions with such rows, and are not to be released.
            NotFoundError: the table was deleted.
        """
        from dormouse.client.operating.purging import start_purge

        return start_purge(self, self.current(), where, keys, spark, release_tags)

    def prove_purge(
        self, where: str = "", keys: Sequence[KeyLike] = (), *, watch: Progress | None = None
    ) -> Proof:
        """Look for rows that match, in the table and in every object.

        `watch` is called with the number of objects done, and of all.

        Raises:
            InvalidRequestError: as `purge`.
            NotFoundError: the table was deleted.
        """
        from dormouse.client.operating.purging import proof_of

        return proof_of(self, self.current(), where, keys, watch)

    def jobs(self) -> Listing[JobRecord]:
        """Return the table's jobs, those that wait to be run, files that wait, and files dropped
        before it was there.

        Records of what has begun live for seven days.
        """
        from dormouse.client.operating.jobs import jobs_of

        return jobs_of(self.services, self.current())
