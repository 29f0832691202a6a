"""News of queries on connections: who gets it, and what a closed connection ends."""

from __future__ import annotations

from dormouse.access.principals import LOCAL
from dormouse.connections import ConnectionGoneError, HeldConnections, NoConnections
from dormouse.features.queries.answer_query import answer_query
from dormouse.features.queries.following import GRACE_SECONDS
from dormouse.features.queries.stored import load_end
from dormouse.messages import OutboundMessage
from dormouse.model.pins import OwnerKind
from dormouse.query_messages import CancelQuery, FollowQuery, LeaveQuery, QueryTask
from dormouse.socket_frames import ProgressFrame, encode_frame
from tests.unit.features.websocket.conftest import Client

EVE = "arn:aws:iam::123456789012:user/eve"


def answer_first(client: Client, query_id: str) -> list[OutboundMessage]:
    """Begin a query that is cut, and answer its first sub-query; return what follows."""
    services = client.instance.services
    folder = client.instance.folder
    assert folder is not None
    folder.worker.step(("queries",))
    return answer_query(services, QueryTask(query_id, 0))


def pins(client: Client) -> int:
    table = client.instance.table("people").table
    found = client.instance.services.store(table).pins.all()
    return sum(pin.owner.kind is OwnerKind.QUERY for pin in found)


def test_a_query_that_nobody_follows_any_more_is_cancelled_after_a_while(cut: Client) -> None:
    query_id, after = cut.query(table="people")
    cut.is_closed = True
    (later,) = answer_first(cut, query_id)
    assert later == OutboundMessage("queries", LeaveQuery(query_id=query_id), GRACE_SECONDS)
    services = cut.instance.services
    assert load_end(services.results, query_id) is None, "its client may come back"
    answer_query(services, LeaveQuery(query_id=query_id))
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
    answer_query(cut.instance.services, LeaveQuery(query_id=query_id))
    names = [row["name"] for row in first["rows"]] + other.names(query_id, first["next"])
    assert names == [f"n{n:02}" for n in range(30)]
    assert pins(cut) == 0


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
