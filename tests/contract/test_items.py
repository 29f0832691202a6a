"""What an item store promises: in memory, in DynamoDB and in a folder."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dormouse.aws.items import DynamoItems, attributes_of, item_of
from dormouse.errors import CorruptDataError
from dormouse.folder.sqlite import SqliteItems
from dormouse.items import store
from dormouse.items.store import (
    ABSENT,
    ANY,
    BODY,
    IDS,
    MARK,
    PRESENT,
    Check,
    Delete,
    If,
    Item,
    ItemStore,
    Key,
    Put,
    Set,
    Space,
    has,
    put,
    unchanged,
)
from tests.contract.folders import database_in
from tests.contract.mocked_aws import dynamodb_table, mocked_aws
from tests.support.damaged_items import damages
from tests.support.depth import examples
from tests.support.memory_items import MemoryItems

NAMES: Any = {name: name for name in ("tables", "jobs", "state", "deltas")}


@dataclass
class Stores:
    memory: MemoryItems
    others: tuple[ItemStore, ...]
    client: Any
    numbers: Iterator[int]

    def __iter__(self) -> Iterator[ItemStore]:
        return iter((self.memory, *self.others))


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    folder: Path = tmp_path_factory.mktemp("items")
    with pytest.MonkeyPatch.context() as patch, mocked_aws(patch), database_in(folder) as database:
        dynamodb_table("tables", "pk")
        dynamodb_table("jobs", "table_id", "job_id")
        dynamodb_table("deltas", "k", "i")
        client = dynamodb_table("state", "t", "g")
        others = (DynamoItems(client, NAMES), SqliteItems(database))
        yield Stores(MemoryItems(), others, client, itertools.count())


IDENTITIES = st.sampled_from([bytes([n] * 16) for n in range(4)])
BODIES = st.one_of(st.text("ab", max_size=2), st.binary(max_size=2))
KEYS = st.tuples(st.sampled_from("tu"), st.sampled_from(["0", "1", "10"]))
PARTS = st.dictionaries(st.sampled_from([BODY, "other"]), BODIES, min_size=1)
PAGES = st.builds(lambda ids, mark: {IDS: b"".join(ids), MARK: mark}, st.just([]), IDENTITIES)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), KEYS, IDENTITIES, st.integers(1, 3)),
        st.tuples(
            st.just("write"),
            st.dictionaries(
                KEYS,
                st.tuples(
                    st.sampled_from(["put", "page", "set", "delete", "check"]),
                    st.sampled_from(["any", "absent", "present", "seen", "has", "lacks"]),
                    PARTS,
                    PAGES,
                    st.none() | st.integers(1, 9),
                ),
                min_size=1,
                max_size=3,
            ),
        ),
    ),
    max_size=14,
)


def change_of(items: MemoryItems, key: Key, drawn: tuple[Any, ...]) -> Any:
    kind, condition, parts, page, expires_s = drawn
    (item,) = items.get(key)
    name = min(parts)
    lacking = item is None or name not in item.parts
    when = {
        "any": ANY,
        "absent": ABSENT,
        "present": PRESENT,
        "seen": unchanged(item),
        "has": has(key, **{name: parts[name]}),
        "lacks": If(checksums={name: None}),
    }[condition]
    match kind:
        case "put":
            return Put(key, parts, when, expires_s)
        case "page":
            return Put(key, page, when)
        case "set" if item is not None and item.expires_s is None:
            gone = {} if lacking else {name: None}
            return Set(key, {**parts, **gone, "more": b"x"}, PRESENT)
        case "check" if when != ANY:
            return Check(key, when)
    return Delete(key, when)


@settings(
    suppress_health_check=list(HealthCheck),
    deadline=None,
    max_examples=examples(40),
    phases=[Phase.generate],  # a smaller example takes minutes to find
)
@given(STEPS)
def test_all_stores_do_the_same(stores: Stores, steps: list[Any]) -> None:
    of_example = f"{next(stores.numbers)}."

    def key(place: tuple[str, str]) -> Key:
        return Key("state", of_example + place[0], place[1])

    for step in steps:
        if step[0] == "append":
            _, place, new_id, room = step
            shown = [each.append(key(place), new_id, room=room) for each in stores]
        else:
            changes = [change_of(stores.memory, key(p), drawn) for p, drawn in step[1].items()]
            shown = [each.write(*changes) for each in stores]
        assert shown == [shown[0]] * 3, step
    places = [key((owner, name)) for owner in "tu" for name in ("0", "1", "10")]
    for read in (
        lambda each: each.get(*places),
        lambda each: list(each.query("state", of_example + "t")),
        lambda each: list(each.query("state", of_example + "t", least="1")),
        lambda each: list(each.names("state", of_example + "t")),
        lambda each: list(each.names("state", of_example + "t", least="1", most="1")),
        lambda each: each.get(*places, never_change=True),
        lambda each: sorted(each.scan("state", of_example), key=lambda item: item.key),
    ):
        assert [read(each) for each in stores] == [read(stores.memory)] * 3, steps
    for item in stores.memory.scan("state", of_example):
        assert [item.read(name) for name in item.parts]
    for each in stores:
        each.delete([item.key for item in each.scan("state", of_example)])
        assert list(each.scan("state", of_example)) == []


SPACES: tuple[Space, ...] = ("jobs", "state", "deltas")


def test_keys_of_every_space_are_kept_apart(stores: Stores) -> None:
    keys = [Key("tables", "x"), *(Key(space, "x", "y") for space in SPACES)]
    for each in stores:
        for key in keys:
            assert each.write(put(key, key.space, ABSENT))
        assert [item.read() for item in each.get(*keys) if item] == [key.space for key in keys]
        assert [item.key for item in each.scan("tables", "w", "x")] == keys[:1]
        each.delete(keys)


def test_every_damage_to_an_item_is_noticed() -> None:
    changes = [
        put(Key("jobs", "t", "j"), "text", expires_s=7),
        Put(Key("state", "t", "0"), {IDS: bytes(range(32)), MARK: b"m", "other": "x"}),
    ]

    def read(item: Item, change: Put) -> None:
        for name in change.parts:
            item.read(name)

    for change, keys in zip(changes, (("table_id", "job_id"), ("t", "g")), strict=True):
        good = attributes_of(change)
        read(item_of(change.key.space, good), change)
        for what, damaged in [
            *damages(good, keys),
            ("elsewhere", {**good, keys[1]: {"S": "elsewhere"}}),
        ]:
            with pytest.raises(ValueError) as raised:
                read(item_of(change.key.space, damaged), change)
            assert not isinstance(raised.value, CorruptDataError), what


def test_a_damaged_item_is_replaced_only_as_it_was_seen(stores: Stores) -> None:
    key = Key("state", "damaged")
    dynamodb: ItemStore = stores.others[0]
    change = put(key, "x")
    for what, damaged in damages(attributes_of(change), ("t", "g")):
        stores.client.put_item(TableName="state", Item=damaged)
        (seen,) = dynamodb.get(key)
        assert not dynamodb.write(put(key, "y", ABSENT)), what
        assert dynamodb.write(put(key, "y", unchanged(seen))), what
        if "body_sum" in what or "nothing" in what:
            assert not dynamodb.write(put(key, "z", unchanged(seen))), what
    dynamodb.delete([key])
    assert not dynamodb.write(put(key, "y", unchanged(seen)))


def test_an_append_to_a_damaged_item_shows_the_damage(stores: Stores) -> None:
    key = Key("state", "page")
    dynamodb: ItemStore = stores.others[0]
    for what, damaged in damages(attributes_of(Put(key, {IDS: b"", MARK: b""})), ("t", "g")):
        if what.startswith("mark is S"):
            continue  # moto cannot compare text with bytes
        stores.client.put_item(TableName="state", Item=damaged)
        item = dynamodb.append(key, b"1" * 16, room=9)
        assert item is not None
        with pytest.raises(ValueError):
            [item.read(name) for name in (IDS, MARK)]
            raise AssertionError(what)
    dynamodb.delete([key])


def test_an_item_of_another_format_says_which_and_what_to_do(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = Key("state", "later")
    with monkeypatch.context() as later:
        later.setattr(store, "FORMAT", 2)
        stores.others[0].write(put(key, "x"))
    (item,) = stores.others[0].get(key)
    assert item is not None
    with pytest.raises(CorruptDataError, match=r"format 2.* is 1") as raised:
        item.read()
    assert "another version" in raised.value.hint
