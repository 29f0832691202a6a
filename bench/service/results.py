"""Read a large result in pages, and as files that are answered later: ``results FOLDER ROWS``."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from bench.common.figures import emit
from bench.service.server import TABLE, Connection, fill, served

PAGE_ROWS = 10_000
LOOK_SECONDS = 0.5


def main(folder: Path, rows: int) -> None:
    """Read all rows both ways, as JSON lines."""
    fill(folder / "mice", rows)
    with served(folder / "mice") as server:
        for name, read in (("pages", in_pages), ("files", in_files)):
            before, began = server.cpu_seconds(), time.perf_counter()
            lines, size_bytes = read(server.connect())
            assert lines == rows, f"{lines} of {rows} rows"
            emit(
                "results",
                name,
                rows,
                seconds=time.perf_counter() - began,
                cpu_seconds=server.cpu_seconds() - before,
                megabytes=size_bytes / 1e6,
                peak_mb=server.peak_mb(),
            )


def in_pages(connection: Connection) -> tuple[int, int]:
    """Read page after page; return rows and bytes."""
    lines = size_bytes = 0
    after = ""
    while True:
        body = {"page_rows": PAGE_ROWS, "after": after}
        connection.http.request(
            "POST",
            f"/tables/{TABLE}/query",
            json.dumps(body),
            {
                "Authorization": "Bearer bench",
                "Content-Type": "application/json",
                "Accept": "application/x-ndjson",
            },
        )
        response = connection.http.getresponse()
        page = response.read()
        assert response.status == 200, page
        lines += page.count(b"\n")
        size_bytes += len(page)
        after = response.headers.get("dormouse-next", "")
        if not after:
            return lines, size_bytes


def in_files(connection: Connection) -> tuple[int, int]:
    """Ask for all at once, wait, and read the files; return rows and bytes."""
    path = f"/tables/{TABLE}/query"
    status, body = connection.ask("POST", path, {}, Prefer="respond-async")
    assert status == 202, body
    location = json.loads(body)["location"]
    while (found := connection.get(location))["state"] in ("waiting", "running"):
        time.sleep(LOOK_SECONDS)
    assert found["state"] == "finished", found
    lines = size_bytes = 0
    for file in found["files"]:
        status, content = connection.ask("GET", file["url"])
        assert status == 200
        lines += content.count(b"\n")
        size_bytes += len(content)
    return lines, size_bytes


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
