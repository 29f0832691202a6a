"""Shapes of statements that engines answer differently; rows are worked out by hand."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa
import pytest

from dormouse.client.instance import Instance
from dormouse.errors import InvalidRequestError
from dormouse.statements import running

Rows = list[tuple[object, ...]]
NAN = float("nan")
READINGS = pa.table(
    {
        "k": [1, 2, 3, 4, 5, 6],
        "kind": ["a", "a", "b", None, "b", "c"],
        "n": pa.array([1, None, 5, 7, 5, None], pa.int64()),
        "f": [1.5, NAN, 7.0, -0.0, None, float("-inf")],
        "d": pa.array([Decimal("0.01"), Decimal("0.02"), None, Decimal("1.10"), None, Decimal(2)]),
    },
    schema=pa.schema(
        [
            pa.field("k", pa.int64(), nullable=False),
            ("kind", pa.string()),
            ("n", pa.int64()),
            ("f", pa.float64()),
            ("d", pa.decimal128(10, 2)),
        ]
    ),
)
KINDS = pa.table({"kind": ["a", "c", "x"], "label": ["first", None, "none"]})


@pytest.fixture(scope="module")
def mice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with Instance.open(tmp_path_factory.mktemp("sql") / "mice", background=False) as instance:
        columns = "k:long, kind:string?, n:long?, f:double?, d:decimal(10,2)?"
        readings = instance.create_table("readings", columns, row_keys=["k"], split_points=[3])
        readings.ingest(READINGS.slice(0, 4))
        readings.ingest(READINGS.slice(4))
        kinds = instance.create_table("kinds", "kind:string, label:string?", row_keys=["kind"])
        kinds.ingest(KINDS)
        yield instance


@pytest.fixture(params=["streamed", "files"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read rows from Python, or let DuckDB read the verified files where that is possible."""
    monkeypatch.setattr(running, "LEAST_BYTES", 0 if request.param == "files" else 2**60)


def rows(instance: Instance, text: str, parameters: dict[str, object] | None = None) -> Rows:
    return [tuple(r.values()) for r in instance.sql(text, parameters or {}).to_arrow().to_pylist()]


def test_rows_are_ordered_by_the_position_of_an_aggregate(mice: Instance, way: None) -> None:
    text = "SELECT kind, sum(n) FROM readings WHERE n > 0 GROUP BY 1 ORDER BY 2 DESC, 1"
    assert rows(mice, text) == [("b", 10), (None, 7), ("a", 1)]
    text = "SELECT kind, avg(n) FROM readings GROUP BY kind ORDER BY 2, 1"
    assert rows(mice, text) == [("a", 1.0), ("b", 5.0), (None, 7.0), ("c", None)]


def test_a_comparison_with_all_rows_or_any_row_of_a_query(mice: Instance, way: None) -> None:
    every = "SELECT k FROM readings WHERE n >= ALL (SELECT n FROM readings WHERE n IS NOT NULL)"
    assert rows(mice, every) == [(4,)]
    with_nulls = "SELECT k FROM readings WHERE n >= ALL (SELECT n FROM readings)"
    assert rows(mice, with_nulls) == []
    some = "SELECT k FROM readings WHERE n < ANY (SELECT n FROM readings) ORDER BY k"
    assert rows(mice, some) == [(1,), (3,), (5,)]


def test_keys_of_outer_joins_by_name(mice: Instance, way: None) -> None:
    right = "SELECT kind, k, label FROM readings RIGHT JOIN kinds USING (kind) ORDER BY 1, 2"
    assert rows(mice, right) == [
        *(("a", 1, "first"), ("a", 2, "first")),
        *(("c", 6, None), ("x", None, "none")),
    ]
    full = "SELECT kind, count(*) FROM readings NATURAL FULL JOIN kinds GROUP BY ALL ORDER BY 1"
    assert rows(mice, full) == [("a", 2), ("b", 2), ("c", 1), ("x", 1), (None, 1)]


def test_lists_and_queries_with_nulls_under_or(mice: Instance, way: None) -> None:
    text = "SELECT k FROM readings WHERE kind IN (SELECT label FROM kinds) OR n IS NULL ORDER BY k"
    assert rows(mice, text) == [(2,), (6,)]
    text = "SELECT k FROM readings WHERE (kind IN ('a', NULL)) IS NULL ORDER BY k"
    assert rows(mice, text) == [(3,), (4,), (5,), (6,)]
    text = "SELECT k FROM readings WHERE kind NOT IN (SELECT kind FROM kinds) OR k = 6 ORDER BY k"
    assert rows(mice, text) == [(3,), (5,), (6,)]


def test_an_aggregate_without_groups_exists(mice: Instance, way: None) -> None:
    text = "SELECT count(*) FROM kinds WHERE EXISTS (SELECT max(n) FROM readings WHERE k > 99)"
    assert rows(mice, text) == [(3,)]
    text = "SELECT count(*) FROM kinds WHERE EXISTS (SELECT 1 FROM readings OFFSET 6)"
    assert rows(mice, text) == [(0,)]


def test_a_correlated_query_that_has_none_of_them(mice: Instance, way: None) -> None:
    text = (
        "SELECT kind FROM kinds o WHERE 1 NOT IN "
        "(SELECT n FROM readings i WHERE i.kind = o.kind) ORDER BY 1"
    )
    assert rows(mice, text) == [("x",)]  # of c it is unknown: its only n is null


def test_null_is_in_no_list_and_not_in_none(mice: Instance) -> None:
    assert rows(mice, "SELECT NULL NOT IN (1, 2), NULL IN (1), 1 NOT IN (2, NULL)") == [
        (None, None, None)
    ]
    assert rows(mice, "SELECT NULL NOT IN (SELECT k FROM readings WHERE k > 99)") == [(True,)]


def test_set_operations_that_keep_repeated_rows(mice: Instance, way: None) -> None:
    both = (
        "SELECT n FROM readings INTERSECT ALL SELECT n FROM readings WHERE k IN (3, 2) ORDER BY n"
    )
    assert rows(mice, both) == [(5,), (None,)]
    less = "SELECT n FROM readings EXCEPT ALL SELECT n FROM readings WHERE k IN (3, 2) ORDER BY n"
    assert rows(mice, less) == [(1,), (5,), (7,), (None,)]


def test_windows_that_leave_out_nulls(mice: Instance, way: None) -> None:
    text = "SELECT k, lag(n IGNORE NULLS) OVER (ORDER BY k) FROM readings ORDER BY k"
    assert rows(mice, text) == [(1, None), (2, 1), (3, 1), (4, 5), (5, 7), (6, 5)]


@pytest.mark.parametrize("expression", ["sum(k::decimal(38,0) * 10^30::decimal(38,0))", "k * k"])
def test_a_number_that_is_too_large_is_an_error_and_does_not_wrap(
    mice: Instance, expression: str
) -> None:
    large = expression.replace("k * k", "(k + 9223372036854775000) * k")
    large = large.replace("10^30::decimal(38,0)", "99999999999999999999999999999999999999")
    with pytest.raises(InvalidRequestError, match="Overflow|out of range|too large"):
        rows(mice, f"SELECT {large} FROM readings WHERE k > 1")
    assert rows(mice, "SELECT sum(9223372036854775807) FROM readings") == [
        (Decimal(9223372036854775807 * 6),)
    ]


def test_words_of_the_standard(mice: Instance, way: None) -> None:
    escaped = "SELECT k FROM readings WHERE kind || '%' LIKE 'a!%' ESCAPE '!' ORDER BY k"
    assert rows(mice, escaped) == [(1,), (2,)]
    assert rows(mice, "SELECT k FROM readings ORDER BY k FETCH FIRST 2 ROWS ONLY") == [(1,), (2,)]
    assert rows(mice, "SELECT $$it's$$, $x$a$$b$x$") == [("it's", "a$$b")]
    listed = "SELECT kind, kind IN (SELECT kind FROM kinds) FROM readings WHERE k > 3 ORDER BY k"
    assert rows(mice, listed) == [(None, None), ("b", False), ("c", True)]


def test_nan_is_greater_than_every_number_however_rows_are_read(mice: Instance, way: None) -> None:
    assert rows(mice, "SELECT k FROM readings WHERE f > 5 ORDER BY k") == [(2,), (3,)]
    assert rows(mice, "SELECT k FROM readings WHERE NOT f < 5 ORDER BY k") == [(2,), (3,)]
    assert rows(mice, "SELECT k FROM readings WHERE f = 'NaN' OR f = 0") == [(2,), (4,)]
    assert rows(mice, "SELECT isnan(max(f)), min(f) FROM readings") == [(True, float("-inf"))]


def test_what_a_negated_number_is_compared_with_may_be_nan(mice: Instance, way: None) -> None:
    every, numbers = [(1,), (2,), (3,), (4,), (5,), (6,)], "SELECT k FROM readings WHERE -f"
    of_nan = rows(mice, "SELECT k FROM readings WHERE isnan(f)")
    of_null = rows(mice, "SELECT k FROM readings WHERE f IS NULL")
    others = [row for row in every if row not in of_nan + of_null]
    assert rows(mice, f"{numbers} < 'nan' ORDER BY k") == others
    assert rows(mice, f"{numbers} >= 'nan' ORDER BY k") == of_nan
    found = mice.table("readings").query(where="-f < 'nan'").read_all()
    assert [(k,) for k in sorted(found["k"].to_pylist())] == others


def test_arithmetic_is_that_of_the_engine(mice: Instance) -> None:
    """What differs from engines that divide whole numbers to whole ones; docs/sql.md has it."""
    assert rows(mice, "SELECT 7 / 2, 7 // 2, 1 / 0, round(0.5), 2.5::int") == [
        (3.5, 3, float("inf"), Decimal(1), 3)
    ]
    assert rows(mice, "SELECT avg(d), sum(d), sum(k) FROM readings") == [
        (pytest.approx(0.7825), Decimal("3.13"), Decimal(21))
    ]
    assert rows(mice, "SELECT n FROM readings WHERE k < 4 ORDER BY n DESC") == [(5,), (1,), (None,)]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("7.5 // 2", 3.75),
        ("7.0::DOUBLE // 2", 3.5),
        ("isnan(sqrt(-1))", True),
        ("2.5::DOUBLE::int", 2),
        ("round(2.5)", 3),
        ("k = '1.5'", True),  # of the second row: the text becomes 2
        ("median(d)", Decimal("0.01")),  # of 0.01 and 0.02
        ("DATE '2024-01-01' = '2024-01-01 10:00:00'", True),
        ("extract(second FROM TIMESTAMP '2024-01-01 00:00:01.75')", 1),
        ("date_diff('week', DATE '2024-01-07', DATE '2024-01-08')", 0),
        ("date_diff('month', DATE '2024-01-31', DATE '2024-02-01')", 1),
        ("'NaN'::DOUBLE = 'NaN'::DOUBLE AND 'NaN'::DOUBLE > 1e308 AND -0.0 = 0.0", True),
    ],
)
def test_where_answers_surprise_they_are_those_of_the_page(
    mice: Instance, expression: str, value: object
) -> None:
    """docs/sql.md has them for this version of DuckDB: another may change the page."""
    where = f" WHERE k {'<= 2' if 'median' in expression else '= 2'}"
    (found,) = rows(mice, f"SELECT {expression} AS x FROM readings{where}")
    assert [float(cell) if isinstance(value, float) else cell for cell in found] == [value]


def test_reversed_texts_keep_accents_that_stand_apart_in_statements_alone(mice: Instance) -> None:
    """docs/filters-and-aggregations.md has it among the differences."""
    accents = mice.create_table("accents", "s:string", row_keys=["s"])
    accents.ingest(pa.table({"s": ["ae\u0301"]}))
    for kept, text in ((True, "e\u0301a"), (False, "\u0301ea")):
        where = f"reverse(s) = '{text}'"
        assert rows(mice, f"SELECT count(*) FROM accents WHERE {where}") == [(kept,)]
        assert accents.count(where=where) == (not kept)


def test_hours_as_clocks_go_back_are_one_in_local_time_alone(mice: Instance) -> None:
    hours = (
        "SELECT count(DISTINCT {}) FROM (SELECT TIMESTAMPTZ '2024-10-27 00:30:00+00' "
        "+ n * INTERVAL 30 MINUTE AS t FROM range(4) r(n))"
    )
    assert rows(mice, hours.format("date_trunc('hour', t)")) == [(3,)]
    local = "date_trunc('hour', t AT TIME ZONE 'Europe/Berlin')"
    assert rows(mice, hours.format(local)) == [(2,)]


@pytest.mark.parametrize("text", ["SELECT 7 % 0", "SELECT k // 0 FROM readings"])
def test_there_is_no_rest_of_a_division_by_zero(mice: Instance, text: str) -> None:
    with pytest.raises(InvalidRequestError, match="Division by zero"):
        rows(mice, text)


def test_a_single_float_is_compared_as_one_with_a_literal_alone(mice: Instance, way: None) -> None:
    if "singles" not in [table.name for table in mice.tables()]:
        singles = mice.create_table("singles", "k:long, r:float", row_keys=["k"])
        singles.ingest(pa.table({"k": [1], "r": pa.array([0.1], pa.float32())}))
    assert rows(mice, "SELECT k FROM singles WHERE r = 0.1") == [(1,)]
    assert rows(mice, "SELECT k FROM singles WHERE r = :r", {"r": 0.1}) == []


def test_nulls_beside_one_text_stay_nulls(mice: Instance, way: None) -> None:
    """DuckDB 2.0.0 took all for null where statistics of a chunk have one value."""
    if "same" not in [table.name for table in mice.tables()]:
        texts = ["x" if n % 3 else None for n in range(9_000)]
        same = mice.create_table("same", "k:long, s:string?", row_keys=["k"])
        same.ingest(pa.table({"k": range(9_000), "s": texts}))
    for test in ("s IS NULL", "s IS DISTINCT FROM 'x'", "coalesce(s, 'y') = 'y'"):
        assert rows(mice, f"SELECT count(s), count(*) + 0 FROM same WHERE {test}") == [(0, 3_000)]
    ordered = "SELECT s, count(*) FROM same GROUP BY s ORDER BY s NULLS FIRST"
    assert rows(mice, ordered) == [(None, 3_000), ("x", 6_000)]


def test_results_that_are_open_at_once_are_apart(mice: Instance, way: None) -> None:
    """A connection of DuckDB has one open result: a second would end the first."""
    first, second = (mice.sql(f"SELECT k * {n} AS x FROM readings ORDER BY k") for n in (1, 10))
    found = [row["x"] for r in (second, first) for row in r.to_arrow().to_pylist()]
    assert found == [10, 20, 30, 40, 50, 60, 1, 2, 3, 4, 5, 6]


def test_columns_that_differ_by_case_are_refused_rather_than_mixed_up(mice: Instance) -> None:
    table = mice.create_table("cases", "a:long, A:string", row_keys=["a"])
    table.ingest(pa.table({"a": [1], "A": ["LARGE"]}))
    for text in ('SELECT "A", a FROM cases', "SELECT count(*) FROM cases", "FROM cases"):
        with pytest.raises(InvalidRequestError, match="a and A differ only by case"):
            rows(mice, text)
    mice.create_table("held", "k:long, s:struct<b:long,B:long>", row_keys=["k"])
    with pytest.raises(InvalidRequestError, match="b and B differ only by case"):
        rows(mice, "SELECT s.b FROM held")


@pytest.mark.parametrize(
    "text", ["SELECT at FROM held", "SELECT max(at) FROM t", "SELECT 1 FROM t WHERE at > 1"]
)
def test_a_column_named_by_a_reserved_word_is_to_be_quoted(mice: Instance, text: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        rows(mice, text)
    assert caught.value.hint == 'is at a column? write it in double quotes: "at"'


def test_nanoseconds_keep_their_digits(mice: Instance) -> None:
    at = 1_700_000_000_123_456_789
    columns = "k:long, utc:timestamp_ns?, local:timestamp_ntz_ns?"
    mice.create_table("nanos", columns, row_keys=["k"]).ingest(
        pa.table(
            {
                "k": [1],
                "utc": pa.array([at], pa.timestamp("ns", "UTC")),
                "local": pa.array([at], pa.timestamp("ns")),
            }
        )
    )
    found = mice.sql(
        "SELECT utc, local, max(utc) AS last FROM nanos WHERE utc > '2023-01-01' GROUP BY ALL"
    ).to_arrow()
    assert [column.cast(pa.int64())[0].as_py() for column in found.columns] == [at, at, at]
    assert rows(mice, "SELECT year(utc), utc < now() FROM nanos") == [(2023, True)]


def test_a_time_that_nanoseconds_do_not_reach_is_refused(mice: Instance) -> None:
    columns = "k:long, utc:timestamp_ns?, local:timestamp_ntz_ns?"
    table = mice.create_table("long", columns, row_keys=["k"])
    table.ingest(pa.table({"k": [1, 2]}))
    for name in ("utc", "local"):
        for bound in ("'9999-12-31'", "DATE '1500-01-01'", "TIMESTAMP '3000-01-01 00:00:00'"):
            with pytest.raises(InvalidRequestError) as caught:
                rows(mice, f"SELECT k FROM long WHERE {name} < {bound}")
            assert "1677 to 2262" in caught.value.hint
            with pytest.raises(InvalidRequestError, match="beyond what timestamp.* can hold"):
                table.query(where=f"{name} < {bound}").read_all()


def test_types_that_arrow_or_parquet_have_as_something_else_are_refused(mice: Instance) -> None:
    kinds = ("'1'::BIT", "TIMETZ '10:00:00+01'", "1::UHUGEINT", "'5'::BIGNUM")
    for kind in (*kinds, "MAP {}", "{}", "row()", "union_value(a := 1)"):
        for text in (
            f"SELECT {kind} AS x",
            f"SELECT [{kind}] AS x",
            f"SELECT {{'y': {kind}}} AS x",
        ):
            with pytest.raises(InvalidRequestError, match="column x of the result has the type"):
                rows(mice, text)


def test_names_of_types_within_names_are_no_types(mice: Instance) -> None:
    number = uuid.UUID(int=7)
    members = f"{{'u': UUID '{number}', 'UUID': 'abc'::BLOB, 'BIT': 1}}"
    assert rows(mice, f"SELECT [{members}]; -- no more") == [
        ([{"u": number, "UUID": b"abc", "BIT": 1}],)
    ]
    assert rows(mice, f"SELECT 'UUID'::ENUM('UUID'), row(UUID '{number}', 1)") == [
        ("UUID", {"element1": str(number), "element2": 1})
    ]


def test_all_rows_but_the_first_and_several_ends(mice: Instance, way: None) -> None:
    assert rows(mice, "SELECT k FROM readings ORDER BY k OFFSET 4") == [(5,), (6,)]
    assert rows(mice, "SELECT count(*) FROM (SELECT k FROM readings OFFSET 4)") == [(2,)]
    assert rows(mice, "SELECT min(k, 2), max(k) FROM readings") == [([1, 2], 6)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("WITH w AS (SELECT * FROM readings WHERE k < 4) SELECT count(*) FROM w", [(3,)]),
        ("WITH w AS (SELECT k - 3 AS k FROM readings) SELECT count(*) FROM w WHERE k = 6", [(0,)]),
        ("WITH w AS (SELECT k * 2 AS k FROM readings) SELECT min(k), max(k) FROM w", [(2, 12)]),
        (
            "WITH w AS (SELECT * FROM readings WHERE n % 2 > 0 AND k > 1) "
            "SELECT k FROM w ORDER BY k LIMIT 2",
            [(3,), (4,)],
        ),
    ],
)
def test_what_with_names_is_no_table_whose_state_answers(
    mice: Instance, way: None, text: str, expected: Rows
) -> None:
    assert rows(mice, text) == expected


def test_names_of_columns_and_texts_are_the_same_however_rows_are_read(
    mice: Instance, way: None
) -> None:
    found = mice.sql(
        """SELECT (SELECT max(k) FROM readings r), '"#0"' AS "#0" FROM kinds LIMIT 1"""
    )
    assert found.to_arrow().to_pylist() == [{"(SELECT max(k) FROM readings AS r)": 6, "#0": '"#0"'}]


def test_values_of_parameters_keep_their_digits(mice: Instance) -> None:
    day = dt.date(2024, 2, 29)
    given = {"d": Decimal("0.02"), "long": Decimal("12345678901234567890.12"), "day": day}
    assert rows(mice, "SELECT k, :long, :day FROM readings WHERE d = :d", given) == [
        (2, given["long"], day)
    ]
    with pytest.raises(InvalidRequestError, match="more than 38 digits"):
        rows(mice, "SELECT :d", {"d": Decimal("1" * 39)})


@pytest.mark.parametrize("text", ["NaN", "Infinity"])
def test_a_decimal_that_is_no_number_is_refused(mice: Instance, text: str) -> None:
    with pytest.raises(InvalidRequestError, match="has no type of SQL"):
        rows(mice, "SELECT :d", {"d": Decimal(text)})


def test_a_number_with_an_exponent_is_a_double_however_rows_are_found(mice: Instance) -> None:
    odd = 2**53 + 1  # the double of 9007199254740993e0 is that of 2**53
    numbers = pa.table({"n": pa.array([5, odd - 1, odd, odd + 2])})
    mice.create_table("large", "n:long", row_keys=["n"]).ingest(numbers)
    assert rows(mice, f"SELECT count(*) FROM large WHERE n = {odd}e0") == [(2,)]
    assert rows(mice, f"SELECT n FROM large WHERE n >= {odd}e0 ORDER BY n LIMIT 1") == [(odd - 1,)]
    assert rows(mice, f"SELECT count(*) FROM large WHERE n = {odd}") == [(1,)]
    assert rows(mice, "SELECT count(*) FROM large WHERE n < 1e99999999999999999999") == [(4,)]
