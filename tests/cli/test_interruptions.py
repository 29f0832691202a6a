"""Ctrl-C, and what is not there: a sentence each, and what to do; never a traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from dormouse.aws.clients import reading
from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.errors import NoSuchInstanceError, UnavailableError
from dormouse_cli.errors import exit_code
from tests.cli.conftest import Dormouse


def interrupted(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_after_ctrl_c_an_ingest_says_what_goes_on_and_how_to_follow_it(
    flights: Dormouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TableHandle, "ingest", interrupted)
    Path("rows.csv").write_text("carrier,flight,delay\nAA,1,1\n")
    result = flights("ingest", "flights", "rows.csv", "--wait")
    assert result.exit_code == 130
    assert "what was asked for until then goes on in the instance" in result.stderr
    assert "`dormouse jobs NAME` shows it, `dormouse wait NAME` waits for it" in result.stderr
    assert "Traceback" not in result.output


def test_after_ctrl_c_a_query_says_nothing_of_work(
    flights: Dormouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TableHandle, "query", interrupted)
    result = flights("query", "flights")
    assert (result.exit_code, result.stderr) == (130, "interrupted\n")


def test_before_the_instance_is_opened_nothing_was_asked_for(
    dormouse: Dormouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Instance, "connect", interrupted)
    result = dormouse("--instance", "./mice", "ingest", "flights", "rows.csv")
    assert (result.exit_code, result.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_an_output_folder_that_is_not_there_is_a_sentence_and_a_hint(
    flights: Dormouse, form: str
) -> None:
    result = flights("query", "flights", "--output", f"nowhere/rows.{form}")
    assert result.exit_code == 3
    error, hint = result.stderr.splitlines()
    assert error == f"error: cannot write 'nowhere/rows.{form}': No such file or directory"
    assert hint.startswith("hint: name a file in a folder that is there")


@pytest.mark.parametrize(
    "code", ["ResourceNotFoundException", "NoSuchBucket", "AWS.SimpleQueueService.NonExistentQueue"]
)
def test_an_instance_that_is_not_there_is_not_found(code: str) -> None:
    answer: Any = {"Error": {"Code": code, "Message": "there is none"}, "ResponseMetadata": {}}
    missing = pytest.raises(NoSuchInstanceError, match="of an instance of that name")
    with missing as raised, reading("DynamoDB"):
        raise ClientError(answer, "Scan")
    assert "--instance" in raised.value.hint
    assert exit_code(raised.value) == 3
    assert isinstance(raised.value, UnavailableError)  # stages try again, as before
