"""The WebSockets of a server of this machine: at one path, for an instance in a folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http import HTTPStatus

from dormouse.client.instance import Instance
from dormouse.errors import DormouseError
from dormouse.features.websocket.serve_websocket import PATH, problem_frame, serve_websocket
from dormouse.http.messages import Answer, HttpRequest, HttpResponse, Socket, SocketClosedError
from dormouse.messages.socket_frames import encode_frame
from dormouse.ports.connections import (
    IDLE_SECONDS,
    MOST_SECONDS,
    Connected,
    ConnectionGoneError,
    Disconnected,
    HeldConnections,
    Received,
)
from dormouse.ports.services import Clock

_GOING_AWAY, _NOT_ALLOWED = 1001, 1008


def with_websocket(answer: Answer, instance: Instance) -> Answer:
    """Return what answers requests for a WebSocket of an instance in a folder, all others with
    `answer`.
    """

    def answered(request: HttpRequest) -> HttpResponse:
        if request.path != PATH or request.method != "GET":
            return answer(request)
        return socket_response(lambda socket: talk(instance, request.principal, socket))

    return answered


def socket_response(talks: Callable[[Socket], None], url: str = "") -> HttpResponse:
    """Return the answer at the path of WebSockets: to a request for none, where they are; without
    a URL, that is here.
    """
    body = json.dumps({"url": url or PATH}).encode()
    return HttpResponse(200, {"content-type": "application/json"}, body, socket=talks)


def talk(instance: Instance, principal: str, socket: Socket) -> None:
    """Serve one connection until it is closed, at the latest when it would be on AWS."""
    held = instance.services.connections
    if not isinstance(held, HeldConnections):
        socket.close(1011, "this instance takes no connections here")
        return

    def send(text: str) -> None:
        try:
            socket.send(text)
        except SocketClosedError as error:
            raise ConnectionGoneError("the connection is closed") from error

    name = held.hold(send, lambda: socket.close(_NOT_ALLOWED, "connect again"))
    try:
        if serve_websocket(instance, Connected(name, principal)).status is HTTPStatus.OK:
            _serve(instance, name, socket)
    except SocketClosedError:
        return
    finally:
        held.drop(name)
        serve_websocket(instance, Disconnected(name))


def _serve(instance: Instance, name: str, socket: Socket) -> None:
    for text in frames(socket, instance.services.clock):
        try:
            serve_websocket(instance, Received(name, text))
        except DormouseError as error:  # of the registry itself; the client can try again
            socket.send(encode_frame(problem_frame("", error)))


def frames(socket: Socket, clock: Clock) -> Iterator[str]:
    """Yield what a client sends, until nothing comes for too long, or it is connected too long."""
    until_ms = clock.now_ms() + MOST_SECONDS * 1000
    while True:
        left = (until_ms - clock.now_ms()) / 1000
        text = socket.receive(min(IDLE_SECONDS, left)) if left > 0 else None
        if text is None:
            socket.close(_GOING_AWAY, "idle" if left > IDLE_SECONDS else "connected for two hours")
            return
        yield text
