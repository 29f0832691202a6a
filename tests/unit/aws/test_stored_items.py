"""No item of DynamoDB is believed that is not, to the last attribute, as it was written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.aws.dynamodb import opened, sealed
from dormouse.errors import CorruptDataError

values = st.recursive(
    st.one_of(
        st.builds(lambda t: {"S": t}, st.text(max_size=5)),
        st.builds(lambda n: {"N": str(n)}, st.integers()),
        st.builds(lambda b: {"B": b}, st.binary(max_size=5)),
        st.builds(lambda b: {"BOOL": b}, st.booleans()),
    ),
    lambda inner: st.builds(lambda parts: {"L": parts}, st.lists(inner, max_size=3)),
    max_leaves=5,
)
items: Any = st.dictionaries(st.text("abc", min_size=1, max_size=3), values, max_size=4)


@given(items, items, st.sampled_from("xy"), st.sampled_from("xy"))
def test_a_checksum_fits_one_item_of_one_kind_only(
    one: Any, other: Any, kind: str, other_kind: str
) -> None:
    stored = {**other, **{n: sealed(kind, one)[n] for n in ("sum", "format")}}
    if (one, kind) == (other, other_kind):
        with opened(other_kind, stored, "it", hint=""):
            return
    with pytest.raises(CorruptDataError), opened(other_kind, stored, "it", hint=""):
        pass
