"""Predicates of key ranges, against the definition: every key of a small space, every range."""

from __future__ import annotations

from itertools import product

import pyarrow as pa
import pytest
from datafusion import SessionContext
from hypothesis import given
from hypothesis import strategies as st

from dormouse.arrow.order import fit_range, key_column, rows_in_ranges
from dormouse.arrow.types import arrow_schema
from dormouse.errors import InvalidRequestError
from dormouse.keys import Key, KeyRange, encode_key
from dormouse.rows import datafusion as engine
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import Primitive

SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [
            {"name": "a", "type": "IntType"},
            {"name": "b", "type": "StringType"},
            {"name": "c", "type": "LongType"},
        ]
    }
)
INTS = [-(2**31), 0, 2**31 - 1]
TEXTS = ["", "x", "x\0"]
LONGS = [-(2**63), 7, 2**63 - 1]
KEYS: list[Key] = list(product(INTS, TEXTS, LONGS))
ROWS = pa.table(
    dict(zip("abc", map(list, zip(*KEYS, strict=True)), strict=True)), arrow_schema(SCHEMA)
)

bounds = st.builds(
    lambda key, length: key[:length],
    st.tuples(
        st.sampled_from([*INTS, -(2**31) - 1, 2**31, 1, -(2**63), 2**63 - 1]),
        st.sampled_from([*TEXTS, "w", "y"]),
        st.sampled_from([*LONGS, 8]),
        st.just(0),
    ),
    st.integers(0, 4),
)
ranges = st.builds(KeyRange, bounds, st.none() | bounds) | bounds.map(KeyRange.exactly)


@given(wanted=ranges)
def test_a_predicate_is_true_of_just_the_keys_in_the_range(wanted: KeyRange) -> None:
    fit = fit_range(wanted, SCHEMA)
    expected = [key for key in KEYS if wanted.contains(encode_key(key))]
    assert [key for key in KEYS if fit.contains(encode_key(key))] == expected
    if fit.is_empty():
        assert not expected
        return
    term = engine.range_predicate(fit, SCHEMA.keys)
    frame = engine.frame_from_batches(engine.session(), ROWS.to_batches())
    found = frame if term is None else frame.filter(term)
    assert [tuple(row.values()) for row in found.to_pylist()] == expected


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (KeyRange(), None),
        (KeyRange.exactly((0,)), "a >= Int32(0) AND a < Int32(1)"),
        (
            KeyRange.exactly((0, "x")),
            'a >= Int32(0) AND a <= Int32(0) AND b >= Utf8("x") AND b < Utf8("x\0")',
        ),
        (
            KeyRange((0, "x"), (5,)),
            'a >= Int32(0) AND (a > Int32(0) OR b >= Utf8("x")) AND a < Int32(5)',
        ),
    ],
)
def test_predicates_bound_single_columns_so_that_readers_can_skip(
    wanted: KeyRange, expected: str | None
) -> None:
    term = engine.range_predicate(fit_range(wanted, SCHEMA), SCHEMA.keys)
    if expected is None:
        assert term is None
    else:
        assert term is not None
        assert expected in str(term)


@pytest.mark.parametrize("bound", [("x",), (0, 0), (0, b"x"), (0, "x", "y")])
def test_a_bound_of_another_type_than_its_column_is_refused(bound: Key) -> None:
    with pytest.raises(InvalidRequestError, match="does not fit column"):
        fit_range(KeyRange(bound, None), SCHEMA)
    with pytest.raises(InvalidRequestError, match="does not fit column"):
        fit_range(KeyRange((), bound), SCHEMA)


def test_names_and_values_cannot_break_out_of_a_predicate() -> None:
    name = 'a" or 1=1 --'
    schema = Schema.from_json({"rowKeyFields": [{"name": name, "type": "StringType"}]})
    rows = pa.table({name: ["a", "' or 1=1 --"]}, arrow_schema(schema))
    frame = SessionContext().create_dataframe([rows.to_batches()])
    wanted = KeyRange.exactly(("' or 1=1 --",))
    term = engine.range_predicate(wanted, schema.keys)
    assert term is not None
    assert frame.filter(term).to_pylist() == [{name: "' or 1=1 --"}]


@pytest.mark.parametrize(
    ("bound", "fitted"),
    [
        (b"", b"\0" * 16),
        (b"\1", b"\1" + b"\0" * 15),
        (b"\7" * 16, b"\7" * 16),
        (b"\0" * 17, b"\0" * 15 + b"\1"),
        (b"\0\xff" * 8 + b"\1", b"\0\xff" * 7 + b"\1\0"),
        (b"\xff" * 17, None),
    ],
)
def test_a_bound_of_another_length_is_at_the_next_uuid(bound: bytes, fitted: bytes | None) -> None:
    schema = Schema((Field("u", Primitive.UUID), Field("n", Primitive.LONG)))
    empty = KeyRange((), ())
    start = fit_range(KeyRange((bound, 5)), schema)
    end = fit_range(KeyRange((), (bound,)), schema)
    if fitted is None:
        assert (start, end) == (empty, KeyRange())
    else:
        assert start == KeyRange((fitted, 5) if fitted == bound else (fitted,))
        assert end == KeyRange((), (fitted,))


def test_bounds_beyond_a_day_are_at_its_ends() -> None:
    schema = Schema((Field("t", Primitive.TIME),))
    assert fit_range(KeyRange((-1,), (86_400_000_000,)), schema) == KeyRange()
    assert fit_range(KeyRange((86_400_000_000,)), schema) == KeyRange((), ())


@pytest.mark.parametrize(
    "kind", [Primitive.INT, Primitive.LONG, Primitive.DATE, Primitive.TIME, Primitive.TIMESTAMP_NTZ]
)
def test_rows_of_a_range_are_found_among_numbers_and_times_in_any_part_of_a_column(
    kind: Primitive,
) -> None:
    schema, numbers = Schema(row_keys=(Field("k", kind),)), [0, 1, 1, 1, 3, 5, 5, 8, 9]
    column = key_column(numbers, kind)
    for first, count in product(range(9), range(10)):
        rows = pa.record_batch({"k": column.slice(first, count)})
        for low, high in ((1, 5), (0, 9), (2, 3), (5, 100)):
            found = [batch.num_rows for batch in rows_in_ranges(rows, [span(low, high)], schema)]
            wanted = sum(low <= n < high for n in numbers[first : first + count])
            assert sum(found) == wanted


def span(low: int, high: int) -> KeyRange:
    return KeyRange((low,), (high,))
