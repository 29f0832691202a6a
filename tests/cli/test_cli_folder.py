"""The command with an instance in a folder: it works where it is asked, and then ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from dormouse.client.instance import Instance
from dormouse.errors import DiskFullError, InvalidRequestError
from dormouse.folder.worker import Worker
from dormouse_cli import session
from dormouse_cli.commands import ingest
from dormouse_cli.main import app
from tests.cli.conftest import FLIGHTS, ROWS


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DORMOUSE_INSTANCE", raising=False)
    Path("schema.json").write_text(json.dumps(FLIGHTS))
    Path("rows.csv").write_text(ROWS)
    return tmp_path


def run(*arguments: str, instance: str = "./mice") -> Result:
    return CliRunner().invoke(app, ["--instance", instance, *arguments], catch_exceptions=False)


def done(*arguments: str, instance: str = "./mice") -> str:
    result = run(*arguments, instance=instance)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_folder_is_made_with_a_line_that_says_so_and_used_from_then_on(here: Path) -> None:
    made = done("table", "add", "flights", "--schema", "schema.json")
    assert f"made an instance in {here / 'mice'}" in made
    assert "made" not in done("table", "list")


@pytest.mark.parametrize("exists", [False, True])
def test_a_command_that_looks_makes_no_instance_of_a_mistyped_name(
    here: Path, exists: bool
) -> None:
    if exists:
        Path("mcie").mkdir()
    Path("tables.json").write_text('{"tables": []}')
    for verb in (
        *(["table", "list"], ["work", "--until-idle"], ["serve"], ["console", "--no-open"]),
        *(["table", "apply", "tables.json"], ["instance", "set", "compaction_files=11"]),
        ["access", "grant", "local", "t", "read", "--force"],
    ):
        result = run(*verb, instance="./mcie")
        assert result.exit_code == 3, verb
        assert f"there is no instance in {here / 'mcie'}" in result.output
    assert not exists or not list(Path("mcie").iterdir())
    assert Path("mcie").exists() == exists


@pytest.mark.parametrize("named", ["./mice", "mice/", "file:{here}/mice", "laptop"])
def test_a_folder_can_be_named_in_every_way(
    here: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    config = here / "config.toml"
    config.write_text('[profiles.laptop]\nfolder = "mice"\n')
    monkeypatch.setenv("DORMOUSE_CONFIG", str(config))
    done("table", "add", "flights", "--schema", "schema.json")
    assert "flights" in done("table", "list", instance=named.format(here=here))
    monkeypatch.setenv("DORMOUSE_INSTANCE", named.format(here=here))
    result = CliRunner().invoke(app, ["table", "list"], catch_exceptions=False)
    assert "flights" in result.output


def test_rows_can_be_queried_once_ingest_has_ended(here: Path) -> None:
    done("table", "add", "flights", "--schema", "schema.json")
    assert "1 file ingested" in done("ingest", "flights", "rows.csv")
    assert "1545" in done("query", "flights", "--key", "carrier=UA")
    assert "nothing is pending" in done("wait", "flights")


def test_without_waiting_the_work_is_left_to_who_works(here: Path) -> None:
    done("table", "add", "flights", "--schema", "schema.json")
    assert "1 file dropped" in done("ingest", "flights", "rows.csv", "--no-wait")
    assert "1545" not in done("query", "flights")
    assert "nothing is left to do" in done("work", "--until-idle")
    assert "1545" in done("query", "flights")


def test_a_command_does_what_follows_from_it_before_it_ends(here: Path) -> None:
    done("table", "add", "flights", "--schema", "schema.json")
    for number in range(12):
        Path(f"{number}.csv").write_text(ROWS.replace("1545", str(number)))
        done("ingest", "flights", f"{number}.csv")
    status = json.loads(done("status", "flights", "--format", "json"))
    assert status["pending"] == 0
    assert status["shards"] < 12


def test_ctrl_c_leaves_what_follows_to_the_next_process(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dormouse.folder.wiring import OpenFolder

    def interrupted(self: OpenFolder, most_seconds: float) -> None:
        raise KeyboardInterrupt

    done("table", "add", "flights", "--schema", "schema.json")
    monkeypatch.setattr(OpenFolder, "finish", interrupted)
    output = done("ingest", "flights", "rows.csv")
    assert "1 file ingested" in output
    assert "the next process that uses the folder goes on with it" in output
    assert session.UPKEEP_SECONDS


def test_work_outlives_a_full_disk_and_says_so_if_it_is_to_end(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done("table", "add", "flights", "--schema", "schema.json")
    done("ingest", "flights", "rows.csv", "--no-wait")
    ends: list[BaseException] = [DiskFullError("the disk of [/mice] is full"), KeyboardInterrupt()]

    def worked(self: Worker, seconds: float) -> None:
        raise ends.pop(0)

    monkeypatch.setattr(ingest, "FULL_SECONDS", 0)
    monkeypatch.setattr(Worker, "work_for", worked)
    assert "what is left is done by the next process" in done("work")
    ends.append(DiskFullError("the disk is full"))
    result = run("work", "--until-idle")
    assert result.exit_code != 0
    assert "error: the disk is full" in result.output


def test_work_is_for_folders_alone(dormouse: object) -> None:
    result = dormouse("work")  # type: ignore[operator]
    assert result.exit_code == 4
    assert "a deployment does its work by itself" in result.output


@pytest.mark.parametrize("instance", [".", "./rows.csv", "file://far/mice"])
def test_what_is_no_folder_of_an_instance_is_a_sentence_and_a_hint(instance: str) -> None:
    result = run("table", "list", instance=instance)
    assert result.exit_code == 4
    assert result.output.startswith("error: ")
    assert "\nhint: " in result.output
    assert not Path("dormouse.sqlite").exists()


def test_a_name_that_is_no_deployments_is_taken_for_a_folders(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(here / "none"))
    assert "named by its path, such as ./mice" in run("table", "list", instance="mice").output
    Path("mice").mkdir()
    assert "if you mean the folder, name it ./mice" in run("table", "list", instance="mice").output


def test_completion_makes_no_folder(here: Path) -> None:
    import typer
    from click import Command, Context

    context = Context(Command("dormouse"))
    context.params["instance"] = "./mice"
    assert session.tables_beginning(typer.Context(Command("x"), parent=context), "f") == []
    assert not Path("mice").exists()


def test_a_table_is_copied_to_another_folder_and_the_command_can_be_repeated(here: Path) -> None:
    done("table", "add", "flights", "--schema", "schema.json")
    done("ingest", "flights", "rows.csv")
    first = done("copy", "flights", "./mice", "./rats", "--name", "trips")
    assert f"made an instance in {here / 'rats'}" in first
    assert "1545" in done("query", "trips", "--key", "carrier=UA", instance="./rats")
    assert "complete already" in done("copy", "flights", "./mice", "./rats", "--name", "trips")
    assert "already ingested" in done("ingest", "trips", "rows.csv", instance="./rats")
    assert "nothing is wrong" in done("check", "trips", instance="./rats")
    copied = json.loads(done("copy", "trips", "./rats", "./mice", "--format", "json"))
    assert (copied["table"], copied["rows"], copied["shards"]) == ("trips", 5, 1)


@pytest.mark.parametrize(
    ("source", "target", "table", "expected"),
    [
        ("./mice", "./rats", "flight", "did you mean flights?"),
        ("./mice", "./mice", "flights", "give the copy another name"),
        ("./no", "./rats", "flights", "there is no instance in"),
        ("./mice", "./schema.json", "flights", "is a file, not the folder of an instance"),
    ],
)
def test_a_copy_that_cannot_be_made_says_why_and_makes_nothing(
    here: Path, source: str, target: str, table: str, expected: str
) -> None:
    done("table", "add", "flights", "--schema", "schema.json")
    result = run("copy", table, source, target)
    assert result.exit_code != 0
    assert expected in result.output
    assert not (here / "rats").exists()
    assert not (here / "no").exists()


def test_work_until_idle_ends_beside_a_dead_letter_and_names_it(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schedule or a job of CI would else wait for ever: nobody works on a dead letter."""
    done("table", "add", "flights", "--schema", "schema.json")
    done("ingest", "flights", "rows.csv", "--no-wait")
    with monkeypatch.context() as broken:
        broken.setattr("dormouse.folder.queues.MAX_RECEIVES", 0)
        result = run("work", "--until-idle")
    assert result.exit_code == 1
    said = " ".join(result.output.split())
    assert "some work was not done: its message is dead letter" in said
    assert "dormouse dlq redrive files --id" in said
    done("dlq", "redrive", "files", "--all")
    assert "nothing is left to do" in done("work", "--until-idle")
    assert "1545" in done("query", "flights")


def test_a_file_for_no_table_is_refused_by_a_look_that_finds_nothing_else(here: Path) -> None:
    done("table", "add", "flights", "--schema", "schema.json")
    for name in ("rows.csv", "fligths/rows.csv"):
        path = here / "mice/inbox" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(ROWS)
        os.utime(path, (0, 0))
    done("work", "--until-idle")
    refused = done("jobs", "--refused")
    assert "the key 'rows.csv' names no table; drop files under <table name>/" in refused
    assert "there is no table 'fligths'" in refused


def test_work_until_idle_does_also_the_requests_that_wait(here: Path) -> None:
    done("table", "add", "flights", "--schema", "schema.json")
    with Instance.open(here / "mice", background=False) as instance:
        assert instance.folder is not None
        request = {"type": "set_online", "request_id": "r", "name": "flights", "online": False}
        instance.folder.queues.send_body("admin", json.dumps(request))
    done("work", "--until-idle")
    assert not json.loads(done("table", "show", "flights", "--format", "json"))["online"]


def test_a_folder_that_cannot_be_made_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidRequestError, match="file/mice cannot be made: Not a directory"):
        Instance.open(tmp_path / "file" / "mice")


@pytest.mark.parametrize("closed", ["<&- >&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_error_and_no_file_gets_its_number(here: Path, closed: str) -> None:
    done("ingest", "flights", "rows.csv", "--create", "--row-keys", "carrier,flight")
    command = f'exec "{sys.executable}" -m dormouse_cli --instance ./mice "$@" {closed}'
    for verb in (["query", "flights", "--format", "csv"], ["table", "list"], ["queues"]):
        ended = subprocess.run(
            ["sh", "-c", command, "sh", *verb],
            env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
        )
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", ""), verb
