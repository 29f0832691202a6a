"""Row lineage as engines read it: what Dormouse says of each row, before and after compactions."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather

from dormouse.client.instance import Instance
from tests.engines.environment import run

COLUMNS = "k, _row_id, _last_updated_sequence_number"


def check_row_lineage(engine: str, folder: Path) -> None:
    """Publish versions of a table whose rows keep their ids, and let an engine read them."""
    task, expected = [], {}
    with Instance.open(folder / "mice", background=False) as mice:
        on = {"iceberg": "on", "iceberg_format": "3", "row_origin": "ids"}
        table = mice.create_table("rows", "k:long, a:string?", on, row_keys=["k"])

        def published() -> None:
            mice.wait()
            name, asked = f"{len(task)}", COLUMNS.split(", ")
            metadata = table.iceberg.show().metadata
            task.append(
                {"name": name, "metadata": metadata, "at": {"columns": COLUMNS}, "where": ""}
            )
            expected[name] = table.query(columns=asked).read_all().to_pylist()

        for keys in ([5, 1, 3], [2, 4], [9]):
            table.ingest(pa.table({"k": keys, "a": ["x"] * len(keys)})).wait()
            published()
        for where in ("k = 3", "_row_id = " + str(expected["2"][-1]["_row_id"])):
            mice.compact("rows", everything=True)
            published()
            table.delete(where)
            published()
    found = run(engine, task, folder)
    for name, rows in expected.items():
        error = found / f"{name}.error"
        assert not error.exists(), error.read_text()
        read = feather.read_table(found / f"{name}.arrow").sort_by("k").to_pylist()
        assert read == rows, name
    assert len({row["_row_id"] for row in expected["2"]}) == 6
    assert {row["k"] for row in expected["6"]} == {1, 2, 4, 5}
