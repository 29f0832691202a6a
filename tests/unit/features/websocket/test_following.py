"""News of queries on connections: who gets it, and what a closed connection ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from dormouse.access import LOCAL
from dormouse.errors import NotFoundError
from dormouse.features import answer_query as answer_query_module
from dormouse.features.answer_query import answer_query
from dormouse.features.http.calls import Call
from dormouse.features.http.queries import send_query
from dormouse.features.queries import load_end
from dormouse.features.query_runs import GRACE_SECONDS
from dormouse.folder.queues import SqliteQueues
from dormouse.http.connections import ConnectionGoneError, HeldConnections, NoConnections
from dormouse.http.messages import HttpRequest
from dormouse.messages.socket_frames import ProgressFrame, encode_frame
from dormouse.messages.stages import (
    AnswerQuery,
    CancelQuery,
    FollowQuery,
    LeaveQuery,
    OutboundMessage,
    QueryTask,
)
from dormouse.state.versions import OwnerKind
from tests.unit.features.websocket.conftest import Client

EVE = "arn:aws:iam::123456789012:user/eve"


def answer_first(client: Client, query_id: str) -> list[OutboundMessage]:
    """Begin a query that is cut, and answer its first sub-query; return what follows."""
    services = client.instance.services
    folder = client.instance.folder
    assert folder is not None
    folder.worker.step(("queries",))
    return answer_query(services, QueryTask(query_id, 0, LOCAL))


def pins(client: Client) -> int:
    table = client.instance.table("people").table
    found = client.instance.services.store(table).pins.all()
    return sum(pin.owner.kind is OwnerKind.QUERY for pin in found)


def test_a_query_that_nobody_follows_any_more_is_cancelled_after_a_while(cut: Client) -> None:
    query_id, after = cut.query(table="people")
    cut.is_closed = True
    (later,) = answer_first(cut, query_id)
    assert later == OutboundMessage(
        "queries", LeaveQuery(query_id=query_id, who=LOCAL), GRACE_SECONDS
    )
    services = cut.instance.services
    assert load_end(services.results, query_id) is None, "its client may come back"
    answer_query(services, LeaveQuery(query_id=query_id, who=LOCAL))
    end = load_end(services.results, query_id)
    assert end is not None and end.state == "cancelled"
    other = Client(cut.instance)
    other.connect()
    found = other.problem("page", query_id=query_id, after=after)
    assert (found["status"], found["detail"]) == (410, "the query was cancelled")


def test_a_client_that_comes_back_in_time_has_all_rows_and_the_news(cut: Client) -> None:
    query_id, after = cut.query(table="people")
    cut.is_closed = True
    answer_first(cut, query_id)
    other = Client(cut.instance)
    other.connect()
    first, then = other.ask("page", query_id=query_id, after=after)
    assert (then["type"], then["id"]) == ("progress", "1")
    other.work()
    assert [frame["state"] for frame in other.got[2:]][-1] == "finished"
    answer_query(cut.instance.services, LeaveQuery(query_id=query_id, who=LOCAL))
    names = [row["name"] for row in first["rows"]] + other.names(query_id, first["next"])
    assert names == [f"n{n:02}" for n in range(30)]
    assert pins(cut) == 0


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> list[FollowQuery]:
    """The messages that let a connection follow a query, as they are sent."""
    found: list[FollowQuery] = []
    real = SqliteQueues.send

    def send(queues: SqliteQueues, messages: Iterable[OutboundMessage], **done: Any) -> None:
        sent = list(messages)
        found.extend(each.message for each in sent if isinstance(each.message, FollowQuery))
        real(queues, sent, **done)

    monkeypatch.setattr(SqliteQueues, "send", send)
    return found


def test_a_query_is_not_cancelled_while_a_client_that_came_back_reads_it(
    cut: Client, followed: list[FollowQuery]
) -> None:
    query_id, after = cut.query(table="people")
    cut.is_closed = True
    answer_first(cut, query_id)
    other = Client(cut.instance)
    other.connect()
    (page,) = other.ask("page", query_id=query_id, after=after, pages=1)
    assert page["type"] == "page", "there are rows, so nothing need be waited for"
    services = cut.instance.services
    (message,) = followed
    assert message == FollowQuery(query_id=query_id, connection=other.name, who=LOCAL)
    answer_query(services, message)
    answer_query(services, LeaveQuery(query_id=query_id, who=LOCAL))
    assert load_end(services.results, query_id) is None
    other.work()
    names = [row["name"] for row in page["rows"]] + other.names(query_id, page["next"])
    assert names == [f"n{n:02}" for n in range(30)]


def test_a_connection_follows_a_query_once(cut: Client, followed: list[FollowQuery]) -> None:
    query_id, after = cut.query(table="people")
    answer_first(cut, query_id)
    other = Client(cut.instance)
    other.connect()
    (first, then) = other.ask("page", query_id=query_id, after=after)
    assert (first["type"], then["type"], then["id"]) == ("page", "progress", "1")
    (message,) = followed
    news = []
    for _ in range(3):
        answer_query(cut.instance.services, message)
        news += [frame for frame in other.got if not frame.get("id")]
        other.ask("page", query_id=query_id, after=first["next"])
    assert len(news) == 1
    assert followed == [message]


def test_a_query_that_was_asked_without_a_connection_has_no_followers(
    cut: Client, followed: list[FollowQuery]
) -> None:
    call = Call(cut.instance, HttpRequest("GET", "/", principal=LOCAL))
    query_id = send_query(call, AnswerQuery(query_id="-", table="people"))
    answer_first(cut, query_id)
    assert cut.ask("page", query_id=query_id)[-1]["type"] == "progress"
    assert followed == []


def test_how_a_query_ended_is_sent_only_to_a_connection_that_is_named(
    cut: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    query_id, _ = cut.query(table="people")
    cut.work()
    sent: list[str] = []
    monkeypatch.setattr(HeldConnections, "send", lambda _, name, text: sent.append(name))
    services = cut.instance.services
    answer_query(services, FollowQuery(query_id=query_id, connection="", who=LOCAL))
    assert sent == []
    answer_query(services, FollowQuery(query_id=query_id, connection="c", who=LOCAL))
    assert sent == ["c"]


def test_only_who_asked_follows_a_query(cut: Client) -> None:
    query_id, _ = cut.query(table="people")
    answer_first(cut, query_id)
    eve = Client(cut.instance)
    eve.connect()
    message = FollowQuery(query_id=query_id, connection=eve.name, who=EVE)
    answer_query(cut.instance.services, message)
    cut.work()
    answer_query(cut.instance.services, message)
    assert eve.got == []


def test_nobody_else_ends_a_query_whose_connection_was_closed(cut: Client) -> None:
    query_id, _ = cut.query(table="people")
    cut.is_closed = True
    answer_first(cut, query_id)
    services = cut.instance.services
    for stranger in (EVE, ""):
        with pytest.raises(NotFoundError, match="you have no query"):
            answer_query(services, LeaveQuery(query_id=query_id, who=stranger))
    assert load_end(services.results, query_id) is None


def test_nobody_else_fails_a_query_by_attempts_side_by_side(
    cut: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    query_id, _ = cut.query(table="people")
    services = cut.instance.services
    real = answer_query_module.answer
    strangers = [QueryTask(query_id, 0, EVE)] * 3

    def answer(*given: Any) -> Any:
        while strangers:
            with pytest.raises(NotFoundError):
                answer_query(services, strangers.pop())
        return real(*given)

    monkeypatch.setattr(answer_query_module, "answer", answer)
    cut.work()
    end = load_end(services.results, query_id)
    assert end is not None and (end.state, end.rows) == ("finished", 30)


def test_a_query_without_a_connection_goes_on(cut: Client) -> None:
    asked = cut.instance.table("people").query(run="remote")
    assert asked.read_all().num_rows == 30


def test_a_query_that_is_cancelled_on_its_connection_ends(cut: Client) -> None:
    query_id, after = cut.query(table="people")
    answer_first(cut, query_id)
    assert pins(cut) == 1
    assert cut.one("cancel", query_id=query_id)["type"] == "cancelling"
    answer_query(cut.instance.services, CancelQuery(query_id=query_id, who=LOCAL))
    assert cut.got[-1]["state"] == "cancelled"
    cut.work()
    assert cut.problem("page", query_id=query_id, after=after)["status"] == 410


def test_connections_of_another_process_may_be_there() -> None:
    held, text = HeldConnections("own"), encode_frame(ProgressFrame(query_id="q", state="running"))
    held.send("other.1", text)
    held.close("other.1")
    NoConnections().send("other.1", text)
    try:
        held.send("own.1", text)
    except ConnectionGoneError:
        return
    raise AssertionError("a connection that this process does not hold is closed")
