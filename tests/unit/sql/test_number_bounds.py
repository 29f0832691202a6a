"""Bounds of whole numbers beside numbers of any other kind leave out what does not match, and no
more: held to Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext

from hypothesis import given
from hypothesis import strategies as st

from dormouse.key_codec import KeyCodec
from dormouse.keys import INT64_MAX, INT64_MIN, encode_key
from dormouse.schema.schema import Field, Schema, whole_numbers
from dormouse.schema.types import DecimalType, from_decimal_count
from dormouse.sql.conditions import parse_condition
from dormouse.sql.key_bounds import key_bounds
from tests.unit.engine.test_casts import COMPARISONS

KEYS = [
    Schema.from_json({"rowKeyFields": [{"name": "id", "type": kind}], "valueFields": []})
    for kind in ("IntType", "LongType")
]
NEAR = st.sampled_from([INT64_MIN, -(2**53), -1, 0, 2**31, INT64_MAX, 10**18])
FEW = st.decimals(-3, 3, places=1) | st.integers(-3, 3).map(Decimal)
FORMS = [
    "id {sign} {n}",
    "{n} {mirrored} id",
    "NOT id {negated} {n}",
    "CAST(id AS DECIMAL(20, 1)) {sign} {n}",
]
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}
NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "<>", "<>": "="}


@given(
    schema=st.sampled_from(KEYS),
    sign=st.sampled_from(list(COMPARISONS)),
    near=NEAR,
    few=st.lists(FEW, min_size=2, max_size=3),
)
def test_a_whole_key_beside_any_number_is_bounded_and_loses_no_row(
    schema: Schema, sign: str, near: int, few: list[Decimal]
) -> None:
    ids = [n for n in range(near - 5, near + 6) if n in whole_numbers(schema.keys[0].type)]
    numbers = [near + number for number in few]
    check(schema, sign, ids, numbers)


DECIMALS = [DecimalType(4, 2), DecimalType(20, 0), DecimalType(36, 18)]


@given(
    kind=st.sampled_from(DECIMALS),
    sign=st.sampled_from(list(COMPARISONS)),
    place=st.sampled_from([-1, 0, 1]),
    few=st.lists(FEW, min_size=2, max_size=3),
)
def test_a_decimal_key_beside_finer_numbers_is_bounded_and_loses_no_row(
    kind: DecimalType, sign: str, place: int, few: list[Decimal]
) -> None:
    schema = Schema((Field("id", kind),))
    known = whole_numbers(kind)
    near = place * (known.stop - 1)
    ids = [from_decimal_count(n, kind) for n in range(near - 5, near + 6) if n in known]
    with localcontext(prec=50):
        numbers = [(near + number).scaleb(-kind.scale) for number in few]
    check(schema, sign, ids, numbers)


def check(
    schema: Schema, sign: str, ids: Sequence[int | Decimal], numbers: Sequence[Decimal]
) -> None:
    (first, second, *_), texts = numbers, ", ".join(f"{number:f}" for number in numbers)
    wanted = {
        f"id IN ({texts})": [n for n in ids if n in numbers],
        f"id BETWEEN {first:f} AND {second:f}": [n for n in ids if first <= n <= second],
        f"id IS NOT DISTINCT FROM {first:f}": [n for n in ids if n == first],
    }
    is_decimal = isinstance(schema.keys[0].type, DecimalType)
    for form in FORMS[:-1] if is_decimal else FORMS:
        text = form.format(
            sign=sign, mirrored=MIRRORED[sign], negated=NEGATED[sign], n=f"{first:f}"
        )
        wanted[text] = [n for n in ids if COMPARISONS[sign](n, first)]
    for text, matching in wanted.items():
        spans = key_bounds(parse_condition(text, schema), schema)
        keys = [encode_key(KeyCodec(schema).from_python(n)) for n in ids]
        within = [
            n for n, key in zip(ids, keys, strict=True) if any(s.contains(key) for s in spans)
        ]
        is_loose = "<>" in text or text.startswith("NOT")
        assert set(matching) <= set(within) if is_loose else matching == within, (text, spans)
