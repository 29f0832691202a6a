"""PyIceberg and DuckDB read tables by way of the catalog, with signatures and without, and are
refused whatever would change a table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pytest

from dormouse.client.instance import Instance
from dormouse.features.catalog import serve_catalog
from dormouse.http.loopback import LoopbackServer
from dormouse.http.messages import HttpRequest, HttpResponse, error_response
from dormouse.iceberg.rest import BASE
from tests.engines.environment import run
from tests.engines.signatures import is_signed

READER = Path(__file__).parent / "catalog_reader.py"
KEY = ("AKIDEXAMPLE", "wJalrXUtnFEMI+K7MDENG/bPxRfiCYEXAMPLE")
REGION = "eu-west-2"
TABLES = ("plain", "odd.name-1", "empty")
SAYS_READ_ONLY = r"can only be read|does not support endpoint: (POST|DELETE)"
"""How the catalog says it, or PyIceberg, which has learned what can be asked."""
WRITES = ("insert", "drop", "create", "rename", "namespace")


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """A folder with published tables, one of which was written and compacted several times."""
    folder = tmp_path_factory.mktemp("served")
    with Instance.open(folder / "mice", background=False) as opened:
        for name in (*TABLES, "private"):
            opened.create_table(name, "k:long, s:string?", {"iceberg": "on"}, row_keys=["k"])
            opened.table(name).iceberg.publish()
        opened.set_properties("private", {"iceberg": "off"})
        for start in (0, 50, 100):
            rows = [{"k": n, "s": f"text {n} 🐭"} for n in range(start, start + 80)]
            for name in ("plain", "odd.name-1", "private"):
                opened.table(name).ingest(pa.Table.from_pylist(rows))
        opened.compact("plain", everything=True)
        assert opened.folder is not None
        opened.folder.finish(60)
        yield opened


@pytest.mark.parametrize("engine", ["pyiceberg", "duckdb"])
def test_tables_are_read_by_way_of_the_catalog_and_not_changed(
    instance: Instance, engine: str, tmp_path: Path
) -> None:
    with instance.serve_catalog() as server:
        run(engine, {"uri": server.url + BASE, "tables": TABLES}, tmp_path, READER)
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["names"] == sorted(TABLES)
    assert set(found["refused"]) == {*WRITES, "missing"}
    for write in WRITES:
        assert re.search(SAYS_READ_ONLY, found["refused"][write]), found["refused"][write]
    assert re.search("no table|does not exist", found["refused"]["missing"])
    for name in TABLES:
        check_rows(instance, name, tmp_path)


@pytest.mark.parametrize("engine", ["pyiceberg", "duckdb"])
def test_signed_requests_are_answered_and_no_others(
    instance: Instance, engine: str, tmp_path: Path
) -> None:
    """As the API on AWS does: every request has a signature that botocore makes of it, too."""
    refused = []

    def answer(request: HttpRequest) -> HttpResponse:
        if is_signed(request, server.url, KEY, REGION):
            return serve_catalog(instance.services, request)
        refused.append(request)
        return error_response(403, "ForbiddenException", "the signature does not match")

    with LoopbackServer(answer) as server:
        task = {"uri": server.url + BASE, "tables": ["plain"], "key": KEY}
        run(engine, task, tmp_path, READER)
        check_rows(instance, "plain", tmp_path)
        assert not refused
        for other in (None, (KEY[0], KEY[1] + "x")):
            with pytest.raises(AssertionError, match="signature does not match|Forbidden"):
                run(engine, {**task, "key": other}, tmp_path, READER)
        assert refused


def check_rows(instance: Instance, name: str, folder: Path) -> None:
    """Check that an engine found the rows that a query finds."""
    expected = instance.table(name).query().read_all().to_pylist()
    found = feather.read_table(folder / f"{name}.arrow").to_pylist()
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert bool(expected) == (name != "empty")
