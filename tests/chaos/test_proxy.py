"""The proxy does to requests what it says it does, and nothing to others."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.chaos.answers import Request, hold_back
from tests.chaos.faults import Fault, FaultRates, FaultSchedule, Kind
from tests.chaos.proxy import FaultProxy
from tests.chaos.tally import Tally

SIGNED = {"Authorization": "AWS4-HMAC-SHA256 Credential=x/20260101/eu-west-2/s3/aws4_request"}


class Service(ThreadingHTTPServer):
    """Says what it was sent, and keeps it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[bytes] = []
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Service

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.bodies.append(body)
        answer = b"" if self.command == "HEAD" else self.path.encode() + b" " + body
        self.send_response(201)
        self.send_header("X-Twice", "a")
        self.send_header("X-Twice", "b")
        self.send_header("Content-Length", "77" if self.command == "HEAD" else str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_HEAD = do_GET = do_POST = do_PUT

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as running:
        yield running
        running.shutdown()


@pytest.fixture
def proxy(service: Service) -> Iterator[FaultProxy]:
    running = FaultProxy(1, Tally())
    running.upstream = f"127.0.0.1:{service.server_port}"
    yield running
    running.close()


def ask(proxy: FaultProxy, method: str = "PUT", body: bytes = b"body") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", proxy.server_port)
    try:
        connection.request(method, "/bucket/k%20ey?x=1", body, SIGNED)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_without_faults_requests_and_answers_pass_unchanged(
    proxy: FaultProxy, service: Service
) -> None:
    assert ask(proxy) == (201, b"/bucket/k%20ey?x=1 body")
    assert service.bodies == [b"body"]
    connection = http.client.HTTPConnection("127.0.0.1", proxy.server_port)
    for _ in range(2):  # on one connection
        connection.request("HEAD", "/", headers=SIGNED)
        answer = connection.getresponse()
        assert answer.read() == b""
        assert answer.getheader("Content-Length") == "77"
        assert answer.msg.get_all("X-Twice") == ["a", "b"]
    assert proxy.tally.of("requests") == {"s3": 3}


@pytest.mark.parametrize(
    ("kind", "has_landed", "status"),
    [
        (Kind.REFUSED, False, 503),
        (Kind.DROPPED, False, None),
        (Kind.UNANSWERED, True, None),
        (Kind.FAILED, True, 500),
        (Kind.CUT, True, None),
        (Kind.LATE, True, 201),
    ],
)
def test_each_fault_lands_or_not_and_answers_as_it_says(
    proxy: FaultProxy, service: Service, kind: Kind, has_landed: bool, status: int | None
) -> None:
    share = 0.95 if kind is Kind.CUT else 0.0  # within the body
    proxy.fault = lambda request: Fault(kind, share)  # type: ignore[method-assign]
    if status is None:
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            ask(proxy)
    else:
        assert ask(proxy)[0] == status
    assert service.bodies == [b"body"] * has_landed


def test_what_a_dying_process_sent_by_half_does_not_arrive(
    proxy: FaultProxy, service: Service
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", proxy.server_port)
    connection.putrequest("PUT", "/bucket/key")
    connection.putheader("Content-Length", "10")
    connection.endheaders(b"half")
    assert connection.sock is not None
    connection.sock.shutdown(socket.SHUT_WR)
    assert connection.sock.recv(100) == b""
    connection.close()
    assert service.bodies == []


def batch(target: str, body: object) -> Request:
    scope = target.partition("_")[0].lower()
    service = "dynamodb" if scope == "dynamodb" else "sqs"
    headers = {
        "authorization": SIGNED["Authorization"].replace("/s3/", f"/{service}/"),
        "x-amz-target": target,
    }
    return Request("POST", "/", headers, json.dumps(body).encode())


def test_one_entry_of_a_batch_is_held_back_and_the_answer_says_so() -> None:
    sent = batch("AmazonSQS.SendMessageBatch", {"Entries": [{"Id": "0"}, {"Id": "1"}]})
    held = hold_back(sent, 0.9)
    assert held is not None
    assert json.loads(held.body) == {"Entries": [{"Id": "0"}]}
    puts = [{"PutRequest": {"Item": {"a": {"S": str(i)}}}} for i in range(2)]
    written = hold_back(batch("DynamoDB_20120810.BatchWriteItem", {"RequestItems": {"t": puts}}), 0)
    assert written is not None
    assert json.loads(written.body) == {"RequestItems": {"t": puts[1:]}}
    keys = "".join(f"<Object><Key>{key}</Key></Object>" for key in "ab")
    deleted = hold_back(Request("POST", "/b?delete", {**_s3()}, f"<D>{keys}</D>".encode()), 0)
    assert deleted is not None
    assert b"<Key>b</Key>" in deleted.body
    assert deleted.entry == "a"
    assert hold_back(batch("AmazonSQS.SendMessageBatch", {"Entries": [{"Id": "0"}]}), 0) is None


def _s3() -> dict[str, str]:
    return {"authorization": SIGNED["Authorization"]}


def test_a_seed_gives_the_same_faults_and_storms_come_and_go() -> None:
    def faults(seed: int, share: float) -> list[Fault | None]:
        schedule = FaultSchedule("s3", seed, FaultRates(share=share, storm_share=share))
        return [schedule.fault(i / 10) for i in range(500)]

    assert faults(1, 0.2) == faults(1, 0.2) != faults(2, 0.2)
    assert 50 < sum(fault is not None for fault in faults(1, 0.2)) < 150
    stormy = [FaultSchedule("s3", 1).storms(float(second)) for second in range(300)]
    assert 5 < sum(stormy) < 100
