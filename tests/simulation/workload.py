"""What people do to an instance: which operations a run has, and how they are drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random

from msgspec import UNSET
from msgspec.structs import replace

from dormouse.features.purge import purge_id_of
from dormouse.features.requests import request_key
from dormouse.messages.requests import (
    AdminRequest,
    AlterSchema,
    CollectGarbage,
    CompactTable,
    CreateTable,
    DeleteRows,
    DeleteTable,
    ExportRows,
    IngestFiles,
    PurgeRows,
    Redrive,
    ReinitialiseTable,
    RenameTable,
    SetDefaults,
    SetOnline,
    SetProperties,
    SplitPartitions,
)
from dormouse.messages.stages import SelectionMessage
from dormouse.tables.properties import SparkOptions
from tests.simulation.instance import Instance
from tests.simulation.oracle import Dropped
from tests.simulation.outsiders import PUBLISHING, PublishingUsers
from tests.simulation.queues import feeds
from tests.simulation.rows import AGE_MS, LATEST, LETTERS, Kind, Row, entombed
from tests.simulation.shapes import CLASSIC, FILES_MARKED, Shape, mark_of
from tests.simulation.versions import VersionUsers

DELETIONS = ("delete_rows",) * 3
"""What users delete, in some of the runs."""
DELETING_SEEDS, DELETING = 5, 2
"""In a run of each so many seeds, of which this is the remainder, users delete rows."""
LATEST_SEEDS, KEEPING = 5, 1
"""In a run of each so many seeds, of which this is the remainder, all tables keep the latest rows,
and users delete some. Keys that only grow have nothing to hide."""
NAMES = ("ants", "bees", "crabs", "deer")
OFTEN = ("drop",) * 8
SELDOM = (
    "drop_bad",
    "drop_again",
    "overwrite",
    "purge",
    "export",
    "alter",
    "rename",
    "reinitialise",
    "delete",
    "create",
    "split",
    "compact",
    "garbage",
    "offline",
    "properties",
    "defaults",
    "redrive",
    "ingest_files",
)
CHANGEABLE = (
    "compaction_strategy",
    "compaction_files",
    "compaction_size_ratio",
    "split_threshold_rows",
    "job_retry_seconds",
    "shard_target_bytes",
    "ingest_file_strategy",
    "ingest_job_max_files",
    "ingest_batch_min_files",
    "ingest_batch_max_age_seconds",
    "bulk_import_min_leaf_partitions",
    "ingest_spark_bytes",
    "compaction_spark_bytes",
    "export_spark_bytes",
    "spark_attempts",
)
"""The properties that are changed, and left to the instance: none is a promise to readers, or what
all is held against."""


@dataclass
class Workload(VersionUsers, PublishingUsers):
    """The users of one run. `operations` are drawn from, those named often more often.

    What they know is kept here: each file by its id, the kind of each table they asked for, what
    each purge and each deletion is to remove, and all they asked for. Names of tables are those of
    requests, which may yet be refused.
    """

    instance: Instance
    random: Random
    operations: tuple[str, ...] = OFTEN
    loses_notifications: Callable[[], bool] = lambda: False
    kinds: dict[str, Kind] = field(default_factory=dict)
    dropped: dict[str, Dropped] = field(default_factory=dict)
    purges: dict[str, str] = field(default_factory=dict)
    deletions: dict[str, str] = field(default_factory=dict)
    asked: list[AdminRequest] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    shape: Shape = CLASSIC
    keeps_latest: bool = False
    publishes: bool = False
    stop_publishers_for: Callable[[], int] = lambda: 0
    count: int = 0
    files: int = 0

    def __post_init__(self) -> None:
        """Let calls about pins fail if users make some; have tables published if they are."""
        if self.publishes:
            self.operations = (*self.operations, *PUBLISHING)
        self.instance.gates_pins = "tag" in self.operations

    def begin(self, tables: int) -> None:
        """Ask for the first tables."""
        for name in NAMES[:tables]:
            self.create(name)

    def act(self) -> str:
        """Do something; return a line that says what."""
        operation = self.random.choice(self.operations)
        method: Callable[[], str] = getattr(self, operation)
        return method()

    def ask(self, request: AdminRequest) -> str:
        """Send a request; every third is to be answered."""
        request = replace(request, reply=len(self.asked) % 3 == 0)
        self.asked.append(request)
        self.instance.ask(request)
        return f"asks {request}"

    def drop(self) -> str:
        """Drop a file for a table."""
        if self.files == FILES_MARKED:
            return self.drop_again()
        form = self.random.choice(self.shape.forms)
        key = f"{self._name()}/{self._count()}.{form}"
        return self._put(key, self._new_rows())

    def drop_bad(self) -> str:
        """Drop a file that is none."""
        key = f"{self._name()}/{self._count()}.parquet"
        return self._put(key, None)

    def drop_again(self) -> str:
        """Have S3 repeat the notification of a file."""
        if not self.dropped:
            return self.drop()
        source = self.random.choice(list(self.dropped.values())).source
        self.instance.notify(source)
        return f"hears of {source.key} again"

    def hear_again(self) -> None:
        """Have S3 repeat the notification of each file that is still there."""
        for known in self.dropped.values():
            if self.instance.sources.source(known.source.key).etag == known.source.etag:
                self.instance.notify(known.source)

    def overwrite(self) -> str:
        """Drop another content under the key of a file."""
        if not self.dropped or self.files == FILES_MARKED:
            return self.drop()
        key = self.random.choice(list(self.dropped.values())).source.key
        return self._put(key, self._new_rows())

    def create(self, name: str = "") -> str:
        """Ask for a table, or one more of a name that may be taken."""
        request_id = self._request()
        kind = self.random.choice(LATEST if self.keeps_latest else self.shape.kinds)
        name = name or self.random.choice(NAMES)
        self.kinds[table_id_of(request_id)] = kind
        self.names = sorted({*self.names, name})
        points = self.shape.split_points(self.random.choice(("", "", "c", "bdf")))
        drawn = self._properties()
        for unset in self.random.sample(CHANGEABLE, self.random.randint(0, 3)):
            del drawn[unset]
        properties = {**drawn, **kind.properties, **self._published()}
        return self.ask(
            CreateTable(request_id, name, self.shape.schema.to_json(), properties, points)
        )

    def delete(self) -> str:
        """Ask for a table to be deleted."""
        request_id, name = self._request(), self._name()
        return self.ask(DeleteTable(request_id, name, release_tags=self._releases()))

    def rename(self) -> str:
        """Ask for another name."""
        name, new = self._name(), self.random.choice(NAMES)
        self.names = sorted({*self.names, new})
        return self.ask(RenameTable(self._request(), name, new))

    def reinitialise(self) -> str:
        """Request a reset of a table, at times with another schema of similar columns."""
        deletes = self.random.random() < 0.5
        points = self.shape.split_points(self.random.choice(("", "", "d")))
        schema = self.shape.schema.to_json() if self.random.random() < 0.5 else UNSET
        return self.ask(
            ReinitialiseTable(self._request(), self._name(), deletes, points, schema=schema)
        )

    def purge(self) -> str:
        """Ask for some letters to be removed."""
        request_id = self._request()
        letters = "".join(sorted(self.random.sample(LETTERS, self.random.randint(1, 2))))
        self.purges[purge_id_of(request_id)] = letters
        self.deletions[f"{purge_id_of(request_id)}-0"] = letters  # which hides them meanwhile
        if self.random.random() < 0.5 and not self.shape.grows:
            keys = self.shape.letter_keys(letters)
            rows = SelectionMessage(keys=keys)
        else:
            rows = SelectionMessage(where=self.shape.letter_condition(letters))
        name, spark, releases = self._name(), self._spark(), self._releases()
        return self.ask(PurgeRows(request_id, name, rows, spark=spark, release_tags=releases))

    def delete_rows(self) -> str:
        """Ask for some letters to be hidden."""
        request_id = self._request()
        letters = "".join(sorted(self.random.sample(LETTERS, self.random.randint(1, 2))))
        if self.random.random() < 0.5 and not self.shape.grows:
            rows = SelectionMessage(keys=self.shape.letter_keys(letters))
        else:
            rows = SelectionMessage(where=self.shape.letter_condition(letters))
        request = DeleteRows(request_id, self._name(), rows)
        self.deletions[request_key(request)] = letters
        return self.ask(request)

    def export(self) -> str:
        """Ask for an export of all."""
        request_id = self._request()
        to, spark = f"exports/{request_id}", self._spark()
        return self.ask(ExportRows(request_id, self._name(), to, spark=spark))

    def alter(self) -> str:
        """Ask for a column more, or for one less, or another name of it."""
        request_id, name = self._request(), self._name()
        extra = {"name": "extra", "type": "LongType", "nullable": True}
        match self.random.randrange(3):
            case 0:
                return self.ask(AlterSchema(request_id, name, add=(extra,)))
            case 1:
                return self.ask(AlterSchema(request_id, name, drop=("extra",)))
        return self.ask(AlterSchema(request_id, name, rename={"extra": "more"}))

    def split(self) -> str:
        """Ask for splits."""
        forced = self.random.random() < 0.5
        return self.ask(SplitPartitions(self._request(), self._name(), forced=forced))

    def compact(self) -> str:
        """Ask for compactions."""
        request_id, name, is_all = self._request(), self._name(), self.random.random() < 0.5
        return self.ask(CompactTable(request_id, name, all=is_all, spark=self._spark()))

    def garbage(self) -> str:
        """Ask for the collection of garbage."""
        return self.ask(CollectGarbage(self._request(), self._name()))

    def offline(self) -> str:
        """Ask for a table to be taken off the line, or put on it."""
        online = self.random.random() < 0.7
        return self.ask(SetOnline(self._request(), self._name(), online))

    def properties(self) -> str:
        """Ask for other properties of a table."""
        put, unset = self._changes()
        return self.ask(SetProperties(self._request(), self._name(), put, unset))

    def defaults(self) -> str:
        """Ask for other properties of the instance."""
        put, unset = self._changes()
        return self.ask(SetDefaults(self._request(), put, unset))

    def redrive(self) -> str:
        """Ask for dead letters to be sent back."""
        return self.ask(Redrive(self._request(), self.random.choice(list(feeds()))))

    def ingest_files(self) -> str:
        """Ask for a folder to be ingested."""
        request_id, name = self._request(), self._name()
        return self.ask(IngestFiles(request_id, name, (f"{name}/",), spark=self._spark()))

    def _put(self, key: str, rows: tuple[Row, ...] | None) -> str:
        form = key.rpartition(".")[2]
        body = b"no rows" if rows is None else self.shape.file_of(rows, form)
        source = self.instance.drop(key, body, notify=not self.loses_notifications())
        now_ms, mark = self.instance.clock.now_ms(), rows[0][4] if rows else 0
        self.dropped.setdefault(source.id, Dropped(source, rows, now_ms, mark))
        return f"drops {key}: {len(rows or ())} rows, source {source.id}"

    def _new_rows(self) -> tuple[Row, ...]:
        now_ms, number = self.instance.clock.now_ms(), self._count()
        mark, rows = mark_of(self.files), []
        self.files += 1
        for place in range(self.random.randint(1, 12)):
            age_ms = self.random.randrange(AGE_MS * 3 // 2)
            at = now_ms - age_ms - age_ms % 1000
            note = f"{number}-{place}"
            if self.keeps_latest:  # what is dropped later is older in half of all cases
                note = f"{self.random.randrange(100):02d}-{note}"
            rows.append((self.random.choice(LETTERS), at, note, self.random.randrange(100), mark))
        if self.random.random() < 0.3:  # rows that join others where rows join
            rows = [(letter, at - at % AGE_MS, *others) for letter, at, *others in rows]
        if self.keeps_latest and self.random.random() < 0.5:
            rows = [entombed(row) if self.random.random() < 0.3 else row for row in rows]
        return tuple(rows)

    def _properties(self) -> dict[str, object]:
        choose = self.random.choice
        return {
            "state_store": choose(("s3", "dynamodb")),
            "compaction_strategy": choose(("size_ratio", "batch")),
            "compaction_files": choose((2, 3, 5)),
            "compaction_size_ratio": choose((1, 3)),
            "compaction_jobs_limit": choose((1, 2, 5, 100)),
            "split_threshold_rows": choose((6, 15, 40, 1000)),
            "gc_delay_seconds": choose((60, 900, 3600)),
            "orphan_age_seconds": choose((2 * 24 * 3600, 7 * 24 * 3600)),
            "job_retry_seconds": choose((60, 3600)),
            "shard_target_bytes": choose((1, 3000, 1 << 20, 1 << 20)),
            "ingest_file_strategy": choose(("auto", "one_file_per_leaf", "one_reference_per_leaf")),
            "ingest_job_max_files": choose((1, 3, 100)),
            "ingest_batch_min_files": choose((1, 1, 4)),
            "ingest_batch_max_age_seconds": choose((0, 60, 300)),
            "bulk_import_min_leaf_partitions": choose((1, 4)),
            "ingest_spark_bytes": choose((0, 0, 1, 4000)),
            "compaction_spark_bytes": choose((0, 0, 1, 4000)),
            "export_spark_bytes": choose((0, 0, 1)),
            "spark_attempts": choose((1, 3)),
        }

    def _changes(self) -> tuple[dict[str, object], tuple[str, ...]]:
        """Draw properties to be set, and one to be unset at times."""
        drawn = self._properties()
        *put, unset = self.random.sample(CHANGEABLE, 4)
        chosen = (unset,) if self.random.random() < 0.5 else ()
        return {name: drawn[name] for name in put}, chosen

    def _spark(self) -> SparkOptions | None:
        """Draw what is asked of Spark: mostly nothing."""
        if self.random.random() < 0.7:
            return None
        return SparkOptions(spark_executors=self.random.choice((None, 3)))

    def _name(self) -> str:
        return self.random.choice(self.names)

    def _count(self) -> int:
        self.count += 1
        return self.count

    def _request(self) -> str:
        return f"request-{self._count()}"


def table_id_of(request_id: str) -> str:
    """Return the id of the table that a request makes."""
    return blake2b(request_id.encode(), digest_size=8).hexdigest()


def drawn_operations(random: Random, seed: int) -> tuple[str, ...]:
    """Draw which operations the run of a seed has."""
    chance = random.choice((0.15, 0.4, 0.8))
    deletions = DELETIONS if seed % DELETING_SEEDS == DELETING else ()
    if seed % LATEST_SEEDS == KEEPING:
        deletions = (*DELETIONS, *("compact",) * 4)
    return (*OFTEN, *deletions, *(name for name in SELDOM if random.random() < chance))
