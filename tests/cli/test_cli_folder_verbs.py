"""Every verb of the command does its work on an instance in a folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dormouse.client.instance import Instance
from dormouse.client.queries import ask
from dormouse.folder.wiring import open_folder
from dormouse.messages.stages import AnswerQuery
from dormouse_cli.main import VERBS, Verbs, app

SCHEMA = {
    "rowKeyFields": [{"name": "n", "type": "LongType"}],
    "valueFields": [{"name": "note", "type": "StringType", "nullable": True}],
}
ELSEWHERE = {"console", "local"}
"""Verbs about an emulated AWS, and one that only ends when it is interrupted."""
STEPS: Mapping[str, tuple[str, str]] = {
    "table add": ("t --schema schema.json --splits splits.txt", "table t was created"),
    "table list": ("", "t "),
    "table show": ("t", "note"),
    "instance set": ("compaction_files=11", ""),
    "instance show": ("", "11"),
    "instance unset": ("compaction_files", ""),
    "access grant": ("local t read --hide note --force", "local may read t"),
    "access list": ("", "note"),
    "access check": ("local t", "note"),
    "access revoke": ("local t", "nobody may do anything"),
    "access off": ("--force", "IAM alone decides"),
    "table set": ("t compaction_files=9 gc_delay_seconds=0", ""),
    "table unset": ("t compaction_files", ""),
    "ingest": ("t a.csv", "1 file ingested"),
    "wait": ("t", "nothing is pending"),
    "query": ("t --key n=3", "note 3"),
    "sql": ("SELECT/**/note/**/FROM/**/t/**/WHERE/**/n=3", "note 3"),
    "queries list": ("", "q1"),
    "queries result": ("q1 --format json", "note 3"),
    "queries show": ("q1", "finished"),
    "queries cancel": ("q1", "is finished already"),
    "status": ("t", "rows             40"),
    "partitions": ("t", "..n=15"),
    "shards": ("t", "n=39"),
    "files": ("t", "file:///"),
    "jobs": ("t", "ingest"),
    "metrics": ("t", "references"),
    "versions": ("t", "add shards"),
    "tag": ("t {now} kept", "is kept as 'kept'"),
    "tags": ("t", "kept"),
    "why": ("t --key n=3", "a.csv"),
    "row-tags": ("t", "40"),
    "changes": ("t --since 1", "note 3"),
    "table alter": ("t --add-field more:long --rename-field note=text", ""),
    "splits estimate": ("a.csv --schema schema.json --partitions 2", ""),
    "splits export": ("t", "15"),
    "split": ("t --forced", "2 splits of table t started"),
    "compact": ("t --all", "compactions of table t started"),
    "restore": ("t kept --force", "has the rows of version"),
    "untag": ("t kept", "no tag kept any more"),
    "export": ("t --to out --output copied", "40"),
    "table offline": ("t", ""),
    "table online": ("t", ""),
    "delete": ("t --where n=4 --force", "is the first without them"),
    "table purge": ("t --where n=3 --force", "the rows were removed"),
    "check": ("t", "nothing is wrong"),
    "copy": ("t ./mice ./other", ""),
    "rebuild": ("t --force", "rebuilt"),
    "gc": ("t", "deleted"),
    "table rename": ("t u", ""),
    "report": ("u --output report.html", "report.html"),
    "work": ("--until-idle", "some work was not done"),
    "queues": ("", "table-changes"),
    "dlq list": ("", "not a valid message"),
    "dlq show": ("files", "not a valid message"),
    "dlq redrive": ("files --all", ""),
    "dlq discard": ("files --force", "1"),
    "table apply": ("tables.json --force", ""),
    "table forget": ("v --subject 3 --force", "forgot 0 keys of 1 subject"),
    "iceberg publish": ("u", "published"),
    "iceberg show": ("u", "iceberg_scan("),
    "iceberg check": ("u", ""),
    "iceberg files": ("u", ".parquet"),
    "iceberg serve": ("-- printenv DORMOUSE_CATALOG_URI", ""),
    "serve": ("-- printenv DORMOUSE_HTTP_API", ""),
    "template": ("deployed", "sam build"),
    "table reinitialise": ("u --splits splits.txt --force", ""),
    "table unregistered": ("", ""),
    "table delete": ("u --force", ""),
}
"""The arguments of each verb, in an order in which they can be run, and what it prints."""


def names(verbs: Mapping[str, str | Verbs], above: str = "") -> Iterator[str]:
    for name, verb in verbs.items():
        if isinstance(verb, Verbs):
            yield from names(verb.verbs, f"{above}{name} ")
        elif name not in ELSEWHERE:
            yield f"{above}{name}"


def test_every_verb_is_tried() -> None:
    assert sorted(STEPS) == sorted(names(VERBS))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DORMOUSE_INSTANCE", "./mice")
    Path("schema.json").write_text(json.dumps(SCHEMA))
    Path("splits.txt").write_text("15\n")
    Path("a.csv").write_text("n,note\n" + "".join(f"{n},note {n}\n" for n in range(40)))
    subjects = {"encrypted_columns": "note", "subject_column": "n"}
    tables = {
        "tables": [
            {"name": "v", "schema": SCHEMA, "properties": subjects},
            {"name": "u", "properties": {"iceberg": "on"}},
        ]
    }
    Path("tables.json").write_text(json.dumps(tables))
    return tmp_path


def put_a_malformed_message(root: Path) -> None:
    opened = open_folder(root, background=False)
    opened.queues.send_body("files", "{not JSON")
    opened.close()


def ask_a_query(root: Path) -> None:
    with Instance.open(root, background=False) as instance:
        asked = AnswerQuery(query_id="q1", table="t")
        ask(instance.services, instance.queues, instance.polling, asked, 60).wait()


def test_every_verb_works_in_a_folder(here: Path) -> None:
    for verb, (arguments, shown) in STEPS.items():
        if verb == "work":
            put_a_malformed_message(here / "mice")
        if verb == "queries list":
            ask_a_query(here / "mice")
        now = datetime.now(UTC).isoformat()
        command = [*verb.split(), *arguments.replace("{now}", now).split()]
        result = CliRunner().invoke(app, command, catch_exceptions=False)
        expected = 1 if verb == "work" else 0  # of a message that nobody understands
        assert result.exit_code == expected, f"{verb}: {result.output}"
        assert shown in result.output, verb
    assert (here / "copied" / "_manifest.json").is_file()
    assert "<html" in (here / "report.html").read_text()[:200].lower()
    rows = CliRunner().invoke(app, ["table", "list"], catch_exceptions=False)
    assert "v " in rows.output
    left = list((here / "mice" / "tables").glob("[!.]*"))
    assert not left, "table v has no rows, and the others are deleted"
