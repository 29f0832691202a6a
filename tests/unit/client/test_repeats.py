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
import pytest

from dormouse.client import Instance, TableHandle
from dormouse.client.operating.copying import copy_table
from dormouse.errors import NotFoundError, RefusedSourceError

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
        copy_table(self.handle.latest(), self.instance, other)
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
        chosen = self.random.choice((self.ingest,) * 6 + (self.restore, self.copy) + steps)
        chosen()
        version = self.handle.query(limit=0).version
        self.model.versions[version] = self.model.rows, self.model.keys
        return chosen.__name__


@pytest.mark.parametrize("seed", (1, 3))
def test_a_repeat_adds_rows_only_if_the_table_does_not_remember_its_key(
    seed: int, folder: Instance
) -> None:
    history = History(folder, random.Random(seed), create(folder, "a"))
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
        monkeypatch.setattr("dormouse.features.ingest.batch_files.CLOCK_SKEW_MS", -1)
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
