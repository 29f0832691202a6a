"""Damaged objects of requests: no wrong reply is sent, and the hint of the error is true."""

from __future__ import annotations

import pytest

from dormouse.errors import CorruptDataError
from dormouse.features.administration import save_reply
from dormouse.features.purge import REMAINING, Remaining
from dormouse.features.requests import request_key, request_left_path, request_reply_path
from dormouse.messages.requests import CompactTable, PurgeRows, Reply, reply_to
from dormouse.messages.stages import RequestStep, SelectionMessage
from dormouse.stored.paths import REQUESTS
from dormouse.tables.table import Table
from tests.support.damage import DAMAGE, rewrite
from tests.support.made_once import made_once
from tests.support.world import World
from tests.unit.features.replies import asked, filled, last, look

REQUEST = PurgeRows("r", "letters", SelectionMessage(where="letter = 'a'"), reply=True)
OTHER = CompactTable("other", "letters", all=True, reply=True)
KEY = request_key(REQUEST)
LATER = "another format"


@pytest.fixture
@made_once
def table(world: World) -> Table:
    """A table about which two have asked."""
    table = filled(world)
    for request in (REQUEST, OTHER):
        asked(world, request)
    return table


def damaged(world: World, path: str, foreign: str, damage: str) -> None:
    files = [world.folder / "data" / each for each in (path, foreign)]
    rewrite(files[0], DAMAGE[damage](files[0].read_bytes(), files[1].read_bytes()))


def refused(world: World, table: Table, path: str, hint: str, damage: str) -> None:
    with pytest.raises(CorruptDataError, match=path) as raised:
        look(world, table, REQUEST)
    assert raised.value.hint.startswith("it was written by" if damage == LATER else hint)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_request_gets_no_reply_and_stops_no_other(
    world: World, table: Table, damage: str
) -> None:
    path = REQUESTS.path(table.id, KEY)
    damaged(world, path, REQUESTS.path(table.id, request_key(OTHER)), damage)
    refused(world, table, path, "delete this object: no reply is sent", damage)
    world.storage.delete([path])
    world.settle()
    assert [r.request_id for r in world.replies if r.outcome != "accepted"] == ["other"]
    assert world.names(table) == "bcxyz"


def test_a_sweep_continues_with_other_requests_after_a_damaged_one(
    world: World, table: Table
) -> None:
    damaged(world, REQUESTS.path(table.id, KEY), REQUESTS.path(table.id, KEY), "cut short")
    world.queue.clear()
    world.age_objects(seconds=2 * table.properties.job_retry_seconds)
    world.sweep()
    steps = {m.message.key for m in world.queue if isinstance(m.message, RequestStep)}
    assert steps == {KEY, request_key(OTHER)}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_reply_is_not_sent_but_made_again(
    world: World, table: Table, damage: str
) -> None:
    path = request_reply_path(table.id, KEY)
    lie: Reply = reply_to("r", "purge_rows", "failed", table_id=table.id)
    for key in (KEY, "other"):
        save_reply(world.services, table.id, key, lie)
    damaged(world, path, request_reply_path(table.id, "other"), damage)
    refused(world, table, path, "delete this object: the reply is then made again", damage)
    world.storage.delete([path])
    world.settle()
    ends = {r.request_id: r.outcome for r in world.replies if r.outcome != "accepted"}
    assert ends == {"r": "finished", "other": "finished"}


@pytest.mark.parametrize("damage", DAMAGE)
def test_remaining_objects_are_listed_again_if_their_list_is_damaged(
    world: World, damage: str
) -> None:
    table = filled(world)
    asked(world, REQUEST)
    path = request_left_path(table.id, KEY)
    for key in (KEY, "other"):
        REMAINING.put(world.storage, request_left_path(table.id, key), Remaining(("nothing",)))
    damaged(world, path, request_left_path(table.id, "other"), damage)
    with pytest.raises(CorruptDataError, match=path):
        world.settle()
    refused(world, table, path, "delete this object: the next step", damage)
    world.storage.delete([path])
    world.queue += look(world, table, REQUEST)
    world.settle()
    assert last(world).outcome == "finished"
    assert world.names(table) == "bcxyz"
