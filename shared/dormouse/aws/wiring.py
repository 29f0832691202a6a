"""The composition root: build the services of a process from its settings.

Nothing is created at import; a process creates its services once, at first use. What only some
processes need is imported where they need it: what a function logs, and the state stores. Listing
tables needs neither.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING

from botocore.config import Config

from dormouse.aws.clients import BeforeRequest, client
from dormouse.aws.conditions import Conditions
from dormouse.aws.items import KEYS, DynamoItems
from dormouse.aws.keys import GlueMirror, KmsKeys, S3ReaderAccess
from dormouse.aws.queues import SqsDeadLetters, SqsOutbox, SqsResultQueues, queue_ages
from dormouse.aws.storage import S3Sources, S3Storage
from dormouse.items.records import ItemPublications, ItemSubjects, ItemTracker
from dormouse.items.store import Space
from dormouse.items.tables import ItemTables
from dormouse.ports import Metrics, Services, Spark
from dormouse.settings import Settings
from dormouse.state.rules import CommitReport
from dormouse.stored.paths import InstanceNames
from dormouse.system import RETRIES, SystemClock, TimeOrderedIds
from dormouse.tables.table import Table

if TYPE_CHECKING:
    from dormouse.items.pages import ItemPages
    from dormouse.log.engine import StateStore

SCRATCH = "dormouse"
"""The name of a function's own folder in the scratch folder."""

STORES_KEPT = 32
"""How many tables' states a process caches, so that the current version costs one read."""

FUNCTION_MS = 15 * 60 * 1000
"""No function of Lambda lives longer; the queues hide a message for longer."""
CLIENT_CONFIG = Config(
    retries={"mode": "standard", "total_max_attempts": 4},
    connect_timeout=5,
    read_timeout=30,
    max_pool_connections=64,
)


Observer = Callable[[str, CommitReport], None]


def _unobserved(state_id: str, report: CommitReport) -> None:
    """Ignore a commit's report: for processes that do not log them, such as the command line."""


@dataclass(frozen=True, slots=True, eq=False)
class Wiring:
    """A process's access to an instance: services for stages, the outbox of their messages, and how
    long messages have waited.
    """

    settings: Settings
    services: Services
    outbox: SqsOutbox
    ages: Callable[[InstanceNames, Sequence[str], int], dict[str, float]] = queue_ages


@cache
def wiring() -> Wiring:
    """Return the wiring of this function's process, from the environment.

    The scratch folder is emptied first: a function that was stopped leaves files there, which
    Lambda hands to the next process.
    """
    from dormouse.aws.logs import LoggedMetrics, note_commit

    settings = Settings.from_environment()
    scratch = settings.scratch / SCRATCH
    if scratch.exists():
        shutil.rmtree(scratch)
    scratch.mkdir(parents=True)
    return wire(
        replace(settings, scratch=scratch),
        observe=partial(note_commit, settings.instance),
        metrics=LoggedMetrics(settings.instance),
    )


def wire(
    settings: Settings, *, observe: Observer = _unobserved, metrics: Metrics | None = None
) -> Wiring:
    """Create the services of the instance that `settings` names.

    `observe` is called with the id of a table's state and the report of each commit to it;
    `metrics` receives the metrics of tables.
    """
    if not settings.account:
        identity = client("sts", CLIENT_CONFIG).get_caller_identity()
        settings = replace(settings, account=identity["Account"])
    names = settings.names
    conditions = conditions_of(names, settings.conditions_tried_at)
    check = conditions.before_write
    s3 = client("s3", CLIENT_CONFIG, bucket_owner=names.account, before_request=check)
    dynamodb = client("dynamodb", CLIENT_CONFIG, before_request=check)
    sqs = client("sqs", CLIENT_CONFIG)
    storage = S3Storage(s3, names.data_bucket)
    table_names = {space: names.table(space) for space in KEYS}
    items = DynamoItems(dynamodb, table_names)
    services = Services(
        tables=ItemTables(items),
        publications=ItemPublications(items),
        tracker=ItemTracker(items),
        storage=storage,
        results=S3Storage(s3, names.results_bucket),
        sources=S3Sources(s3, names.ingest_bucket),
        dead_letters=SqsDeadLetters(sqs, names),
        store=_store_factory(table_names, storage, items, observe, check),
        clock=SystemClock(),
        ids=TimeOrderedIds(),
        scratch=settings.scratch,
        memory_bytes=settings.memory_bytes,
        attempt_ms=FUNCTION_MS,
        metrics=metrics,
        spark=_spark(settings),
        has_spark=settings.has_spark,
        reader_access=S3ReaderAccess(
            s3, client("sts", CLIENT_CONFIG), names.data_bucket, settings.readers_role
        ),
        mirror=GlueMirror(client("glue", CLIENT_CONFIG), settings.glue_database),
        mark_for_class=storage.mark_for_class,
        result_queues=SqsResultQueues(sqs, settings.result_queues),
        check_conditions=conditions.check,
        keys=KmsKeys(client("kms", CLIENT_CONFIG), names.instance, ItemSubjects(items)),
    )
    return Wiring(settings, services, SqsOutbox(sqs, names))


def conditions_of(names: InstanceNames, tried_at: str = "") -> Conditions:
    """Return the conditions that an instance's writes rest on, to be tried, but for those of a
    server where they were.
    """
    s3 = client("s3", CLIENT_CONFIG, bucket_owner=names.account)
    dynamodb = client("dynamodb", CLIENT_CONFIG)
    return Conditions(s3, dynamodb, names, TimeOrderedIds().new, tried_at=tried_at)


def _spark(settings: Settings) -> Spark | None:
    if settings.spark is None:
        return None
    from dormouse.aws.emr import EmrServerless

    return EmrServerless(client("emr-serverless", CLIENT_CONFIG), settings.spark, settings.names)


def _store_factory(
    table_names: Mapping[Space, str],
    storage: S3Storage,
    items: DynamoItems,
    observe: Observer,
    before_request: BeforeRequest,
) -> "Callable[[Table], StateStore]":
    @cache
    def pages() -> "ItemPages":
        from dormouse.items.pages import ItemPages

        # The SDK must not repeat an append: its outcome is known only if it is sent once.
        config = CLIENT_CONFIG.merge(Config(retries={"total_max_attempts": 1}))
        once = client("dynamodb", config, before_request=before_request)
        return ItemPages(DynamoItems(once, table_names))

    @lru_cache(STORES_KEPT)
    def open_store(state_id: str, name: str, kept_in: str, keep_seconds: int) -> "StateStore":
        from dormouse.log.blobs import side_by_side
        from dormouse.log.engine import Options, StateStore
        from dormouse.log.log import Log

        log = Log(state_id, pages(), RETRIES, name)
        if kept_in == "dynamodb":
            from dormouse.items.blobs import items_reader

            reader = items_reader(log, items)
        else:
            from dormouse.aws.state_store import fetched_hedged, objects_reader

            reader = objects_reader(log, storage, fetched_hedged)
        options = Options(keep_seconds, observe=partial(observe, state_id), overlap=side_by_side)
        return StateStore(reader, SystemClock(), TimeOrderedIds(), options)

    def store(table: Table) -> "StateStore":
        properties = table.properties
        return open_store(
            table.state_id, table.name, properties.state_store, properties.gc_delay_seconds
        )

    return store
