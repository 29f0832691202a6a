"""Queries over a WebSocket: the client against a server of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
import pyarrow as pa
import pytest

from dormouse.client.instance import Instance
from dormouse.client.socket import SocketClient
from dormouse.errors import (
    DormouseError,
    ForbiddenError,
    InvalidRequestError,
    LimitExceededError,
    NotFoundError,
    TimedOutError,
    UnavailableError,
    VersionGoneError,
)
from dormouse.features import websocket
from dormouse.features.http.calls import Call
from dormouse.features.http.problems import guarded, refusal
from dormouse.features.http.serve_http import serve_http
from dormouse.features.websocket import with_websocket
from dormouse.http.loopback import LoopbackServer
from dormouse.messages.socket_frames import (
    AcceptedFrame,
    AnswerFrame,
    AskedFrame,
    PageFrame,
    PongFrame,
    ProblemFrame,
    ProgressFrame,
    QueryFrame,
    RowsFrame,
    encode_frame,
)

KEY = "key of this server"
ROWS = pa.table({"age": range(20_000), "name": [f"n{n}" for n in range(20_000)]})


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    """An instance with a table of four leaves, whose queries are cut into as many parts."""
    with Instance.open(tmp_path / "mice") as opened:
        small = {"query_cut_bytes": 1, "query_task_bytes": 1}
        opened.create_table(
            "people",
            "age: long, name: string",
            row_keys=["age"],
            split_points=[5000, 10_000, 15_000],
            properties=small,
        )
        opened.table("people").ingest(ROWS).wait()
        yield opened


@pytest.fixture
def server(instance: Instance) -> Iterator[LoopbackServer]:
    answer = with_websocket(partial(serve_http, instance), instance)
    with LoopbackServer(guarded(answer, KEY), refuse=refusal) as running:
        yield running


@pytest.fixture
def client(server: LoopbackServer) -> Iterator[SocketClient]:
    with SocketClient(url_of(server), token=KEY) as connected:
        yield connected


def url_of(server: LoopbackServer) -> str:
    return f"ws{server.url.removeprefix('http')}/websocket"


def test_all_rows_come_in_order_with_their_types(client: SocketClient) -> None:
    rows = client.query("people")
    found = rows.read_all()
    assert found.equals(ROWS.cast(found.schema))
    assert rows.after == ""


def test_a_query_without_rows_has_their_columns(client: SocketClient) -> None:
    found = client.query("people", where="age < 0").read_all()
    assert (found.num_rows, found.schema.names) == (0, ["age", "name"])


def test_a_statement_has_its_rows_too(client: SocketClient) -> None:
    found = client.sql("SELECT count(*) AS n FROM people WHERE age < :most", {"most": 10})
    assert found.read_all().to_pylist() == [{"n": 10}]


def test_the_progress_is_told_as_sub_queries_end(client: SocketClient) -> None:
    seen: list[ProgressFrame] = []
    assert client.query("people", progress=seen.append).read_all().num_rows == 20_000
    assert {frame.parts for frame in seen if frame.state == "running"} <= {0, 4}
    assert seen


def test_pages_go_on_after_the_token_of_the_last_one_on_another_connection(
    client: SocketClient, server: LoopbackServer
) -> None:
    rows = client.query("people", columns=["age"])
    pages = iter(rows)
    first = next(pages)
    while first.num_rows < 5000:
        first = pa.Table.from_batches([*_batches(first), next(pages)])
    client.close()
    with SocketClient(url_of(server), token=KEY) as other:
        rest = other.resume(rows.query_id, rows.after).read_all()
    assert pa.concat_tables([_table(first), rest])["age"].to_pylist() == list(range(20_000))


def _table(found: pa.Table | pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches(_batches(found))


def _batches(found: pa.Table | pa.RecordBatch) -> list[pa.RecordBatch]:
    return found.to_batches() if isinstance(found, pa.Table) else [found]


def test_a_connection_that_is_closed_is_opened_again(client: SocketClient) -> None:
    ages: list[int] = []
    for batch in client.query("people", columns=["age"]):
        ages += batch["age"].to_pylist()
        client.close()
    assert ages == list(range(20_000))


def test_only_the_token_of_the_server_opens_a_connection(server: LoopbackServer) -> None:
    with pytest.raises(ForbiddenError, match="401"):
        SocketClient(url_of(server), token="another").ping()
    SocketClient(f"{url_of(server)}?token=key%20of%20this%20server").ping()


def test_what_is_wrong_is_an_error_of_its_class(client: SocketClient) -> None:
    with pytest.raises(NotFoundError, match="'none'"):
        client.query("none")
    with pytest.raises(InvalidRequestError):
        client.query("people", where="age <")
    client.ping()


def test_a_query_that_is_cancelled_has_no_rows(client: SocketClient) -> None:
    rows = client.query("people")
    rows.cancel()
    with pytest.raises(VersionGoneError, match="cancelled"):
        client.resume(rows.query_id, rows.after).read_all()


def test_what_has_changed_is_sent_and_nothing_else(
    client: SocketClient, instance: Instance
) -> None:
    instance.wait()  # the status counts what is pending
    path = "/tables/people/status"
    first = client.watch(path)
    assert first is not None and first.content["rows"] == 20_000
    assert client.watch(path, first.seen) is None
    instance.table("people").ingest(pa.table({"age": [-1], "name": ["m"]})).wait()
    then = client.watch(path, first.seen)
    assert then is not None and then.content["rows"] == 20_001


class Scripted:
    """A connection that brings what a script says; the id "asked" is that of the last request."""

    def __init__(self, *script: AnswerFrame) -> None:
        self.script, self.sent = list(script), list[AskedFrame]()

    def send(self, text: str) -> None:
        self.sent.append(msgspec.json.decode(text, type=AskedFrame))

    def recv(self, timeout: float | None) -> str:
        frame = self.script.pop(0)
        if frame.id == "asked":
            frame = msgspec.structs.replace(frame, id=self.sent[-1].id)
        return encode_frame(frame)


def scripted(*script: AnswerFrame) -> tuple[SocketClient, Scripted]:
    client, connection = SocketClient("ws://nowhere"), Scripted(*script)
    client._connection = cast(Any, connection)
    return client, connection


def test_a_page_without_rows_ends_its_request() -> None:
    client, connection = scripted(
        RowsFrame(id="asked", query_id="q", next="b"), RowsFrame(id="asked", query_id="q")
    )
    assert list(client.resume("q", "a")) == []
    asked = [frame.after for frame in connection.sent if isinstance(frame, PageFrame)]
    assert asked == ["a", "b"]


def test_a_problem_of_an_earlier_request_is_not_one_of_the_next() -> None:
    late = ProblemFrame(id="of another", status=413, title="t", detail="too long")
    client, _ = scripted(late, PongFrame(id="asked"))
    client.ping()
    client, _ = scripted(late, RowsFrame(id="asked", query_id="q"))
    assert list(client.resume("q", "a")) == []
    client, _ = scripted(msgspec.structs.replace(late, id=""), PongFrame(id="asked"))
    with pytest.raises(LimitExceededError, match="too long"):
        client.ping()


@pytest.mark.parametrize(
    ("status", "kind"),
    [(404, NotFoundError), (413, LimitExceededError), (503, UnavailableError),
     (504, TimedOutError), (422, InvalidRequestError)],
)  # fmt: skip
def test_the_status_of_a_problem_tells_its_class(status: int, kind: type[DormouseError]) -> None:
    client, _ = scripted(ProblemFrame(id="asked", status=status, title="t", detail="why"))
    with pytest.raises(kind, match="why") as raised:
        client.ping()
    assert raised.type is kind


def test_a_query_whose_answer_was_lost_is_asked_once(
    client: SocketClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = websocket._ask, list[str]()

    def ask(call: Call, frame: QueryFrame, connection: str) -> AcceptedFrame:
        found = real(call, frame, connection)
        asked.append(found.query_id)
        if len(asked) < 3:
            call.services.connections.close(connection)
        return found

    monkeypatch.setattr(websocket, "_ask", ask)
    for question in (client.query, client.sql):
        again = question("people" if question == client.query else "SELECT age, name FROM people")
        assert len(asked) == 3 and {*asked} == {again.query_id}
        assert again.read_all().num_rows == 20_000
        asked.clear()
