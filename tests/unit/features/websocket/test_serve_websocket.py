"""What a client sends on a WebSocket, and what it is answered."""

from __future__ import annotations

import pytest

from dormouse.features import query_runs
from dormouse.features.queries import load_query
from dormouse.ports import Services
from dormouse.state.jobs import JobEvent, TrackedJob
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


@pytest.mark.parametrize("form", ["json", "arrow"])
def test_sub_queries_without_rows_are_passed_by_some_at_a_time(
    cut: Client, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr("dormouse.features.websocket.MOST_SKIPPED", 1)
    query_id, after = cut.query(table="people", selection={"where": "name = 'n29'"})
    cut.work()
    query = load_query(cut.instance.services.results, query_id)
    assert query is not None and query.tasks == 2
    (first,) = cut.ask("page", query_id=query_id, after=after, form=form)
    assert (first["type"], first.get("count", 0)) == ("page", 0)
    assert first["next"] not in ("", after)
    found, last = cut.ask("page", query_id=query_id, after=first["next"], form=form)
    assert found["count"] == 1
    assert (last.get("count", 0), last.get("next", "")) == (0, "")


def test_a_question_with_one_key_is_one_query_on_all_connections(cut: Client) -> None:
    other = Client(cut.instance)
    other.connect()
    fields = {"table": "people", "idempotency_key": "k"}
    (query_id, after), (again, _) = cut.query(**fields), other.query(**fields)
    assert query_id == again
    others = [
        cut.query(table="people")[0],
        cut.query(table="people", idempotency_key="l")[0],
        cut.query(table="people", selection={"limit": 1}, idempotency_key="k")[0],
    ]
    assert len({query_id, *others}) == 4
    cut.work()
    assert cut.names(query_id, after) == other.names(query_id, after) == NAMES


def test_a_query_of_one_sub_query_says_how_far_it_is(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dormouse.features.queries.LOOK_MS", 0)
    recorded: list[tuple[int, int]] = []
    real = query_runs.record

    def record(services: Services, job: TrackedJob, event: JobEvent) -> None:
        recorded.append((event.rows, event.parts))
        real(services, job, event)

    monkeypatch.setattr(query_runs, "record", record)
    query_id, _ = client.query(table="people")
    client.got.clear()
    client.work()
    running = [each for each in client.got if each["state"] == "running"]
    assert (running[-1]["rows"], running[-1]["query_id"]) == (30, query_id)
    assert client.got[-1]["state"] == "finished"
    assert recorded[-1] == (30, 1)
