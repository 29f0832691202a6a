from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Dormouse


def carriers_and_flights(output: str) -> list[tuple[str, int]]:
    rows = [json.loads(line) for line in output.splitlines()]
    return [(row["carrier"], row["flight"]) for row in rows]


ALL = [("AA", 9), ("AA", 12), ("AA,flight=3", 1), ("B6", 7), ("UA", 1545)]


def test_json_is_one_object_a_line_in_key_order_and_nothing_else(flights: Dormouse) -> None:
    result = flights("query", "flights", "--format", "json")
    assert result.exit_code == 0
    assert carriers_and_flights(result.stdout) == ALL
    last = json.loads(result.stdout.splitlines()[-1])
    assert last == {"carrier": "UA", "flight": 1545, "at": "2013-01-01T10:00:00Z", "delay": 2.5}
    assert result.stderr == ""


def test_json_keeps_null_and_not_a_number_apart(flights: Dormouse) -> None:
    result = flights("query", "flights", "--key", "carrier=AA", "--format", "json")
    assert [json.loads(line)["delay"] for line in result.stdout.splitlines()] == ["NaN", None]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--key", "carrier=AA"], ALL[:2]),
        (["--key", "carrier=AA,flight=12"], ALL[1:2]),
        (["--key", "carrier=UA", "--key", "carrier=AA,flight=12"], [ALL[1], ALL[4]]),
        (["--key", "flight=12,carrier=AA"], ALL[1:2]),
        (["--key", "carrier=AA,flight=3"], []),
        (["--key", r"carrier=AA\,flight=3"], ALL[2:3]),
        (["--key", r"carrier=AA\,flight=3,flight=1"], ALL[2:3]),
        (["--key", "carrier=UA,flight=1545,at=2013-01-01T10:00:00Z"], ALL[4:]),
        (["--key", "carrier=UA,flight=1545,at=2013-01-01T10:00:01Z"], []),
        (["--range", "carrier=UA,flight=1545,at=2013-01-01T10:00:00Z.."], ALL[4:]),
        (["--range", "..carrier=UA,flight=1545,at=2013-01-01T10:00:00Z"], ALL[:4]),
        (["--key", "carrier=nobody"], []),
        (["--range", "carrier=AA,flight=10..carrier=UA"], ALL[1:4]),
        (["--range", "carrier=AA,flight=12..carrier=AA,flight=13"], ALL[1:2]),
        (["--range", "..carrier=AB", "--range", "carrier=AA,flight=12..carrier=B7"], ALL[:4]),
        (["--where", "delay >= 0 AND delay < 2"], ALL[2:3]),
        (["--where", "flight > 9", "--key", "carrier=AA"], ALL[1:2]),
        (["--range", "..carrier=AA,flight=12"], ALL[:1]),
        (["--range", "carrier=UA.."], ALL[4:]),
        (["--range", "carrier=AA..carrier=AA"], []),
        (["--limit", "2"], ALL[:2]),
        (["--limit", "0"], []),
    ],
)
def test_keys_and_half_open_ranges_find_their_rows(
    flights: Dormouse, arguments: list[str], found: list[tuple[str, int]]
) -> None:
    result = flights("query", "flights", *arguments, "--format", "json")
    assert result.exit_code == 0, result.output
    assert carriers_and_flights(result.stdout) == found
    if "--limit" not in arguments:
        assert flights("query", "flights", *arguments, "--count").stdout == f"{len(found)}\n"


def test_a_sort_key_goes_with_conditions_limits_versions_and_explanations(
    flights: Dormouse,
) -> None:
    key = ("query", "flights", "--key", "carrier=UA,flight=1545,at=2013-01-01T10:00:00Z")
    for more, rows in (("delay > 2", 1), ("delay > 3", 0)):
        found = flights(*key, "--where", more, "--limit", "5", "--format", "json")
        assert len(found.stdout.splitlines()) == rows
    result = json.loads(flights(*key, "--explain", "--format", "json").stdout)
    assert (result["rows"], result["shards_opened"], result["row_groups"]) == (1, 1, 1)
    assert flights(*key, "--count", "--as-of", str(result["version"])).stdout == "1\n"
    later = key[3].replace("2013", "2023")
    nothing = json.loads(flights(*key[:3], later, "--explain", "--format", "json").stdout)
    assert (nothing["rows"], nothing["row_groups"]) == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["--key", "flight=12"], 4, "a value for 'carrier' too"),
        (["--key", "at=12"], 4, "a value for 'carrier' too"),
        (["--key", "carrier=AA,at=12"], 4, "a value for 'flight' too"),
        (["--key", "delay=12"], 4, "'delay' is not a row key or sort key"),
        (["--key", "carrier=AA,flight=12,delay=1"], 4, "'delay' is not a row key or sort key"),
        (["--key", "carrier=AA,delay=1"], 4, r"a comma that belongs to the value before"),
        (["--key", "carrier=AA,fligth=12"], 4, "no column 'fligth'"),
        (["--range", "carrier=AA..carrier=AB,delay=1"], 4, "'delay' is not a row key or sort key"),
        (["--key", "carier=AA"], 4, "no column 'carier'"),
        (["--key", "AA"], 4, "'AA' is not part of a key"),
        (["--key", "carrier=AA,flight=x"], 4, "key 'flight': 'x' is not"),
        (["--key", "carrier=AA,carrier=B6"], 4, "given twice"),
        (["--range", "carrier=B..carrier=A"], 4, "before it starts"),
        (["--columns", "colour"], 4, "no column 'colour'"),
        (["--range", "carrier=AA"], 4, "is not a range"),
        (["--where", "colour = 1"], 4, "colour"),
        (["--as-of", "yesterday"], 3, "has no tag 'yesterday'"),
        (["--as-of", "a day ago"], 4, "neither a version nor a tag nor a time"),
        (["--as-of", "1000"], 3, "has no version 1000"),
        (["--as-of", "2999-01-01", "--count"], 3, "2999-01-01T00:00:00+00:00 is in the future"),
        (["--as-of", "1999-01-01", "--count"], 3, "its first is version 1, of "),
        (["--explain", "--output", "rows.csv"], 2, "--explain shows no rows"),
        (["--format", "parquet"], 2, "needs --output"),
        (["--output", "rows.txt"], 2, "needs --format"),
        (["--count", "--limit", "3"], 2, "--count goes with"),
        (["--limit", "-1"], 2, "--limit"),
    ],
)
def test_a_query_that_cannot_be_meant_is_refused_in_words(
    flights: Dormouse, arguments: list[str], code: int, reason: str
) -> None:
    result = flights("query", "flights", *arguments)
    assert result.exit_code == code
    assert reason in result.stderr
    assert result.stdout == ""


def test_a_table_stops_at_fifty_rows_and_says_so(flights: Dormouse) -> None:
    lines = ["carrier,flight,at,delay"] + [f"ZZ,{i},2013-01-01T00:00:00Z,1" for i in range(60)]
    Path("more.csv").write_text("\n".join(lines))
    flights("ingest", "flights", "more.csv", "--wait")
    result = flights("query", "flights", "--range", "carrier=ZZ..")
    assert "the first 50 rows; --limit N shows more" in result.stderr
    assert result.stdout.count("ZZ") == 50
    assert flights("query", "flights", "--limit", "60").stdout.count("ZZ") == 55
    assert "the first" not in flights("query", "flights", "--limit", "60").stderr


def test_csv_has_a_header_even_without_rows_and_only_the_requested_columns(
    flights: Dormouse,
) -> None:
    arguments = ["query", "flights", "--columns", "delay,carrier", "--format", "csv"]
    rows = list(csv.reader(io.StringIO(flights(*arguments).stdout)))
    assert rows[0] == ["delay", "carrier"]
    assert rows[-1] == ["2.5", "UA"]
    empty = flights(*arguments, "--key", "carrier=nobody").stdout
    assert list(csv.reader(io.StringIO(empty))) == [["delay", "carrier"]]


def test_parquet_has_the_types_of_the_table(flights: Dormouse) -> None:
    result = flights("query", "flights", "--output", "rows.parquet")
    assert result.exit_code == 0, result.output
    rows = pq.read_table("rows.parquet")
    assert rows.schema.field("at").type == pa.timestamp("us", "UTC")
    assert rows.num_rows == 5


def test_a_query_that_fails_leaves_no_half_written_file(flights: Dormouse) -> None:
    Path("rows.json").write_text("older")
    result = flights("query", "flights", "--output", "rows.json", "--columns", "colour")
    assert result.exit_code == 4
    assert Path("rows.json").read_text() == "older"
    assert flights("query", "flights", "--output", "rows.json").exit_code == 0
    assert len(Path("rows.json").read_text().splitlines()) == 5
    assert list(Path().glob(".*.partial")) == []


def test_no_file_takes_the_place_of_a_link_a_pipe_or_a_device(flights: Dormouse) -> None:
    assert flights("query", "flights", "--output", os.devnull, "--format", "csv").exit_code == 0
    assert Path(os.devnull).is_char_device()
    os.mkfifo("pipe.csv")
    with os.fdopen(os.open("pipe.csv", os.O_RDONLY | os.O_NONBLOCK)) as pipe:
        assert flights("query", "flights", "--output", "pipe.csv").exit_code == 0
        assert len(pipe.read().splitlines()) == 6
    # a file that the standard output goes to, as that of these tests, may have other lines
    for name in ("/dev/stdout", "-"):
        result = flights("query", "flights", "--output", name, "--format", "csv")
        assert len(result.stdout.splitlines()) == 6
    assert not Path("-").exists()
    Path("link.csv").symlink_to("rows_of_query.csv")
    assert flights("query", "flights", "--output", "link.csv").exit_code == 0
    assert len(Path("rows_of_query.csv").read_text().splitlines()) == 6


def test_what_the_machine_refuses_is_a_sentence(flights: Dormouse) -> None:
    result = flights("query", "flights", "--output", f"{'a' * 300}.csv")
    assert result.exit_code == 3
    assert result.stderr.startswith("error: cannot write 'aaa")
    result = flights("--instance", f"./{'a' * 300}", "table", "list")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: '") and result.stderr.endswith("File name too long\n")


def test_a_query_of_a_version_is_explained_instead_of_shown(flights: Dormouse) -> None:
    explained = flights("query", "flights", "--key", "carrier=AA", "--explain", "--format", "json")
    facts = json.loads(explained.stdout)
    assert (facts["rows"], facts["shards_opened"], facts["row_groups"]) == (2, 1, 1)
    assert (facts["requests"], facts["scans"]) == (2, 0)
    again = flights("query", "flights", "--as-of", str(facts["version"]), "--explain")
    assert again.exit_code == 0
    assert "shards_opened" in again.stdout
    before = flights("query", "flights", "--as-of", "0", "--count")
    assert (before.exit_code, before.stdout) == (
        3,
        "",
    ) and "its first is version 1" in before.stderr
    assert flights("query", "flights", "--as-of", "2999-01-01", "--count").exit_code == 3
