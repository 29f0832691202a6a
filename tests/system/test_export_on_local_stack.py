"""Rows are exported by the real functions, and the files make the same table again."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.features.export import load_manifest
from dormouse.messages.requests import ExportRows
from dormouse.messages.stages import OutboundMessage, SelectionMessage
from dormouse.schema.schema import Schema
from tests.support.waiting import LIMIT_SECONDS
from tests.system.conftest import System

SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "name", "type": "StringType"}],
        "valueFields": [{"name": "size", "type": "LongType"}],
    }
)


def test_exported_rows_are_counted_copied_and_restored(system: System, tmp_path: Path) -> None:
    handle = system.instance.create_table("exported", SCHEMA, split_points=["m"])
    rows = pa.table({"name": list("thequickbrownfox"), "size": list(range(16))})
    handle.ingest(rows).wait(LIMIT_SECONDS)
    copy = tmp_path / "copy"
    found = system.dormouse(
        *("export", "exported", "--to", "exported/1", "--output", str(copy), "--format", "json")
    )
    facts = json.loads(found)
    assert facts["where"].startswith("s3://") and facts["where"].endswith("/exported/1")
    assert facts["rows"] == pq.read_table(copy).num_rows == 16
    system.instance.create_table("restored", SCHEMA)
    system.dormouse("ingest", "restored", str(copy), "--wait")
    shown = [system.dormouse("query", name, "--format", "csv") for name in ("exported", "restored")]
    assert shown[0] == shown[1]

    asked = ExportRows(
        "export-by-message",
        "exported",
        "exported/2",
        selection=SelectionMessage(where="size >= 10"),
    )
    handle.queues.send([OutboundMessage("admin", asked)])
    results = handle.services.results
    handle.polling.until_nothing(
        lambda: int(load_manifest(results, "exported/2") is None), timeout_seconds=LIMIT_SECONDS
    )
    manifest = load_manifest(results, "exported/2")
    assert manifest is not None
    assert manifest.rows == 6
    jobs = system.dormouse("jobs", "exported", "--format", "json").splitlines()
    kinds = [job for line in jobs if (job := json.loads(line))["kind"] == "export"]
    assert {(job["state"], job["rows"]) for job in kinds} == {("finished", 16), ("finished", 6)}
