"""Paths of objects in the data bucket, made and parsed here alone.

Everything of a table lies below its id: shards, state, run markers, jobs, purges, deletions,
exports, Spark.
"""

from dataclasses import dataclass

TABLE_ID_DIGITS = 16
"""The length of a table id. Roles may access only objects below prefixes of this length."""
_SHARD, _INDEX = ".parquet", ".index"
SPARK_CODE = "spark-job-packages"
"""The only folder of the data bucket that belongs to no table: the code of Spark jobs.

It is longer than a table id: in a grant on `????????????????/data/*`, a `?` also matches a slash,
and so would cover `spark-code/abcde/data/…`."""


@dataclass(frozen=True, slots=True)
class TableFolder:
    """A folder of each table: an object for each name, and below that name its parts."""

    folder: str
    ending: str = ".json"

    def prefix(self, table_id: str) -> str:
        """Return the prefix of all that is in the folder."""
        return f"{table_id}/{self.folder}/"

    def path(self, table_id: str, name: str) -> str:
        """Return the path of the object of a name."""
        return f"{self.prefix(table_id)}{name}{self.ending}"

    def parts(self, table_id: str, name: str) -> str:
        """Return the prefix of the parts of what has this name."""
        return f"{self.prefix(table_id)}{name}/"

    def name_of(self, path: str) -> str:
        """Return the name in the path of an object."""
        return path.rpartition("/")[2].removesuffix(self.ending)


REJECTED = TableFolder("rejected")
"""Rows that were left out of a table's files."""
COPYING = TableFolder("copying", ending="")
"""Markers of the logs that were begun to copy a table to this id."""
SOURCES = TableFolder("state/sources", ".parquet")
"""Segments of the ids of ingested sources."""
TREES = TableFolder("state/trees")
"""The partition trees with which generations of a table start."""
RESTORED = TableFolder("state/restored", ".parquet")
"""The records of the versions with which generations of a table start."""
RUN_MARKERS = TableFolder("run-markers")
"""The markers that complete runs whose last shard is not marked."""
SPARK_JOBS = TableFolder("spark")
"""Requests for Spark jobs; their parts are markers of runs."""
JOB_NOTES = TableFolder("jobs")
"""What is stored about jobs that are too large for one function."""
DELETIONS = TableFolder("deletions")
"""Notes of deletions."""
PURGES = TableFolder("purges")
"""Unfinished purges; their parts say which shards hold matching rows."""
EXPORTS = TableFolder("exports")
"""Running exports; their parts are tasks and the results of these."""
REQUESTS = TableFolder("requests")
"""Requests with unfinished jobs, by their keys; their parts are what replies need."""


def table_prefix(table_id: str) -> str:
    """Return the prefix of everything that a table stores in the data bucket."""
    return f"{table_id}/"


def data_prefix(table_id: str) -> str:
    """Return the prefix of a table's shards."""
    return f"{table_id}/data/"


def shard_path(table_id: str, shard_id: str) -> str:
    """Return the path of a shard, relative to the data root."""
    return f"{data_prefix(table_id)}{shard_id}{_SHARD}"


def shard_prefix(table_id: str, run: str) -> str:
    """Return the prefix of the shards that one run of a job writes."""
    return f"{data_prefix(table_id)}{run}-"


def index_path(table_id: str, shard_id: str) -> str:
    """Return the path of the index object of a shard, if it has one."""
    return f"{data_prefix(table_id)}{shard_id}{_INDEX}"


def paths_of_shard(table_id: str, shard_id: str) -> list[str]:
    """Return the paths of all objects of a shard."""
    index = [index_path(table_id, shard_id)] if has_index_object(shard_id) else []
    return [shard_path(table_id, shard_id), *index]


def shard_id_of(path: str) -> str | None:
    """Return the shard id in a path below a data prefix; None if the path is not that of a
    shard or of its index object.
    """
    name = path.rpartition("/")[2]
    shard_id, dot, ending = name.rpartition(".")
    return shard_id if f"{dot}{ending}" in (_SHARD, _INDEX) else None


def is_index_object(path: str) -> bool:
    """Return whether a path is that of the index object of a shard."""
    return path.endswith(_INDEX)


def make_shard_id(run: str, number: int) -> str:
    """Return the id of the `number`-th shard, from 0, that a run of a job writes."""
    return f"{run}-{number}"


_PLAIN, _INDEXED = "p", "i"
_ID_DIGITS = 32


def make_run_id(unique: str, *, plain: bool, indexed: bool = False) -> str:
    """Return the id of a run from 32 hex digits. It says whether the run's shards are encoded
    plainly, and whether they have index objects, so that the state knows that of each shard.
    """
    return f"{unique}{_PLAIN * plain}{_INDEXED * indexed}"


def is_plain(shard_id: str) -> bool:
    """Return whether a shard is encoded plainly, as every reader of Parquet knows it."""
    return _marks(shard_id) in (_PLAIN, _PLAIN + _INDEXED)


def has_index_object(shard_id: str) -> bool:
    """Return whether what is behind the rows of a shard is an object of its own, too."""
    return _marks(shard_id) in (_INDEXED, _PLAIN + _INDEXED)


def _marks(shard_id: str) -> str:
    return run_of_shard(shard_id)[0][_ID_DIGITS:]


PART_NUMBERS = 1_000_000
"""How many shard numbers each part of a run has, if several parts write side by side."""


def part_shard_number(part: int, number: int) -> int:
    """Return the number in its run of a part's `number`-th shard: in key order, as parts are."""
    return part * PART_NUMBERS + number


def run_of_shard(shard_id: str) -> tuple[str, int]:
    """Return the run that wrote a shard, and the shard's number in it; -1 if it has none."""
    run, dash, number = shard_id.rpartition("-")
    return (run, int(number)) if dash and number.isdecimal() else (shard_id, -1)


def id_prefix(time_ms: int) -> str:
    """Return the first characters of ids made at `time_ms`, of runs and so of their shards."""
    return f"{max(0, time_ms):012x}"


def state_prefix(state_id: str) -> str:
    """Return the prefix of a state: its deltas and snapshots.

    A table gets another state with each rebuild. All of them are below one prefix, to which roles
    and readers have access.
    """
    table_id, _, log = state_id.partition("/")
    return f"{table_id}/state/{log}/" if log else f"{table_id}/state/"


def blob_prefix(state_id: str, kind: str) -> str:
    """Return the prefix of the blobs of a state that are of a kind, such as ``delta``."""
    return f"{state_prefix(state_id)}{kind}s/"


def spark_package_prefix(version: str) -> str:
    """Return the prefix of a Spark package."""
    return f"{SPARK_CODE}/{version}/"


def spark_package_path(version: str, name: str) -> str:
    """Return the path of a file of a Spark package."""
    return f"{spark_package_prefix(version)}{name}"


def spark_run_path(table_id: str, job_id: str, attempt: int, run_id: str) -> str:
    """Return the path of the marker that names the run of one attempt at a job."""
    return f"{SPARK_JOBS.parts(table_id, job_id)}{attempt:06d}-{run_id}"


def parse_spark_run_path(path: str) -> tuple[int, str] | None:
    """Return the attempt and the run id in a path made by `spark_run_path`; None for another."""
    attempt, _, run_id = path.rpartition("/")[2].partition("-")
    is_run = attempt.isascii() and attempt.isdecimal() and run_id
    return (int(attempt), run_id) if is_run else None


def steps_prefix(table_id: str, job_id: str) -> str:
    """Return the prefix of the results of the steps that a job was cut into."""
    return f"{JOB_NOTES.prefix(table_id)}{job_id}/steps/"


def step_path(table_id: str, job_id: str, first: int, end: int) -> str:
    """Return the path of the result of one step, over the cells from `first` up to `end`."""
    return f"{steps_prefix(table_id, job_id)}{first:04d}-{end:04d}.json"


def parse_step_path(path: str) -> tuple[int, int]:
    """Return the cells of the step whose result is stored at a path."""
    first, _, end = path.rpartition("/")[2].removesuffix(".json").partition("-")
    return int(first), int(end)


def step_attempts_prefix(table_id: str, job_id: str, first: int, end: int) -> str:
    """Return the prefix of the attempts at one step."""
    return f"{JOB_NOTES.prefix(table_id)}{job_id}/tries/{first:04d}-{end:04d}/"


def set_aside_path(table_id: str, job_id: str, place: str) -> str:
    """Return the path of the marker that a job must not be retried automatically in `place`."""
    return f"{JOB_NOTES.prefix(table_id)}{job_id}/set-aside-{place}"


def parse_job_note_path(path: str) -> tuple[str, str]:
    """Return the job that a path below `JOB_NOTES.prefix` belongs to, and the rest of the path."""
    job_id, _, rest = path.partition("/jobs/")[2].partition("/")
    return job_id, rest


def purge_matches_path(table_id: str, purge_id: str, unique: str) -> str:
    """Return the path of the result of one step of a purge."""
    return f"{PURGES.parts(table_id, purge_id)}{unique}.json"


def split_job_id(partition: str) -> str:
    """Return the id of the job that splits a partition."""
    return f"split-{partition}"


METADATA_SUFFIX = ".metadata.json"
"""How names of the metadata of Iceberg tables end."""
MANIFEST_SUFFIX = ".avro"
"""How names of manifests and of their lists end."""
VERSION_HINT = "version-hint.text"
"""The file that names the newest metadata, for engines that read a folder without a catalog."""


def iceberg_prefix(table_id: str) -> str:
    """Return the prefix of what is published of a table for readers of Iceberg."""
    return f"{table_id}/iceberg/"


def iceberg_metadata_path(table_id: str, name: str) -> str:
    """Return the path of a manifest, a manifest list, or the metadata of a published table."""
    return f"{iceberg_prefix(table_id)}metadata/{name}"


def iceberg_deletes_path(table_id: str, name: str) -> str:
    """Return the path of a file with the positions of a shard's dead rows."""
    return f"{iceberg_prefix(table_id)}deletes/{name}"


MANIFEST = "_manifest.json"
"""The name of an export's manifest. Readers of folders skip names that begin with "_"."""


def export_task_path(table_id: str, export_id: str, cut: str, task: int) -> str:
    """Return the path of one task; `cut` identifies the plan that cut the export into tasks."""
    return f"{EXPORTS.parts(table_id, export_id)}{cut}/{task:05d}.json"


def export_attempts_prefix(table_id: str, export_id: str, task: int) -> str:
    """Return the prefix of the attempts of functions at one task."""
    return f"{EXPORTS.parts(table_id, export_id)}tries/{task:05d}/"


def export_done_path(table_id: str, export_id: str, task: int) -> str:
    """Return the path of the result of one finished task."""
    return f"{EXPORTS.parts(table_id, export_id)}done/{task:05d}.json"


def exported_prefix(task: int) -> str:
    """Return the common prefix of the names of the files that one task of an export writes."""
    return f"part-{task:05d}-"


def exported_file(task: int, number: int) -> str:
    """Return the name of a task's `number`-th file, from 0. Names sort as the rows do."""
    return f"{exported_prefix(task)}{number:03d}.parquet"


def publication_sequence(path: str) -> int | None:
    """Return the number that the name of a published object begins with; None without one."""
    number, dash, _ = path.rpartition("/")[2].partition("-")
    return int(number) if dash and number.isdecimal() else None


RESULTS_OF_QUERIES = "queries/"
"""The prefix of all that queries store in the results bucket."""


def query_prefix(query_id: str) -> str:
    """Return the prefix, in the results bucket, of all that a query stores."""
    return f"{RESULTS_OF_QUERIES}{query_id}/"


def query_path(query_id: str) -> str:
    """Return the path of what a query asked, and what was fixed when it began."""
    return f"{query_prefix(query_id)}_query.json"


def query_manifest_path(query_id: str) -> str:
    """Return the path of the manifest of a query, which says how it ended."""
    return f"{query_prefix(query_id)}{MANIFEST}"


def query_task_path(query_id: str, cut: str, task: int) -> str:
    """Return the path of one sub-query; `cut` identifies the plan that cut the query."""
    return f"{query_prefix(query_id)}_tasks/{cut}/{task:05d}.json"


def query_done_path(query_id: str, task: int) -> str:
    """Return the path of the end of one sub-query."""
    return f"{query_prefix(query_id)}_done/{task:05d}.json"


def query_attempts_prefix(query_id: str, task: int) -> str:
    """Return the prefix of the attempts of functions at one sub-query."""
    return f"{query_prefix(query_id)}_tries/{task:05d}/"


def query_file(task: int, attempt: str, number: int) -> str:
    """Return the name, without its suffix, of the `number`-th file, from 0, that an attempt at a
    sub-query writes.
    """
    return f"part-{task:05d}-{attempt}-{number:03d}"


# Names of resources, made here alone: buckets, queues, DynamoDB tables, the Spark application.
#
# `template.yaml` spells the same names with ``!Sub``; a test compares the two.

REPLIES = "replies"
"""The queue of replies to administrators, who receive from it themselves."""


def dead_letter_queue(queue: str) -> str:
    """Return the dead-letter queue of a queue."""
    return f"{queue}-dead"


@dataclass(frozen=True, slots=True)
class InstanceNames:
    """The names of one instance's resources. Bucket names include the account, to be unique."""

    instance: str
    account: str

    @property
    def ingest_bucket(self) -> str:
        """The bucket into which files are dropped, under ``<table name>/``."""
        return f"dormouse-{self.instance}-ingest-{self.account}"

    @property
    def data_bucket(self) -> str:
        """The bucket that holds shards and state."""
        return f"dormouse-{self.instance}-data-{self.account}"

    @property
    def results_bucket(self) -> str:
        """The bucket of exported rows; its objects expire after a while."""
        return f"dormouse-{self.instance}-results-{self.account}"

    def table(self, space: str) -> str:
        """Return the DynamoDB table of a space of items (`items.store`): ``state`` orders commits,
        of ``subjects`` there are no backups.
        """
        return f"dormouse-{self.instance}-{space}"

    @property
    def spark_application(self) -> str:
        """The application of EMR Serverless that runs Spark jobs."""
        return f"dormouse-{self.instance}"

    def queue(self, queue: str) -> str:
        """Return the SQS name of a queue of `messages.QUEUES`, or of its dead-letter queue."""
        return f"dormouse-{self.instance}-{queue}"
