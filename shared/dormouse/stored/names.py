"""Every name there is, made and parsed here: buckets, queues, DynamoDB tables, object keys.

`template.yaml` spells the same names with ``!Sub``; a test holds the two against each other.
"""

from __future__ import annotations

from dataclasses import dataclass

QUEUES = (
    "files",
    "ingest-jobs",
    "table-changes",
    "compaction-jobs",
    "partition-splits",
    "gc-candidates",
    "admin",
    "purges",
    "exports",
    "spark-jobs",
    "spark-runs",
)
"""All queues, in the order of the flow. Each has a dead-letter queue."""
TABLE_ID_DIGITS = 16
"""How long ids of tables are; roles have access to objects below prefixes of this length alone."""
SPARK_CODE = "spark-code"
"""The one folder of the data bucket that is no table's: the code of Spark jobs."""
REPLIES = "replies"
"""The queue for replies to administrators, who take them from there themselves."""


def dead_letter_queue(queue: str) -> str:
    """Return the dead-letter queue of a queue."""
    return f"{queue}-dead"


@dataclass(frozen=True, slots=True)
class InstanceNames:
    """The names of one instance's resources; bucket names carry the account to be unique."""

    instance: str
    account: str

    @property
    def ingest_bucket(self) -> str:
        """The bucket files are dropped into, under ``<table name>/``."""
        return f"dormouse-{self.instance}-ingest-{self.account}"

    @property
    def data_bucket(self) -> str:
        """The bucket that holds shards and state."""
        return f"dormouse-{self.instance}-data-{self.account}"

    @property
    def results_bucket(self) -> str:
        """The bucket that exported rows are put into; what lies there is deleted after a while."""
        return f"dormouse-{self.instance}-results-{self.account}"

    @property
    def tables_table(self) -> str:
        """The DynamoDB table of the registry of tables."""
        return f"dormouse-{self.instance}-tables"

    @property
    def state_table(self) -> str:
        """The DynamoDB table that orders commits."""
        return f"dormouse-{self.instance}-state"

    @property
    def references_table(self) -> str:
        """The DynamoDB table of references, and of deltas and sources, of tables kept there."""
        return f"dormouse-{self.instance}-references"

    @property
    def shards_table(self) -> str:
        """The DynamoDB table of shards of tables kept in DynamoDB."""
        return f"dormouse-{self.instance}-shards"

    @property
    def partitions_table(self) -> str:
        """The DynamoDB table of partitions, and their jobs, of tables kept in DynamoDB."""
        return f"dormouse-{self.instance}-partitions"

    @property
    def jobs_table(self) -> str:
        """The DynamoDB table of the job tracker."""
        return f"dormouse-{self.instance}-jobs"

    @property
    def spark_application(self) -> str:
        """The application of EMR Serverless that runs Spark jobs."""
        return f"dormouse-{self.instance}"

    def spark_package_uri(self, version: str, name: str) -> str:
        """Return where a file of a package of Spark jobs lies, as Spark is told."""
        return f"s3://{self.data_bucket}/{spark_package_path(version, name)}"

    def queue(self, queue: str) -> str:
        """Return the SQS name of a queue of `QUEUES`, or of its dead-letter queue."""
        return f"dormouse-{self.instance}-{queue}"


def table_prefix(table_id: str) -> str:
    """Return the prefix of all that a table keeps in the data bucket."""
    return f"{table_id}/"


def data_prefix(table_id: str) -> str:
    """Return the prefix of a table's shards."""
    return f"{table_id}/data/"


def shard_path(table_id: str, shard_id: str) -> str:
    """Return the path of a shard, relative to the data root."""
    return f"{data_prefix(table_id)}{shard_id}.parquet"


def shard_prefix(table_id: str, run: str) -> str:
    """Return the prefix of the shards which a run of a job writes."""
    return f"{data_prefix(table_id)}{run}-"


def shard_id_of(path: str) -> str | None:
    """Return the shard id of a path below a data prefix; None if it is no shard's path."""
    name = path.rpartition("/")[2]
    return name.removesuffix(".parquet") if name.endswith(".parquet") else None


def make_shard_id(run: str, number: int) -> str:
    """Return the id of the shard which a run of a job writes as its `number`-th, from 0."""
    return f"{run}-{number}"


PART_NUMBERS = 1_000_000
"""How many numbers for shards each part of a run has that several write side by side."""


def part_shard_number(part: int, number: int) -> int:
    """Return the number in its run of the `number`-th shard of a part; in key order, as parts
    are."""
    return part * PART_NUMBERS + number


def run_of_shard(shard_id: str) -> tuple[str, int]:
    """Return the run that wrote a shard, and the shard's number in it; -1 if the id tells none."""
    run, dash, number = shard_id.rpartition("-")
    return (run, int(number)) if dash and number.isdecimal() else (shard_id, -1)


def id_prefix(time_ms: int) -> str:
    """Return what ids given at a time begin with, those of runs and their shards; they sort by
    it."""
    return f"{max(0, time_ms):012x}"


def state_prefix(state_id: str) -> str:
    """Return the prefix of a state: its deltas and snapshots.

    The states of one table, which has another after a rebuild, lie below one prefix, to which roles
    and readers are given access.
    """
    table_id, _, log = state_id.partition("/")
    return f"{table_id}/state/{log}/" if log else f"{table_id}/state/"


def delta_prefix(table_id: str) -> str:
    """Return the prefix of a table's state deltas."""
    return f"{state_prefix(table_id)}deltas/"


def segment_prefix(table_id: str) -> str:
    """Return the prefix of the segments in which many of a table's deltas are kept together."""
    return f"{state_prefix(table_id)}segments/"


def snapshot_prefix(table_id: str) -> str:
    """Return the prefix of a table's state snapshots."""
    return f"{state_prefix(table_id)}snapshots/"


def sources_prefix(table_id: str) -> str:
    """Return the prefix of the segments in which a table remembers its sources."""
    return f"{state_prefix(table_id)}sources/"


def sources_path(table_id: str, segment: str) -> str:
    """Return the path of a segment of remembered sources."""
    return f"{sources_prefix(table_id)}{segment}.parquet"


def sources_segment_of(path: str) -> str:
    """Return the id of the segment of sources at a path below their prefix."""
    return path.rpartition("/")[2].removesuffix(".parquet")


def tree_prefix(table_id: str) -> str:
    """Return the prefix of the partitions that a table was to begin anew with."""
    return f"{state_prefix(table_id)}trees/"


def tree_path(table_id: str, tree: str) -> str:
    """Return the path of the partitions which a generation of a table begins with."""
    return f"{tree_prefix(table_id)}{tree}.json"


def run_marker_prefix(table_id: str) -> str:
    """Return the prefix of the notes that end runs whose shards do not say which is the last."""
    return f"{table_id}/endings/"


def run_marker_path(table_id: str, run: str) -> str:
    """Return the path of the note that ends a run."""
    return f"{run_marker_prefix(table_id)}{run}.json"


def run_of_marker(path: str) -> str:
    """Return the run which the note of that path ends."""
    return path.rpartition("/")[2].removesuffix(".json")


def spark_package_prefix(version: str) -> str:
    """Return the prefix of a package of Spark jobs."""
    return f"{SPARK_CODE}/{version}/"


def spark_package_path(version: str, name: str) -> str:
    """Return the path of a file of a package of Spark jobs."""
    return f"{spark_package_prefix(version)}{name}"


def spark_prefix(table_id: str) -> str:
    """Return the prefix of what is kept of the jobs that Spark is to do."""
    return f"{table_id}/spark/"


def spark_request_path(table_id: str, job_id: str) -> str:
    """Return the path of a job that Spark is to do."""
    return f"{spark_prefix(table_id)}{job_id}.json"


def spark_job_of(path: str) -> str:
    """Return the job whose request lies at a path."""
    return path.rpartition("/")[2].removesuffix(".json")


def spark_runs_prefix(table_id: str, job_id: str) -> str:
    """Return the prefix of the notes about the runs of such a job."""
    return f"{spark_prefix(table_id)}{job_id}/"


def spark_run_path(table_id: str, job_id: str, attempt: int, run_id: str) -> str:
    """Return the path of the note that an attempt at a job is this run."""
    return f"{spark_runs_prefix(table_id, job_id)}{attempt:06d}-{run_id}"


def parse_spark_run_path(path: str) -> tuple[int, str]:
    """Return the attempt and the run of a path below a prefix of runs."""
    attempt, _, run_id = path.rpartition("/")[2].partition("-")
    return int(attempt), run_id


def job_notes_prefix(table_id: str) -> str:
    """Return the prefix of what is kept of jobs that are too much for one function."""
    return f"{table_id}/jobs/"


def steps_prefix(table_id: str, job_id: str) -> str:
    """Return the prefix of what became of the steps that a job was cut into."""
    return f"{job_notes_prefix(table_id)}{job_id}/steps/"


def step_path(table_id: str, job_id: str, first: int, end: int) -> str:
    """Return the path of what became of one step, by the cells it has."""
    return f"{steps_prefix(table_id, job_id)}{first:04d}-{end:04d}.json"


def parse_step_path(path: str) -> tuple[int, int]:
    """Return the cells of the step whose note lies at a path."""
    first, _, end = path.rpartition("/")[2].removesuffix(".json").partition("-")
    return int(first), int(end)


def step_attempts_prefix(table_id: str, job_id: str, first: int, end: int) -> str:
    """Return the prefix of the notes about the runs of one step."""
    return f"{job_notes_prefix(table_id)}{job_id}/tries/{first:04d}-{end:04d}/"


def set_aside_path(table_id: str, job_id: str, place: str) -> str:
    """Return the path of the note that a job is not to be tried again by itself where it was."""
    return f"{job_notes_prefix(table_id)}{job_id}/set-aside-{place}"


def parse_job_note_path(path: str) -> tuple[str, str]:
    """Return the job that a path below `job_notes_prefix` is about, and what follows in it."""
    job_id, _, rest = path.partition("/jobs/")[2].partition("/")
    return job_id, rest


_PURGE = "-purge-"


def purge_prefix(table_id: str) -> str:
    """Return the prefix of a table's purges that are not finished."""
    return f"{table_id}/purges/"


def purge_path(table_id: str, purge_id: str) -> str:
    """Return the path of a purge's request."""
    return f"{purge_prefix(table_id)}{purge_id}.json"


def purge_matches_prefix(table_id: str, purge_id: str) -> str:
    """Return the prefix of what the steps of a purge found out about shards."""
    return f"{purge_prefix(table_id)}{purge_id}/"


def purge_matches_path(table_id: str, purge_id: str, unique: str) -> str:
    """Return the path of what one step of a purge found out."""
    return f"{purge_matches_prefix(table_id, purge_id)}{unique}.json"


def parse_purge_path(path: str) -> tuple[str, bool]:
    """Return the purge id of a path below a purge prefix, and whether its request lies there."""
    _, _, rest = path.partition("/purges/")
    purge_id, slash, _ = rest.partition("/")
    return (purge_id, False) if slash else (rest.removesuffix(".json"), True)


def purge_job_id(purge_id: str, unique: str) -> str:
    """Return the id of a job which rewrites shards for a purge; it begins with `unique`."""
    return f"{unique}{_PURGE}{purge_id}"


def purge_of(job_id: str) -> str | None:
    """Return the purge a job rewrites shards for; None if it is for none."""
    _, found, purge_id = job_id.partition(_PURGE)
    return purge_id if found else None


def split_job_id(partition: str) -> str:
    """Return the id of the job that splits a partition."""
    return f"split-{partition}"


MANIFEST = "_manifest.json"
"""The name of an export's manifest. Readers of folders of Parquet files pass over such names."""


def export_prefix(table_id: str) -> str:
    """Return the prefix of what a table's exports keep in the data bucket while they run."""
    return f"{table_id}/exports/"


def export_path(table_id: str, export_id: str) -> str:
    """Return the path of an export that runs; where there is nothing, it has ended."""
    return f"{export_prefix(table_id)}{export_id}.json"


def export_parts_prefix(table_id: str, export_id: str) -> str:
    """Return the prefix of what the tasks of an export are to do, and have done."""
    return f"{export_prefix(table_id)}{export_id}/"


def export_task_path(table_id: str, export_id: str, cut: str, task: int) -> str:
    """Return the path of what one task is to do, by one cutting into tasks."""
    return f"{export_parts_prefix(table_id, export_id)}{cut}/{task:05d}.json"


def export_attempts_prefix(table_id: str, export_id: str, task: int) -> str:
    """Return the prefix of the notes about a task's runs by functions."""
    return f"{export_parts_prefix(table_id, export_id)}tries/{task:05d}/"


def export_done_prefix(table_id: str, export_id: str) -> str:
    """Return the prefix of what an export's finished tasks wrote."""
    return f"{export_parts_prefix(table_id, export_id)}done/"


def export_done_path(table_id: str, export_id: str, task: int) -> str:
    """Return the path of what one finished task wrote."""
    return f"{export_done_prefix(table_id, export_id)}{task:05d}.json"


def parse_export_path(path: str) -> tuple[str, bool]:
    """Return the export id of a path below an export prefix, and whether it is that of the
    export."""
    _, _, rest = path.partition("/exports/")
    export_id, slash, _ = rest.partition("/")
    return (export_id, False) if slash else (rest.removesuffix(".json"), True)


def exported_prefix(task: int) -> str:
    """Return what the names of all files of one task of an export begin with."""
    return f"part-{task:05d}-"


def exported_file(task: int, number: int) -> str:
    """Return the name of the `number`-th file, from 0, of a task; names sort as the rows do."""
    return f"{exported_prefix(task)}{number:03d}.parquet"
