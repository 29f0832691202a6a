"""What may end who computes it is given to another process, at every door of a server."""

from __future__ import annotations

import os
import socket
import threading
from base64 import b64encode
from dataclasses import replace
from functools import partial

import msgspec
import pytest

from dormouse.client.computing import ComputingProcess, Done, Task, receive, send
from dormouse.client.instance import Instance
from dormouse.errors import LimitExceededError
from dormouse.features.http import computing
from dormouse.system import SystemClock
from tests.unit.features.http.conftest import Api
from tests.unit.features.http.test_asked import EVE, QUERY, ROWS, answered, ask, grant


class Computing(ComputingProcess):
    """Does in this process what another one would do, which ends of deadly things."""

    def __init__(self, instance: Instance) -> None:
        services = instance.services
        super().__init__("", services.scratch, os.environ)
        self.instance, self.done, self.deadly = instance, list[str](), ""

    def _done(self, task: Task, seconds: float | None = None, *, is_alone: bool = False) -> Done:
        self.done.append(task.kind)
        if task.kind == self.deadly:
            raise LimitExceededError("it ended the process")
        own, theirs = socket.socketpair()
        with own, theirs:
            send(own, task)
            computing.serve_next(theirs, partial(computing.do_task, self.instance))
            done = msgspec.msgpack.decode(receive(own), type=Done)
        assert done.error is None or task.kind == "count"
        return self.result(done)


@pytest.fixture
def apart(people: Api) -> Computing:
    folder = people.instance.folder
    assert folder is not None
    apart = Computing(Instance.open(folder.layout.root, background=False))
    people.instance = replace(people.instance, computing=apart)
    folder.worker.services = replace(folder.worker.services, compute=apart.compute)
    return apart


def test_queries_and_rows_are_computed_and_read_in_another_process(
    people: Api, apart: Computing
) -> None:
    statement = {"text": "SELECT count(*) AS n FROM people"}
    assert people.found("POST", "/sql", statement)["rows"] == [{"n": 30}]
    assert people.problem("POST", "/sql", {"text": "SELECT nothing"})["status"] == 422
    found = people.found("POST", "/tables/people/query", {"where": "age = 3"})
    assert [row["age"] for row in found["rows"]] == [3, 3, 3]
    assert people.found("POST", "/tables/people/rows", [{"age": 1, "name": "x"}])["rows"] == 1
    assert people.problem("POST", "/tables/people/rows", [{"age": "x"}])["status"] == 422
    sample = {"name": "s.csv", "content": b64encode(b"k\n1\n").decode()}
    table = {"name": "t", "row_keys": ["k"], "sample": sample}
    assert people.ask("POST", "/tables", table).status == 202
    assert apart.done == ["answer"] * 3 + ["count"] * 2 + ["infer"]
    for path, asked, rows in (("/sql", statement, 1), (QUERY, ROWS, 6)):
        assert answered(people, ask(people, path, asked))["rows"] == rows
    assert apart.done[6:] == ["answer", "compute"] * 2
    apart.deadly = "compute"
    failed = answered(people, ask(people, "/sql", statement))
    assert (failed["state"], "ended the process" in failed["reason"]) == ("failed", True)
    apart.deadly = "count"
    assert people.problem("POST", "/tables/people/rows", [{"age": 1, "name": "x"}])["status"] == 413
    apart.deadly = "answer"
    assert people.problem("POST", "/sql", statement)["status"] == 413
    apart.deadly = "infer"
    assert people.problem("POST", "/tables", {**table, "name": "u"})["status"] == 413


def test_who_asks_has_the_same_rights_in_the_other_process(people: Api, apart: Computing) -> None:
    grant(people, EVE, "name")
    eve = Api(people.instance, EVE)
    statement = {"text": "SELECT count(*) AS n FROM people"}
    assert eve.found("POST", "/sql", statement)["rows"] == [{"n": 30}]
    assert eve.problem("POST", "/sql", {"text": "SELECT name FROM people"})["status"] == 422
    assert apart.done == ["answer"] * 2


def test_tasks_that_take_long_stop_no_others_and_a_broken_socket_neither() -> None:
    goes_on = threading.Event()

    def do(task: Task) -> Done:
        assert task.kind == "answer" or goes_on.wait(60)
        return Done(status=task.number)

    workers = computing.Workers(do, SystemClock())
    pairs = [socket.socketpair() for _ in range(3 * computing.AT_ONCE)]
    for _, theirs in pairs:
        workers.add(theirs)
    *long, (broken, _), (asker, _) = pairs
    for own, _ in long:
        send(own, Task("compute"))
    broken.close()
    for number in (200, 201):
        send(asker, Task("answer", number=number))
        assert msgspec.msgpack.decode(receive(asker), type=Done).status == number
    goes_on.set()
    for own, _ in long:
        assert msgspec.msgpack.decode(receive(own), type=Done).error is None
