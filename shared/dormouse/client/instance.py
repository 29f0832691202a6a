"""One deployment as a client sees it: its tables, made, listed and deleted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msgspec import UNSET

from dormouse.aws.base.failures import reading
from dormouse.aws.base.system import patience
from dormouse.aws.emr import EmrApplications
from dormouse.aws.s3.ingest_bucket import S3IngestBucket
from dormouse.aws.sqs.queue_ages import CloudWatchAges
from dormouse.aws.wiring import wire
from dormouse.client.dead_letters import DeadLetterQueues, QueueState, queue_states
from dormouse.client.declaring import parse_declarations, plan_declared, requests_of
from dormouse.client.dropping import Ingested
from dormouse.client.ports import (
    IngestBucket,
    NoSpark,
    QueueAges,
    Queues,
    SparkApplications,
    UnknownAges,
)
from dormouse.client.spark import SparkStanding, spark_standing
from dormouse.client.table import TableHandle
from dormouse.client.waiting import WAIT_SECONDS, WORKING_QUEUES, Polling, Watch
from dormouse.errors import CorruptDataError, DamagedEntryError
from dormouse.features.administration.administer import administer
from dormouse.features.tables.leftovers import Stranger, strangers
from dormouse.key_forms.json import key_to_json
from dormouse.key_forms.python import KeyLike, split_point_of
from dormouse.messages import (
    CompactionJob,
    GarbageCandidates,
    IngestJob,
    OutboundMessage,
    PartitionSplits,
)
from dormouse.ports import NO_TABLE, JobRecord, Services
from dormouse.requests import (
    AdminRequest,
    CollectGarbage,
    CompactTable,
    CreateTable,
    DeleteTable,
    IngestFiles,
    ReinitialiseTable,
    RenameTable,
    SetDefaults,
    SetOnline,
    SetProperties,
    SplitPartitions,
)
from dormouse.schema.schema import Schema
from dormouse.settings import Settings
from dormouse.tables.declaring import TableChange
from dormouse.tables.spark_options import SparkOptions
from dormouse.tables.table import Table, table_not_found


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance, by `connect` or over services of one's own."""

    services: Services
    queues: Queues
    bucket: IngestBucket
    polling: Polling
    ages: QueueAges = UnknownAges()
    spark_applications: SparkApplications = NoSpark()

    @staticmethod
    def connect(name: str | None = None) -> Instance:
        """Connect to the instance of this name, or of the name in ``DORMOUSE_INSTANCE``.

        The account is ``DORMOUSE_ACCOUNT`` or that of the credentials, which, with the region, are
        found as every AWS client does.

        Raises:
            InvalidRequestError: no name is given, or another setting is no good.
            UnavailableError: there are no credentials, or AWS does not answer.
        """
        settings = Settings.from_environment(instance=name)
        with reading("AWS"):
            wiring = wire(settings)
            bucket = S3IngestBucket.of(wiring.settings.names)
            ages = CloudWatchAges.of(wiring.settings.names)
            applications = EmrApplications.of(wiring.settings.names)
        polling = Polling(wiring.services.clock, patience().sleep)
        return Instance(wiring.services, wiring.outbox, bucket, polling, ages, applications)

    def tables(self) -> list[TableHandle]:
        """Return all tables that can be read, by name; `list_readable` has the damaged ones too."""
        return self.list_readable()[0]

    def list_readable(self) -> tuple[list[TableHandle], list[DamagedEntryError]]:
        """Return all tables that can be read, by name, and what of the registry is damaged.

        What is damaged of one table keeps nobody from the others; `repair` brings it back.
        """
        tables, damaged = self.services.tables.list_readable()
        return [self._handle(table) for table in tables if not table.deleting], damaged

    def repair(self, which: str = "") -> list[str]:
        """Bring back what the registry keeps of a table, by name or id, or of all, if damaged.

        Returns what was damaged, for people. Rows and states are not touched.

        Raises:
            CorruptDataError: some cannot be brought back; all else was.
        """
        return self.services.tables.repair(which)

    def unregistered(self) -> list[Stranger]:
        """Return what lies in the data bucket of no known table, by the id that it lies under.

        The registry entry of a table may be lost; nothing of it is deleted without a proof.
        """
        return list(strangers(self.services))

    def table(self, name: str) -> TableHandle:
        """Return one table.

        Raises:
            NotFoundError: there is none of that name; the hint names the nearest.
        """
        table = self.services.tables.named(name)
        if table is None or table.deleting:
            raise table_not_found(name, self.services.tables.list_readable()[0])
        return self._handle(table)

    def create_table(
        self,
        name: str,
        schema: Schema,
        properties: Mapping[str, object] | None = None,
        split_points: Iterable[KeyLike] = (),
    ) -> TableHandle:
        """Create a table whose leaf partitions meet at `split_points`.

        Raises:
            AlreadyExistsError: there is a table of that name.
            InvalidRequestError: the name, a property or a split point is no good.
        """
        points = tuple(key_to_json(schema, split_point_of(schema, point)) for point in split_points)
        self._administer(
            CreateTable(
                self.services.ids.new(), name, schema.to_json(), dict(properties or {}), points
            )
        )
        return self.table(name)

    def delete_table(self, name: str) -> None:
        """Delete a table with all its rows. What was dropped for it stays in the ingest bucket.

        Raises:
            NotFoundError: there is none of that name.
        """
        self._administer(DeleteTable(self.services.ids.new(), name))

    def rename_table(self, name: str, new_name: str) -> TableHandle:
        """Rename a table; files are dropped for it under the new name from then on.

        Raises:
            NotFoundError: there is none of that name.
            AlreadyExistsError: another table has the new name.
            InvalidRequestError: no table can be called so.
        """
        self._administer(RenameTable(self.services.ids.new(), name, new_name))
        return self.table(new_name)

    def set_properties(
        self, name: str, properties: Mapping[str, object] | None = None, unset: Iterable[str] = ()
    ) -> TableHandle:
        """Set properties of a table, and unset others: those are the instance's again.

        Raises:
            NotFoundError: there is none of that name.
            InvalidRequestError: an unknown property, a bad value, or one that never changes.
        """
        request_id = self.services.ids.new()
        self._administer(SetProperties(request_id, name, dict(properties or {}), tuple(unset)))
        return self.table(name)

    def reinitialise_table(
        self,
        name: str,
        split_points: Iterable[KeyLike] = (),
        *,
        delete_partitions: bool = False,
        schema: Schema | None = None,
    ) -> TableHandle:
        """Empty a table. Its partitions stay, unless `split_points` are given: then its leaf
        partitions meet at these; or with `delete_partitions`: then it has a single one.

        With a `schema`, it has that one from then on; its columns get ids of their own. Files
        ingested before are not ingested again.

        Raises:
            NotFoundError: there is none of that name.
            InvalidRequestError: a split point is no good, or partitions that are to stay, or the
                table's properties, do not fit the schema.
        """
        fields = schema or self.table(name).schema
        points = tuple(key_to_json(fields, split_point_of(fields, point)) for point in split_points)
        self._administer(
            ReinitialiseTable(
                self.services.ids.new(),
                name,
                delete_partitions,
                points,
                schema=UNSET if schema is None else schema.to_json(),
            )
        )
        return self.table(name)

    def spark(self) -> SparkStanding:
        """Return whether the instance has Spark, and whether the package of its jobs fits.

        Raises:
            CorruptDataError: what describes a package is damaged.
            UnavailableError: the data bucket does not answer.
        """
        return spark_standing(self.services.storage, self.spark_applications)

    def defaults(self) -> dict[str, int | str]:
        """Return the properties set for the instance: tables have them where they set none."""
        return self.services.tables.defaults()

    def set_defaults(
        self, properties: Mapping[str, object] | None = None, unset: Iterable[str] = ()
    ) -> dict[str, int | str]:
        """Set properties of the instance, unset others, and give those which are set then.

        Raises:
            InvalidRequestError: an unknown property, a bad value, or one that a table cannot have.
        """
        request_id = self.services.ids.new()
        self._administer(SetDefaults(request_id, dict(properties or {}), tuple(unset)))
        return self.defaults()

    def compact(
        self, name: str, *, everything: bool = False, spark: SparkOptions | None = None
    ) -> int:
        """Begin the compactions of a table that are due, or merge `everything` in each leaf.

        Gives how many were begun. It may be offline: then nobody else asks for them. With `spark`
        it is Spark that does them, however small they are.

        Raises:
            NotFoundError: there is none of that name.
        """
        request = CompactTable(self.services.ids.new(), name, everything, spark)
        return sum(isinstance(m.message, CompactionJob) for m in self._administer(request))

    def split(self, name: str, partition: str = "", *, forced: bool = False) -> int:
        """Have leaf partitions split: those with too many rows, or one; any rows, if `forced`.

        Gives how many are to be. A leaf whose rows share one key is not split after all; the jobs
        of the table say so.

        Raises:
            NotFoundError: there is no such table or partition.
            InvalidRequestError: the partition is split already, or has too few rows.
        """
        request = SplitPartitions(self.services.ids.new(), name, partition, forced)
        sent = (m.message for m in self._administer(request))
        return sum(len(m.partitions) for m in sent if isinstance(m, PartitionSplits))

    def collect_garbage(self, name: str) -> int:
        """Have the shards deleted that nothing references and whose delay is over; count them.

        Raises:
            NotFoundError: there is none of that name.
        """
        sent = (m.message for m in self._administer(CollectGarbage(self.services.ids.new(), name)))
        return sum(len(m.shards) for m in sent if isinstance(m, GarbageCandidates))

    def plan_declared(self, body: object) -> list[TableChange]:
        """Return what must change for tables to be as declared; nothing is changed.

        `body` is ``{"tables": [{"name": …, "schema": …, "properties": …, "online": …, "splits": …},
        …]}``, all but the name optional for tables that exist.

        Raises:
            InvalidRequestError: it is no such thing, or cannot be met by adding and changing.
        """
        return plan_declared(self.services, parse_declarations(body, self.services))

    def apply(self, change: TableChange) -> None:
        """Make one of the changes that `plan_declared` gave.

        Raises:
            InvalidRequestError: the table was changed meanwhile, so that it does not fit any more.
        """
        for request in requests_of(change, self.services):
            self._administer(request)

    def ingest_files(
        self,
        name: str,
        keys: Iterable[str],
        *,
        spark: SparkOptions | None = None,
        again: bool = False,
    ) -> Ingested:
        """Ingest what lies in the ingest bucket already: objects, and whole folders of it.

        Returns those files which the table has not ingested yet; with `again`, all of them. With
        `spark` they are one bulk import, or a few if there are very many.

        Raises:
            NotFoundError: there is nothing under some key, or no table of that name.
            InvalidRequestError: no key is given, or there are too many files at once.
        """
        handle = self.table(name)
        request = IngestFiles(self.services.ids.new(), name, tuple(keys), spark, again)
        sent = [m.message for m in self._administer(request)]
        sources = (source for m in sent if isinstance(m, IngestJob) for source in m.sources)
        return Ingested(handle, tuple(sources))

    def set_online(self, name: str, online: bool) -> None:
        """Put a table online, or take it offline: then it ingests, but is not compacted or split.

        Raises:
            NotFoundError: there is none of that name.
        """
        self._administer(SetOnline(self.services.ids.new(), name, online))

    def pending(self) -> int:
        """Count what is pending of all tables and in the working queues.

        Raises:
            CorruptDataError: what is pending of a table cannot be known, for something is damaged.
        """
        count, damaged = self._pending()
        for error in damaged:
            raise error
        return count

    def wait(self, timeout_seconds: float = WAIT_SECONDS, *, watch: Watch | None = None) -> None:
        """Wait until nothing is pending.

        Raises:
            TimedOutError: something still was after `timeout_seconds`.
            CorruptDataError: nothing is pending of all others, but what is of one table cannot be
                known, for something is damaged.
        """
        damaged: list[CorruptDataError] = []

        def left() -> int:
            count, damaged[:] = self._pending()
            return count

        self.polling.until_nothing(left, timeout_seconds=timeout_seconds, looks=2, watch=watch)
        for error in damaged:
            raise error

    def _pending(self) -> tuple[int, list[CorruptDataError]]:
        """Count what is pending, and return why it is not known of some tables."""
        tables, of_registry = self.list_readable()
        count, damaged = 0, list[CorruptDataError](of_registry)
        for table in tables:
            try:
                count += table.pending()
            except CorruptDataError as error:
                damaged.append(error)
        return count + sum(self.queues.depths(WORKING_QUEUES).values()), damaged

    def jobs(self) -> list[JobRecord]:
        """Return what the tracker has of no table: requests about none, files dropped for none."""
        return list(self.services.tracker.records(NO_TABLE))

    def queue_states(self) -> tuple[list[QueueState], str]:
        """Return every queue in the order of the flow; and why ages are not known, if they are not.

        Raises:
            UnavailableError: the queues do not answer.
        """
        return queue_states(self.queues, self.ages, self.services.clock.now_ms())

    def dead_letters(self) -> DeadLetterQueues:
        """Return the messages that were given up, to look at, send back or discard."""
        return DeadLetterQueues(self.services, self.queues)

    def _administer(self, request: AdminRequest) -> list[OutboundMessage]:
        messages = administer(self.services, request)
        self.queues.send(messages)
        return messages

    def _handle(self, table: Table) -> TableHandle:
        return TableHandle(table, self.services, self.queues, self.bucket, self.polling)
