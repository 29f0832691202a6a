"""A WebSocket of a local stack: the real functions, fed by events as on AWS, send on it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dormouse.client.socket import SocketClient
from dormouse.errors import NotFoundError
from tests.system.conftest import System


def test_a_query_is_answered_on_a_connection(system: System) -> None:
    rows = pa.table({"age": range(3000), "name": [f"n{n}" for n in range(3000)]})
    small = {"query_cut_bytes": 1, "query_task_bytes": 1}
    table = system.instance.create_table(
        "people", "age: long, name: string", row_keys=["age"], split_points=[1500], properties=small
    )
    table.ingest(rows).wait()
    environment = system.stack.environment
    url = f"ws{environment['DORMOUSE_HTTP_API'].removeprefix('http')}/websocket"
    seen: list[str] = []
    with SocketClient(url, token=environment["DORMOUSE_HTTP_TOKEN"]) as client:
        found = client.query("people", progress=lambda frame: seen.append(frame.state)).read_all()
        assert found.equals(rows.cast(found.schema))
        assert seen
        changed = client.watch("/tables/people/status")
        assert changed is not None and changed.content["rows"] == 3000
        with pytest.raises(NotFoundError):
            client.query("nobody")
