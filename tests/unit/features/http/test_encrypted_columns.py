"""Encrypted columns over HTTP, and on the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dormouse.client.instance import Instance
from dormouse_cli.main import app
from tests.support.plaintext import places_of
from tests.unit.features.http.conftest import Api

SECRET = b"Quokka"


@pytest.fixture
def mice(tmp_path: Path) -> Iterator[Instance]:
    with Instance.open(tmp_path / "mice", background=False) as instance:
        yield instance


def test_a_table_is_made_filled_and_read_over_http_and_by_commands(
    mice: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = Api(mice, "root")
    schema = {"schema": "id:long, ssn:string?", "row_keys": ["id"]}
    body = {"name": "people", "properties": {"encrypted_columns": "ssn"}, **schema}
    assert api.request("POST", "/tables", body)["state"] == "finished"
    api.found("POST", "/tables/people/rows", [{"id": 1, "ssn": "Quokka1"}])
    mice.wait()
    assert "dataKeys" not in str(api.get("/tables/people/schema"))
    page = api.found("POST", "/tables/people/query", {"columns": ["ssn"]})
    assert page["rows"] == [{"ssn": "Quokka1"}]
    sql = api.found("POST", "/sql", {"text": "SELECT id FROM people WHERE ssn = 'Quokka1'"})
    assert sql["rows"] == [{"id": 1}]
    where = {"where": "ssn = 'Quokka1'"}
    assert api.ask("POST", "/tables/people/query", where).status == 422
    (tmp_path / "mice.keys").rename(tmp_path / "elsewhere")
    refused = api.ask("POST", "/tables/people/query", {})
    assert refused.status == 403
    assert b"key 'default'" in refused.body
    assert len(api.found("POST", "/tables/people/query", {"columns": ["id"]})["rows"]) == 1
    monkeypatch.setenv("DORMOUSE_INSTANCE", str(tmp_path / "mice"))
    run = CliRunner().invoke
    assert "key 'default'" in run(app, ["query", "people"]).stderr
    monkeypatch.setenv("DORMOUSE_KEY_FILE", str(tmp_path / "elsewhere"))
    assert "Quokka1" in run(app, ["query", "people"]).stdout
    assert "encrypted by default" in run(app, ["table", "show", "people"]).stdout
    assert "Quokka1" in run(app, ["sql", "SELECT max(ssn) FROM people"]).stdout
    assert places_of(SECRET, tmp_path / "mice") == []
