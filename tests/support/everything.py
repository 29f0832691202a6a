"""An instance with an item or object of every kind there is, over the real items of DynamoDB.

`letters` is the table whose items tests damage, `words` one that is to go on, `halfway` one that
is being emptied, `earlier` one that is being restored, and `gone` one that was deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from unittest.mock import patch

import pytest

from dormouse.aws.items import DynamoItems
from dormouse.features import export, reset, versions
from dormouse.features.administration import save_reply
from dormouse.features.compaction_steps import OUTCOME, Step, StepSplit, StoredOutcome
from dormouse.features.purge import REMAINING, Remaining, ShardMatches, purge_id_of, save_matches
from dormouse.features.requests import request_key, request_left_path
from dormouse.items import blobs as state_store
from dormouse.items.records import ItemTracker
from dormouse.items.tables import ItemTables
from dormouse.jobs import set_aside
from dormouse.log import compaction
from dormouse.log.engine import StateStore
from dormouse.log.pages import PAGE_CAPACITY
from dormouse.messages.requests import (
    ExportRows,
    PurgeRows,
    ReinitialiseTable,
    Reply,
    RestoreVersion,
)
from dormouse.messages.stages import CompactionJob, OutboundMessage, SelectionMessage
from dormouse.shards.run_markers import RunMarker, put_run_marker
from dormouse.state.state import AssignJob, ReleaseJob
from dormouse.state.versions import Lineage, Provenance
from dormouse.stored.paths import step_path
from dormouse.tables.table import Table
from tests.contract.state_items import DELTAS, SNAPSHOTS, dynamodb_tables
from tests.support.damage import rewrite
from tests.support.stores import items_store, objects_store
from tests.support.world import Crash, World, letters

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

Home = Literal["s3", "dynamodb"]
KEYS = {"tables": ("pk",), "jobs": ("table_id", "job_id"), "state": ("t", "g")} | dict.fromkeys(
    (DELTAS, SNAPSHOTS), ("k", "i")
)
"""The tables of DynamoDB that an instance has, with the attributes of their keys."""
BUCKET = "dormouse-dev-ingest-123456789012"
"""The ingest bucket of the instance called dev."""


@dataclass
class Everything:
    """The instance, and a way back to how it was."""

    world: World
    client: DynamoDBClient | None
    tables: dict[str, Table]
    kept: dict[str, Any] = field(default_factory=dict)

    def items(self) -> dict[tuple[str, ...], Any]:
        """Return all items, by table and key; none where the registry is in memory."""
        if self.client is None:
            return {}
        return {
            (name, *(next(iter(item[key].values())) for key in KEYS[name])): item
            for name in KEYS
            for page in self.client.get_paginator("scan").paginate(TableName=name)
            for item in page["Items"]
        }

    def objects(self) -> dict[Path, bytes]:
        """Return all objects of the data and the results bucket."""
        folders = (self.world.folder / name for name in ("data", "results"))
        found = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
        return {file: file.read_bytes() for file in found}

    def remember(self) -> Everything:
        """Remember how all is now, for `restore`."""
        self.kept = {"items": self.items(), "objects": self.objects(), "of world": self._of_world()}
        return self

    def restore(self) -> None:
        """Let all be as it was remembered; processes are new."""
        now, before = self.items(), self.kept["items"]
        for key in now.keys() - before.keys():
            self.lose(key)
        for key, item in before.items():
            if now.get(key) != item:
                self.put(key[0], item)
        there, files = self.objects(), self.kept["objects"]
        for file in there.keys() - files.keys():
            file.unlink()
        for file, body in files.items():
            if there.get(file) != body:
                file.parent.mkdir(parents=True, exist_ok=True)
                rewrite(file, body) if file in there else file.write_bytes(body)
        for name, value in deepcopy(self.kept["of world"]).items():
            vars(self.world)[name].__dict__.update(value)
        self.world.queue.clear()
        self.new_processes()

    def new_processes(self) -> None:
        """Forget what processes keep in memory."""
        self.world.services.store.cache_clear()  # type: ignore[attr-defined]  # it is a cache

    def put(self, name: str, item: Any) -> None:
        """Put an item into a table of DynamoDB."""
        assert self.client is not None
        self.client.put_item(TableName=name, Item=item)

    def lose(self, key: tuple[str, ...]) -> None:
        """Delete an item."""
        assert self.client is not None
        item = self.items()[key]
        self.client.delete_item(TableName=key[0], Key={name: item[name] for name in KEYS[key[0]]})

    def _of_world(self) -> dict[str, Any]:
        found = {name: vars(vars(self.world)[name]) for name in self._in_memory}
        return {
            name: deepcopy({k: v for k, v in held.items() if k not in ("_lock", "clock")})
            for name, held in found.items()
        }

    @property
    def _in_memory(self) -> tuple[str, ...]:
        always = ("clock", "sources", "spark")
        return always if self.client is not None else (*always, "tables", "tracker", "pages")


@contextmanager
def everything(home: Home, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Everything]:
    """Return the instance; `home` is where its states are kept."""
    # A page is compacted as soon as it is full, in either store.
    monkeypatch.setattr(state_store, "SNAPSHOT_SHARE", 3)
    with dynamodb_tables(monkeypatch) as (blobs, pages):
        world, client = World(folder), blobs._client

        def opened(table: Table) -> StateStore:
            if home == "s3":
                return objects_store(table.state_id, world.storage, pages, world.clock, world.ids)
            return items_store(table.state_id, blobs, pages, world.clock, world.ids)

        for name in ("tables", "jobs"):
            _create(client, name)
        items = DynamoItems(client, {"tables": "tables", "jobs": "jobs", "state": "state"})
        parts: dict[str, Any] = {"tables": ItemTables(items), "tracker": ItemTracker(items)}
        world.services = replace(world.services, **parts, store=cache(opened))
        for attribute, value in {**parts, "new_store": opened}.items():
            setattr(world, attribute, value)
        yield _filled(world, client)


def in_memory(folder: Path) -> Everything:
    """Return an instance that has its items in memory: for what lies in the buckets."""
    return _filled(World(folder), None)


def _create(client: DynamoDBClient, name: str) -> None:
    kinds: Sequence[Literal["HASH", "RANGE"]] = ("HASH", "RANGE")
    client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": k, "AttributeType": "S"} for k in KEYS[name]],
        KeySchema=[
            {"AttributeName": key, "KeyType": kind}
            for key, kind in zip(KEYS[name], kinds, strict=False)
        ],
    )


def _filled(world: World, client: DynamoDBClient | None) -> Everything:
    services, world.sources.bucket = world.services, BUCKET
    services.tables.change_defaults(lambda kept: {**kept, "gc_delay_seconds": 1000})
    texts = {
        **{"letters": ("ab", "cd", "ef", "gh"), "words": ("xyz",), "halfway": (), "gone": ("a",)},
        "earlier": ("ij", "kl"),
    }
    tables = {}
    for name, dropped in texts.items():
        tables[name] = world.create(name=name)
        world.set_online(tables[name], False)
        for number, text in enumerate(dropped):
            world.drop(f"{name}/{number}.parquet", letters(text, at=100 * number))
            world.settle()
    world.delete(tables["gone"])
    world.settle()
    _lengthen_log(world, tables["letters"])
    with patch.object(reset, "finish_reset", lambda *_: None):
        world.administer(ReinitialiseTable("empty", "halfway", split_points=(("m",),)))
    _begin_restore(world, tables["earlier"])
    for name in ("halfway", "earlier"):
        tables[name] = services.tables.named(name)  # type: ignore[assignment]
    _begin_jobs(world, tables["letters"])
    _begin_requests(world, tables["letters"])
    _note_the_rest(world, tables["letters"])
    world.queue.clear()
    return Everything(world, client, tables).remember()


def _lengthen_log(world: World, table: Table) -> None:
    """Let the state have sealed sources, a segment, a snapshot and deltas after it."""
    world.seal(table)
    store = world.services.store(table)
    for number in range(PAGE_CAPACITY):
        store.commit(ReleaseJob(f"none-{number}"), generation=0)
    with patch.object(compaction, "LEAST_BYTES_TO_SNAPSHOT", 1):
        store.maintain()


def _begin_restore(world: World, table: Table) -> None:
    """Let a process die when it had registered that a table is restored, and not done it."""
    version = next(each.version for each in world.services.store(table).history() if each.rows == 2)
    with patch.object(versions, "finish_reset", side_effect=(None, Crash)), suppress(Crash):
        world.administer(RestoreVersion("restore", table.name, version))


def _begin_jobs(world: World, table: Table) -> None:
    """Let Spark have a job in hand, and another be cut into steps."""
    shards = sorted(world.state(table).shards)
    store = world.services.store(table)
    for job, inputs in {"with-spark": shards[:2], "in-steps": shards[2:]}.items():
        store.commit(AssignJob(job, "root", tuple(inputs)), generation=0)
    world.deliver(OutboundMessage("spark-jobs", CompactionJob(table.id, 0, "with-spark")))
    path = step_path(table.id, "in-steps", 0, 2)
    OUTCOME.put(world.storage, path, StoredOutcome("", StepSplit((Step(0, 1), Step(1, 2)))))
    set_aside(world.services, table.id, "in-steps", "spark")


def _begin_requests(world: World, table: Table) -> None:
    """Let a purge and two exports be under way: one has not begun, one died when it had ended."""
    services = world.services
    purge = PurgeRows("purge", table.name, SelectionMessage(where="letter = 'q'"), reply=True)
    world.administer(purge)
    shards = frozenset(sorted(world.state(table).shards)[:1])
    save_matches(services, table.id, purge_id_of(purge.request_id), ShardMatches(clean=shards))
    path = request_left_path(table.id, request_key(purge))
    REMAINING.put(services.storage, path, Remaining(()))
    world.administer(ExportRows("waits", table.name, to="waits"))
    world.queue.clear()
    with patch.object(export, "delete_export", side_effect=Crash), suppress(Crash):
        world.administer(ExportRows("ended", table.name, to="ended"))
        world.settle()


def _note_the_rest(world: World, table: Table) -> None:
    provenance = Provenance(
        job="none", written_ms=world.clock.now_ms(), lineage=Lineage(inputs=("none-0",))
    )
    put_run_marker(world.storage, table.id, RunMarker("none", provenance))
    save_reply(
        world.services,
        table.id,
        "answered",
        Reply(id="r", request_id="answered", request="compact_table", outcome="finished"),
    )
