"""Lists for people and programs: whole on a narrow terminal, plain in a pipe, to be given back."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from dormouse_cli.terminal import csv_text, table_lines
from tests.cli.conftest import Dormouse
from tests.support.instances import InMemory

COLUMNS = ("id", "reason", "rows")
ROWS = [("a" * 32, "x" * 60, 1_234_567), ("b", None, None)]
CELLS = st.one_of(st.none(), st.integers(), st.booleans(), st.text(max_size=30))


def test_a_pipe_gets_one_plain_line_for_each_row_however_long() -> None:
    lines = table_lines(COLUMNS, ROWS)
    assert lines == [
        f"id{' ' * 32}reason{' ' * 56}rows".replace("rows", "   rows"),
        f"{'a' * 32}  {'x' * 60}  1234567",
        "b",
    ]


def test_a_narrow_terminal_gets_blocks_without_what_is_not_known() -> None:
    lines = table_lines(COLUMNS, ROWS, width=80)
    assert lines == [f"id      {'a' * 32}", f"reason  {'x' * 60}", "rows    1234567", "", "id  b"]


def test_what_fits_the_terminal_is_a_table_with_a_bold_head() -> None:
    head, rule, *rows = table_lines(("id",), [["ä"], ["界"]], width=80, is_styled=True)
    assert (head.startswith("\x1b[1mid"), "──" in rule) == (True, True)
    assert rows == ["ä", "界"]


@given(st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1), st.integers(20, 200))
@example([(None, None, None), (None, None, "x" * 30)], 20)
def test_no_line_of_a_table_is_wider_than_the_terminal_unless_it_is_a_block(
    rows: list[tuple[object, ...]], width: int
) -> None:
    lines = table_lines(("aaaa", "bbbb", "cccc"), rows, width=width)
    if lines[0].split()[:3] == ["aaaa", "bbbb", "cccc"]:
        assert len(lines) == len(rows) + 1
        assert all(cell_len(line) <= width for line in lines)
    else:
        assert lines.count("") >= len(rows) - 1
    assert all(line.isprintable() for line in lines)


@given(st.lists(st.tuples(CELLS, CELLS)))
def test_csv_has_a_line_for_each_row_which_readers_take_apart(
    rows: list[tuple[object, ...]],
) -> None:
    header, *read = csv.reader(io.StringIO(csv_text(("a", "b,"), rows)))
    assert header == ["a", "b,"]
    assert len(read) == len(rows)
    for given_row, row in zip(rows, read, strict=True):
        for value, text in zip(given_row, row, strict=True):
            if isinstance(value, int):
                assert text == str(value).lower()


def test_names_with_values_cannot_be_taken_for_others() -> None:
    some = [({"a": "1", "b": "2"},), ({"a": "1, b=2"},), ({"a": '1", "b": "2'},)]
    _, *read = csv.reader(io.StringIO(csv_text(("tags",), some)))
    assert [(json.loads(text),) for (text,) in read] == some
    assert len(set(table_lines(("tags",), some))) == 1 + len(some)


LISTS = (
    ("table", "list"),
    ("partitions", "flights"),
    ("shards", "flights"),
    ("files", "flights"),
    ("jobs", "flights"),
    ("metrics",),
    ("metrics", "flights"),
    ("status", "flights"),
    ("queues",),
)


@pytest.mark.parametrize("arguments", LISTS, ids=" ".join)
def test_each_list_is_written_as_a_table_as_json_and_as_csv(
    flights: Dormouse, arguments: tuple[str, ...]
) -> None:
    objects = [json.loads(x) for x in flights(*arguments, "--format", "json").stdout.splitlines()]
    table = flights(*arguments).stdout
    found = list(csv.DictReader(io.StringIO(flights(*arguments, "--format", "csv").stdout)))
    assert len(found) == len(objects) > 0
    for row, wanted in zip(found, objects, strict=True):
        for name, text in row.items():
            value = wanted[name]
            if isinstance(value, str | int) and not isinstance(value, bool):
                assert text == str(value)
                assert text in table


def test_json_has_lists_as_lists_and_the_shard_of_each_file(flights: Dormouse) -> None:
    def rows(*arguments: str) -> list[dict[str, object]]:
        return [json.loads(x) for x in flights(*arguments, "--format", "json").stdout.splitlines()]

    assert rows("table", "list")[0]["row_keys"] == ["carrier", "flight"]
    shards = {row["shard"] for row in rows("shards", "flights")}
    assert {row["shard"] for row in rows("files", "flights")} == shards


@pytest.mark.parametrize(("verb", "words"), [("list", ["queue"]), ("show", ["id", "sent"])])
def test_dead_letters_are_written_as_csv(flights: Dormouse, verb: str, words: list[str]) -> None:
    arguments = ["ingest-jobs"] if verb == "show" else []
    shown = flights("dlq", verb, *arguments, "--format", "csv")
    assert shown.exit_code == 0
    assert shown.stdout.splitlines()[0].split(",")[: len(words)] == words


def test_ranges_and_keys_that_are_listed_can_be_given_to_a_query(flights: Dormouse) -> None:
    def rows(*arguments: str) -> list[dict[str, str]]:
        return [json.loads(x) for x in flights(*arguments, "--format", "json").stdout.splitlines()]

    assert flights("split", "flights", "--forced").exit_code == 0
    flights("wait")
    leaves = rows("partitions", "flights")
    assert len(leaves) >= 2
    counts = [
        int(flights("query", "flights", "--range", leaf["range"], "--count").stdout)
        for leaf in leaves
    ]
    assert sum(counts) == 5 and all(counts)
    for shard in rows("shards", "flights"):
        for key in (shard["min_key"], shard["max_key"]):
            assert int(flights("query", "flights", "--key", key, "--count").stdout) >= 1
    version = str(rows("status", "flights")[0]["version"])
    assert flights("partitions", "flights", "--as-of", version).exit_code == 0
    assert flights("files", "flights", "--as-of", "123456").exit_code == 3


def test_a_file_that_waits_is_listed_and_counted(flights: Dormouse, memory: InMemory) -> None:
    memory.world.drop("flights/late.csv", b"carrier,flight,at,delay\nZZ,1,2013-01-01,1\n")
    assert json.loads(flights("status", "flights", "--format", "json").stdout)["files_waiting"] == 1
    assert "waiting" in flights("jobs", "flights", "--unfinished").stdout


def on_a_terminal(*arguments: str, columns: int, **environment: str) -> str:
    """Return what the command writes to a terminal of a width."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "dormouse_cli", *arguments],
        env={
            "PYTHONPATH": ":".join(sys.path),
            "PATH": "/usr/bin:/bin",
            "TERM": "xterm",
            "COLUMNS": str(columns),
            **environment,
        },
        stdout=theirs,
        stderr=subprocess.PIPE,
    )
    os.close(theirs)
    found = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux: the other end is closed
            break
        if not part:
            break
        found += part
    os.close(ours)
    assert process.stderr is not None
    errors = process.stderr.read().decode()
    assert process.wait() == 0, errors
    return found.decode().replace("\r\n", "\n")


def test_a_terminal_gets_a_bold_table_or_blocks_and_a_pipe_neither(tmp_path: Path) -> None:
    mice = str(tmp_path / "mice")
    at = {"DORMOUSE_INSTANCE": mice}
    on_a_terminal("table", "add", "t", "--schema", "n:long", "--row-keys", "n", columns=80, **at)
    wide = on_a_terminal("table", "list", columns=80, **at)
    assert wide.startswith("\x1b[1mname") and "─" in wide
    narrow = on_a_terminal("table", "list", columns=12, **at, NO_COLOR="1")
    assert narrow.splitlines()[0] == "name        t"
    assert "\x1b" not in narrow and "─" not in narrow
    piped = subprocess.run(
        [sys.executable, "-m", "dormouse_cli", "table", "list"],
        env={"PYTHONPATH": ":".join(sys.path), "TERM": "xterm", "FORCE_COLOR": "1", **at},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert piped.splitlines()[0].split() == [
        "name",
        "online",
        "row_keys",
        "created",
        "rows",
        "size_bytes",
    ]
    assert piped.isascii() and "\x1b" not in piped
