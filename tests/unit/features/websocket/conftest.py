"""Clients of the WebSocket of an instance in a folder, without a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from shutil import copytree
from typing import Any

import pyarrow as pa
import pytest

from dormouse.access import LOCAL
from dormouse.client.instance import Instance
from dormouse.features.websocket import serve_websocket
from dormouse.http.connections import (
    Connected,
    ConnectionGoneError,
    Disconnected,
    HeldConnections,
    Received,
)


@dataclass
class Client:
    """One connection, which keeps what is sent on it."""

    instance: Instance
    principal: str = LOCAL
    got: list[dict[str, Any]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    is_closed: bool = False
    name: str = ""

    @property
    def held(self) -> HeldConnections:
        found = self.instance.services.connections
        assert isinstance(found, HeldConnections)
        return found

    def connect(self) -> HTTPStatus:
        self.name = self.held.hold(self._take, self._close)
        return serve_websocket(self.instance, Connected(self.name, self.principal)).status

    def _take(self, text: str) -> None:
        if self.is_closed:
            raise ConnectionGoneError("the connection is closed")
        self.texts.append(text)
        self.got.append(json.loads(text))

    def _close(self) -> None:
        self.is_closed = True

    def disconnect(self) -> None:
        self.held.drop(self.name)
        serve_websocket(self.instance, Disconnected(self.name))

    def say(self, text: str) -> list[dict[str, Any]]:
        """Send a text; return what was sent back meanwhile."""
        self.got.clear()
        serve_websocket(self.instance, Received(self.name, text))
        return list(self.got)

    def ask(self, kind: str, **fields: object) -> list[dict[str, Any]]:
        return self.say(json.dumps({"type": kind, "id": "1", **fields}))

    def one(self, kind: str, **fields: object) -> dict[str, Any]:
        (found,) = self.ask(kind, **fields)
        return found

    def problem(self, kind: str, **fields: object) -> dict[str, Any]:
        found = self.one(kind, **fields)
        assert found["type"] == "problem", found
        return found

    def query(self, **fields: object) -> tuple[str, str]:
        """Ask a query; return its id and the token of its first page."""
        found = self.one("query", **fields)
        assert found["type"] == "accepted", found
        return found["query_id"], found["after"]

    def work(self, steps: int = 1000) -> None:
        """Let the instance answer up to so many messages of queries."""
        folder = self.instance.folder
        assert folder is not None
        for _ in range(steps):
            if not folder.worker.step(("queries",)):
                return

    def names(self, query_id: str, after: str, **fields: object) -> list[str]:
        """Return the names of all rows after a token, by as many requests as that takes."""
        found = []
        while after:
            frames = self.ask("page", query_id=query_id, after=after, **fields)
            for frame in frames:
                assert frame["type"] == "page", frame
                found += [row["name"] for row in frame.get("rows", ())]
                after = frame.get("next", "")
        return found


@pytest.fixture(scope="session")
def folder_of_people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an instance with a table of thirty people; tests have a copy each."""
    folder = tmp_path_factory.mktemp("people") / "mice"
    with Instance.open(folder, background=False) as made:
        columns = "age: long, name: string, note: string?"
        made.create_table("people", columns, row_keys=["age"], split_points=[5])
        rows = [{"age": n // 3, "name": f"n{n:02}", "note": None} for n in range(30)]
        made.table("people").ingest(pa.Table.from_pylist(rows)).wait()
    return folder


@pytest.fixture
def instance(folder_of_people: Path, tmp_path: Path) -> Iterator[Instance]:
    """An instance with a table of thirty people, three of each age."""
    copytree(folder_of_people, tmp_path / "mice")
    with Instance.open(tmp_path / "mice", background=False) as opened:
        yield opened


@pytest.fixture
def client(instance: Instance) -> Client:
    """A connection of the machine's user."""
    found = Client(instance)
    assert found.connect() is HTTPStatus.OK
    return found


@pytest.fixture
def cut(client: Client) -> Client:
    """The same, of an instance whose queries are cut into sub-queries of one leaf each."""
    small = {"query_cut_bytes": 1, "query_task_bytes": 1}
    client.instance.set_properties("people", small)
    return client
