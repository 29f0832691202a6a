"""`dormouse queries`, and `query` and `sql` with --remote: the instance answers by messages."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dormouse.messages.stages import AnswerQuery, CancelQuery, OutboundMessage
from dormouse_cli.session import Session, queries_beginning
from tests.cli.conftest import Dormouse
from tests.support.instances import InMemory


def asked(memory: InMemory, query_id: str, table: str = "flights") -> None:
    message = AnswerQuery(query_id=query_id, table=table)
    memory.world.queue.append(OutboundMessage("queries", message))


@pytest.mark.parametrize(
    "arguments",
    [
        ("query", "flights", "--format", "json"),
        ("query", "flights", "--key", "carrier=AA", "--columns", "at,flight", "--format", "csv"),
        ("query", "flights", "--where", "delay > 0", "--limit", "1"),
        ("sql", "SELECT carrier, count(*) AS n FROM flights GROUP BY 1 ORDER BY 1"),
        ("sql", "SELECT flight FROM flights WHERE carrier = :c", "--param", "c=B6"),
    ],
)
def test_a_remote_query_prints_what_one_here_does(
    flights: Dormouse, arguments: tuple[str, ...]
) -> None:
    here, remote = flights(*arguments), flights(*arguments, "--remote")
    assert (remote.exit_code, remote.stdout) == (0, here.stdout)


def test_queries_alone_lists_them_the_newest_first(flights: Dormouse) -> None:
    flights("query", "flights", "--remote", "--output", "a.parquet")
    assert pq.read_table("a.parquet").num_rows == 5
    flights("sql", "SELECT 1 AS one", "--remote")
    lines = [
        json.loads(line) for line in flights("queries", "--format", "json").stdout.splitlines()
    ]
    assert [(line["table"], line["state"], line["rows"]) for line in lines] == [
        ("SQL", "finished", 1),
        ("flights", "finished", 5),
    ]
    assert lines[1]["requests"] > 0
    assert lines[1]["bytes_read"] > 0
    written = list(
        csv.DictReader(io.StringIO(flights("queries", "list", "--format", "csv").stdout))
    )
    assert [row["query"] for row in written] == [line["query"] for line in lines]
    assert flights("queries", "--failed", "--format", "json").stdout == ""
    assert "Queries over messages" in flights("queries", "--help").stdout


def test_a_query_is_shown_with_its_files_and_its_result_read(
    memory: InMemory, flights: Dormouse
) -> None:
    asked(memory, "q1")
    assert flights("queries", "result", "q1", "--format", "json").stdout.count("\n") == 5
    facts = json.loads(flights("queries", "show", "q1", "--format", "json").stdout)
    assert (facts["state"], facts["rows"], facts["format"]) == ("finished", 5, "parquet")
    assert len(facts["files"]) == 1
    assert facts["where"].endswith("results/queries/q1/")
    assert flights("queries", "show", "q2").exit_code == 3


def test_a_query_that_failed_says_why(memory: InMemory, flights: Dormouse) -> None:
    asked(memory, "q1", "flight")
    result = flights("queries", "result", "q1")
    assert result.exit_code == 3
    assert "did you mean flights?" in result.stderr
    (line,) = flights("queries", "--failed", "--format", "json").stdout.splitlines()
    assert "did you mean flights?" in json.loads(line)["reason"]


def test_a_query_is_cancelled_unless_it_has_ended(memory: InMemory, flights: Dormouse) -> None:
    asked(memory, "q1")
    memory.world.queue.append(OutboundMessage("queries", CancelQuery(query_id="q1")))
    memory.world.queue.rotate(1)
    memory.world.settle()
    assert "is cancelled already" not in flights("queries", "cancel", "q1").stderr
    assert flights("queries", "result", "q1").exit_code == 3
    asked(memory, "q2")
    memory.world.settle()
    assert "is finished already" in flights("queries", "cancel", "q2").stderr


def test_what_does_not_go_together_is_refused(flights: Dormouse) -> None:
    for other in ("--count", "--explain"):
        assert flights("query", "flights", "--remote", other).exit_code == 2
    assert flights("query", "flights", "--remote", "--where", "dely > 1").exit_code == 4
    assert not Path("a.parquet").exists()


def test_ids_are_completed(memory: InMemory, flights: Dormouse) -> None:
    import click

    asked(memory, "night-1")
    asked(memory, "noon-1")
    memory.world.settle()
    context = click.Context(click.Command("queries"), obj=Session(instance=memory.instance))
    assert queries_beginning(context, "ni") == ["night-1"]  # type: ignore[arg-type]
