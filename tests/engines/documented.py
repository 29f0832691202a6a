"""The code for each engine that docs/iceberg.md has, and an instance to run it on."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from dormouse.client.instance import Instance
from dormouse.iceberg.rest import BASE
from tests.engines.environment import python_of, variables_of
from tests.support.waiting import LIMIT_SECONDS

PAGE = Path(__file__).parents[2] / "docs" / "iceberg.md"
NAMES = ("Hazel", "Rip", "Nod")
"""Who the users are: of the ids 7, 42 and 99. The others have greater ids."""
OTHERS = "Nutkin"
ENDPOINT = "http://127.0.0.1:8181/iceberg"


def blocks(engine: str) -> list[str]:
    """Return the code of an engine's section."""
    _, _, rest = PAGE.read_text().partition(f"\n### {engine}\n")
    section = re.split(r"\n##+ ", rest)[0]
    found = re.findall(
        r"^```(?:python|sql|properties)\n(.*?)^```", section, re.DOTALL | re.MULTILINE
    )
    assert found, f"the page has no code for {engine}"
    return list(found)


@contextmanager
def users(folder: Path) -> Iterator[tuple[Instance, str]]:
    """Serve an instance with the table of the page, and one with rules; yield it and the URI."""
    with Instance.open(folder / "mice", background=False) as instance:
        instance.create_table("users", "id:long, name:string?", {"iceberg": "on"}, row_keys=["id"])
        rows = [*zip((7, 42, 99), NAMES, strict=True), *((n, OTHERS) for n in range(100, 300))]
        for part in (rows[:50], rows[50:]):
            batch = [{"id": number, "name": name} for number, name in part]
            instance.table("users").ingest(pa.Table.from_pylist(batch))
        rules = {"iceberg": "on", "iceberg_parts": "yes", "aggregations": "sum(clicks)"}
        instance.create_table("totals", "id:long, clicks:long", rules, row_keys=["id"])
        for _ in range(3):
            clicks = [{"id": n, "clicks": n} for n in range(20)]
            instance.table("totals").ingest(pa.Table.from_pylist(clicks))
        assert instance.folder is not None
        instance.folder.finish(LIMIT_SECONDS)
        with instance.serve_catalog() as server:
            yield instance, server.url + BASE


def run_python(engine: str, code: str, uri: str) -> str:
    """Run a program with the catalog, as ``dormouse iceberg serve`` does; return what it prints."""
    known = {"DORMOUSE_CATALOG_URI": uri, "PYICEBERG_CATALOG__DORMOUSE__URI": uri}
    path = {"PYTHONPATH": os.pathsep.join((str(PAGE.parents[1]), str(Path(__file__).parent)))}
    done = subprocess.run(
        [python_of(engine), "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **variables_of(engine), **path, **known},
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_users(printed: str) -> None:
    """Check that just the users with an id below 100 were printed."""
    assert all(name in printed for name in NAMES), printed
    assert OTHERS not in printed
