"""moto's server, made safe for concurrent callers; run by `stack` as a process of its own.

`python -m dormouse_cli.local.moto_server PORT [OBJECTS [SPARK_CODE]]` serves on loopback as `serve`
does; port 0 takes a free one. The line `listening on PORT` on standard output says that calls are
answered.
"""

import logging
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from moto.core.common_models import BaseModel
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server

from dormouse_cli.local import moto_emr, moto_services
from dormouse_cli.local.moto_emr import SparkRunner, python_path
from dormouse_cli.local.resources import aws_environment

HOST = "127.0.0.1"


class _RequestHandler(MotoRequestHandler):
    disable_nagle_algorithm = True  # a response is two writes; Nagle would hold the second back


class Dispatcher(DomainDispatcherApplication):
    """Remembers which part of moto a host means: moto lists its own folder for every request."""

    def __init__(self) -> None:
        """Make the parts of moto when they are first asked."""
        super().__init__(create_backend_app)
        self._backends: dict[str | None, Any] = {}

    def get_backend_for_host(self, host: str | None) -> Any:
        """Return the name of the part that a host means."""
        if host not in self._backends:
            self._backends[host] = super().get_backend_for_host(host)
        return self._backends[host]


def make_atomic() -> None:
    """Replace those parts of moto that are not safe under concurrent callers, or grow for ever."""
    # moto lists all that it ever made for a dashboard, so that nothing of it would be freed.
    BaseModel.__new__ = lambda cls, *_, **__: object.__new__(cls)  # type: ignore[method-assign]
    moto_services.apply()
    moto_services.apply_to_queues()
    moto_emr.apply()


def serve(port: int, objects: Path | None = None, spark_code: Path | None = None) -> None:
    """Answer AWS calls on loopback until the process is ended.

    The contents of objects are in the folder `objects`, else in memory. Runs of EMR Serverless are
    done with the entry points in `spark_code`; without, they wait.
    """
    if objects is not None:
        shutil.rmtree(objects, ignore_errors=True)
        moto_services.keep_in_files(objects.absolute())
    server = make_server(HOST, port, Dispatcher(), threaded=True, request_handler=_RequestHandler)
    os.environ["MOTO_PORT"] = str(server.port)  # moto calls itself by this for a few services
    if spark_code is not None:
        environment = {
            **os.environ,
            **aws_environment(f"http://{HOST}:{server.port}"),
            "PYTHONPATH": python_path(spark_code),
        }
        moto_emr.serve(SparkRunner(spark_code, Path.cwd(), environment))
    print(f"listening on {server.port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    make_atomic()
    serve(int(sys.argv[1]), *map(Path, sys.argv[2:]))
