"""What records of publications promise, wherever they are kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dormouse.aws.items import DynamoItems
from dormouse.errors import CorruptDataError
from dormouse.folder.sqlite import SqliteItems
from dormouse.folder.wiring import FolderPublications
from dormouse.items.records import ItemPublications
from dormouse.state.versions import Checkpoint, PublicationRecord
from tests.contract.folders import database_in
from tests.contract.state_pages import dynamodb_pages
from tests.support.memory_items import MemoryItems


def record_of(version: int, metadata: str = "") -> PublicationRecord:
    path = metadata or f"t/iceberg/metadata/{version:05d}-abc.metadata.json"
    return PublicationRecord(
        version, "s3://b", "content", (Checkpoint(5_000, "t/log", 2, version, 4_000, path),)
    )


@pytest.fixture(params=["memory", "dynamodb", "folder"])
def publications(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ItemPublications]:
    if request.param == "memory":
        yield ItemPublications(MemoryItems())
        return
    if request.param == "folder":
        with database_in(tmp_path / "db") as database:
            yield FolderPublications(SqliteItems(database), tmp_path / "tables")
        return
    with dynamodb_pages(monkeypatch) as pages:
        yield ItemPublications(DynamoItems(pages._client, {"state": "state"}))


def test_a_record_is_read_as_it_was_put_by_table(publications: ItemPublications) -> None:
    assert publications.get("t") is None
    assert publications.replace("t", None, PublicationRecord())
    assert publications.replace("u", None, record_of(7))
    assert publications.get("t") == PublicationRecord()
    assert publications.get("u") == record_of(7)


def test_a_record_is_replaced_only_as_it_was_read(publications: ItemPublications) -> None:
    assert not publications.replace("t", record_of(1), record_of(2))
    assert publications.replace("t", None, record_of(1))
    assert not publications.replace("t", None, record_of(2))
    assert not publications.replace("t", record_of(3), record_of(2))
    assert publications.replace("t", record_of(1), record_of(2))
    assert publications.get("t") == record_of(2)


def test_a_record_that_was_deleted_is_not_replaced(publications: ItemPublications) -> None:
    publications.replace("t", None, record_of(1))
    publications.replace("u", None, record_of(1))
    publications.delete("t")
    publications.delete("t")
    assert publications.get("t") is None
    assert not publications.replace("t", record_of(1), record_of(2))
    assert publications.get("u") == record_of(1)


def test_a_damaged_item_is_reported_and_can_be_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    with dynamodb_pages(monkeypatch) as pages:
        records = ItemPublications(DynamoItems(pages._client, {"state": "state"}))
        records.replace("t", None, record_of(3))
        (item,) = pages._client.scan(TableName="state")["Items"]
        body = item["body"]["S"].replace('"version":3', '"version":4')
        pages._client.put_item(TableName="state", Item={**item, "body": {"S": body}})
        with pytest.raises(CorruptDataError, match="of table t is damaged") as caught:
            records.get("t")
        assert "iceberg publish" in caught.value.hint
        records.delete("t")
        assert records.get("t") is None


@dataclass
class Folder:
    publications: FolderPublications
    hint: Path


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    with database_in(tmp_path / "db") as database:
        yield Folder(
            FolderPublications(SqliteItems(database), tmp_path / "tables"),
            tmp_path / "tables" / "t" / "iceberg" / "metadata" / "version-hint.text",
        )


def test_a_damaged_record_is_reported_and_can_be_deleted(folder: Folder) -> None:
    folder.publications.replace("t", None, record_of(3))
    with folder.publications._file._source.writing() as connection:
        connection.execute(
            """UPDATE items SET body = replace(body, '"version":3', '"version":4')"""
        )
    with pytest.raises(CorruptDataError, match="of table t is damaged"):
        folder.publications.get("t")
    folder.publications.delete("t")
    assert folder.publications.get("t") is None


def test_a_file_beside_the_metadata_names_the_newest(folder: Folder) -> None:
    folder.publications.replace("t", None, PublicationRecord())
    assert not folder.hint.exists()
    folder.publications.replace("t", PublicationRecord(), record_of(1))
    assert folder.hint.read_text() == "00001-abc"
    assert not folder.publications.replace("t", record_of(9), record_of(10))
    assert folder.hint.read_text() == "00001-abc"
    folder.publications.replace("t", record_of(1), record_of(2))
    assert folder.hint.read_text() == "00002-abc"
    folder.publications.replace("t", record_of(2), PublicationRecord())
    assert not folder.hint.exists()
