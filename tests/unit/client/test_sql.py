"""SQL over the tables of an instance: the same answers as DuckDB's over the same rows."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from uuid import UUID

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

from dormouse.client.instance import Instance
from dormouse.client.versions import open_table
from dormouse.errors import InvalidRequestError, LimitExceededError, NotFoundError
from dormouse.statements import running
from dormouse.statements.limits import Limits
from dormouse.statements.running import run_statement
from dormouse.statements.tables import SqlTables

ROWS = 5_000
SHORT_SECONDS = 0.1
BOMB = "SELECT count(*) FROM flights a, flights b, flights c WHERE a.dest || b.dest < c.dest"
FLIGHTS = "carrier:string, flight:long, delay:double?, dest:string?, seen:timestamp?"
AIRLINES = pa.table({"id": ["AA", "B6", "UA", "ZZ"], "name": ["American", "JetBlue", None, "Z"]})


def flights() -> pa.Table:
    chosen = random.Random(7)
    times = [1_700_000_000_000_000 + 3_600_000_000 * n for n in range(ROWS)]
    return pa.table(
        {
            "carrier": [chosen.choice(["AA", "B6", "DL", "UA"]) for _ in range(ROWS)],
            "flight": [chosen.randrange(900) for _ in range(ROWS)],
            "delay": [chosen.choice([None, -2.5, 0.0, n % 90 + 0.5]) for n in range(ROWS)],
            "dest": [chosen.choice(["JFK", "LGA", "it's", None]) for _ in range(ROWS)],
            "seen": pa.array(times, pa.timestamp("us", "UTC")),
        }
    )


@pytest.fixture(scope="module")
def mice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    folder = tmp_path_factory.mktemp("sql") / "mice"
    with Instance.open(folder, background=False) as instance:
        table = instance.create_table(
            "flights", FLIGHTS, row_keys=["carrier", "flight"], split_points=["B6", "DL"]
        )
        rows = flights()
        table.ingest(rows.slice(0, ROWS // 2))
        table.ingest(rows.slice(ROWS // 2))
        airlines = instance.create_table("airlines", "id:string, name:string?", row_keys=["id"])
        airlines.ingest(AIRLINES)
        yield instance


@pytest.fixture(scope="module")
def duck() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("flights", flights())
    connection.register("airlines", AIRLINES)
    return connection


@pytest.mark.parametrize(
    "text",
    [
        "SELECT carrier, count(*), avg(delay) FROM flights WHERE carrier >= 'B' GROUP BY 1",
        "SELECT count(*) FROM flights",
        "SELECT count(*) FROM flights WHERE carrier = 'DL' AND flight BETWEEN 7 AND 400",
        "SELECT min(carrier), max(carrier) FROM flights",
        "SELECT min(carrier), max(carrier) FROM flights WHERE carrier < 'B'",
        "SELECT carrier, flight FROM flights ORDER BY carrier, flight LIMIT 7",
        "SELECT carrier, flight FROM flights WHERE flight > 800 ORDER BY 1, 2 LIMIT 5",
        "SELECT carrier AS c FROM flights ORDER BY c LIMIT 5 OFFSET 2000",
        "SELECT carrier FROM flights ORDER BY carrier DESC LIMIT 2",
        "SELECT carrier, flight FROM flights ORDER BY carrier DESC, flight DESC LIMIT 1700",
        "SELECT flight FROM flights WHERE delay > 9 ORDER BY carrier DESC, flight DESC LIMIT 9",
        "SELECT flight FROM flights ORDER BY carrier DESC, flight DESC LIMIT 4 OFFSET 2000",
        "SELECT carrier, flight FROM flights ORDER BY carrier DESC, flight LIMIT 7",
        "SELECT carrier FROM flights WHERE carrier < 'C' ORDER BY carrier DESC LIMIT 3",
        "SELECT dest, count(*) FROM flights WHERE dest LIKE 'i%' OR dest IS NULL GROUP BY dest",
        "SELECT count(*) FROM flights WHERE dest ILIKE 'jf%' AND dest NOT ILIKE '%x'",
        "SELECT count(*) FROM flights WHERE delay > 0.5 AND delay <> 3.5 AND NOT delay IS NULL",
        "SELECT count(*) FROM flights WHERE carrier IN ('AA', 'UA') AND flight IN (1,2,3,4,5,6,7)",
        "SELECT count(*) FROM flights WHERE seen >= '2024-01-01' AND seen < '2024-02-01T00:00:00Z'",
        "SELECT count(*) FROM flights WHERE seen > TIMESTAMP '2024-01-01' + INTERVAL '1 day'",
        "SELECT date_trunc('month', seen) AS m, count(*) FROM flights GROUP BY m",
        "SELECT a.name, count(*) FROM flights f JOIN airlines a ON f.carrier = a.id GROUP BY 1",
        "SELECT a.id, count(f.flight) FROM airlines a LEFT JOIN flights f ON f.carrier = a.id "
        "AND f.flight < 100 GROUP BY 1",
        "SELECT f.flight FROM flights f WHERE NOT EXISTS "
        "(SELECT 1 FROM airlines WHERE id = f.carrier) AND f.flight < 20",
        "SELECT count(*) FROM flights WHERE carrier IN (SELECT id FROM airlines WHERE name > 'B')",
        "SELECT count(*), (SELECT max(flight) FROM flights WHERE carrier = 'AA') FROM flights "
        "WHERE flight > (SELECT avg(flight) FROM flights WHERE carrier = 'B6')",
        "WITH a AS (SELECT * FROM flights) SELECT count(*) FROM a x JOIN a y "
        "ON x.carrier = y.carrier WHERE x.flight = 1 AND y.flight = 2",
        "WITH a AS (SELECT * FROM flights WHERE flight < 9) SELECT count(*) FROM a x, a y",
        "SELECT * FROM (SELECT carrier, flight, row_number() OVER "
        "(PARTITION BY carrier ORDER BY flight, seen) AS n FROM flights) WHERE n < 4",
        "SELECT carrier FROM flights WHERE flight < 3 UNION SELECT id FROM airlines",
        "SELECT carrier FROM flights EXCEPT SELECT id FROM airlines",
        "SELECT carrier, count(*) FROM flights GROUP BY carrier HAVING count(*) > 1250",
        "SELECT CASE WHEN delay > 40 THEN 'late' ELSE 'fine' END AS k, count(*) FROM flights "
        "GROUP BY k",
        "SELECT 1 FROM flights WHERE carrier = 'nobody'",
        "SELECT 7 FROM flights LIMIT 3",
        "SELECT count(*) FROM flights WHERE carrier < 'B' AND carrier > 'C'",
        "SELECT count(DISTINCT dest), sum(flight), max(seen) FROM flights WHERE flight % 3 = 1",
        "SELECT min(carrier) FILTER (WHERE carrier > 'B'), max(carrier) FROM flights",
        "SELECT max(carrier) FILTER (WHERE flight = 7), max(carrier) FROM flights",
        "SELECT count(*) FROM flights WHERE upper(dest) = 'LGA' AND carrier = 'AA'",
        "SELECT carrier, flight FROM flights WHERE concat(carrier, dest) = 'AAJFK'",
        "SELECT DISTINCT carrier FROM flights ORDER BY lower(carrier) DESC, carrier LIMIT 2",
        "SELECT carrier, lower(carrier) AS k FROM flights ORDER BY carrier LIMIT 3",
        "SELECT min(lower(carrier)) FROM flights",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 4) "
        "SELECT n, carrier FROM r JOIN flights ON flight = n",
        "WITH a AS (SELECT flight FROM flights) SELECT count(*) > 500 FROM (SELECT flight FROM "
        "(SELECT flight FROM a LIMIT 2500 OFFSET 2500) WHERE flight < 450 "
        "UNION ALL SELECT flight FROM a WHERE flight > 9000)",
        "SELECT g.n, count(*) FROM generate_series(1, 3) AS g(n) JOIN flights ON flight = n "
        "GROUP BY 1",
    ],
)
def test_answers_are_those_of_duckdb(
    mice: Instance, duck: duckdb.DuckDBPyConnection, text: str
) -> None:
    found = [tuple(row.values()) for row in mice.sql(text).to_arrow().to_pylist()]
    wanted = duck.sql(text).fetchall()
    assert sorted(map(repr, map(_plain, found))) == sorted(map(repr, map(_plain, wanted)))


def _plain(row: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(round(cell, 6) if isinstance(cell, float) else str(cell) for cell in row)


def test_values_come_as_parameters_and_never_as_text(mice: Instance) -> None:
    text = "SELECT count(*) AS n FROM flights WHERE dest = $1 AND flight > $2"
    ((n,),) = mice.sql(text, ["it's", 450]).to_arrow().to_pandas().values
    assert n == sum(r["dest"] == "it's" and r["flight"] > 450 for r in flights().to_pylist())
    within = mice.sql("SELECT {'a': :x, 'b': [7, 8][: :n]} AS s", {"x": 1, "n": 1}).to_arrow()
    assert within.to_pylist() == [{"s": {"a": 1, "b": [7]}}]
    named = "SELECT count(*) FROM flights WHERE dest = :dest"
    hostile = mice.sql(named, {"dest": "x' OR '1'='1"}).to_arrow()
    assert hostile.column(0).to_pylist() == [0]
    with pytest.raises(InvalidRequestError, match=r"no value for \$dest"):
        mice.sql(named)
    with pytest.raises(InvalidRequestError, match=r"has no \$1"):
        mice.sql("SELECT 1", [3])
    for value in (object(), 2**127, "\ud800", pd.NaT):
        with pytest.raises(InvalidRequestError, match=r"the value of \$1, .*, has no type of SQL"):
            mice.sql("SELECT $1", [value])


def test_a_uuid_is_a_value_of_a_parameter_alone_and_in_a_list(mice: Instance) -> None:
    some = UUID(int=5)
    found = mice.sql("SELECT $1 AS a, $2 AS b", [some, [some, UUID(int=6)]]).to_arrow()
    assert found.to_pylist() == [{"a": some, "b": [some, UUID(int=6)]}]


def test_values_of_numpy_and_values_in_lists_are_those_of_python(mice: Instance) -> None:
    import numpy as np

    found = mice.sql("SELECT $1 + 1 AS a, $2 AS b", [np.int64(2), [np.int8(3), 4]]).to_arrow()
    assert found.to_pylist() == [{"a": 3, "b": [3, 4]}]
    wide = [2**63, 1 - 2**127]
    found = mice.sql("SELECT $1::HUGEINT AS a, $2 AS b", wide).to_arrow()
    assert list(found.to_pylist()[0].values()) == wide
    found = mice.sql("SELECT $1 AS a, $2 AS b", [np.float32(1.5), np.bool_(True)]).to_arrow()
    assert found.to_pylist() == [{"a": 1.5, "b": True}]
    text = "SELECT flight FROM flights WHERE flight = $1 LIMIT 1"
    flight = flights().column("flight")[0].as_py()
    assert mice.sql(text, [np.int64(flight)]).to_arrow().to_pylist() == [{"flight": flight}]
    with pytest.raises(InvalidRequestError, match="more than 38 digits"):
        mice.sql("SELECT $1", [[Decimal("1" * 39)]])
    with pytest.raises(InvalidRequestError, match="parameters are a list"):
        mice.sql("SELECT $1", 5)  # type: ignore[arg-type]


def test_a_version_is_read_and_named(mice: Instance) -> None:
    table = mice.table("flights")
    newest = table.state().version
    table.tag(newest, "kept")
    earlier = mice.sql(f"SELECT count(*) FROM flights FOR VERSION AS OF {newest - 1}")
    assert earlier.to_arrow().column(0).to_pylist() == [ROWS // 2]
    assert earlier.version == newest - 1
    both = "SELECT (SELECT count(*) FROM flights FOR VERSION AS OF 'kept') - count(*) FROM airlines"
    found = mice.sql(both)
    assert found.to_arrow().column(0).to_pylist() == [ROWS - 4]
    (airlines,) = found.versions["airlines"]
    assert found.versions == {"airlines": (airlines,), "flights": (newest,)}


def test_two_versions_of_one_table_are_both_named(mice: Instance) -> None:
    newest = mice.table("flights").state().version
    found = mice.sql(
        "SELECT (SELECT count(*) FROM flights) - count(*) AS n "
        f"FROM flights FOR VERSION AS OF {newest - 1}"
    )
    assert f"rows of flights {newest - 1}, flights {newest}" in repr(found)
    assert found.to_arrow().column(0).to_pylist() == [ROWS - ROWS // 2]
    assert (found.version, found.versions) == (0, {"flights": (newest - 1, newest)})


@pytest.mark.parametrize(
    ("text", "cells", "requests"),
    [
        ("SELECT count(*) FROM flights", [ROWS], 0),
        ("SELECT min(carrier), max(carrier) FROM flights", ["AA", "UA"], 0),
        ("SELECT count(*) FROM flights WHERE carrier = 'AB'", [0], 0),
    ],
)
def test_what_the_state_knows_is_not_read(
    mice: Instance, text: str, cells: list[object], requests: int
) -> None:
    found = mice.sql(text)
    assert list(found.to_arrow().to_pylist()[0].values()) == cells
    assert found.reads.requests == requests


def test_rules_of_a_table_apply_before_what_is_asked(
    mice: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "LEAST_BYTES", 0)  # so that files could be read as they are
    table = mice.create_table("sums", "k:long, n:long", {"aggregations": "sum(n)"}, row_keys=["k"])
    for n in (3, 4):
        table.ingest(pa.table({"k": [1, 2], "n": [n, 1]}))
    found = mice.sql("SELECT k, n FROM sums WHERE n > 5").to_arrow()
    assert found.to_pylist() == [{"k": 1, "n": 7}]
    assert mice.sql("SELECT count(*), max(n) FROM sums").to_arrow().to_pylist() == [
        {"count_star()": 2, "max(n)": 7}
    ]
    assert mice.sql("SELECT count(*) AS c FROM sums").to_arrow().to_pylist() == [{"c": 2}]
    mice.set_properties("sums", {"filters": "where(k > 1)"}, hide_rows=True)
    ends = mice.sql("SELECT min(k) AS low, max(k) AS high FROM sums").to_arrow()
    assert ends.to_pylist() == [{"low": 2, "high": 2}]


@pytest.mark.parametrize(
    ("text", "kind", "problem"),
    [
        ("SELECT * FROM flight", NotFoundError, "line 1, column 15: there is no table 'flight'"),
        ("SELECT * FROM '/etc/passwd'", NotFoundError, "no table '/etc/passwd'"),
        ("SELECT carier FROM flights", InvalidRequestError, "no column carier"),
        ("SELECT f.x FROM flights f", InvalidRequestError, "no column x"),
        ("SELECT * FROM flights FOR VERSION AS OF 99", NotFoundError, "no version 99"),
        ("SELECT nosuch(1)", InvalidRequestError, "nosuch"),
        ("SELECT 1 % 0", InvalidRequestError, "Division by zero"),
        ("COPY flights TO '/tmp/x.csv'", InvalidRequestError, "COPY cannot be run"),
        (
            "/* a */ -- b\nINSERT INTO t VALUES (1);",
            InvalidRequestError,
            "line 2, column 1: INSERT",
        ),
        ("WITH x AS (SELECT 1) DELETE FROM t", InvalidRequestError, "column 22: DELETE cannot"),
        ("SELECT 1; DELETE FROM flights", InvalidRequestError, "several statements"),
        ("EXPLAIN ANALYZE SELECT 1", InvalidRequestError, "EXPLAIN has no options"),
        ("EXPLAIN (FORMAT json) SELECT 1", InvalidRequestError, "EXPLAIN has no options"),
        ("-- é\nEXPLAIN\nSELECT 1 +", InvalidRequestError, "line 3, column 10"),
        ("SELECT version()", InvalidRequestError, "the function version is not allowed"),
    ],
)
def test_what_cannot_be_run_is_refused_with_the_reason(
    mice: Instance, text: str, kind: type[Exception], problem: str
) -> None:
    with pytest.raises(kind, match=problem):
        mice.sql(text).to_arrow()


def test_explain_may_follow_a_comment(mice: Instance) -> None:
    (row,) = mice.sql("/* why */\nexplain/**/SELECT 1;").to_arrow().to_pylist()
    assert row["step"] == "physical plan"


def test_the_nearest_column_is_named(mice: Instance) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        mice.sql("SELECT carier FROM flights")
    assert caught.value.hint == "did you mean carrier?"


def test_what_takes_too_long_is_ended(mice: Instance) -> None:
    seconds_long = "SELECT sum(range) FROM range(3000000000)"
    with pytest.raises(LimitExceededError, match="longer than 0.1 seconds"):
        mice.sql(seconds_long, timeout_seconds=SHORT_SECONDS).to_arrow()
    assert mice.sql("SELECT 1 AS a").to_arrow().column(0).to_pylist() == [1]


def test_a_count_that_reads_keys_is_ended_and_limited(
    mice: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = mice.create_table("kept", "id:long", {"keep": "latest"}, row_keys=["id"])
    table.ingest(pa.table({"id": range(9)})).wait()

    def endless(*given: object) -> None:
        check = given[-1]
        assert callable(check)
        while True:
            check()

    text = "SELECT count(*) AS n FROM kept"
    assert mice.sql(text).to_arrow().to_pylist() == [{"n": 9}]
    with pytest.raises(LimitExceededError, match="more than 1"):
        mice.sql(text, read_bytes=1)
    monkeypatch.setattr("dormouse.statements.tables.count_rows", endless)
    with pytest.raises(LimitExceededError, match="longer than 0.1 seconds"):
        mice.sql(text, timeout_seconds=SHORT_SECONDS)


def test_what_watches_a_statement_ends_it(mice: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    class StopError(Exception):
        """What watches has seen enough."""

    def watch(_: object) -> None:
        raise StopError

    monkeypatch.setattr(running, "WATCH_MS", 0)
    services = mice.services
    tables = SqlTables(services, partial(open_table, services, None), services.clock.now_ms())
    with pytest.raises(StopError):
        run_statement(tables, BOMB, {}, services.scratch, Limits(), watch)


def test_ctrl_c_ends_a_statement(mice: Instance) -> None:
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a new process
    try:
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            mice.sql(BOMB).to_arrow()
    finally:
        signal.signal(signal.SIGINT, before)
    assert mice.sql("SELECT 1 AS a").to_arrow().column(0).to_pylist() == [1]


def test_what_takes_too_much_memory_is_refused(mice: Instance) -> None:
    text = "SELECT array_agg(a.dest || b.dest) FROM flights a, flights b"
    with pytest.raises(LimitExceededError, match="memory"):
        mice.sql(text, memory_bytes=16 * 1024 * 1024).to_arrow()


def test_what_would_read_too_much_is_refused_before_it_reads(mice: Instance) -> None:
    size_bytes = sum(each.size_bytes for each in mice.table("flights").shards())
    everything = "SELECT a.* FROM flights a ORDER BY seen, flight"
    with pytest.raises(LimitExceededError, match="would read about [0-9,]+ bytes of shards"):
        mice.sql(everything, read_bytes=size_bytes // 2)
    assert mice.sql(everything, read_bytes=size_bytes).to_arrow().num_rows == ROWS


@pytest.mark.parametrize(
    "text",
    [
        "SELECT delay, count(*) AS n FROM flights GROUP BY delay",
        "SELECT * FROM flights WHERE carrier < 'B6' ORDER BY seen",
    ],
)
def test_few_columns_and_bounded_keys_read_less(mice: Instance, text: str) -> None:
    size_bytes = sum(each.size_bytes for each in mice.table("flights").shards())
    assert mice.sql(text, read_bytes=size_bytes // 2).to_arrow().num_rows


def test_a_long_chain_is_an_answer_or_an_error_and_no_crash(mice: Instance) -> None:
    with pytest.raises((InvalidRequestError, LimitExceededError)):
        mice.sql("SELECT " + " + ".join(["flight"] * 30_000) + " FROM flights").to_arrow()


def test_a_result_that_is_closed_early_leaves_nothing(mice: Instance) -> None:
    scratch = mice.services.scratch
    before = set(scratch.iterdir())
    found = mice.sql("SELECT * FROM flights a, flights b")
    assert next(iter(found)).num_rows
    found.close()
    assert set(scratch.iterdir()) == before


def test_explain_reads_no_rows_and_says_what_would_be_read(mice: Instance) -> None:
    text = "EXPLAIN SELECT flight FROM flights WHERE carrier = 'AA' AND delay > 3"
    found = mice.sql(text)
    first, *plans = found.to_arrow().to_pylist()
    assert first["step"] == "read flights"
    assert "carrier=AA.." in first["plan"]
    assert (first["partitions"], first["requests"] > 0, first["bytes"] > 0) == (1, True, True)
    assert [row["step"] for row in plans] == ["physical plan"]
    assert found.reads.requests == 0
