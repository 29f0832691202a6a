"""Frames: the messages on a WebSocket, in JSON. `id` names a request of the client; what answers it
has the same.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from dormouse.messages.stages import ALL_ROWS, Message, QueryId, SelectionMessage

FrameId = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
RowsForm = Literal["json", "arrow"]
"""The forms of rows: objects of JSON, or a stream of Arrow in base64, which has all types."""
MOST_PAGES = 16


class _Asked(Message, frozen=True, kw_only=True):
    id: FrameId
    v: Literal[1] = 1


class QueryFrame(_Asked, frozen=True, tag="query", kw_only=True):
    """Ask for the selected rows of a table, or for those of a statement in `sql`.

    It is answered by `accepted`, and `progress` follows as sub-queries end. `parameters` are the
    values of a statement's parameters, by name. The same question with the same `idempotency_key`,
    if there is one, is one query, on whatever connections it is sent.
    """

    table: str = ""
    selection: SelectionMessage = ALL_ROWS
    sql: str = ""
    parameters: dict[str, str | int | float | bool | None] = {}
    idempotency_key: Annotated[str, msgspec.Meta(max_length=128)] = ""


class PageFrame(_Asked, frozen=True, tag="page", kw_only=True):
    """Ask for the next pages of a query: up to `pages` of them, after the token `after`.

    Each is answered by `page`. What is not there yet is answered by `progress`: ask again when more
    sub-queries are done. The token of any page can be used on any connection of the same caller.
    """

    query_id: QueryId
    after: str = ""
    pages: Annotated[int, msgspec.Meta(ge=1, le=MOST_PAGES)] = 4
    form: RowsForm = "json"


class CancelFrame(_Asked, frozen=True, tag="cancel", kw_only=True):
    """Cancel a query, unless it has ended. It is answered by `cancelling`."""

    query_id: QueryId


class WatchFrame(_Asked, frozen=True, tag="watch", kw_only=True):
    """Ask what has changed in what a GET of the HTTP API at `path` returns: jobs, metrics, tables.

    It is answered by `changed` if that is not what was `seen`, else by `unchanged`. It keeps the
    connection alive.
    """

    path: Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]
    seen: str = ""


class PingFrame(_Asked, frozen=True, tag="ping", kw_only=True):
    """Keep the connection alive. It is answered by `pong`."""


AskedFrame = QueryFrame | PageFrame | CancelFrame | WatchFrame | PingFrame
"""What a client sends."""


class _Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    id: str = ""


class AcceptedFrame(_Answer, frozen=True, kw_only=True, tag="accepted"):
    """A query is accepted. `after` is the token of its first page."""

    query_id: str
    after: str


class ProgressFrame(_Answer, frozen=True, kw_only=True, tag="progress"):
    """The state of a query: waiting, running, finished, failed or cancelled; of its sub-queries,
    `parts`, `parts_done` are done, with `rows` of the result so far.

    It has an `id` if it answers a request, else it says that something has changed.
    """

    query_id: str
    state: str
    parts: int = 0
    parts_done: int = 0
    rows: int = 0


class ColumnFrame(msgspec.Struct, frozen=True, kw_only=True):
    """A column; `type` is its type in Arrow."""

    name: str
    type: str


class RowsFrame(_Answer, frozen=True, kw_only=True, tag="page"):
    """A page of rows, in one of the forms. `next` is the token of the page that follows; without
    it, this is the last one, which may have no rows. One with `next` and no rows says that many
    sub-queries had none: it ends its request, and the next one goes on after it.
    """

    query_id: str
    columns: tuple[ColumnFrame, ...] = ()
    rows: tuple[msgspec.Raw, ...] = ()
    arrow: str = ""
    count: int = 0
    next: str = ""


class CancellingFrame(_Answer, frozen=True, kw_only=True, tag="cancelling"):
    """A query is being cancelled, unless it has ended."""

    query_id: str


class ChangedFrame(_Answer, frozen=True, kw_only=True, tag="changed"):
    """What is watched has changed to `content`; send `seen` to learn of the next change."""

    path: str
    seen: str
    content: Any


class UnchangedFrame(_Answer, frozen=True, kw_only=True, tag="unchanged"):
    """What is watched is what was seen."""

    path: str


class PongFrame(_Answer, frozen=True, kw_only=True, tag="pong"):
    """The connection is alive."""


class ProblemFrame(_Answer, frozen=True, kw_only=True, tag="problem"):
    """A request cannot be answered; `status` is that of HTTP, `hint` says what to do."""

    status: int
    title: str
    detail: str
    hint: str = ""


AnswerFrame = (
    AcceptedFrame
    | ProgressFrame
    | RowsFrame
    | CancellingFrame
    | ChangedFrame
    | UnchangedFrame
    | PongFrame
    | ProblemFrame
)
"""What the instance sends."""


def encode_frame(frame: AnswerFrame | AskedFrame) -> str:
    """Return the text of a frame."""
    return msgspec.json.encode(frame).decode()
