"""What has changed since a client asked last: jobs, metrics, and other lists of the HTTP API.

Nothing is kept about watchers, and nothing runs for it: the client asks from time to time, which
keeps its connection alive as well, and is sent what differs from what it has seen.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

import msgspec

from dormouse.features.http.calls import Call
from dormouse.features.http.problems import ProblemError
from dormouse.features.http.resources import asked, tables, upkeep, uploads
from dormouse.features.http.serve_http import find_route
from dormouse.http.messages import HttpRequest
from dormouse.messages.socket_frames import ChangedFrame, UnchangedFrame, WatchFrame, encode_frame
from dormouse.ports.connections import MOST_FRAME_BYTES

WATCHED: tuple[Callable[..., object], ...] = (
    tables.list_tables,
    tables.show_table,
    tables.show_metrics,
    tables.show_status,
    upkeep.list_jobs,
    upkeep.list_other_jobs,
    upkeep.list_refused_files,
    upkeep.list_queues,
    upkeep.show_request,
    uploads.show_file,
    asked.list_queries,
)
"""What can be watched: routes of the group `read` whose answers change by themselves."""


def watch(call: Call, frame: WatchFrame) -> ChangedFrame | UnchangedFrame:
    """Return what is at a path of the API, unless the client has seen it.

    Raises:
        ProblemError: there is no such path; or it cannot be watched, or is too long for a frame.
        DormouseError: as the route of the path.
    """
    path, _, query_string = frame.path.partition("?")
    request = HttpRequest("GET", path, query_string, principal=call.principal)
    route, names = find_route(request)
    if route.answer not in WATCHED:
        raise ProblemError(
            422,
            "this path cannot be watched",
            hint="watch tables, their status, metrics, jobs and files, queries, queues or requests",
        )
    inner = Call(call.instance, request)
    content = msgspec.json.encode(route.answer(inner, **names, **route.arguments(inner)))
    seen = blake2b(content, digest_size=12).hexdigest()
    if seen == frame.seen:
        return UnchangedFrame(id=frame.id, path=frame.path)
    found = ChangedFrame(id=frame.id, path=frame.path, seen=seen, content=msgspec.Raw(content))
    if len(encode_frame(found).encode()) > MOST_FRAME_BYTES:
        raise ProblemError(
            413,
            f"it takes more than the {MOST_FRAME_BYTES:,} bytes of a frame",
            hint="ask for a part, by `limit` in the path",
        )
    return found
