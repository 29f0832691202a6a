"""Statements that are made to take too much: refused, or ended by a limit; each with one error."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from dormouse.client.instance import Instance
from dormouse.errors import InvalidRequestError, LimitExceededError

ROWS = 3_000
MEMORY_BYTES = 64 * 1024 * 1024
SHORT_SECONDS = 0.1


@pytest.fixture(scope="module")
def mice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with Instance.open(tmp_path_factory.mktemp("sql") / "mice", background=False) as instance:
        table = instance.create_table("t", "k:long, s:string", row_keys=["k"])
        table.ingest(pa.table({"k": list(range(ROWS)), "s": ["a" * 30] * ROWS}))
        yield instance


def values(count: int) -> str:
    return ",".join(map(str, range(count)))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(" UNION ALL ".join(["SELECT 1"] * 3_000), "3,000 SELECTs", id="unions"),
        pytest.param("SELECT " + "(" * 10_000 + "1" + ")" * 10_000, "too deeply", id="parentheses"),
        pytest.param(
            "SELECT * FROM (" * 200 + "SELECT 1" + ")" * 200, "too deeply", id="sub-queries"
        ),
        pytest.param("SELECT " + "NOT " * 10_000 + "true", "too deeply", id="negations"),
        pytest.param("SELECT " + "abs(" * 3_000 + "1" + ")" * 3_000, "too deeply", id="functions"),
        pytest.param(
            "SELECT count(*) FROM t WHERE regexp_matches(s, '((a{1,1000}){1,1000}){1,1000}')",
            "failed: ",
            id="regular expression",
        ),
        pytest.param(
            "SELECT count(*) FROM t WHERE s ~ '" + "(a|b)?" * 30_000 + "'",
            "more than 1,000 characters",
            id="long regular expression",
        ),
        pytest.param("SELECT s FROM t WHERE 1 % (k - k) > 0", "failed: Division", id="division"),
        pytest.param(
            "SELECT length(repeat(repeat('x', 100000), 100000))",
            "create a string of size",
            id="text",
        ),
        pytest.param(
            "SELECT array_length(range(1, 9000000000000000))", "Lists larger than", id="list"
        ),
    ],
)
def test_what_is_too_large_is_refused(mice: Instance, text: str, problem: str) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        mice.sql(text).to_arrow()


def test_a_text_of_ten_megabytes_is_refused(mice: Instance) -> None:
    with pytest.raises(InvalidRequestError, match="characters"):
        mice.sql(f"SELECT 1 FROM t WHERE k IN ({values(1_500_000)})").to_arrow()


def test_parameters_that_are_too_many_or_too_large_are_refused(mice: Instance) -> None:
    with pytest.raises(InvalidRequestError, match="100,000 parameters"):
        mice.sql("SELECT 1", ["x"] * 100_000)
    for parameter in ("x" * (16 * 1024 * 1024), [["x"] * 4_000_000]):
        with pytest.raises(InvalidRequestError, match="bytes; at most"):
            mice.sql("SELECT 1", [parameter])


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "SELECT count(*) FROM t a, t b, t c, t d, t e WHERE a.k + e.k < 0", id="cross"
        ),
        pytest.param("SELECT count(*) FROM generate_series(1, 9000000000000000000)", id="series"),
        pytest.param(
            "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) "
            "SELECT count(*) FROM r",
            id="recursion",
        ),
    ],
)
def test_what_does_not_end_is_ended(mice: Instance, text: str) -> None:
    with pytest.raises(LimitExceededError, match="took longer than|needs more memory"):
        mice.sql(text, timeout_seconds=SHORT_SECONDS, memory_bytes=MEMORY_BYTES).to_arrow()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"SELECT count(*) FROM t WHERE k IN ({values(10_000)})", id="list"),
        pytest.param(
            "WITH a0 AS (SELECT 1 AS x)"
            + "".join(f", a{n} AS (SELECT p.x FROM a{n - 1} p, a{n - 1} q)" for n in range(1, 30))
            + " SELECT count(*) FROM a29",
            id="plans that double",
        ),
        pytest.param("SELECT regexp_replace(repeat('a', 30), '(a|aa)+$', 'x')", id="backtracking"),
        pytest.param(
            "SELECT count(*) FROM t WHERE " + " OR ".join(f"k={n}" for n in range(2_000)),
            id="chain",
        ),
        pytest.param("SELECT '" + "x" * 250_000 + "'", id="literal"),
        pytest.param("SELECT " + "9" * 200_000, id="number"),
    ],
)
def test_what_takes_long_is_an_answer_or_an_error_that_says_so(mice: Instance, text: str) -> None:
    try:
        assert mice.sql(text, timeout_seconds=SHORT_SECONDS).to_arrow().num_rows == 1
    except (InvalidRequestError, LimitExceededError) as error:
        assert len(str(error)) < 3_000
