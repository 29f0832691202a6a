"""What a repeat of one idempotency key means, whatever happened to the table in between.

A table remembers a key with the rows that it brought, as a part of its version. The model below
says the same in a few lines, and random histories are compared with it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.access import LOCAL
from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.errors import NotFoundError, RefusedSourceError
from dormouse.features.http.serve_http import serve_http
from dormouse.http.messages import HttpRequest
from dormouse.messages.requests import IngestFiles
from dormouse.messages.stages import OutboundMessage

KEYS = ("monday", "tuesday", "ü" * 500)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Instance]:
    with Instance.open(tmp_path / "mice") as instance:
        yield instance


def create(instance: Instance, name: str) -> TableHandle:
    return instance.create_table(name, "k:long", row_keys=["k"])


@dataclass
class Model:
    """The rows and the keys of a table, and those of its versions that can be restored."""

    rows: frozenset[int] = frozenset()
    keys: frozenset[str] = frozenset()
    versions: dict[int, tuple[frozenset[int], frozenset[str]]] = field(default_factory=dict)


@dataclass
class History:
    """A table of a folder, and the model of it; each step is done to both."""

    instance: Instance
    random: random.Random
    handle: TableHandle
    folder: Path
    model: Model = field(default_factory=Model)
    number: int = 0

    def ingest(self) -> None:
        self.number += 1
        key = self.random.choice(KEYS)
        if by_writer := self.random.random() < 0.5:
            with self.handle.writer(idempotency_key=key) as writer:
                writer.write({"k": self.number})
            known = writer.ingested.known
        else:
            frame = pa.table({"k": [self.number]})
            known = self.handle.ingest(frame, idempotency_key=key).known
        remembered = f"{key} {by_writer}"
        assert bool(known) == (remembered in self.model.keys)
        if not known:
            self.model.rows |= {self.number}
            self.model.keys |= {remembered}

    def ingest_by_http(self) -> None:
        self.number += 1
        key = self.random.choice(KEYS[:2])
        path = f"/tables/{self.handle.latest().name}/rows"
        headers = {"content-type": "application/json", "idempotency-key": key}
        body = b'[{"k": %d}]' % self.number
        answer = serve_http(self.instance, HttpRequest("POST", path, "", headers, body, LOCAL))
        self.instance.wait()
        if f"{key} False" in self.model.keys:  # another body is refused while it is comparable
            assert answer.status in (202, 422), answer.body
        else:
            assert answer.status == 202, answer.body
        self._remember(f"{key} False", self.number)

    def ingest_a_file(self) -> None:  # a file of one name has one content, so its name is its key
        number = self.random.choice((-1, -2))
        path = self.folder / f"{number}.parquet"
        pq.write_table(pa.table({"k": [number]}), path)
        known = self.handle.latest().ingest(path).known
        assert bool(known) == (f"file {number}" in self.model.keys)
        self._remember(f"file {number}", number)

    def ingest_by_message(self) -> None:  # the object of such a file, in the form of a queue
        number, name = self.random.choice((-1, -2)), self.handle.latest().name
        key = f"{name}/{number}.parquet"
        if (self.folder / "mice" / "inbox" / key).exists():
            request = IngestFiles(self.instance.services.ids.new(), name, (key,))
            for _ in range(2):  # as a queue may deliver it
                self.instance.queues.send([OutboundMessage("admin", request)])
                self.instance.wait()
            self._remember(f"file {number}", number)

    def _remember(self, key: str, number: int) -> None:
        if key not in self.model.keys:
            self.model.rows |= {number}
            self.model.keys |= {key}

    def restore(self) -> None:
        newest = self.handle.query(limit=0).version
        earlier = [version for version in self.model.versions if version != newest]
        if earlier:
            version = self.random.choice(earlier)
            self.handle.restore(version)
            self.model.rows, self.model.keys = self.model.versions[version]

    def reset(self) -> None:
        self.instance.reinitialise_table(self.handle.latest().name)
        self.model = Model()

    def rename(self) -> None:  # the handle keeps the name that it had
        name = self.random.choice([n for n in "abc" if n != self.handle.latest().name])
        self.instance.rename_table(self.handle.latest().name, name)

    def recreate(self) -> None:
        name = self.handle.latest().name
        self.instance.delete_table(name)
        self.instance.wait()
        self.handle, self.model = create(self.instance, name), Model()

    def copy(self) -> None:
        name = self.handle.latest().name
        other = f"copy{self.number}"
        self.instance.copy_table(self.handle.latest(), other)
        self.instance.delete_table(name)
        self.instance.wait()
        self.instance.rename_table(other, name)
        self.handle = self.instance.table(name)
        self.model.versions = {}

    def purge(self) -> None:
        if self.model.rows:
            row = self.random.choice(sorted(self.model.rows))
            self.handle.latest().purge(f"k = {row}").wait()
            self.model.rows -= {row}
            self.model.versions = {}

    def rebuild(self) -> None:
        self.handle.latest().rebuild()
        self.model.versions = {}

    def step(self) -> str:
        steps = (self.restore, self.reset, self.rename, self.recreate, self.purge, self.rebuild)
        doors = (self.ingest_by_http, self.ingest_a_file, self.ingest_by_message) * 2
        chosen = self.random.choice(
            (self.ingest,) * 4 + doors + (self.restore, self.copy, self.rename) + steps
        )
        chosen()
        version = self.handle.query(limit=0).version
        self.model.versions[version] = self.model.rows, self.model.keys
        return chosen.__name__


@pytest.mark.parametrize("seed", (1, 3))
def test_a_repeat_adds_rows_only_if_the_table_does_not_remember_its_key(
    seed: int, folder: Instance, tmp_path: Path
) -> None:
    history = History(folder, random.Random(seed), create(folder, "a"), tmp_path)
    done: list[str] = []
    for _ in range(20):
        done.append(history.step())
        found = sorted(history.handle.query().read_all()["k"].to_pylist())
        assert found == sorted(history.model.rows), done


@pytest.mark.parametrize("how", ["restored", "reset", "renamed", "deleted"])
def test_a_wait_for_rows_ends_if_the_table_is_taken_from_under_them(
    how: str, folder: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(folder, "a")
    table.ingest(pa.table({"k": [1]}))
    first = table.query(limit=0).version
    table.ingest(pa.table({"k": [2]}))
    assert folder.folder is not None
    with monkeypatch.context() as held:
        held.setattr(folder.folder.worker, "step", lambda: False)
        dropped = table.ingest(pa.table({"k": [3]}), idempotency_key="monday", wait=False)
        if how == "restored":
            table.restore(first)
        elif how == "reset":
            folder.reinitialise_table("a")
        elif how == "renamed":
            folder.rename_table("a", "b")
        else:
            folder.delete_table("a")
    with pytest.raises((RefusedSourceError, NotFoundError)):
        dropped.wait(60)
    if how != "deleted":
        assert not table.ingest(pa.table({"k": [3]}), idempotency_key="monday").known
        assert 3 in table.query().read_all()["k"].to_pylist()


def test_a_file_of_another_folder_is_none_that_an_earlier_name_had(
    folder: Instance, tmp_path: Path
) -> None:
    table, path = create(folder, "a"), tmp_path / "1.parquet"
    pq.write_table(pa.table({"k": [1]}), path)
    table.ingest(path)
    folder.rename_table("a", "b")
    assert folder.table("b").ingest(path).known
    landed = tmp_path / "mice" / "inbox" / "landing" / "1.parquet"
    landed.parent.mkdir()
    landed.write_bytes(path.read_bytes())
    request = IngestFiles("request", "b", ("landing/1.parquet",))
    folder.queues.send([OutboundMessage("admin", request)])
    folder.wait()
    assert folder.table("b").count() == 2
