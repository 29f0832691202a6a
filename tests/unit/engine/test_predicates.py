"""What conditions mean, by the engine itself: each operator and function, with nulls."""

from __future__ import annotations

import datetime as dt
import math
import traceback
from collections.abc import Iterable, Iterator
from decimal import Decimal
from operator import eq, ge, lt, ne
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dormouse.arrow.types import Tally, arrow_schema
from dormouse.errors import CorruptDataError, InvalidRequestError, InvariantError
from dormouse.rows import datafusion as engine
from dormouse.rows.predicates import Predicate, parse_predicate, parse_stored_predicate
from dormouse.schema.schema import Schema
from dormouse.schema.types import Primitive
from dormouse.sql.conditions import MAX_PATTERN, Call, Column, Condition, Literal
from tests.support.depth import examples

DECIMAL = {"DecimalType": {"precision": 9, "scale": 2}}
MAP = {"MapType": {"keyType": "StringType", "valueType": "LongType"}}
NULLABLE = {
    "i": "IntType",
    "j": "LongType",
    "f": "FloatType",
    "d": "DoubleType",
    "n": DECIMAL,
    "b": "BooleanType",
    "s": "StringType",
    "x": "ByteArrayType",
    "t": "TimestampType",
    "day": "DateType",
    "m": MAP,
}
SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "row", "type": "LongType"}],
        "valueFields": [
            {"name": name, "type": kind, "nullable": True} for name, kind in NULLABLE.items()
        ],
    }
)
NOON = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
ROWS: list[dict[str, object]] = [
    {
        "row": 0,
        "i": -(2**31),
        "j": -(2**63),
        "f": -0.0,
        "d": -math.inf,
        "n": Decimal("-1.25"),
        "b": False,
        "s": "",
        "x": b"",
        "t": NOON,
        "day": NOON.date(),
        "m": [],
    },
    {
        "row": 1,
        "i": 3,
        "j": 3,
        "f": 0.5,
        "d": 0.5,
        "n": Decimal("3.00"),
        "b": True,
        "s": "It's 100%_é",
        "x": b"\x00\xff",
        "t": NOON + dt.timedelta(microseconds=1),
        "day": dt.date(1969, 12, 31),
        "m": [("a", 1)],
    },
    {
        "row": 2,
        "i": 2**31 - 1,
        "j": 2**63 - 1,
        "f": math.nan,
        "d": -math.nan,
        "n": Decimal("9999999.99"),
        "b": True,
        "s": "abc",
        "x": b"abc",
        "t": dt.datetime(1900, 2, 28, 23, 59, 59, tzinfo=dt.UTC),
        "day": dt.date(2024, 2, 29),
        "m": [("b", 2)],
    },
    {"row": 3, **dict.fromkeys(NULLABLE)},
]
BATCH = pa.RecordBatch.from_pylist(ROWS, arrow_schema(SCHEMA))


def matching(text: str) -> list[object]:
    return numbers(parse_predicate(text, SCHEMA))


def numbers(predicate: Predicate, batches: Iterable[pa.RecordBatch] = (BATCH,)) -> list[object]:
    return [row["row"] for batch in predicate.apply(batches) for row in batch.to_pylist()]


MEANINGS: list[tuple[str, list[int]]] = [
    ("i = 3", [1]),
    ("i <> 3", [0, 2]),
    ("i != 3", [0, 2]),
    ("i < 3", [0]),
    ("i <= 3", [0, 1]),
    ("i > 3", [2]),
    ("i >= 3.0", [1, 2]),
    ("j = -9223372036854775808", [0]),
    ("i = j", [1]),
    ("i IS DISTINCT FROM 3", [0, 2, 3]),
    ("i IS NOT DISTINCT FROM j", [1, 3]),
    ("i IS NULL", [3]),
    ("i IS NOT NULL", [0, 1, 2]),
    ("NOT i IS NULL", [0, 1, 2]),
    ("m IS NOT NULL", [0, 1, 2]),
    ("b", [1, 2]),
    ("NOT b", [0]),
    ("b = false", [0]),
    ("b IS TRUE", [1, 2]),
    ("b IS NOT TRUE", [0, 3]),
    ("b IS FALSE", [0]),
    ("b IS NOT FALSE", [1, 2, 3]),
    ("b AND i > 3", [2]),
    ("b OR i > 3 OR row = 3", [1, 2, 3]),
    ("row IN (0, 2)", [0, 2]),
    ("i IN (3, 4)", [1]),
    ("i NOT IN (3, 4)", [0, 2]),
    ("i BETWEEN 3 AND 5", [1]),
    ("i NOT BETWEEN 3 AND 5", [0, 2]),
    ("s LIKE '%100\\%\\_%'", [1]),
    ("s LIKE '_b_'", [2]),
    ("s NOT LIKE '_b_'", [0, 1]),
    ("s ILIKE 'ABC'", [2]),
    ("s NOT ILIKE 'ABC'", [0, 1]),
    ("s LIKE 'ends with \\'", []),
    ("s = 'It''s 100%_é'", [1]),
    ("s > 'J'", [2]),
    ("lower(s) = 'it''s 100%_é'", [1]),
    ("upper(s) = 'ABC'", [2]),
    ("trim(s) = 'abc'", [2]),
    ("length(s) = 11", [1]),
    ("octet_length(s) = 12", [1]),
    ("starts_with(s, 'It')", [1]),
    ("ends_with(s, 'é')", [1]),
    ("contains(s, '')", [0, 1, 2]),
    ("coalesce(i, j, 7) = 7", [3]),
    ("coalesce(n, 7) = 7.00", [3]),
    ("nullif(i, 3) IS NULL", [1, 3]),
    ("i + 1 = 4", [1]),
    ("i - 1 < i", [0, 1, 2]),  # 64 bits
    ("j - 1 > j", [0]),  # which wrap around
    ("i * 2 = 6", [1]),
    ("i / 2 = 1", [1]),
    ("i % 2 = 1", [1, 2]),
    ("-i = -3", [1]),
    ("n = 3", [1]),
    ("n > 2.999", [1, 2]),
    ("n IN (3, -1.25)", [0, 1]),
    ("f = 0", [0]),
    ("f = 0.5", [1]),
    ("f > 1e300", [2]),  # NaN is above everything
    ("d < 0", [0]),
    ("d >= 0.5", [1, 2]),
    ("d = d + 0", [0, 1, 2]),  # and equals itself
    ("f = d", [1, 2]),  # whatever its sign
    ("d - d = f", [2]),  # -inf - -inf is NaN, 0.5 - 0.5 is 0
    ("x = X'00ff'", [1]),
    ("x < X'61'", [0, 1]),
    ("t = TIMESTAMP '2026-01-31 12:00:00'", [0]),
    ("t > TIMESTAMP '2026-01-31T12:00:00Z'", [1]),
    ("t > TIMESTAMP '2026-01-31T13:00:00.000000+01:00'", [1]),
    ("day = DATE '2024-02-29'", [2]),
    ("day < DATE '1970-01-01'", [1]),
    ("EXTRACT(YEAR FROM t) = 1900", [2]),
    ("EXTRACT(QUARTER FROM t) = 1", [0, 1, 2]),
    ("EXTRACT(MONTH FROM day) = 2", [2]),
    ("EXTRACT(DAY FROM day) = 29", [2]),
    ("EXTRACT(DOW FROM t) = 6", [0, 1]),
    ("EXTRACT(DOY FROM day) = 365", [1]),
    ("EXTRACT(HOUR FROM t) = 12", [0, 1]),
    ("EXTRACT(MINUTE FROM t) = 59", [2]),
    ("TRUE", [0, 1, 2, 3]),
    ("1 = 2", []),
]


@pytest.mark.parametrize(("text", "expected"), MEANINGS)
def test_a_condition_matches_where_it_is_true_and_its_negation_everywhere_else(
    text: str, expected: list[int]
) -> None:
    predicate = parse_predicate(text, SCHEMA)
    assert numbers(predicate) == expected
    assert numbers(predicate.negated()) == [n for n in range(4) if n not in expected]
    again = parse_predicate(predicate.sql, SCHEMA)
    assert again == predicate
    assert parse_predicate(predicate.negated().sql, SCHEMA) == predicate.negated()


@pytest.mark.parametrize("zero", ["0", "-0.0", "0e-50", "'0'"])
def test_a_decimal_without_digits_before_its_point_is_compared_with_zero(zero: str) -> None:
    field = {"name": "n", "type": {"DecimalType": {"precision": 38, "scale": 38}}}
    schema = Schema.from_json({"rowKeyFields": [field]})
    rows = [{"n": Decimal(n).scaleb(-38)} for n in (-1, 0, 1)]
    batch = pa.RecordBatch.from_pylist(rows, arrow_schema(schema))
    predicate = parse_predicate(f"n >= {zero}", schema)
    assert sum(len(each) for each in predicate.apply([batch])) == 2
    assert parse_predicate(predicate.sql, schema) == predicate


@pytest.mark.parametrize("kind", ["TimestampNsType", "TimestampNtzNsType", "TimestampType"])
@pytest.mark.parametrize("year", [-1, 1677, 1678, 2026, 2262, 2263, 9999, 300000])
def test_years_are_compared_that_no_time_of_the_column_is_in(kind: str, year: int) -> None:
    key = {"name": "at", "type": kind}
    schema = Schema.from_json({"rowKeyFields": [key]})
    times = pa.array([dt.datetime(y, 5, 1, tzinfo=dt.UTC) for y in (1700, 2026, 2261)])
    batch = pa.record_batch([times.cast(arrow_schema(schema).field("at").type)], ["at"])
    for op, compare in (("=", eq), ("<", lt), (">=", ge), ("<>", ne)):
        condition = parse_predicate(f"EXTRACT(YEAR FROM at) {op} {year}", schema)
        expected = sum(compare(y, year) for y in (1700, 2026, 2261))
        for predicate, count in ((condition, expected), (condition.negated(), 3 - expected)):
            assert sum(len(each) for each in predicate.apply([batch])) == count


@pytest.mark.parametrize(
    "text",
    [
        "NOT i = 3 AND b",
        "NOT i IS NULL AND i = 3",
        "b OR NOT b AND i > 3",
        "i = 3 OR i = 4 AND j = 5 OR b",
        "i + 2 * 3 = 9",
        "(i + 2) * 3 = 15",
        "10 - 4 - 3 = i",
        "64 / 4 / 2 = 8",
        "-i + 6 = i",
        "-i % 2 = -1",
        "i BETWEEN 1 AND 5 AND b",
        "NOT i BETWEEN 1 AND 5",
        "NOT s LIKE 'a%'",
        "b = (i = 3)",
        "NOT b IS NULL",
        "b IS NOT NULL IS TRUE",
        "i = 3 IS NOT FALSE",
        "NOT NOT b",
        "NOT i IN (3) OR b",
        "i < 4 = b",
    ],
)
def test_operators_bind_as_the_engine_itself_binds_them(text: str) -> None:
    context = engine.session()
    raw = context.create_dataframe([[BATCH]])
    expected = [
        row["row"]
        for b in engine.batches_of(raw.filter(raw.parse_sql_expr(text)).execute_stream())
        for row in b.to_pylist()
    ]
    assert matching(text) == expected


@settings(deadline=None, max_examples=examples(30))
@given(
    cut=st.integers(-3, 3),
    op=st.sampled_from(["<", "<=", "=", "<>", ">", ">="]),
    values=st.lists(
        st.sampled_from([math.nan, -math.nan, -0.0, 0.0, 1.0, -1.0, math.inf]), max_size=6
    ),
)
def test_scans_with_statistics_find_the_same_floats_as_no_statistics_do(
    cut: int, op: str, values: list[float]
) -> None:
    rows = [{**ROWS[3], "row": i, "d": value} for i, value in enumerate(values)]
    batch = pa.RecordBatch.from_pylist(rows, arrow_schema(SCHEMA))
    predicate = parse_predicate(f"d {op} {cut}", SCHEMA)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "rows.parquet"
        pq.write_table(
            pa.Table.from_batches([batch]), file, row_group_size=2, write_page_index=True
        )
        context = engine.session()
        frame = context.read_parquet(str(file)).filter(predicate.expr(context))
        scanned = [
            row["row"] for b in engine.batches_of(frame.execute_stream()) for row in b.to_pylist()
        ]
    assert sorted(map(str, scanned)) == sorted(map(str, numbers(predicate, [batch])))


def test_the_deepest_and_longest_conditions_allowed_run() -> None:
    deepest = "b"
    for _ in range(7):
        deepest = f"NOT ({deepest} AND i > 0)"
    assert matching(deepest)
    assert matching(" OR ".join(f"i = {n}" for n in range(1000))) == [1]
    assert matching(f"i IN ({', '.join(map(str, range(1000)))})") == [1]
    assert matching("i" + " + 1" * 15 + " = 18") == [1]
    assert matching("lower(" * 14 + "s" + ")" * 14 + " = 'abc'") == [2]
    assert matching("coalesce(" * 14 + "i" + ", 1)" * 14 + " = 3") == [1]


def test_the_longest_patterns_allowed_run() -> None:
    for pattern in ("_" * MAX_PATTERN, "%a" * (MAX_PATTERN // 2), "é_" * (MAX_PATTERN // 2)):
        for operator in ("LIKE", "ILIKE"):
            assert matching(f"s {operator} '{pattern}'") == []
            assert numbers(parse_predicate(f"s {operator} '{pattern}'", SCHEMA).negated())


def unbounded() -> Predicate:
    """A condition that the engine cannot evaluate, which the parser would have refused."""
    text, pattern = Column("s", Primitive.STRING), Literal("_" * 11_000, Primitive.STRING)
    return Predicate(Condition(Call("LIKE", (text, pattern), Primitive.BOOLEAN)), SCHEMA)


def test_what_the_engine_cannot_evaluate_is_a_bad_condition_and_no_damaged_shard() -> None:
    with pytest.raises(InvalidRequestError, match="cannot be evaluated"):
        numbers(unbounded())
    with pytest.raises(InvalidRequestError, match="cannot be evaluated"):
        unbounded().check()
    parse_predicate("s LIKE '_'", SCHEMA).check()


def test_damage_met_while_rows_are_tested_is_still_damage() -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield BATCH
        raise CorruptDataError("a shard is damaged")

    with pytest.raises(CorruptDataError):
        numbers(parse_predicate("s = 'a'", SCHEMA), rows())


def test_rows_come_in_their_order_in_batches_of_the_same_schema() -> None:
    batches = [BATCH.slice(i, 1) for i in range(4)] * 40
    found = list(parse_predicate("row <> 1", SCHEMA).apply(batches))
    assert all(batch.schema == BATCH.schema for batch in found)
    assert [n for b in found for n in b.column(0).to_pylist()] == [0, 2, 3] * 40


@pytest.mark.parametrize("counts_others", [False, True])
def test_rows_that_were_tested_are_not_held(counts_others: bool) -> None:
    columns = pa.schema([arrow_schema(SCHEMA).field("row")])
    rows, batches, most_bytes = 2**16, 64, 0
    numbers: pa.Int64Array = pa.array(range(rows), pa.int64())
    before = pa.total_allocated_bytes()

    def read() -> Iterator[pa.RecordBatch]:
        for n in range(batches):
            yield pa.RecordBatch.from_arrays([pc.add(numbers, n)], schema=columns)

    count = 0
    tally = Tally() if counts_others else None
    for batch in parse_predicate("row >= 10", SCHEMA).apply(read(), tally):
        count += batch.num_rows
        most_bytes = max(most_bytes, pa.total_allocated_bytes() - before)
    assert count == batches * rows - sum(range(1, 11))
    assert most_bytes < batches * rows * 8 // 3


def test_a_kept_condition_that_cannot_be_read_is_not_quoted() -> None:
    """The caller learns what is wrong with a condition; logs and records do not show it."""
    text = "i = 'hazel'"
    with pytest.raises(InvalidRequestError, match="hazel"):
        parse_predicate(text, SCHEMA)
    with pytest.raises(InvalidRequestError) as raised:
        parse_stored_predicate(text, SCHEMA)
    assert "hazel" not in "".join(traceback.format_exception(raised.value))


def test_a_merge_that_would_sort_is_refused_without_quoting_its_filters() -> None:
    context = engine.session()
    batch = pa.RecordBatch.from_pylist(ROWS, arrow_schema(SCHEMA))
    wanted = parse_predicate("s = 'hazel'", SCHEMA).expr(context)
    unsorted = engine.frame_from_batches(context, [batch]).filter(wanted)
    with pytest.raises(InvariantError, match="FilterExec") as raised:
        engine.plan_merge([unsorted], SCHEMA, ["row"], most_rows=0)
    assert "hazel" not in str(raised.value)
