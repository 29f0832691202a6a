"""One deployment as a client sees it: its tables, queries in SQL, maintenance, access rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from msgspec import UNSET

from dormouse import access, errors
from dormouse.client import operations, waiting
from dormouse.client.table import TableHandle, listed_jobs, listed_tables
from dormouse.client.versions import (
    is_delete,
    named_parameters,
    named_table,
    open_table,
    version_result,
)
from dormouse.client.waiting import administer, carry_out
from dormouse.features.deletion import Unregistered, list_unregistered
from dormouse.key_codec import KeyCodec, KeyLike
from dormouse.messages import requests, stages
from dormouse.ports import NO_TABLE, Services
from dormouse.schema.row_tags import NO_TAGS, row_tags
from dormouse.schema.schema import Schema, check_list
from dormouse.settings import Settings, folder_hint
from dormouse.showing import HtmlText, Listing, Shown
from dormouse.state.jobs import JobRecord
from dormouse.statements.limits import MEMORY_BYTES, TIMEOUT_SECONDS, Limits
from dormouse.stored.decoding import check_types
from dormouse.tables.properties import SparkOptions
from dormouse.tables.table import Table

if TYPE_CHECKING:
    import pyarrow as pa

    from dormouse.client.computing import ComputingProcess
    from dormouse.client.inferring import Like, Types
    from dormouse.client.ingesting import Ingested
    from dormouse.client.queries import AskedQuery
    from dormouse.client.requested import ExportedStatement
    from dormouse.features.copying import CopyReport
    from dormouse.folder.wiring import OpenFolder
    from dormouse.http.loopback import LoopbackServer
    from dormouse.jobs import Progress
    from dormouse.messages.stages import ResultFormat
    from dormouse.query.result import QueryResult
    from dormouse.tables.declaring import DeclaredChange


@dataclass(frozen=True, slots=True, repr=False)
class Instance(Shown):
    """An instance: in a folder or on AWS, opened by its methods, or built over given services."""

    services: Services
    queues: waiting.Queues
    bucket: waiting.IngestBucket
    polling: waiting.Polling
    ages: waiting.QueueAges = lambda queues, now_ms: {}
    spark_application: waiting.SparkApplication = lambda: None
    folder: OpenFolder | None = None
    result_link: waiting.ResultLink = lambda path, seconds: ""
    computing: ComputingProcess | None = None

    @staticmethod
    def open(folder: str | Path, *, background: bool = True, create: bool = True) -> Instance:
        """Open the instance in a folder; `create` one in a folder that is empty or not there.

        Work is done by this process: `TableHandle.ingest` returns when the rows can be queried, and
        a thread in the background splits, compacts and collects while the process lives. Close the
        instance, or use it in a ``with`` statement, to end that before. Without `background` there
        is no such thread: the process works while it waits for something.

        Raises:
            InvalidRequestError: it is no folder of an instance and cannot become one; or another
                release of Dormouse uses it.
            NotFoundError: there is no instance, and none is to be created.
            CorruptDataError: its SQLite file is damaged, or of another format.
        """
        from dormouse.client.in_folder import open_instance

        return open_instance(Path(folder), background=background, create=create)

    @staticmethod
    def connect(
        name: str | None = None, *, background: bool = True, create: bool = True
    ) -> Instance:
        """Connect to the instance of this name, or of the name in ``DORMOUSE_INSTANCE``.

        A path, such as ``./mice``, or a ``file:`` URL is the folder of an instance. A name is that
        of a profile in the configuration file, or else of a deployment on AWS: its account is
        ``DORMOUSE_ACCOUNT``, or else that of the credentials; credentials and region are found as
        every AWS client finds them. `background` and `create` are those of `open`.

        Raises:
            InvalidRequestError: no name is given, or another setting is invalid.
            NotFoundError: there is no instance in the folder, and none is to be created.
            UnavailableError: there are no credentials, or AWS does not answer.
            MissingPackageError: it is a deployment, and what the extra `aws` installs is missing.
        """
        settings = Settings.from_environment(instance=name)
        if settings.folder is not None:
            return Instance.open(settings.folder, background=background, create=create)
        try:
            from dormouse.client.deployment import connect_deployment  # nothing else needs AWS
        except errors.MissingPackageError as error:
            hint = f"{folder_hint(settings.instance)}; else {error.hint}"
            raise errors.MissingPackageError(str(error), hint=hint) from error
        return connect_deployment(settings)

    def close(self) -> None:
        """End what this process does in the background for an instance in a folder."""
        if self.folder is not None:
            self.folder.worker.leaving.leave()
        if self.computing is not None:  # the background may wait for it
            self.computing.end()
        if self.folder is not None:
            self.folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def serve_catalog(self, port: int = 0) -> LoopbackServer:
        """Serve the published tables as an Iceberg REST catalog, to engines on this machine.

        The server, which is returned, answers at ``http://127.0.0.1:PORT/iceberg`` until it is
        closed, or a ``with`` statement ends; port 0 takes a free one.
        Raises InvalidRequestError: the port cannot be used.
        """
        from dormouse.features.catalog import serve_catalog
        from dormouse.http.loopback import LoopbackServer

        return LoopbackServer(partial(serve_catalog, self.services), port)

    def tables(self) -> Listing[TableHandle]:
        """Return all tables that can be read, by name; `list_readable` has the damaged ones too."""
        return listed_tables(self.list_readable()[0])

    def list_readable(self) -> tuple[list[TableHandle], list[errors.DamagedEntryError]]:
        """Return all tables that can be read, by name, and what of the registry is damaged.

        A damaged entry does not affect other tables; `repair` restores it.
        """
        tables, damaged = self.services.tables.list_readable()
        return [self.handle_of(table) for table in tables if not table.deleting], damaged

    def table(self, name: str) -> TableHandle:
        """Return one table.
        Raises NotFoundError: no table has that name; the hint names the nearest.
        """
        return self.handle_of(named_table(self.services, name))

    def create_table(
        self,
        name: str,
        schema: Schema | str | pa.Schema | None = None,
        properties: Mapping[str, object] | None = None,
        split_points: Iterable[KeyLike] = (),
        *,
        like: Like | None = None,
        row_keys: Sequence[str] = (),
        sort_keys: Sequence[str] = (),
        types: Types | None = None,
    ) -> TableHandle:
        """Create a table whose leaf partitions meet at `split_points`.

        The schema is given, also as text (``"id:long, name:string?"``) or of Arrow, or inferred
        from `like`: a frame, an Arrow schema or a file. `row_keys` and `sort_keys` name the keys,
        if it is not a `Schema`, which names them itself; `types` are those of columns for which
        the inferred type will not do.

        Raises:
            AlreadyExistsError: there is a table of that name.
            InvalidRequestError: the name, the schema, a property or a split point is invalid, or
                no schema can be inferred.
        """
        fields = schema
        if not isinstance(fields, Schema) or like is not None or row_keys or sort_keys or types:
            from dormouse.client.inferring import new_schema

            settings = self.settings_of(properties)
            fields = new_schema(schema, like, row_keys, sort_keys, types, settings)
        points = KeyCodec(fields).split_points_to_json(split_points)
        body = fields.to_json()
        administer(self, requests.CreateTable, name, body, dict(properties or {}), points)
        return self.table(name)

    def rename_table(self, name: str, new_name: str) -> TableHandle:
        """Rename a table; files are dropped for it under the new name from then on.

        Raises:
            NotFoundError: no table has that name.
            AlreadyExistsError: another table has the new name.
            InvalidRequestError: no table can have the new name.
        """
        administer(self, requests.RenameTable, name, new_name)
        return self.table(new_name)

    def copy_table(
        self, source: TableHandle, name: str = "", *, watch: Progress | None = None
    ) -> CopyReport:
        """Copy the newest version of a table, of any instance, into this one, by default under the
        same name.

        The source stays as it is. The copy becomes visible when all of it is there. A call that was
        interrupted is continued by the next one. What the table has ingested stays ingested in the
        copy.

        Raises:
            AlreadyExistsError: there is a table of that name, other than this very copy.
            NotFoundError: the source was deleted.
            CorruptDataError: a shard of the source is damaged or lost.
            InvalidRequestError: no table can have that name; or shards of the source are disputed.
            ContendedError: another process has copied it meanwhile.
        """
        from dormouse.features.copying import copy_table

        bucket, name = source.bucket.name, name or source.name
        table = source.current()
        report, messages = copy_table(source.services, table, bucket, self.services, name, watch)
        self.queues.send(messages)
        return report

    def delete_table(self, name: str, *, release_tags: bool = False) -> None:
        """Delete a table with all its rows. Files dropped for it stay in the ingest bucket.

        Raises:
            NotFoundError: no table has that name.
            InvalidRequestError: it has tags, and they are not to be released.
        """
        administer(self, requests.DeleteTable, name, release_tags)

    def reinitialise_table(
        self,
        name: str,
        split_points: Iterable[KeyLike] = (),
        *,
        delete_partitions: bool = False,
        schema: Schema | None = None,
        release_tags: bool = False,
    ) -> TableHandle:
        """Empty a table, and keep its partitions.

        With `split_points` the new leaf partitions meet at these instead; with
        `delete_partitions` there is a single one. A `schema` replaces that of the table; its
        columns get new ids. Files ingested before are forgotten: they can be ingested again, and
        are not by themselves. Tags, and the rows that they hold, stay unless `release_tags` is set.

        Raises:
            NotFoundError: no table has that name.
            InvalidRequestError: a split point is invalid; or the schema does not fit the
                partitions that are kept, or the table's properties.
        """
        fields = schema or self.table(name).schema
        points = KeyCodec(fields).split_points_to_json(split_points)
        body = UNSET if schema is None else schema.to_json()
        kind = requests.ReinitialiseTable
        administer(self, kind, name, delete_partitions, points, body, release_tags)
        return self.table(name)

    def set_properties(
        self,
        name: str,
        properties: Mapping[str, object] | None = None,
        unset: Iterable[str] = (),
        *,
        hide_rows: bool = False,
    ) -> TableHandle:
        """Set properties of a table, and unset others, which then come from the instance.

        Raises:
            NotFoundError: no table has that name.
            InvalidRequestError: an unknown property, a bad value, or one that never changes. Or,
                without `hide_rows`, other filters or aggregations would hide rows that the table
                has, which compactions then delete; the error says how many.
        """
        unset = tuple(unset)
        if not hide_rows:
            self.check_hidden(name, {**dict.fromkeys(unset), **(properties or {})})
        administer(self, requests.SetProperties, name, dict(properties or {}), unset)
        return self.table(name)

    def check_hidden(self, name: str, changes: Mapping[str, object]) -> None:
        """Check that changed properties hide no rows of a table; one that is None is unset.
        Raises HiddenRowsError: they do; the message says how many.
        """
        if "filters" in changes or "aggregations" in changes:
            from dormouse.client.contents import check_hidden

            defaults = self.defaults()
            rules = {r: defaults.get(r) if v is None else v for r, v in changes.items()}
            check_hidden(self.table(name), rules)

    def defaults(self) -> dict[str, int | str]:
        """Return the properties set for the instance, which are the defaults of its tables."""
        return self.services.tables.defaults()

    def settings_of(self, properties: Mapping[str, object] | None) -> dict[str, object]:
        """Return the settings of a new table with these properties: also what it has by default."""
        return {**self.defaults(), **(properties or {})}

    def set_defaults(
        self,
        properties: Mapping[str, object] | None = None,
        unset: Iterable[str] = (),
        *,
        hide_rows: bool = False,
    ) -> dict[str, int | str]:
        """Set properties of the instance, unset others, and return those that are set then.
        Raises InvalidRequestError: an unknown property, a bad value, or one that a table cannot
        have. Or, without `hide_rows`, they would hide rows, as `set_properties` has it.
        """
        settings = properties or {}
        if not hide_rows and ("filters" in settings or "aggregations" in settings):
            from dormouse.client.contents import check_hidden

            for table in self.tables():
                own = table.table.own
                check_hidden(table, {r: v for r, v in settings.items() if r not in own})
        administer(self, requests.SetDefaults, dict(settings), tuple(unset))
        return self.defaults()

    def plan_declared(self, body: object) -> list[DeclaredChange]:
        """Return the changes that make tables as declared; change nothing.

        `body` is ``{"tables": [{"name": …, "schema": …, "properties": …, "online": …, "splits": …},
        …]}``. For a table that exists, everything but the name is optional.
        Raises InvalidRequestError: it is malformed, or adding and changing is not enough to meet
        it.
        """
        declared = operations.parse_declarations(body, self.services)
        return operations.plan_declared(self.services, declared)

    def apply(self, change: DeclaredChange, *, hide_rows: bool = False) -> None:
        """Apply one of the changes that `plan_declared` returned.
        Raises InvalidRequestError: the table has changed since, and the change does not fit it. Or
        it would hide rows, as `set_properties` has it.
        """
        if change.schema is None and not hide_rows:
            self.check_hidden(change.name, change.properties)
        for request in operations.requests_of(change, self.services):
            carry_out(self, request)

    def set_online(self, name: str, online: bool) -> None:
        """Put a table online, or take it offline: it ingests then, but is not compacted or split.
        Raises NotFoundError: no table has that name.
        """
        administer(self, requests.SetOnline, name, online)

    def sql(
        self,
        text: str,
        parameters: Sequence[object] | Mapping[str, object] | None = (),
        *,
        memory_bytes: int = MEMORY_BYTES,
        timeout_seconds: float = TIMEOUT_SECONDS,
        read_bytes: int | None = None,
        principal: str | None = None,
        run: Literal["here", "remote"] = "here",
        spark: SparkOptions | None = None,
    ) -> QueryResult:
        """Return the rows of a query in SQL over tables of this instance, streamed.

        DuckDB computes them, in this process; it reaches nothing else than those tables. A DELETE
        deletes rows (`TableHandle.delete`), and returns the first version without them.

        Args:
            text: SELECT, WITH, VALUES, or a set operation on these; EXPLAIN before it asks what
                would be read. Names of tables are case-sensitive. ``FROM flights FOR VERSION AS OF
                33`` reads a version, ``'a-tag'`` in place of the number a tag, and
                ``'2026-01-31T12:00:00Z'`` what was there at a time.
            parameters: the values of ``$1``, ``$2`` and so on, or by name those of ``:name``.
            memory_bytes: what sorting, grouping and joining may use before they spill to disk;
                statements of this process at the same time share it.
            timeout_seconds: how long the caller waits for rows, in all.
            read_bytes: how much of the shards it may read, by an estimate before it begins; by
                default any amount.
            principal: who asks, if this process reads for others, as `dormouse.access` names
                callers: the access rules say which tables and columns there are. By default this
                process asks for itself, and AWS decides.
            run: ``"remote"`` sends the statement as a message, and the instance computes it, within
                limits of its own instead of `memory_bytes`; its parameters are texts, numbers,
                booleans and None. The call waits for the end of the query.
            spark: let the Spark of the instance compute it, on a cluster of these options, for what
                is too large for one process: a statement in Spark's dialect, with ``:name`` for
                parameters, sent as with ``"remote"``. Versions are ``flights VERSION AS OF 33``.

        Raises:
            InvalidRequestError: it is no query, or does not fit the tables.
            NotFoundError: there is no such table, or that version of it is not kept any more.
            LimitExceededError: it took too long or too much memory; here, or while rows are read.
            TimedOutError: a remote query took longer than `timeout_seconds`.
        """
        if is_delete(text):
            return self._delete(text, parameters or principal is not None or spark or run != "here")
        if run != "here" or spark is not None:
            if principal is not None:
                raise errors.InvalidRequestError(
                    "a remote query is asked by the sender of its message, so `who` cannot be given"
                )
            query = self._ask(text, parameters, timeout_seconds, run, spark=spark)
            return query.answer(timeout_seconds)
        limits = Limits(memory_bytes, timeout_seconds, read_bytes)
        return self._query(text, parameters, limits, principal)

    def _query(
        self,
        text: str,
        parameters: Sequence[object] | Mapping[str, object] | None,
        limits: Limits,
        principal: str | None = None,
    ) -> QueryResult:
        """Return the rows of a query, computed here."""
        with errors.needs_extra("sql", "a statement in SQL"):
            from dormouse.statements.running import run_statement
            from dormouse.statements.tables import SqlTables
        services = self.services
        lookup, now_ms = partial(open_table, services, principal), services.clock.now_ms()
        tables = SqlTables(services, lookup, now_ms)
        return run_statement(tables, text, named_parameters(parameters), services.scratch, limits)

    def _delete(self, text: str, others: object) -> QueryResult:
        """Delete rows by a statement; `others` are arguments of `sql` that it does not take."""
        from dormouse.features.delete_rows import parse_delete

        name, where = parse_delete(text)
        if others:
            raise errors.InvalidRequestError(
                "a DELETE runs here, for this process, and takes no parameters",
                hint="TableHandle.delete takes keys as values, POST /tables/{table}/delete too",
            )
        return version_result(self.table(name).delete(where))

    def export_sql(
        self,
        text: str,
        parameters: Sequence[object] | Mapping[str, object] | None = (),
        *,
        to: str = "",
        form: str = "parquet",
        memory_bytes: int = MEMORY_BYTES,
        timeout_seconds: float = TIMEOUT_SECONDS,
        spark: SparkOptions | None = None,
    ) -> ExportedStatement:
        """Write the rows of a query in SQL to files in the results bucket, with a manifest.

        This process runs the query and uploads the files; they are complete when the manifest is
        there, which is when this returns. The prefix `to` must be empty; by default it is new.
        `form` is parquet, arrow, feather, csv or json. Other arguments are as for `sql`. With
        `spark`, Spark writes the files, below ``queries/``; `to` is empty then.

        Raises:
            InvalidRequestError: as `sql`, or there is no such format, or `to` is no prefix.
            NotFoundError: as `sql`.
            AlreadyExistsError: there are objects below `to`.
            ForbiddenError: it reads encrypted columns, which files would have in plain.
            LimitExceededError: as `sql`; then there is no manifest.
        """
        from dormouse.client.requested import export_result, exported, free_prefix
        from dormouse.encryption import FILES

        prefix, row_format = free_prefix(self.services, to, form)
        if spark is not None:
            if to:
                raise errors.InvalidRequestError(
                    "Spark writes below queries/: `to` has to be empty"
                )
            query = self._ask(text, parameters, timeout_seconds, spark=spark, form=row_format.value)
            return exported(query.uri, text, query.ended(timeout_seconds))
        limits = Limits(memory_bytes, timeout_seconds, None)
        to_files = replace(self, services=replace(self.services, keys=FILES))
        result = to_files._query(text, parameters, limits)
        return export_result(self.services, text, result, prefix, row_format)

    def _ask(
        self,
        text: str,
        parameters: Sequence[object] | Mapping[str, object] | None,
        timeout_seconds: float,
        run: str = "remote",
        *,
        spark: SparkOptions | None,
        form: ResultFormat = "arrow",
    ) -> AskedQuery:
        from dormouse.client.queries import ask, check_run, message_parameters

        check_run(run)
        message = stages.AnswerQuery(
            query_id=self.services.ids.new(),
            sql=text,
            parameters=message_parameters(named_parameters(parameters)),
            format=form,
            spark=spark or UNSET,
        )
        return ask(self.services, self.queues, self.polling, message, timeout_seconds)

    def queries(self) -> Listing[JobRecord]:
        """Return the records of queries over messages, the newest first; they live for a week."""
        from dormouse.client.queries import listed_queries

        return listed_queries(self.services)

    def asked(self, query_id: str) -> AskedQuery:
        """Return a query over messages by its id: to follow it, read its result, or cancel it.
        Raises InvalidRequestError: no query can have the id.
        """
        from dormouse.client.queries import AskedQuery

        try:
            check_types(stages.CancelQuery(query_id=query_id))
        except errors.InvalidRequestError as error:
            hint = "`dormouse queries list` shows the ids of the last seven days"
            problem = f"{query_id!r} is no id of a query"
            raise errors.InvalidRequestError(problem, hint=hint) from error
        return AskedQuery(query_id, self.services, self.queues, self.polling)

    def ingest_files(
        self,
        name: str,
        keys: Iterable[str],
        *,
        spark: SparkOptions | None = None,
        again: bool = False,
        tags: Mapping[str, str] = NO_TAGS,
    ) -> Ingested:
        """Ingest objects and folders that are in the ingest bucket already.

        Return the files that the table has not ingested before; with `again`, all of them. With
        `spark` they are one bulk import, or a few if there are very many files. All rows get the
        row `tags`, beside those that folders of the objects say.

        Raises:
            NotFoundError: there is nothing under a key, or no table has that name.
            InvalidRequestError: no key is given, there are too many files at once, or no row tags
                are like this.
        """
        from dormouse.client.ingesting import Ingested

        handle = self.table(name)
        row_tags(tags)
        listed = tuple(check_list("keys", keys))
        messages = administer(self, requests.IngestFiles, name, listed, spark, again, dict(tags))
        sources = (
            source for m in messages if isinstance(m, stages.IngestJob) for source in m.sources
        )
        return Ingested(handle, tuple(sources))

    def compact(
        self, name: str, *, everything: bool = False, spark: SparkOptions | None = None
    ) -> int:
        """Begin the compactions of a table that are due, or merge `everything` in each leaf.

        Return how many were begun. This works for a table that is offline, too. With `spark`, Spark
        runs them, however small they are.
        Raises NotFoundError: no table has that name.
        """
        messages = administer(self, requests.CompactTable, name, everything, spark)
        return sum(isinstance(message, stages.CompactionJob) for message in messages)

    def split(self, name: str, partition: str = "", *, forced: bool = False) -> int:
        """Split the leaf partitions with too many rows, or just one; `forced`, however few rows.

        Return how many splits were begun. A leaf whose rows all share one key stays whole; the
        table's jobs then say so.

        Raises:
            NotFoundError: there is no such table or partition.
            InvalidRequestError: the partition is split already, or has too few rows.
        """
        messages = administer(self, requests.SplitPartitions, name, partition, forced)
        return sum(len(m.partitions) for m in messages if isinstance(m, stages.PartitionSplits))

    def collect_garbage(self, name: str) -> int:
        """Delete the shards that nothing references and whose delay is over; return how many.
        Raises NotFoundError: no table has that name.
        """
        messages = administer(self, requests.CollectGarbage, name)
        return sum(len(m.shards) for m in messages if isinstance(m, stages.GarbageCandidates))

    def spark(self) -> operations.SparkStatus:
        """Return whether the instance has Spark, and whether its job package fits this version.

        Raises:
            CorruptDataError: the description of a package is damaged.
            UnavailableError: the data bucket does not answer.
        """
        return operations.spark_status(self.services.storage, self.spark_application)

    def pending(self) -> int:
        """Return how much work is pending for all tables, and in the working queues.
        Raises CorruptDataError: something of a table is damaged, so its pending work is unknown.
        """
        count, damaged = waiting.count_pending(*self.list_readable(), self.queues)
        for error in damaged:
            raise error
        return count

    def wait(
        self, timeout_seconds: float = waiting.WAIT_SECONDS, *, watch: waiting.Watch | None = None
    ) -> None:
        """Wait until nothing is pending.

        Raises:
            TimedOutError: work was still pending after `timeout_seconds`.
            DeadLetterError: only a dead letter is left of some work.
            CorruptDataError: something of a table is damaged, so its pending work is unknown;
                nothing is pending for the others.
        """
        damaged: list[errors.CorruptDataError] = []

        def left() -> int:
            count, damaged[:] = waiting.count_pending(*self.list_readable(), self.queues)
            return count

        awaited = self.polling.awaited(self, lambda: waiting.pending_names(self.list_readable()[0]))
        self.polling.until_nothing(
            left, timeout_seconds=timeout_seconds, looks=2, watch=watch, awaited=awaited
        )
        for error in damaged:
            raise error

    def jobs(self) -> Listing[JobRecord]:
        """Return the records of no table: requests about none, and files dropped for none."""
        return listed_jobs(self.services.tracker.records(NO_TABLE))

    def queue_states(self) -> tuple[list[operations.Queue], str]:
        """Return every queue in the order of the flow; and why ages are unknown, if they are.
        Raises UnavailableError: the queues do not answer.
        """
        return operations.queue_states(self.queues, self.ages, self.services.clock.now_ms())

    def dead_letters(self) -> operations.DeadLetterQueues:
        """Return the dead-letter queues, to look at messages, redrive or discard them."""
        return operations.DeadLetterQueues(self.services, self.queues)

    def repair(self, which: str = "") -> list[str]:
        """Restore damaged registry entries of one table, by name or id, or of all tables.

        Return a description of each entry that was damaged. Rows and states are not changed.
        Raises CorruptDataError: some entries cannot be restored; all others were.
        """
        return self.services.tables.repair(which)

    def unregistered(self) -> list[Unregistered]:
        """Return the table ids that have objects in the data bucket, but no registry entry.

        The entry may be lost, so these objects are not deleted without proof.
        """
        return list(list_unregistered(self.services))

    def access_rules(self) -> access.AccessRules:
        """Return the access rules, by principal and tables; None if access is by instance.

        They say which caller may do what by services of the instance that answer any caller. A
        process that reads with rights of its own, as this class does, is not bound by them.
        Raises CorruptDataError: they are damaged; `repair` restores them.
        """
        return self.services.tables.access_rules()

    def permission(self, principal: str, table: str) -> access.Permission:
        """Return what the rules permit a caller for a table, and which columns they hide.

        `principal` may be the ARN of a session too; its role counts.
        Raises CorruptDataError: the rules are damaged.
        """
        caller = access.principal_of_arn(principal) or principal
        return access.permission(self.access_rules(), caller, table)

    def grant(
        self, principal: str, tables: str, verbs: Iterable[access.Verb], hide: Iterable[str] = ()
    ) -> access.AccessRules:
        """Let callers read, write or administer tables; return all rules then.

        `principal` and `tables` are names, or patterns in which ``*`` stands for any characters. A
        rule for the same two is replaced. The columns `hide` are hidden from readers by the rule.
        The first rule ends that access is by instance: nobody may do what no rule grants.
        Raises InvalidRequestError: this is no rule; nothing is changed.
        """
        administer(self, requests.GrantAccess, principal, tables, tuple(verbs), tuple(hide))
        return self.access_rules()

    def revoke(self, principal: str, tables: str) -> access.AccessRules:
        """Remove the rule of a principal for tables; return the rules that are left.

        If none is left, nobody may do anything; `clear_access_rules` gives access back.
        Raises NotFoundError: there is no such rule; others may still apply to both.
        """
        key = access.checked_principals(principal), tables
        if key not in [rule.key for rule in self.access_rules() or ()]:
            raise errors.NotFoundError(
                f"there is no access rule of {principal!r} for {tables!r}",
                hint="`dormouse access list` shows all",
            )
        administer(self, requests.RevokeAccess, principal, tables)
        return self.access_rules()

    def clear_access_rules(self) -> None:
        """Remove all rules: access is by instance again."""
        administer(self, requests.ClearAccess)

    def handle_of(self, table: Table) -> TableHandle:
        """Return a table, by its entry in the registry."""
        return TableHandle(table, self.services, self.queues, self.bucket, self.polling)

    def _shown(self) -> tuple[str, HtmlText]:
        if self.folder is not None:
            return f"instance in the folder {self.folder.layout.root}", ""
        return f"instance whose files are dropped into {self.bucket.name!r}", ""

    def _repr_html_(self) -> HtmlText:
        """Show the tables, for which the instance is asked."""
        return self.tables()._repr_html_()
