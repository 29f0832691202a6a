"""Answer a first look-up as a function does after a cold start, in a process of its own: ``first``.

It needs the packages of the layers alone. Prints the CPU seconds of the process when the function's
code is imported, after the first answer, and after one more.
"""

from __future__ import annotations

import importlib
import json
import os
import time

from dormouse.client.instance import Instance
from dormouse.features.http.serve_http import serve_http
from dormouse.http.messages import HttpRequest

TABLE = "readings"
CALLER = "arn:aws:iam::123456789012:user/local"


def look_up(instance: Instance, key: int) -> None:
    body = json.dumps({"keys": [[key, 5]]}).encode()
    headers = {"content-type": "application/json"}
    path = f"/tables/{TABLE}/query"
    response = serve_http(instance, HttpRequest("POST", path, "", headers, body, CALLER))
    assert response.status == 200, response.body


def main() -> None:
    importlib.import_module("functions.serve_http.handler")
    times = [time.process_time()]
    instance = Instance.connect(os.environ["DORMOUSE_INSTANCE"])
    for key in (1, 2):
        look_up(instance, key)
        times.append(time.process_time())
    print(json.dumps(times))


if __name__ == "__main__":
    main()
