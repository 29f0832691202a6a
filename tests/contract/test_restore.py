"""A table is brought back to an earlier time from a data bucket that has versions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from moto.s3 import models

import tools.restore
from dormouse.aws.storage import S3Storage
from dormouse.features.rebuild import rebuild
from dormouse.stored.paths import shard_path
from dormouse.tables.table import Table
from tests.contract.mocked_aws import mocked_aws, s3_bucket
from tests.support.world import World, letters
from tools.restore import Step, Version, restore, steps, versions_below

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

BEGIN = datetime(2026, 11, 22, tzinfo=UTC)


def at(second: int) -> datetime:
    return BEGIN + timedelta(seconds=second)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Client]:
    """A bucket with versions whose clock goes on by a second with each look at it."""
    seconds = count(1)
    with mocked_aws(monkeypatch):
        monkeypatch.setattr(models, "utcnow", lambda: at(next(seconds)).replace(tzinfo=None))
        yield s3_bucket("data", versioned=True)


@pytest.fixture
def world(client: S3Client, tmp_path: Path) -> World:
    world = World(tmp_path)
    world.storage = S3Storage(client, "data")  # type: ignore[assignment]
    world.services = replace(world.services, storage=world.storage)
    return world


def newest(client: S3Client) -> datetime:
    """Return when the bucket was last changed."""
    listed = client.list_object_versions(Bucket="data")
    entries = [*listed["Versions"], *listed.get("DeleteMarkers", [])]
    return max(entry["LastModified"] for entry in entries)


def rebuilt(world: World, table: Table) -> str:
    """Rebuild a table; return the letters in its rows."""
    _, messages = rebuild(world.services, table)
    world.queue += messages
    found = world.tables.get(table.id)
    assert found is not None
    return world.names(found)


def test_a_table_whose_shards_were_deleted_replaced_and_purged_is_as_it_was(
    world: World, client: S3Client
) -> None:
    table = world.create(gc_delay_seconds=0, compaction_files=2)
    for number, text in enumerate(("ab", "cd", "ef", "gh", "ij")):
        world.drop(f"letters/{number}.parquet", letters(text))
        world.settle()
    names, then = world.names(table), newest(client)
    world.drop("letters/late.parquet", letters("z"))
    world.purge(table, "letter = 'a'")
    world.settle()
    assert world.names(table) == "bcdefghijz"
    first, *_, last = sorted(world.state(table).shards)
    for shard in (first, last):
        world.storage.delete([shard_path(table.id, shard)])
    world.storage.put(shard_path(table.id, first), b"of somebody who has the role of a function")
    assert restore(client, "data", table.id, then, dry_run=True) > 2
    assert world.storage.get(shard_path(table.id, first)).startswith(b"of somebody")
    assert restore(client, "data", table.id, then) > 2
    assert rebuilt(world, table) == names == "abcdefghij"
    world.sweep(audit=True)
    world.settle()
    found = world.tables.get(table.id)
    assert found is not None and world.names(found) == "abcdefghijz", "later files come again"
    assert restore(client, "data", f"{table.id}x", then) == 0, "other tables are left alone"


def test_to_restore_again_changes_nothing_more(world: World, client: S3Client) -> None:
    table = world.create()
    world.drop("letters/1.parquet", letters("ab"))
    world.settle()
    then = newest(client)
    world.drop("letters/2.parquet", letters("cd"))
    world.settle()
    assert restore(client, "data", table.id, then) > 0
    assert restore(client, "data", table.id, then) == 0
    assert rebuilt(world, table) == "ab"


def version(second: int, kind: str) -> Version:
    return Version("k", f"v{second}", at(second), kind == "object", second == 9)


@pytest.mark.parametrize(
    ("newest_first", "expected"),
    [
        ([(9, "object")], [Step("k")]),
        ([(4, "object")], []),
        ([(9, "mark"), (4, "object")], [Step("k", "v9")]),
        ([(9, "object"), (8, "mark"), (4, "object")], [Step("k", "v9"), Step("k", "v8")]),
        ([(9, "object"), (4, "mark"), (3, "object")], [Step("k")]),
        ([(9, "mark"), (8, "object")], []),
        ([(9, "mark"), (8, "object"), (4, "mark")], []),
        ([(4, "mark"), (3, "object")], []),
    ],
)
def test_what_brings_an_object_back_deletes_no_version_that_was_there(
    newest_first: list[tuple[int, str]], expected: list[Step]
) -> None:
    assert list(steps([version(*each) for each in newest_first], at(5))) == expected


def test_an_object_deleted_in_the_second_in_which_it_was_put_was_deleted() -> None:
    """S3 gives times in whole seconds."""
    of_object = {"Key": "k", "VersionId": "o", "LastModified": at(4), "IsLatest": False}
    mark = {"Key": "k", "VersionId": "m", "LastModified": at(4), "IsLatest": False}
    newest = {"Key": "k", "VersionId": "n", "LastModified": at(9), "IsLatest": True}
    page = {"Versions": [newest, of_object], "DeleteMarkers": [mark]}
    client = Mock()
    client.get_paginator.return_value.paginate.return_value = [page]
    (found,) = versions_below(client, "data", "")
    assert [version.id for version in found] == ["n", "m", "o"]
    assert list(steps(found, at(5))) == [Step("k")]


def test_a_bucket_of_another_account_is_left_alone(
    client: S3Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def made(service: str, *, bucket_owner: str = "") -> S3Client:
        asked.append(bucket_owner)
        return client

    client.put_bucket_versioning(Bucket="data", VersioningConfiguration={"Status": "Enabled"})
    monkeypatch.setattr(tools.restore, "client", made)
    monkeypatch.setattr(sys, "argv", ["restore.py", "data", "t" * 16, at(0).isoformat()])
    tools.restore.main()
    assert asked == ["123456789012"], "the account of the caller, in moto"
