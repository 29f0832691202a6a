"""Replies by the real functions: the last one comes when the effect is there, and not before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.features.export import load_manifest
from dormouse.messages.requests import (
    AdminRequest,
    CompactTable,
    ExportRows,
    IngestFiles,
    PurgeRows,
    SplitPartitions,
    verb_of,
)
from dormouse.messages.stages import SelectionMessage, encode
from dormouse.schema.schema import Schema
from dormouse.stored.paths import data_prefix, shard_id_of
from tests.support.waiting import LIMIT_SECONDS
from tests.system.admin import ACCEPTED, Admin
from tests.system.conftest import System

SCHEMA: dict[str, Any] = {
    "rowKeyFields": [{"name": "n", "type": "LongType"}],
    "valueFields": [{"name": "note", "type": "StringType", "nullable": True}],
}


def rows(first: int, last: int) -> pa.Table:
    numbers = range(first, last)
    return pa.table({"n": pa.array(numbers, pa.int64()), "note": [f"note {n}" for n in numbers]})


def test_a_request_is_finished_when_its_effect_is_there_and_not_before(
    system: System, tmp_path: Path
) -> None:
    admin = Admin()
    properties = {"compaction_files": 100, "gc_delay_seconds": 0}
    table = system.instance.create_table("replies", Schema.from_json(SCHEMA), properties)
    for first in (0, 10):
        table.ingest(rows(first, first + 20)).wait(LIMIT_SECONDS)
    services, table_id = system.instance.services, table.table.id
    pq.write_table(rows(90, 95), tmp_path / "where.parquet")
    system.instance.bucket.drop("else/where.parquet", tmp_path / "where.parquet")

    def objects() -> set[str]:
        return {shard_id_of(o.path) or "" for o in services.storage.list(data_prefix(table_id))}

    effects: dict[str, tuple[AdminRequest, Callable[[], bool]]] = {
        "ingest": (
            IngestFiles("replies-ingest", "replies", ("else",), reply=True),
            lambda: table.count() == 45,
        ),
        "compact": (
            CompactTable("replies-compact", "replies", all=True, reply=True),
            lambda: table.state().reference_count == 1,
        ),
        "split": (
            SplitPartitions("replies-split", "replies", forced=True, reply=True),
            lambda: len(list(table.state().partitions.leaves())) == 2,
        ),
        "purge": (
            PurgeRows("replies-purge", "replies", SelectionMessage(where="n = 92"), reply=True),
            lambda: table.prove_purge("n = 92").is_complete,
        ),
        "export": (
            ExportRows("replies-export", "replies", "replies/out", reply=True),
            lambda: load_manifest(services.results, "replies/out") is not None,
        ),
    }
    for verb, (request, effect) in effects.items():
        admin.send(encode(request))
        first = admin.first_reply(request.request_id)
        assert first["outcome"] == ACCEPTED, verb
        end = admin.reply(request.request_id)
        assert end["outcome"] == "finished", end
        assert effect(), f"{verb} was answered as finished, and is not"
        assert {job["id"] for job in first["jobs"]} <= {job.job_id for job in table.jobs()}
        (found,) = [job for job in table.jobs() if job.job_id == request.request_id]
        assert (found.state, found.kind) == ("finished", verb_of(request))
    assert objects() == set(table.state().shards)
