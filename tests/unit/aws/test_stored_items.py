"""No item of DynamoDB is believed that is not, to the last attribute, as it was written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.aws.dynamodb.registry.table_items import (
    copy_of,
    defaults_item,
    id_item,
    id_named,
    name_item,
    original_of,
    revision_of,
    settings_of,
    table_of,
)
from dormouse.aws.dynamodb.registry.tombstones import DynamoTombstones
from dormouse.aws.dynamodb.stored_items import opened, sealed
from dormouse.errors import CorruptDataError
from dormouse.tables.table import Table
from dormouse.tables.tombstones import Tombstone
from tests.support.damaged_items import damages
from tests.support.world import LETTERS

TABLE = Table("a1", "letters", LETTERS, logs=("k",), tree="t", applied_requests=("r",))
ENTRY = id_item(TABLE, 3)
ITEMS = {
    "an entry": (ENTRY, lambda item: table_of(item, {})),
    "its revision": (ENTRY, revision_of),
    "a copy": (copy_of(ENTRY), lambda item: table_of(item, {})),
    "a name": (name_item("letters", "a1"), id_named),
    "properties": (defaults_item({"gc_delay_seconds": 5}, 1), settings_of),
}


@pytest.mark.parametrize("kind", ITEMS)
def test_every_damage_to_an_item_of_the_registry_is_noticed_and_named(kind: str) -> None:
    good, read = ITEMS[kind]
    read(good)
    for what, damaged in damages(good, ("pk",)):
        with pytest.raises(CorruptDataError, match=good["pk"]["S"]) as raised:
            read(damaged)
        assert "dormouse rebuild" in raised.value.hint, what


def test_every_damage_to_a_tombstone_is_noticed_and_named() -> None:
    class Client:
        item: Any

        def get_item(self, **asked: object) -> object:
            return {"Item": self.item}

    client: Any = Client()
    stones = DynamoTombstones(client, "state")
    stone = Tombstone.of(TABLE, 7)
    good = stones.puts(stone)[0]["Put"]["Item"]
    client.item = good
    assert stones.get("a1") == stone
    for _, damaged in damages(good, ("t", "g")):
        client.item = damaged
        with pytest.raises(CorruptDataError, match="a1#T"):
            stones.get("a1")


def test_a_copy_leads_back_to_the_very_item_that_it_is_of() -> None:
    assert original_of(copy_of(ENTRY)) == ENTRY
    assert copy_of(ENTRY) != ENTRY


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
