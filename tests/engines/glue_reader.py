"""Read a table by its entry in Glue, as PyIceberg finds it there; run in the environment of the
engines: ``python glue_reader.py ENGINE TASK.json FOLDER``.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any


def main(task_file: str, output: str) -> None:
    """Read each table of the task, and list what there is."""
    task: dict[str, Any] = json.loads(Path(task_file).read_text())
    catalog = importlib.import_module("pyiceberg.catalog").load_catalog(
        "mirror",
        **{
            "type": "glue",
            "glue.endpoint": task["endpoint"],
            "glue.region": task["region"],
            "glue.access-key-id": "none",
            "glue.secret-access-key": "none",
        },
    )
    names = [name for _, name in catalog.list_tables(task["database"])]
    rows = {
        name: catalog.load_table((task["database"], name)).scan().to_arrow().to_pylist()
        for name in names
    }
    (Path(output) / "found.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main(*sys.argv[2:])
