"""What a client sends on a WebSocket, and what it is answered."""

from __future__ import annotations

from tests.unit.features.websocket.conftest import Client

NAMES = [f"n{n:02}" for n in range(30)]


def test_a_query_is_accepted_then_its_rows_come_in_pages(client: Client) -> None:
    query_id, after = client.query(table="people", selection={"where": "age < 2"})
    found = client.one("page", query_id=query_id, after=after)
    assert (found["type"], found["state"]) == ("progress", "waiting")
    client.work()
    assert client.names(query_id, after) == NAMES[:6]


def test_pages_come_as_sub_queries_end_with_news_of_each(cut: Client) -> None:
    query_id, after = cut.query(table="people")
    cut.work(2)
    assert cut.got[-1] == {
        "type": "progress",
        "query_id": query_id,
        "state": "running",
        "parts": 2,
        "parts_done": 1,
        "rows": 15,
    }
    first, then = cut.ask("page", query_id=query_id, after=after)
    assert [row["name"] for row in first["rows"]] == NAMES[:15]
    assert (then["type"], then["parts_done"]) == ("progress", 1)
    cut.work()
    assert cut.got[-1]["state"] == "finished"
    assert cut.names(query_id, first["next"]) == NAMES[15:]
