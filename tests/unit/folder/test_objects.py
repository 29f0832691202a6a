"""Small objects of a folder are rows of its SQLite file; every door still finds them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.folder import wiring
from dormouse.folder.sqlite import Connection, Database
from dormouse.folder.wiring import MOST_ROW_BYTES, FolderObjects, files_of
from dormouse.storage import FolderStorage
from tests.support.adapters import FakeClock

SHARD = "t/data/0-0.parquet"
SMALL, LARGE = b"x" * MOST_ROW_BYTES, b"y" * (MOST_ROW_BYTES + 1)
ROWS = pa.table({"k": list(range(10)), "secret": ["a whiskered secret"] * 10})


@pytest.fixture
def storage(tmp_path: Path, database: Database, clock: FakeClock) -> FolderObjects:
    return FolderObjects(tmp_path / "tables", database, clock)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    with Instance.open(tmp_path / "mice", background=False) as opened:
        yield opened


@pytest.fixture
def handle(instance: Instance) -> TableHandle:
    handle = instance.create_table("words", "k:long, secret:string", row_keys=["k"])
    handle.ingest(ROWS)
    assert not files_below(handle)
    return handle


def files_below(handle: TableHandle) -> list[Path]:
    """Return the files of the data root."""
    return [path for path in Path(handle.services.storage.uri).rglob("*") if path.is_file()]


def is_file(storage: FolderStorage, path: str) -> bool:
    return (Path(storage.uri) / path).is_file()


def keys(handle: TableHandle) -> list[int]:
    return handle.query().to_arrow()["k"].to_pylist()


@pytest.mark.parametrize("body", [b"", SMALL, LARGE])
def test_a_shard_is_a_row_up_to_a_size_and_reads_as_a_file_would(
    storage: FolderObjects, tmp_path: Path, clock: FakeClock, body: bytes
) -> None:
    local = tmp_path / "local"
    local.write_bytes(body)
    assert storage.upload(SHARD, local)
    assert not storage.put(SHARD, body)
    assert is_file(storage, SHARD) == (body == LARGE)
    assert storage.get(SHARD) == storage.open(SHARD, len(body)).read() == body
    (listed,) = storage.list("t/data/")
    assert (listed.path, listed.size_bytes) == (SHARD, len(body))
    assert body == LARGE or listed.modified_ms == clock.now_ms()


def test_what_is_put_with_commits_is_part_of_the_next_transaction(
    storage: FolderObjects, database: Database, tmp_path: Path
) -> None:
    (tmp_path / "local").write_bytes(SMALL)
    assert storage.with_commits().upload(SHARD, tmp_path / "local")
    assert not list(storage.list("t/data/"))
    with pytest.raises(ValueError, match="no"), database.writing():
        raise ValueError("no")
    assert not list(storage.list("t/data/")), "a rejected one leaves it to the next"
    with database.writing():
        pass
    assert storage.get(SHARD) == SMALL
    assert storage.with_commits().put("t/data/1-0.parquet", LARGE)
    assert storage.get("t/data/1-0.parquet") == LARGE, "a file is there at once"


def test_rows_and_their_commit_are_one_transaction(
    handle: TableHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash in between would leave an orphan."""
    seen: list[tuple[int, int]] = []
    written = Database.writing

    @contextmanager
    def watched(self: Database, *, lazy: bool = False) -> Iterator[Connection]:
        with written(self, lazy=lazy) as connection:
            yield connection
        seen.append((len(list(handle.services.storage.list(""))), handle.count()))

    shards = len(list(handle.services.storage.list("")))
    monkeypatch.setattr(Database, "writing", watched)
    handle.ingest(ROWS)
    assert seen
    assert {objects - shards for objects, rows in seen if rows == 20} == {1}
    assert {objects - shards for objects, rows in seen if rows == 10} <= {0}


def test_a_small_commit_is_flushed_once_and_what_follows_with_the_next(
    handle: TableHandle, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[bool] = []
    written = Database.writing

    def watched(self: Database, *, lazy: bool = False) -> AbstractContextManager[Connection]:
        flushed.append(not lazy)
        return written(self, lazy=lazy)

    instance.wait()  # for what the schedule has
    monkeypatch.setattr(Database, "writing", watched)
    handle.ingest(ROWS)
    assert sum(flushed) == 1
    for _ in range(2):
        handle.ingest(ROWS)
    flushed.clear()
    instance.wait()
    assert sum(flushed) == 2, "a job is assigned, and its rows replace others"


@pytest.mark.parametrize(
    "path",
    [
        f"t/data/{'0' * 32}p-0.parquet",
        "t/iceberg/metadata/00001.metadata.json",
        "t/rejected/0.jsonl",
    ],
)
def test_what_other_programs_read_is_a_file_however_small(
    storage: FolderObjects, path: str
) -> None:
    storage.put(path, SMALL)
    assert is_file(storage, path)


@pytest.mark.parametrize(("first", "second"), [(SMALL, LARGE), (LARGE, SMALL)])
def test_of_two_writers_of_a_path_the_first_wins_whatever_the_size(
    storage: FolderObjects, tmp_path: Path, first: bytes, second: bytes
) -> None:
    (tmp_path / "local").write_bytes(second)
    assert storage.put(SHARD, first)
    assert not storage.put(SHARD, second)
    assert not storage.upload(SHARD, tmp_path / "local")
    assert storage.get(SHARD) == first
    assert is_file(storage, SHARD) == (first == LARGE)


def test_a_file_that_gets_its_name_beside_a_row_gives_it_up(
    storage: FolderObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is put after the other writer saw none, and before its file has the name."""
    plain = FolderStorage.put

    def meanwhile(self: FolderStorage, path: str, body: bytes) -> bool:
        monkeypatch.undo()
        assert storage.put(path, SMALL)
        return plain(self, path, body)

    monkeypatch.setattr(FolderStorage, "put", meanwhile)
    assert not storage.put(SHARD, LARGE)
    assert storage.get(SHARD) == SMALL
    assert not is_file(storage, SHARD)


def test_exposed_objects_are_files_with_the_same_bytes_and_listed_once(
    storage: FolderObjects,
) -> None:
    storage.put(SHARD, SMALL)
    storage.put("u/data/0-0.parquet", SMALL)
    for _ in range(2):
        storage.expose("t/data/")
        assert (Path(storage.uri) / SHARD).read_bytes() == storage.get(SHARD) == SMALL
        assert [each.path for each in storage.list("")] == [SHARD, "u/data/0-0.parquet"]
    assert not is_file(storage, "u/data/0-0.parquet")
    assert not storage.put(SHARD, b"")
    storage.delete([SHARD])
    assert [*storage.list("t/")] == []


def test_many_objects_are_exposed_by_few_transactions(
    storage: FolderObjects, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [f"t/data/{number:02}-0.parquet" for number in range(70)]
    for path in paths:
        storage.put(path, path.encode())
    writing, transactions = Database.writing, []

    def counted(self: Database) -> object:
        transactions.append(1)
        return writing(self)

    monkeypatch.setattr(Database, "writing", counted)
    storage.expose("t/")
    assert len(transactions) == 3
    assert all((Path(storage.uri) / path).read_bytes() == path.encode() for path in paths)


def test_an_object_that_is_exposed_while_it_is_listed_is_not_missed(
    storage: FolderObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.put(SHARD, SMALL)
    plain = FolderStorage.list

    def meanwhile(self: FolderStorage, prefix: str) -> object:
        monkeypatch.undo()
        storage.expose("")
        return plain(self, prefix)

    monkeypatch.setattr(FolderStorage, "list", meanwhile)
    assert [each.path for each in storage.list("t/")] == [SHARD]


def test_bytes_of_a_deleted_object_are_in_no_file(tmp_path: Path, storage: FolderObjects) -> None:
    storage.put(SHARD, b"a whiskered secret " * 500)
    storage.put("t/data/1-0.parquet", b"kept")
    assert any(b"whiskered" in path.read_bytes() for path in tmp_path.rglob("*.sqlite*"))
    storage.delete([SHARD])
    assert not any(b"whiskered" in path.read_bytes() for path in tmp_path.rglob("*.sqlite*"))


def test_deleting_waits_for_no_reader(database: Database, storage: FolderObjects) -> None:
    storage.put(SHARD, SMALL)
    with database.reading() as connection:
        connection.select("SELECT path FROM objects")
        storage.delete([SHARD])
    assert [*storage.list("")] == []


def test_rows_are_read_verified_and_merged(instance: Instance, handle: TableHandle) -> None:
    for number in range(1, 9):
        handle.ingest(pa.table({"k": [10 * number], "secret": ["more"]}))
    assert handle.check(all_bytes=True).findings == ()
    assert instance.folder is not None
    instance.folder.finish(60)
    instance.compact("words")
    instance.folder.finish(60)
    assert keys(handle) == sorted([*range(10), *range(10, 90, 10)])
    sql = instance.sql("SELECT count(*) AS n FROM words WHERE k < 20").to_arrow()
    assert sql["n"].to_pylist() == [11]


def test_the_files_of_a_table_are_there_to_be_opened(handle: TableHandle) -> None:
    (found,) = handle.files()
    assert pq.read_table(unquote(urlparse(found.uri).path))["k"].to_pylist() == list(range(10))
    assert keys(handle) == list(range(10))


def test_what_is_published_for_iceberg_is_there_to_be_opened(
    instance: Instance, handle: TableHandle
) -> None:
    instance.set_properties("words", {"iceberg": "on"})
    assert instance.folder is not None
    instance.folder.finish(60)
    assert handle.iceberg.check() == []
    shards = [Path(urlparse(each.uri).path) for each in handle.iceberg.files()]
    assert shards
    assert all(path.is_file() for path in shards)


def test_a_lost_state_is_rebuilt_from_rows_too(handle: TableHandle) -> None:
    handle.rebuild()
    assert keys(handle) == list(range(10))
    assert handle.check(all_bytes=True).findings == ()


def test_a_copy_and_an_export_have_the_rows(tmp_path: Path, handle: TableHandle) -> None:

    with Instance.open(tmp_path / "other", background=False) as other:
        copied = other.table(other.copy_table(handle).table.name)
        assert keys(copied) == list(range(10))
        assert copied.check(all_bytes=True).findings == ()
    handle.export(to="here").wait()
    exported = (tmp_path / "mice" / "exports").rglob("*.parquet")
    assert sum(pq.read_metadata(path).num_rows for path in exported) == 10


def test_a_purge_is_proved_and_its_bytes_are_in_no_file(
    instance: Instance, tmp_path: Path, handle: TableHandle
) -> None:
    instance.set_properties("words", {"gc_delay_seconds": 0})
    assert handle.prove_purge(keys=[{"k": 3}]).rows == 1
    handle.purge(where="k < 100")
    assert instance.folder is not None
    instance.folder.finish(60)
    proof = handle.prove_purge(where="secret = 'a whiskered secret'")
    assert proof.is_complete, proof
    files = [path for path in (tmp_path / "mice").rglob("*") if path.is_file()]
    assert not any(b"whiskered" in path.read_bytes() for path in files)


def test_a_process_that_uses_nothing_but_files_reads_rows_too(handle: TableHandle) -> None:
    """As the readers of Spark do."""
    data, _, _ = files_of(Path(handle.services.storage.uri).parent)
    assert isinstance(data, FolderObjects)
    (shard,) = handle.shards()
    assert data.get(f"{handle.table.id}/data/{shard.id}.parquet")[:4] == b"PAR1"


def test_rows_of_no_kind_that_may_be_one_are_none() -> None:
    assert wiring.may_be_row(SHARD)
    assert wiring.may_be_row("t/state/0/snapshots/0.parquet")
    assert not wiring.may_be_row("t/exports/0")


def test_a_deletion_of_rows_writes_no_more_than_some_small_pages(
    tmp_path: Path, handle: TableHandle
) -> None:
    def size_bytes() -> int:
        return sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())

    before = size_bytes()
    for number in range(20):
        handle.delete(f"k = {number}")
    assert size_bytes() - before < 20 * 11_000
