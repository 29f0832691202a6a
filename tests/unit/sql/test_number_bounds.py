"""Bounds of whole numbers beside numbers of any other kind leave out what does not match, and no
more: held to Python.
"""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from dormouse.keys import INT64_MAX, INT64_MIN, encode_key
from dormouse.schema.schema import Schema
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
    ids = [n for n in range(near - 5, near + 6) if INT64_MIN <= n <= INT64_MAX]
    numbers = [near + number for number in few]
    (first, second, *_), texts = numbers, ", ".join(f"{number:f}" for number in numbers)
    wanted = {
        f"id IN ({texts})": [n for n in ids if n in numbers],
        f"id BETWEEN {first:f} AND {second:f}": [n for n in ids if first <= n <= second],
        f"id IS NOT DISTINCT FROM {first:f}": [n for n in ids if n == first],
    }
    for form in FORMS:
        text = form.format(
            sign=sign, mirrored=MIRRORED[sign], negated=NEGATED[sign], n=f"{first:f}"
        )
        wanted[text] = [n for n in ids if COMPARISONS[sign](n, first)]
    for text, matching in wanted.items():
        spans = key_bounds(parse_condition(text, schema), schema)
        within = [n for n in ids if any(span.contains(encode_key((n,))) for span in spans)]
        is_loose = "<>" in text or text.startswith("NOT")
        assert set(matching) <= set(within) if is_loose else matching == within, (text, spans)
