"""Requests with every field as nobody would fill it in: each is answered, and none breaks a thing.

The handler, the stage and the tracker are the real ones; only the world is in memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from dormouse.messages.requests import AdminRequest, Reply
from tests.functions.conftest import TABLE_ID, Functions
from tests.support.world import LETTERS, letters

SCHEMA = LETTERS.to_json()
WHOLE: dict[str, dict[str, Any]] = {
    "alter_schema": {"name": "letters", "drop": ["note"]},
    "clear_access": {},
    "collect_garbage": {"name": "letters"},
    "compact_table": {"name": "letters", "all": True},
    "create_table": {"name": "more", "schema": SCHEMA},
    "delete_rows": {"name": "letters", "selection": {"where": "letter = 'a'"}},
    "delete_table": {"name": "letters"},
    "export_rows": {"name": "letters", "to": "out"},
    "forget_subjects": {"name": "letters", "subjects": ["a"]},
    "grant_access": {"principal": "local", "tables": "*", "verbs": ["read"]},
    "ingest_files": {"name": "letters", "keys": ["archive"]},
    "publish_iceberg": {"name": "letters", "all": True},
    "purge_rows": {"name": "letters", "selection": {"where": "letter = 'a'"}},
    "redrive": {"queue": "files"},
    "reinitialise_table": {"name": "letters"},
    "rename_table": {"name": "letters", "new_name": "more"},
    "restore_version": {"name": "letters", "as_of": 2},
    "revoke_access": {"principal": "local", "tables": "*"},
    "set_defaults": {"properties": {"compaction_files": 5}},
    "set_online": {"name": "letters", "online": False},
    "set_properties": {"name": "letters", "properties": {"compaction_files": 5}},
    "split_partitions": {"name": "letters", "forced": True},
    "tag_version": {"name": "letters", "version": 2, "tag": "kept"},
    "untag_version": {"name": "letters", "tag": "kept"},
}
DEEP: object = 0
for _ in range(400):
    DEEP = [DEEP]
STRANGE: dict[str, object] = {
    "null": None,
    "empty": "",
    "negative": -1,
    "huge number": 10**40,
    "fraction": 1e308,
    "true": True,
    "dots": "../../etc",
    "slashes": "///",
    "control": "a\u0000b\u001b[2J",
    "far away": "\U0001f400" * 700,
    "long": "x" * 100_000,
    "list": [[]],
    "keys": [["a", 1, None], [{}]],
    "deep": DEEP,
    "object": {"": {"": []}},
    "schema": {"rowKeyFields": []},
    "statement": "1 = 1; drop table letters",
}
VERBS = {str(kind.__struct_config__.tag): kind for kind in get_args(AdminRequest)}


@pytest.fixture
def filled(functions: Functions) -> Functions:
    functions.world.drop("letters/1.parquet", letters("ab"))
    functions.world.settle()
    return functions


def bodies(verb: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield requests of a verb in which one field is strange, named by an id of its own."""
    whole = {"type": verb, "reply": True, **WHOLE[verb]}
    for field in VERBS[verb].__struct_fields__:
        if field in ("request_id", "reply"):
            continue
        for what, value in STRANGE.items():
            yield f"{field} {what}", {**whole, "request_id": f"{field} {what}", field: value}


def test_every_verb_is_tried() -> None:
    assert WHOLE.keys() == VERBS.keys()


@pytest.mark.parametrize("verb", WHOLE)
def test_a_strange_request_is_answered_and_no_dead_letter(filled: Functions, verb: str) -> None:
    for request_id, body in bodies(verb):
        failed = filled.deliver("administer", json.dumps(body))
        sent = [m.message for m in filled.sent() if isinstance(m.message, Reply)]
        assert failed == [], request_id
        assert [reply.request_id for reply in sent] == [request_id]
        assert sent[0].outcome in ("accepted", "finished", "refused"), request_id
        if verb != "delete_table":
            assert filled.world.tables.get(TABLE_ID) is not None
    assert filled.outbox.dead == []
