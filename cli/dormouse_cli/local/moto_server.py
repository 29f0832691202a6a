"""moto's server, made safe for concurrent callers; run by `stack` as a process of its own.

`python -m dormouse_cli.local.moto_server --port N` serves on loopback; port 0 takes a free one. The
line `listening on PORT` on standard output says that calls are answered, `refused` and a JSON
object why not. With `--objects DIR` the contents of objects are in files, all else is in memory;
with `--data DIR` both are saved there, and loaded from there.
"""

import argparse
import json
import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server

from dormouse_cli.local import (
    moto_core,
    moto_dynamodb,
    moto_emr,
    moto_s3,
    moto_sqs,
    moto_values,
)
from dormouse_cli.local.data_folder import DataFolder, open_folder
from dormouse_cli.local.errors import StartError
from dormouse_cli.local.moto_snapshot import LOCKS, Snapshots
from dormouse_cli.local.moto_values import ValueFolder
from dormouse_cli.local.sessions import DEFAULT_REGION, aws_environment
from dormouse_cli.local.spark_runner import SparkRunner, python_path

_log = logging.getLogger(__name__)

HOST = "127.0.0.1"
REFUSED = "refused "
SAVE_EVERY_SECONDS = 5
_PAUSES = 20
"""How many times as long as a save takes nothing is saved after it: it holds up all calls."""
_READS = ("BatchGet", "Describe", "Get", "List", "Query", "Receive", "Scan")


class _RequestHandler(MotoRequestHandler):
    disable_nagle_algorithm = True  # a response is two writes; Nagle would hold the second back


class Dispatcher(DomainDispatcherApplication):
    """Remembers which part of moto a host means: moto lists its own folder for every request."""

    def __init__(self) -> None:
        """Make the parts of moto when they are first asked."""
        super().__init__(create_backend_app)
        self._backends: dict[str | None, Any] = {}
        self.has_changed = False

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        """Answer a call, and note if it may have changed something."""
        try:
            return super().__call__(environ, start_response)
        finally:
            if not _is_read(environ):
                self.has_changed = True

    def get_backend_for_host(self, host: str | None) -> Any:
        """Return the name of the part that a host means."""
        if host not in self._backends:
            self._backends[host] = super().get_backend_for_host(host)
        return self._backends[host]


def _is_read(environ: dict[str, Any]) -> bool:
    operation: str = environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2]
    if operation:
        return operation.startswith(_READS)
    return str(environ["REQUEST_METHOD"]) in ("GET", "HEAD")


def make_atomic() -> None:
    """Replace those parts of moto that are not safe under concurrent callers, or grow for ever."""
    moto_core.apply()
    moto_dynamodb.apply()
    moto_emr.apply()
    moto_s3.apply()
    moto_sqs.apply()


class Saver:
    """Saves what moto holds in a folder, every few seconds in which it was changed."""

    def __init__(
        self, folder: DataFolder, dispatcher: Dispatcher, region: str, every_seconds: float
    ) -> None:
        """Fill what is created from now on with what the folder holds."""
        self._folder, self._dispatcher, self._every = folder, dispatcher, every_seconds
        self._snapshots = Snapshots(folder.held, folder.values, region)
        self._saving = threading.Lock()
        folder.keep_only(self._snapshots.sizes())
        self._snapshots.apply()

    def start(self) -> None:
        """Begin to save, from a thread of its own."""
        threading.Thread(target=self._run, name="saver", daemon=True).start()

    def save(self) -> None:
        """Save once."""
        with self._saving:
            self._dispatcher.has_changed = False
            self._folder.save(*self._snapshots.take())

    def save_last(self) -> None:
        """Save, and let no call change anything afterwards: it would be answered, and be lost."""
        with self._saving:
            for lock in LOCKS:
                lock.acquire()  # until the process ends
            self._folder.save(*self._snapshots.take())

    def _run(self) -> None:
        took = 0.0
        while True:
            time.sleep(max(self._every, took * _PAUSES))
            if self._dispatcher.has_changed:
                began = time.monotonic()
                try:
                    self.save()
                except OSError as error:  # a full disk: the next time may be better
                    self._dispatcher.has_changed = True
                    _log.error("%s is not saved: %s", self._folder.path, error)
                took = time.monotonic() - began


def serve(
    port: int,
    objects: Path | None = None,
    data: Path | None = None,
    spark_code: Path | None = None,
    region: str = DEFAULT_REGION,
    save_every_seconds: float = SAVE_EVERY_SECONDS,
) -> None:
    """Answer AWS calls on loopback until the process is ended; by SIGTERM, `data` is saved first.

    The contents of objects are in `data`, else in the folder `objects`, else in memory. Runs
    of EMR Serverless are done with the entry points in `spark_code`; without, they wait.
    """
    dispatcher = Dispatcher()
    saver = None
    if data is None and objects is not None:
        shutil.rmtree(objects, ignore_errors=True)
        moto_values.apply(ValueFolder(objects.absolute()))
    if data is not None:
        folder = open_folder(data.absolute())
        moto_values.apply(folder.values)
        saver = Saver(folder, dispatcher, region, save_every_seconds)
    server = make_server(HOST, port, dispatcher, threaded=True, request_handler=_RequestHandler)
    os.environ["MOTO_PORT"] = str(server.port)  # moto calls itself by this for a few services
    if spark_code is not None:
        environment = {
            **os.environ,
            **aws_environment(f"http://{HOST}:{server.port}", region),
            "PYTHONPATH": python_path(spark_code),
        }
        moto_emr.serve(SparkRunner(spark_code, Path.cwd(), environment))
    if saver is not None:
        signal.signal(signal.SIGTERM, _end)
        saver.start()
    print(f"listening on {server.port}", flush=True)
    try:
        server.serve_forever()
    finally:
        if saver is not None:
            saver.save_last()


def _end(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # another one would end the last save
    raise SystemExit(0)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line: serve atomically on the given port."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--region", default=DEFAULT_REGION, help="of Spark jobs")
    parser.add_argument("--spark-code", type=Path, help="the folder of their files")
    parser.add_argument("--objects", type=Path, help="the folder of objects, if not in memory")
    parser.add_argument("--data", type=Path, help="the folder to save in")
    parser.add_argument("--save-every", type=float, default=SAVE_EVERY_SECONDS, help="seconds")
    parser.add_argument("--log-requests", action="store_true")
    options = parser.parse_args(arguments)
    logging.getLogger("werkzeug").setLevel(
        logging.INFO if options.log_requests else logging.WARNING
    )
    make_atomic()
    try:
        serve(
            options.port,
            options.objects,
            options.data,
            options.spark_code,
            options.region,
            options.save_every,
        )
    except StartError as error:
        print(f"{REFUSED}{json.dumps({'message': str(error), 'hint': error.hint})}", flush=True)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
