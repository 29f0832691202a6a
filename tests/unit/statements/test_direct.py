"""Plain statements are answered without another process, as DataFusion would answer them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from dormouse.client import Instance
from dormouse.errors import InvalidRequestError, LimitExceededError, NotFoundError
from dormouse.query import top_rows
from dormouse.statements import answering, direct

ROWS = 200


def rows() -> pa.Table:
    chosen = random.Random(3)
    numbers = range(ROWS)
    return pa.table(
        {
            "k": [n % 50 for n in numbers],
            "s": [chosen.choice(["a", "b", "ü", "it's", None]) for _ in numbers],
            "v": pa.array([chosen.choice([None, 5 * 10**9, n]) for n in numbers], pa.int64()),
            "i": pa.array(numbers, pa.int32()),
            "f": [n / 2 for n in numbers],
            "at": pa.array([n * 1_000_000 for n in numbers], pa.timestamp("us", "UTC")),
            "d": pa.array([n % 9 for n in numbers], pa.date32()),
            "b": [n % 2 == 0 for n in numbers],
            "l": [[n] for n in numbers],
            "Odd": pa.array([n % 7 for n in numbers], pa.int64()),
        }
    )


def two_keys() -> pa.Table:
    return pa.table({"s": ["a", "b", "ü", "b\0"] * 25, "n": range(100), "f": range(100)})


@pytest.fixture(scope="module")
def mice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    folder = tmp_path_factory.mktemp("direct") / "mice"
    with Instance.open(folder, background=False) as instance:
        table = instance.create_table("t", like=rows(), row_keys=["k"], split_points=[10, 30])
        table.ingest(rows().slice(0, ROWS // 2))
        table.ingest(rows().slice(ROWS // 2))
        types = {"n": "int"}
        two = two_keys()
        instance.create_table("two", like=two, row_keys=["s", "n"], types=types).ingest(two)
        instance.create_table("nothing", "k:long, s:string?", row_keys=["k"])
        yield instance


DIRECT: list[tuple[str, Mapping[str, object]]] = [
    ("SELECT * FROM t WHERE k = 7", {}),
    ("SELECT k, s AS z, k AS j FROM t WHERE k BETWEEN 3 AND 5 AND s IS NOT NULL AND s <> 'b'", {}),
    ("SELECT k FROM t WHERE s IS NULL AND (k < 4 AND i >= 2)", {}),
    ("SELECT count(*) FROM t", {}),
    ("SELECT count(*) AS n, sum(v), sum(i) AS i, min(s), max(s), min(at) FROM t WHERE k < 9", {}),
    ("SELECT sum(f), max(d) FROM t WHERE k <> 9", {}),
    ("SELECT sum(v), min(s), count(*) FROM t WHERE k = 10000", {}),
    ("SELECT min(k), max(k) FROM t", {}),
    ("SELECT min(x.k), max(x.v) FROM t AS x", {}),
    ('SELECT min("Odd") AS odd FROM t', {}),
    ("SELECT x.k, s FROM t x WHERE x.k IN (1, 2, 99) ORDER BY x.k", {}),
    ("SELECT s FROM t WHERE s IN ('a', 'it''s') AND k IN (1, 2)", {}),
    ("SELECT k FROM t ORDER BY k LIMIT 5", {}),
    ("SELECT k AS n FROM t ORDER BY k LIMIT 3;", {}),
    ("SELECT s FROM t ORDER BY k LIMIT 0", {}),
    ("SELECT k FROM t WHERE at >= '1970-01-01' AND at < '1970-01-01T00:00:05Z'", {}),
    ("SELECT k FROM t WHERE d = '1970-01-03'", {}),
    ("SELECT l, b FROM t WHERE k = -3", {}),
    ("SELECT count(*) FROM t WHERE k > 7 AND k <= 31 AND k <> 9", {}),
    ("SELECT count(*) FROM t WHERE k > 7 AND k <= 31", {}),
    ("SELECT k FROM t WHERE k > 31 AND k < 7", {}),
    ("SELECT count(*) FROM t WHERE k IN (7, 31, 31) AND k < 9223372036854775807", {}),
    ("SELECT f FROM two WHERE s = 'b' AND n >= 3 AND n < 9", {}),
    ("SELECT f FROM two WHERE s IN ('a', 'b') AND n IN (1, 2, 3, 77)", {}),
    ("SELECT s, n FROM two WHERE s >= 'b' AND n = 3", {}),
    ("SELECT s, n FROM two WHERE n = 3", {}),
    ("SELECT count(*) FROM two WHERE s > 'a' AND s <= 'b' AND n <> 3", {}),
    ("SELECT s, n FROM two WHERE s < 'b' ORDER BY s, n LIMIT 3", {}),
    ("SELECT k FROM t ORDER BY i LIMIT 5", {}),
    ("SELECT i AS n, s, i FROM t AS x WHERE k < 40 AND s <> 'b' ORDER BY x.i DESC LIMIT 7", {}),
    ("SELECT v FROM t ORDER BY v DESC LIMIT 90", {}),
    ("SELECT v FROM t ORDER BY v DESC NULLS LAST LIMIT 90", {}),
    ("SELECT v FROM t ORDER BY v ASC NULLS FIRST LIMIT 90", {}),
    ("SELECT v FROM t ORDER BY v LIMIT 300", {}),
    ("SELECT s FROM t ORDER BY s LIMIT 60", {}),
    ("SELECT f FROM t WHERE k >= 3 ORDER BY f DESC LIMIT 3", {}),
    ("SELECT d FROM t ORDER BY d DESC LIMIT 30", {}),
    ("SELECT at FROM t FOR VERSION AS OF 2 ORDER BY at LIMIT 2", {}),
    ("SELECT s FROM nothing ORDER BY s LIMIT 2", {}),
    ("SELECT k FROM t WHERE k = $1 AND s > $2", {"1": 7, "2": "a"}),
    ("SELECT k FROM t WHERE s = :s", {"s": "x' OR '1'='1"}),
    ("SELECT k FROM t FOR VERSION AS OF 2 WHERE k = 7", {}),
    ("SELECT count(*), sum(k), min(s), max(k) FROM nothing", {}),
    ("SELECT min(k) FROM nothing", {}),
    ("SELECT * FROM nothing", {}),
]
COMPUTED: list[tuple[str, Mapping[str, object]]] = [
    ("SELECT k FROM t ORDER BY k DESC LIMIT 3", {}),
    ("SELECT k AS s, s AS k FROM t ORDER BY k LIMIT 5", {}),
    ("SELECT k FROM t ORDER BY i, k LIMIT 5", {}),
    ("SELECT k FROM t ORDER BY i", {}),
    ("SELECT k AS i, i AS k FROM t ORDER BY i LIMIT 5", {}),
    ("SELECT b FROM t ORDER BY b LIMIT 5", {}),
    ("SELECT i FROM t ORDER BY i LIMIT 0", {}),
    ("SELECT k FROM t ORDER BY k NULLS FIRST LIMIT 5", {}),
    ('SELECT min("Odd") FROM t', {}),
    ("SELECT f FROM t WHERE f > 98.5", {}),
    ("SELECT max(f) FROM t", {}),
    ("SELECT k + 1 FROM t WHERE k = 3", {}),
    ("SELECT k FROM t WHERE k = 3 OR s = 'a'", {}),
    ("SELECT k FROM t WHERE NOT k < 47", {}),
    ("SELECT k FROM t WHERE k > '47'", {}),
    ("SELECT k FROM t WHERE i > 99999999999", {}),
    ("SELECT k FROM t WHERE k = $1", {"1": 7.0}),
    ("SELECT count(s) FROM t", {}),
    ("SELECT count(DISTINCT k) FROM t", {}),
    ("SELECT count(*) FILTER (WHERE k > 3) FROM t", {}),
    ("SELECT t.k FROM t, nothing", {}),
    ("SELECT k FROM t, generate_series(1, 2) WHERE k = 3", {}),
    ("SELECT a.k FROM (SELECT k FROM t) a WHERE a.k = 3", {}),
    ("SELECT count(*) FROM t LIMIT 0", {}),
]


def answered(
    instance: Instance, monkeypatch: pytest.MonkeyPatch, text: str, values: Mapping[str, object]
) -> tuple[pa.Table, Mapping[str, Any], bool]:
    """Return the rows of a statement, its versions, and whether it was answered directly."""
    found: list[bool] = []
    answer = answering.answer_plain

    def recorded(*arguments: Any) -> Any:
        result = answer(*arguments)
        found.append(result is not None)
        return result

    with monkeypatch.context() as patched:
        patched.setattr(answering, "answer_plain", recorded)
        result = instance.sql(text, values)
    return result.to_arrow(), result.versions, found[0]


@pytest.mark.parametrize(
    ("text", "values", "is_direct"),
    [(*each, True) for each in DIRECT] + [(*each, False) for each in COMPUTED],
)
def test_a_statement_has_the_rows_names_and_types_that_datafusion_gives(
    mice: Instance,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    values: Mapping[str, object],
    is_direct: bool,
) -> None:
    found, versions, was_direct = answered(mice, monkeypatch, text, values)
    monkeypatch.setattr(answering, "answer_plain", lambda *_: None)
    other = mice.sql(text, values)
    wanted = other.to_arrow()
    assert found.schema.equals(wanted.schema, check_metadata=True)
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, wanted.to_pylist()))
    if "ORDER BY" in text:  # by the first column; equal keys come in any order
        assert found.column(0).equals(wanted.column(0))
    assert versions == other.versions
    assert was_direct == is_direct


@pytest.mark.parametrize("column", ["f", "g"])
@pytest.mark.parametrize("order", ["", "DESC"])
def test_zeros_are_sorted_by_their_signs(
    mice: Instance, monkeypatch: pytest.MonkeyPatch, column: str, order: str
) -> None:
    name = f"zeros_{column}{order}"
    floats = [0.0, -0.0, 2.5, -0.0, 0.0, -2.5, float("inf"), float("-inf"), -3.5]
    held = pa.table({"k": range(9), "f": floats, "g": pa.array(floats, pa.float32())})
    mice.create_table(name, like=held, row_keys=["k"]).ingest(held)
    text = f"SELECT {column} FROM {name} ORDER BY {column} {order} LIMIT 9"
    found, _, was_direct = answered(mice, monkeypatch, text, {})
    ascending = ["-inf", "-3.5", "-2.5", "-0.0", "-0.0", "0.0", "0.0", "2.5", "inf"]
    assert was_direct
    assert list(map(str, found.column(0).to_pylist())) == ascending[:: -1 if order else 1]


def test_rows_that_are_first_by_a_column_are_searched_once(
    mice: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched = []

    def nothing(*_: object) -> None:
        searched.append(1)

    monkeypatch.setattr(top_rows, "top_rows", nothing)
    found = mice.sql("SELECT i FROM t ORDER BY i DESC LIMIT 2").to_arrow()
    assert found.column(0).to_pylist() == [199, 198]
    assert searched == [1]


def test_rows_that_are_first_by_a_column_are_read_within_the_limit(mice: Instance) -> None:
    with pytest.raises(LimitExceededError):
        mice.sql("SELECT i FROM t ORDER BY i DESC LIMIT 2", read_bytes=10)


def condition_on_keys(chosen: random.Random) -> str:
    column, values = chosen.choice(
        [
            ("s", ["'a'", "'b'", "'ü'", "'aa'", "'z'"]),
            ("n", [str(chosen.randrange(-3, 105)) for _ in range(5)]),
        ]
    )
    few = ", ".join(chosen.sample(values, 3))
    compared = chosen.choice(["=", "=", "<", "<=", ">", ">=", "<>"])
    return chosen.choice(
        [
            f"{column} IN ({few})",
            f"{column} BETWEEN {values[0]} AND {values[1]}",
            f"{column} {compared} {values[2]}",
        ]
    )


def test_conditions_on_keys_find_the_rows_that_duckdb_finds(mice: Instance) -> None:
    """Another engine is asked, as both ways of statements share how conditions become ranges."""
    chosen = random.Random(5)
    other = duckdb.connect()
    other.register("two", two_keys())
    for _ in range(120):
        terms = [condition_on_keys(chosen) for _ in range(chosen.randrange(1, 4))]
        rest = f"FROM two WHERE {' AND '.join(terms)}"
        wanted = sorted(other.sql(f"SELECT s, n, f {rest}").fetchall())
        found = mice.sql(f"SELECT s, n, f {rest}").to_arrow().to_pylist()
        assert sorted(tuple(row.values()) for row in found) == wanted, rest
        count = mice.sql(f"SELECT count(*) {rest}").to_arrow().column(0)[0].as_py()
        assert count == len(wanted), rest


def test_what_reads_much_is_left_to_a_process_with_limits(
    mice: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "LOOK_UP_BYTES", 0)
    first = "SELECT k FROM t ORDER BY k LIMIT 2"
    for text, is_direct in [
        ("SELECT * FROM t", False),
        ("SELECT k FROM t WHERE s = 'nobody' LIMIT 1", False),
        ("SELECT count(*) FROM t WHERE s = 'a'", False),
        ("SELECT count(*) FROM t", True),
        (first, True),
    ]:
        assert answered(mice, monkeypatch, text, {})[2] == is_direct, text
    monkeypatch.setattr(direct, "MAX_FIRST_ROWS", 1)
    assert not answered(mice, monkeypatch, first, {})[2]
    monkeypatch.setattr(direct, "LOOK_UP_BYTES", 2**40)
    monkeypatch.setattr(direct, "MAX_SHARDS", 0)
    assert not answered(mice, monkeypatch, "SELECT * FROM t", {})[2]


@pytest.mark.parametrize(
    ("text", "kind", "problem"),
    [
        ("SELECT k FROM t WHERE d = '1970-13-03'", InvalidRequestError, "statement failed"),
        ("SELECT k, k FROM t WHERE k = 1", InvalidRequestError, "statement failed"),
        ("SELECT t.k FROM t AS x WHERE k = 1", InvalidRequestError, "no column t.k"),
        ("SELECT nosuch FROM t LIMIT 1", InvalidRequestError, "no column nosuch"),
        ("SELECT k FROM t WHERE k = $1", InvalidRequestError, r"no value for \$1"),
        ("SELECT k FROM tt", NotFoundError, "line 1, column 15"),
        ("SELECT k FROM", InvalidRequestError, "not SQL"),
    ],
)
def test_what_is_wrong_has_one_error_however_plain_it_is(
    mice: Instance, text: str, kind: type[Exception], problem: str
) -> None:
    with pytest.raises(kind, match=problem):
        mice.sql(text).to_arrow()


@pytest.mark.parametrize("is_direct", [True, False], ids=["direct", "computed"])
@pytest.mark.parametrize(
    ("text", "is_limited"),
    [
        ("SELECT * FROM t", True),
        ("SELECT sum(v) FROM t WHERE k < 9", True),
        ("SELECT count(*) FROM t WHERE s = 'a'", True),
        ("SELECT count(*) FROM t", False),
        ("SELECT min(k), max(k) FROM t", False),
        ("SELECT k FROM t ORDER BY k LIMIT 3", False),
    ],
)
def test_a_statement_reads_no_more_than_it_may_however_plain_it_is(
    mice: Instance, monkeypatch: pytest.MonkeyPatch, text: str, is_limited: bool, is_direct: bool
) -> None:
    if not is_direct:
        monkeypatch.setattr(answering, "answer_plain", lambda *_: None)
    wanted = mice.sql(text, read_bytes=10**9).to_arrow()
    if is_limited:
        with pytest.raises(LimitExceededError, match="would read about"):
            mice.sql(text, read_bytes=1).to_arrow()
    else:
        assert mice.sql(text, read_bytes=1).to_arrow().equals(wanted)
