"""The project's own functions run by `dormouse local invoke`, on events of the project."""

from __future__ import annotations

import json
from pathlib import Path

from dormouse.messages.requests import CreateTable
from dormouse.messages.stages import encode
from tests.system.conftest import System

EVENTS = Path(__file__).parents[2] / "events"


def test_an_event_of_the_project_is_carried_out_by_its_function(system: System) -> None:
    result = system.dormouse("local", "invoke", "measure", str(EVENTS / "measure" / "good.json"))
    assert set(json.loads(result)) == {"sent"}


def test_a_request_in_an_event_has_its_effect_on_the_instance(
    system: System, tmp_path: Path
) -> None:
    event = json.loads((EVENTS / "administer" / "good.json").read_text())
    request = json.loads(event["Records"][0]["body"])
    assert request["type"] == "create_table"
    body = CreateTable("invoked-1", "invoked", request["schema"], {}, ())
    event["Records"] = [{**event["Records"][0], "body": encode(body)}]
    (tmp_path / "event.json").write_text(json.dumps(event))
    result = system.dormouse("local", "invoke", "administer", str(tmp_path / "event.json"))
    assert json.loads(result) == {"batchItemFailures": []}
    assert system.instance.table("invoked").count() == 0
