"""From nothing to the first row that is found.

An empty environment is made, the package installed with what it needs, and the program run that a
newcomer would write. How long an installation takes depends on the index, so its bytes count more.
"""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path
from time import perf_counter

from bench.figures import emit
from tools.wheel import build_wheel, size_bytes

PACKAGES = {
    "dormouse": "",
    "duckdb": "duckdb",
    "sqlite": None,
    "lancedb": "lancedb",
    "deltalake": "deltalake",
}
"""What is installed: the wheel built here, the newest release of a package, or nothing."""
PROGRAMS: dict[str, dict[str, tuple[str, ...]]] = {
    "dormouse": {
        "import": ("import pyarrow as pa", "from dormouse.client import Instance"),
        "create": (
            'frame = pa.table({"id": [1, 2], "name": ["a", "b"]})',
            'table = Instance.open("./mice").create_table("rows", like=frame, row_keys=["id"])',
        ),
        "store": ("table.ingest(frame).wait()",),
        "find": ("print(table.query(exact=2).to_arrow().to_pylist())",),
    },
    "duckdb": {
        "import": ("import duckdb",),
        "create": (
            'db = duckdb.connect("rows.duckdb")',
            'db.execute("CREATE TABLE rows (id BIGINT PRIMARY KEY, name VARCHAR)")',
        ),
        "store": ("db.execute(\"INSERT INTO rows VALUES (1, 'a'), (2, 'b')\")",),
        "find": ('print(db.execute("SELECT * FROM rows WHERE id = 2").fetchall())',),
    },
    "sqlite": {
        "import": ("import sqlite3",),
        "create": (
            'db = sqlite3.connect("rows.sqlite")',
            'db.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, name TEXT)")',
        ),
        "store": (
            'db.executemany("INSERT INTO rows VALUES (?, ?)", [(1, "a"), (2, "b")])',
            "db.commit()",
        ),
        "find": ('print(db.execute("SELECT * FROM rows WHERE id = 2").fetchall())',),
    },
    "lancedb": {
        "import": ("import lancedb",),
        "create": ('db = lancedb.connect("./lance")',),
        "store": (
            'table = db.create_table("rows", [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])',
        ),
        "find": ('print(table.search().where("id = 2").to_list())',),
    },
    "deltalake": {
        "import": (
            "import pyarrow as pa, pyarrow.dataset as ds",
            "from deltalake import DeltaTable, write_deltalake",
        ),
        "store": ('write_deltalake("./delta", pa.table({"id": [1, 2], "name": ["a", "b"]}))',),
        "find": (
            'rows = DeltaTable("./delta").to_pyarrow_dataset()',
            'print(rows.to_table(filter=ds.field("id") == 2).to_pylist())',
        ),
    },
}
"""The shortest program of each that stores two rows durably and finds one by its key, by stages."""
STAGES = ("install", "import", "create", "store", "find")
EXTRAS = {"deltalake": ("pyarrow",)}
"""What a program needs beside the package."""


def lines_of(system: str) -> dict[str, tuple[str, ...]]:
    packages = [p for p in (PACKAGES[system], *EXTRAS.get(system, ())) if p is not None]
    names = " ".join(name or system for name in packages)
    return {"install": (f"pip install {names}",) if packages else (), **PROGRAMS[system]}


def measure(system: str, place: str) -> None:
    folder = Path(place)
    environment = folder / "environment"
    venv.create(environment, with_pip=True)
    empty_bytes = size_bytes(environment)
    python = str(environment / "bin" / "python")
    package = PACKAGES[system]
    started = perf_counter()
    if package is not None:
        wanted = [package or str(build_wheel(folder / "wheel")), *EXTRAS.get(system, ())]
        started = perf_counter()
        quiet = ["--quiet", "--disable-pip-version-check"]
        subprocess.run([python, "-m", "pip", "install", *quiet, *wanted], check=True)
    installed = perf_counter() if package is not None else started
    began = perf_counter()
    lines = [line for stage in PROGRAMS[system].values() for line in stage]
    program = [python, "-c", "\n".join(lines)]
    found = subprocess.run(program, cwd=folder, check=True, capture_output=True, text=True).stdout
    ended = perf_counter()
    if "b" not in found:
        raise ValueError(f"{system} did not find its row: {found}")
    emit(
        "first row",
        system,
        2,
        steps=sum(map(len, lines_of(system).values())),
        install_seconds=installed - started,
        program_seconds=ended - began,
        installed_mb=(size_bytes(environment) - empty_bytes) / 1e6,
    )
