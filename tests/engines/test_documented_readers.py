"""What docs/iceberg.md has for PyIceberg, Polars and DuckDB runs as it is there; what the README
has, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dormouse.client.instance import Instance
from tests.engines.documented import ENDPOINT, PAGE, blocks, check_users, run_python, users
from tests.support.waiting import LIMIT_SECONDS

README = (PAGE.parents[1] / "README.md").read_text()

LOAD = """
import importlib, pathlib, duckdb
connection = duckdb.connect(config={"autoinstall_known_extensions": False})
for name in ("avro", "httpfs", "iceberg"):
    package = importlib.import_module(f"duckdb_extension_{name}")
    (file,) = pathlib.Path(next(iter(package.__path__))).rglob("*.duckdb_extension")
    connection.execute(f"LOAD '{file}'")
"""


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with users(tmp_path_factory.mktemp("documented")) as (_, uri):
        yield uri


@pytest.mark.parametrize("engine", ["PyIceberg", "Polars"])
def test_a_program_of_the_page_prints_the_rows(engine: str, uri: str) -> None:
    (code,) = blocks(engine)
    check_users(run_python(engine.lower(), code, uri))


def test_the_statements_of_the_page_return_the_rows_in_duckdb(uri: str) -> None:
    (statements,) = blocks("DuckDB")
    assert ENDPOINT in statements
    asked = statements.replace(ENDPOINT, uri)
    check_users(
        run_python("duckdb", f"{LOAD}\nprint(connection.execute({asked!r}).fetchall())", uri)
    )


def test_the_query_of_the_readme_returns_in_duckdb_what_it_shows(tmp_path: Path) -> None:
    found = re.search(r"```sql\n(.*?iceberg_scan.*?)```\n\n```console\n(.*?)```", README, re.DOTALL)
    assert found
    csv = re.search(r"printf '(id,at,name.*?)' > users\.csv", README)
    assert csv
    (tmp_path / "users.csv").write_text(csv[1].replace("\\n", "\n"))
    with Instance.open(tmp_path / "mice", background=False) as instance:
        schema = "id:long, at:timestamp, name:string?"
        instance.create_table("users", schema, {"iceberg": "on"}, row_keys=["id"], sort_keys=["at"])
        instance.table("users").ingest(str(tmp_path / "users.csv"))
        assert instance.folder is not None
        instance.folder.finish(LIMIT_SECONDS)
        metadata = instance.table("users").iceberg.show().metadata
    query, count = re.subn(r"(?<=iceberg_scan\(')[^']+", metadata, found[1])
    assert count == 1
    code = f"{LOAD}\nconnection.execute(\"SET TimeZone = 'UTC'\")\nprint(connection.sql({query!r}))"
    assert run_python("duckdb", code, "").split() == found[2].split()
