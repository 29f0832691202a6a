"""`dormouse sql`: rows in every format, what is refused, and the shell."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

from dormouse.errors import InvalidRequestError
from dormouse_cli.commands.query import CONTINUED, Shell
from tests.cli.conftest import Dormouse
from tests.support.instances import InMemory

QUERY = "SELECT carrier, count(*) AS n FROM flights WHERE carrier < 'B' GROUP BY 1 ORDER BY 1"
ROWS = [{"carrier": "AA", "n": 2}, {"carrier": "AA,flight=3", "n": 1}]


def test_rows_come_in_the_format_that_is_asked_for(flights: Dormouse) -> None:
    shown = flights("sql", QUERY)
    assert [line.split() for line in shown.stdout.splitlines()][:2] == [
        ["carrier", "n"],
        ["AA", "2"],
    ]
    lines = flights("sql", QUERY, "--format", "json").stdout.splitlines()
    assert [json.loads(line) for line in lines] == ROWS
    assert flights("sql", QUERY, "--output", "a.csv").exit_code == 0
    assert Path("a.csv").read_text().splitlines()[0] == '"carrier","n"'
    assert flights("sql", QUERY, "--output", "a.parquet").exit_code == 0
    assert pq.read_table("a.parquet").to_pylist() == ROWS
    assert flights("sql", QUERY, "--output", "a.arrow").exit_code == 0
    assert (
        pa.ipc.open_stream(io.BytesIO(Path("a.arrow").read_bytes())).read_all().to_pylist() == ROWS
    )


@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_a_limit_is_of_the_rows_in_every_format(form: str, flights: Dormouse) -> None:
    head = {"table": 1, "json": 0, "csv": 1}[form]
    for limit in (0, 1, 2, 9):
        shown = flights("sql", QUERY, "--limit", str(limit), "--format", form)
        assert len(shown.stdout.splitlines()) == head + min(limit, len(ROWS))


def test_a_statement_is_read_from_standard_input_with_parameters(flights: Dormouse) -> None:
    text = "SELECT flight FROM flights\nWHERE carrier = :carrier AND flight > :n;\n"
    options = ("--param", "carrier=AA", "--param", "n=9", "--format", "json")
    assert json.loads(flights("sql", *options, input=text).stdout) == {"flight": 12}
    assert flights("sql", "SELECT 1", "--param", "a").exit_code == 4


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("DROP TABLE flights", 4, "line 1, column 1: DROP cannot be run"),
        ("SELECT * FROM flight", 3, "did you mean flights?"),
        ("SELECT fligt FROM flights", 4, "did you mean flight?"),
        ("SELECT CAST(carrier AS BIGINT) FROM flights", 4, "the statement failed: "),
    ],
)
def test_what_cannot_be_run_ends_with_a_sentence_and_a_code(
    flights: Dormouse, text: str, code: int, said: str
) -> None:
    result = flights("sql", text)
    assert (result.exit_code, result.stdout) == (code, "")
    assert said in result.stderr.replace("\n", " ")


def test_explain_is_text_for_people_and_facts_for_programs(flights: Dormouse) -> None:
    shown = flights("sql", f"EXPLAIN {QUERY}").stdout
    assert "read flights: version" in shown
    assert "row_groups 1, requests 1" in shown
    assert "physical plan" in shown
    first = flights("sql", f"EXPLAIN {QUERY}", "--format", "json").stdout.splitlines()[0]
    assert json.loads(first)["row_groups"] == 1


def typed(*lines: str | BaseException) -> Callable[[str], str]:
    """Return what reads these lines one after the other, and then the end of the input."""
    rest = iter(lines)

    def read(prompt: str) -> str:
        line = next(rest, EOFError())
        if isinstance(line, BaseException):
            raise line
        prompts.append(prompt)
        return line

    prompts: list[str] = []
    read.prompts = prompts  # type: ignore[attr-defined]
    return read


def statements(memory: InMemory, lines: Iterable[str | BaseException]) -> list[str]:
    """Return the statements that a shell runs."""
    ran: list[str] = []

    def run(text: str) -> None:
        ran.append(text)
        if "wrong" in text:
            raise InvalidRequestError("it is wrong")
        if "slow" in text:
            raise KeyboardInterrupt
        if "refused" in text:
            raise typer.Abort

    Shell(memory.instance, run, typed(*lines)).loop()
    return ran


def test_a_statement_ends_with_a_semicolon_on_whatever_line(memory: InMemory) -> None:
    lines = ["SELECT 1", "FROM t;", "", "SELECT 2;", "SELECT 3"]
    assert statements(memory, lines) == ["SELECT 1\nFROM t;", "SELECT 2;"]
    read = typed("SELECT 1", "FROM t;")
    Shell(memory.instance, str, read).loop()
    assert read.prompts[1] == CONTINUED  # type: ignore[attr-defined]


def test_errors_and_interruptions_end_a_statement_and_not_the_shell(
    memory: InMemory, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        "wrong;",
        "slow;",
        "refused;",
        "dropped",
        KeyboardInterrupt(),
        "\\d nobody",
        "last;",
        "\\q",
        "no;",
    ]
    assert statements(memory, lines) == ["wrong;", "slow;", "refused;", "last;"]
    said = capsys.readouterr().err
    assert "error: it is wrong" in said
    assert "no table 'nobody'" in said


def test_tables_and_columns_are_listed_and_completed(
    flights: Dormouse, memory: InMemory, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = Shell(memory.instance, str, typed("\\d", "\\d flights", "\\?"))
    shell.loop()
    shown = capsys.readouterr().out
    assert ["flights", "4"] in [line.split() for line in shown.splitlines()]
    assert "timestamp" in shown
    assert "leave, as Ctrl-D does" in shown
    assert [shell.complete("fl", n) for n in range(3)] == ["flight", "flights", None]
    assert shell.complete("sel", 0) == "SELECT"
