"""Make what the events of ``events/`` name, on the local stack: `make events` calls this.

The table `letters` is the one of ``events/administer/good.json``, whose id follows from its
request. Each stage finds something of its own to do: files, shards to merge or to delete, a purge,
an export, a run of Spark that has ended. Run events in the order of `ORDER`: the last of them
splits the partition that the others name, and deletes the table.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from hashlib import md5
from pathlib import Path

from dormouse.aws.clients import client
from dormouse.aws.emr import EmrServerless
from dormouse.client.instance import Instance
from dormouse.errors import DormouseError
from dormouse.features.administration import administer
from dormouse.features.compaction import compact
from dormouse.features.export import export_id_of
from dormouse.features.ingest import ingest
from dormouse.features.purge import purge_id_of
from dormouse.features.spark import save_spark_request, save_spark_run
from dormouse.messages.requests import CreateTable, ExportRows, PurgeRows, TagVersion
from dormouse.messages.stages import CompactionJob, IngestJob, SelectionMessage
from dormouse.ports import Services, SparkRun
from dormouse.settings import SparkSettings
from dormouse.state.jobs import ClusterSize
from dormouse.state.sources import Source
from dormouse.state.state import AssignJob
from dormouse.stored.paths import InstanceNames, make_shard_id
from dormouse.tables.table import Table
from dormouse_cli.local import detached

EVENTS = Path(__file__).parents[1] / "events"
STAGES = (
    *("administer", "batch_files", "ingest", "compact", "collect_garbage", "purge_rows"),
    *(
        "export_rows",
        "answer_query",
        "dispatch_spark",
        "track_spark",
        "plan_table",
        "publish_iceberg",
    ),
    *("split_partition", "measure", "sweep"),
)
ORDER = (
    *(f"{stage}/{event}" for stage in STAGES for event in ("good", "duplicate")),
    *(f"{stage}/malformed" for stage in STAGES),
    *(f"{stage}/mixed" for stage in STAGES[1:]),
    *(f"batch_files/{event}" for event in ("sns", "eventbridge")),
    *(f"answer_query/{event}" for event in ("sql", "cancel")),
    *(f"serve_catalog/{event}" for event in ("good", "list", "write")),
    *(f"serve_http/{event}" for event in ("good", "list", "rows", "malformed")),
    *("sweep/audit", "administer/restore", "administer/mixed"),
)
"""The events, as far as a stage has them: those that find work first, the deletion last."""

JOB, SPARK_JOB, TRACKED_JOB, GARBAGE_JOB = (
    f"018f3a5e7c2d4b6f8a9b0c1d2e3f40{n}" for n in range(51, 55)
)
PURGE_REQUEST, EXPORT_REQUEST, RUN_TOKEN = "purge-letters-1", "export-letters-1", "run-letters-1"
TAG_REQUEST = "tag-letters-1"
PURGE, EXPORT = purge_id_of(PURGE_REQUEST), export_id_of(EXPORT_REQUEST)
FILES: Mapping[str, bytes] = {
    "letters/1.csv": b"letter,at,note\na,1,x\nb,2,\n",
    "letters/2.csv": b"letter,at,note\nc,3,y\n",
    "letters/bad.csv": b"letter,at,note\nd,soon,z\n",
    "letters/2026/01.csv": b"letter,at,note\ne,4,\n",
    "letters/a file, with spaces.csv": b"letter,at,note\nf,5,\n",
    "nobody/1.csv": b"letter,at,note\ng,6,\n",
}
SHARDS, PURGED = 13, 8
"""Two shards each for the garbage and three compactions, one to purge, four to plan."""


def etag(body: bytes) -> str:
    """Return the ETag of an object."""
    return md5(body, usedforsecurity=False).hexdigest()


def ingest_job_id(number: int) -> str:
    """Return the id of the ingest job that makes a shard."""
    return f"018f3a5e6b1c4a5e7f8091a2b3c4d6{number:02x}"


def shard_id(number: int) -> str:
    """Return the id of a shard that is made."""
    return make_shard_id(_Ids(number).new(), 0)


def create_request() -> CreateTable:
    """Return the request of ``events/administer/good.json``."""
    event = json.loads((EVENTS / "administer" / "good.json").read_text())
    body = json.loads(event["Records"][0]["body"])
    return CreateTable(body["request_id"], body["name"], body["schema"], body["properties"], ())


def make(instance: Instance) -> Table:
    """Make everything; what is there already stays."""
    services = instance.services
    administer(services, create_request())
    table = instance.table("letters").table
    with tempfile.TemporaryDirectory() as folder:
        for key, body in FILES.items():
            _drop(instance, Path(folder), key, body)
        for number in range(SHARDS):
            key, rows = f"letters/made/{number:02}.csv", _rows(number)
            source = _drop(instance, Path(folder), key, rows)
            job = IngestJob(table.id, 0, ingest_job_id(number), (source,))
            ingest(replace(services, ids=_Ids(number)), job)
    for job_id, first in ((GARBAGE_JOB, 0), (JOB, 2), (SPARK_JOB, 4), (TRACKED_JOB, 6)):
        _assign(services, table, job_id, first)
    compact(services, CompactionJob(table.id, 0, GARBAGE_JOB))
    _run_on_spark(services, _names(instance), table)
    purged = SelectionMessage(where="letter = 'purged'")
    administer(services, PurgeRows(PURGE_REQUEST, "letters", purged))
    administer(services, ExportRows(EXPORT_REQUEST, "letters", "letters"))
    made = services.store(table).current().version
    administer(services, TagVersion(TAG_REQUEST, "letters", made, "made"))
    return table


class _Ids:
    """Ids that are the same each time, for the run of an ingest job."""

    def __init__(self, number: int) -> None:
        self._number, self._given = number, 0

    def new(self) -> str:
        self._given += 1
        return f"018f3a5e6b1c4a5e7f8091a2b3c4{self._number:02x}{self._given:02x}"


def _rows(number: int) -> bytes:
    notes = ["purged" if number == PURGED else chr(ord("h") + at) for at in range(10)]
    lines = [f"{letter},{100 * number + at},made" for at, letter in enumerate(notes)]
    return ("letter,at,note\n" + "\n".join(lines) + "\n").encode()


def _drop(instance: Instance, folder: Path, key: str, body: bytes) -> Source:
    local = folder / "file"
    local.write_bytes(body)
    return instance.bucket.drop(key, local)


def _assign(services: Services, table: Table, job_id: str, first: int) -> None:
    """Assign a job that merges two shards; one that was assigned, or is done, is not again."""
    inputs = (shard_id(first), shard_id(first + 1))
    services.store(table).commit(AssignJob(job_id, "root", inputs), generation=0)


def _names(instance: Instance) -> InstanceNames:
    _, name, _, account = instance.bucket.name.split("-")
    return InstanceNames(name, account)


def _run_on_spark(services: Services, names: InstanceNames, table: Table) -> None:
    """Start a run of a compaction, and cancel it, as if it had taken too long."""
    emr = client("emr-serverless")
    role = f"arn:aws:iam::{names.account}:role/events"
    spark = EmrServerless(emr, SparkSettings(names.spark_application, role, Path()), names)
    job = CompactionJob(table.id, 0, TRACKED_JOB)
    save_spark_request(services, job, (shard_id(6), shard_id(7)))
    size = ClusterSize(1, 1, 1024**3)
    run = SparkRun(table.id, TRACKED_JOB, "compaction", 0, 1, RUN_TOKEN, size, "none")
    run_id = spark.start(run)
    save_spark_run(services, job, 1, run_id)
    emr.cancel_job_run(applicationId=names.spark_application, jobRunId=run_id)


def main() -> int:
    """Make everything on the stack that is exported, or that runs in the background."""
    stack = detached.running()
    if "AWS_ENDPOINT_URL" not in os.environ:
        if stack is None or not stack.endpoint_url:  # it is starting
            print(
                "error: no local stack; `dormouse local up --no-triggers --detach` starts one",
                file=sys.stderr,
            )
            return 1
        os.environ.update(stack.environment)
    try:
        table = make(Instance.connect(os.environ.get("DORMOUSE_INSTANCE", "local")))
    except DormouseError as error:
        print(f"error: {error.explanation}", file=sys.stderr)
        return 1
    print(f"table letters ({table.id}) has what the events name; they find work in this order:")
    print("\n".join(each for each in ORDER if (EVENTS / f"{each}.json").is_file()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
