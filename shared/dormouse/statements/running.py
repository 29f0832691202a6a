"""Run a statement: start the process that computes it, answer what it asks, watch it, end it.

A thread answers the messages of the child, and looks every few moments whether it takes too much;
each scan has a thread of its own, which reads rows and writes them into a pipe. The child is killed
when its limits are exceeded, when a scan fails, and when the result is closed or dropped.
"""

from __future__ import annotations

import io
import os
import select
import signal
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dormouse import errors
from dormouse.errors import DormouseError, InvariantError, LimitExceededError
from dormouse.query.result import QueryResult
from dormouse.sql.cut.statement_cut import StatementCut
from dormouse.statements import protocol
from dormouse.statements.explaining import explain
from dormouse.statements.files import linked_files
from dormouse.statements.limits import WATCH_MS, Limits, Watch
from dormouse.statements.partials import Partials
from dormouse.statements.scans import Tables, check_reads
from dormouse.statements.server.processes import StatementProcess, begin
from dormouse.stored.decoding import decode_json
from dormouse.system import SystemClock

if TYPE_CHECKING:
    from typing_extensions import Buffer

THREADS = min(4, os.cpu_count() or 1)

_OVERHEAD_BYTES = 768 * 1024 * 1024
"""What the child may take beside what DataFusion accounts for: its code, and batches on their way.
"""
_LOOK_SECONDS = 0.05
_PIPE_BYTES = 1024 * 1024
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def run_in_process(
    tables: Tables | Partials,
    text: str,
    parameters: bytes,
    scratch: Path,
    limits: Limits,
    *,
    cut_ms: int = 0,
    watch: Watch | None = None,
) -> QueryResult:
    """Return the rows of a statement, which a process of its own computes while they are taken;
    with `cut_ms`, its parts as of that time. `watch` may end it.

    Raises:
        DormouseError: it cannot be planned.
    """
    running = _Running(tables, scratch, limits, watch)
    try:
        running.start(text, parameters, cut_ms)
        schema, batches = running.results()
    except BaseException:
        running.end()
        raise
    return tables.result(schema, batches)


def plan_cut(
    tables: Tables,
    text: str,
    parameters: Mapping[str, object],
    scratch: Path,
    limits: Limits,
) -> StatementCut:
    """Return the parts of a statement that has a single reference, as of the time of `tables`.

    Raises:
        DormouseError: it cannot be planned.
    """
    stream = protocol.encode_parameters(parameters)
    found = run_in_process(tables, text, stream, scratch, limits, cut_ms=tables.time_ms)
    rows = found.read_all()
    return decode_json(rows["cut"][0].as_py().encode(), StatementCut)


class _Pipe(io.FileIO):
    """A pipe that looks up from waiting: a signal that comes just before a read begins would
    otherwise wait for its end.
    """

    def readinto(self, buffer: Buffer, /) -> int | None:
        """Read some bytes, once there are some."""
        while not select.select([self], [], [], _LOOK_SECONDS)[0]:
            pass
        return super().readinto(buffer)


class _Running:
    """One statement while it runs."""

    def __init__(
        self, tables: Tables | Partials, scratch: Path, limits: Limits, watch: Watch | None
    ) -> None:
        self._tables, self._limits, self._watch = tables, limits, watch
        self._folder = TemporaryDirectory(prefix="sql-", dir=scratch)
        self._channel, self._childs = socket.socketpair()
        results, self._write_results = os.pipe()
        self._source = io.BufferedReader(_Pipe(results))
        self._process: StatementProcess | None = None
        self._clock = SystemClock()
        self._looked_ms = self._watched_ms = self._clock.now_ms()
        self._waited_ms = 0
        self._waits = False
        self._failure: BaseException | None = None
        self._is_finished = False
        self._held = ExitStack()
        self._feeds: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._serve, name="statement", daemon=True)

    def start(self, text: str, parameters: bytes, cut_ms: int) -> None:
        """Start the child, and answer it from now on."""
        with suppress(OSError, ImportError):
            _enlarge(self._source.fileno())
        self._process = begin(self._childs.fileno(), self._write_results)
        self._childs.close()
        os.close(self._write_results)
        run = protocol.Run(
            text,
            parameters,
            self._folder.name,
            self._limits.memory_bytes,
            THREADS,
            int(self._limits.timeout_seconds * THREADS) + 1,
            cut_ms,
        )
        protocol.send(self._channel, run)
        self._thread.start()

    def results(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Wait for the schema of the results; return it and them."""
        self._waits = True
        try:
            reader = pa.ipc.open_stream(self._source)
        except (pa.ArrowInvalid, OSError) as error:
            self._raise_failure()
            raise InvariantError("the statement has no results") from error
        finally:
            self._waits = False
        return reader.schema, self._batches(reader)

    def _batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """Yield the results; what comes after a failure is its error."""
        try:
            while (batch := self._next(reader)) is not None:
                yield batch
            self._raise_failure()
        finally:
            reader.close()
            self.end()

    def _next(self, reader: pa.RecordBatchReader) -> pa.RecordBatch | None:
        self._waits = True
        try:
            return reader.read_next_batch()
        except StopIteration:
            return None
        except (pa.ArrowInvalid, OSError) as error:
            self._raise_failure()
            raise InvariantError("the results of the statement are cut off") from error
        finally:
            self._waits = False

    def _raise_failure(self) -> None:
        """Wait until it is known how the child ended; raise why, if it failed."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        if not self._is_finished:
            raise _ended(self._process.wait() if self._process else 0)

    def end(self) -> None:
        """End the child and all threads, whatever they do; remove what is in scratch."""
        if self._process is not None:
            self._process.end()
        if self._thread.is_alive():
            self._thread.join()
        for feed in self._feeds:
            feed.join()
        self._held.close()
        self._channel.close()
        self._source.close()
        self._folder.cleanup()

    def _serve(self) -> None:
        """Answer the child until it ends; runs in a thread of its own."""
        try:
            while not self._is_finished:
                self._check_limits()
                ready, _, _ = select.select([self._channel], [], [], _LOOK_SECONDS)
                if ready and not self._answered():
                    break
        except BaseException as error:  # raised again where results are taken, which wait for it
            self._fail(error)

    def _answered(self) -> bool:
        """Answer one message; return whether there was one."""
        try:
            received = protocol.receive(self._channel)
        except ConnectionError:
            received = None
        if received is None:
            return False
        message, descriptors = received
        match message:
            case protocol.ScanRows():
                feed = threading.Thread(
                    target=self._feed, args=(message, *descriptors), daemon=True
                )
                self._feeds.append(feed)
                feed.start()
            case protocol.FindTables():
                schemas = {
                    each.name: self._tables.find(each).to_json() for each in message.references
                }
                protocol.send(self._channel, protocol.Tables(schemas))
            case protocol.FindFiles():
                protocol.send(self._channel, protocol.Files(self._files(message.scans)))
            case protocol.Explain() if isinstance(self._tables, Tables):
                readings = tuple(explain(self._tables, each) for each in message.scans)
                protocol.send(self._channel, protocol.Explained(readings))
            case protocol.Failed():
                # A child that misses rows says so before it is killed: why they are missing counts.
                self._failure = self._failure or _failure(message)
                self._is_finished = True
            case protocol.Finished():
                self._is_finished = True
        return True

    def _files(self, scans: Sequence[protocol.ScanRows]) -> dict[str, protocol.LinkedFiles]:
        """Return the files of scans that can read them themselves. The child asks for all scans of
        its plan that are not bounded, before it reads any.
        """
        tables = self._tables
        if not isinstance(tables, Tables):
            return {}
        check_reads(tables, scans, self._limits)
        found = {
            each.name: linked_files(tables, each, self._held)
            for each in scans
            if not tables.find_first(each.name, each.scan)
        }
        return {name: files for name, files in found.items() if files is not None}

    def _feed(self, asked: protocol.ScanRows, descriptor: int) -> None:
        """Write the rows of a scan into a pipe, until nobody reads them any more."""
        with suppress(BrokenPipeError), os.fdopen(descriptor, "wb") as sink:
            try:
                with suppress(OSError, ImportError):
                    _enlarge(descriptor)
                schema, batches = self._tables.rows(asked.name, asked.scan)
                writer = pa.ipc.new_stream(sink, schema)
                for batch in batches:
                    writer.write_batch(batch)
                    sink.flush()
                writer.close()
            except BrokenPipeError:
                raise
            except BaseException as error:  # raised again where results are taken
                self._fail(error)  # before the pipe is closed: the child would know less of it

    def _fail(self, error: BaseException) -> None:
        """Keep the first failure, and end the child."""
        if self._failure is None and not self._is_finished:
            self._failure = error
        if self._process is not None:
            self._process.kill()

    def _check_limits(self) -> None:
        """Count the time that the caller waits; refuse a child that takes too much, or that who
        runs it ends.

        Raises:
            LimitExceededError: it does.
        """
        now_ms = self._clock.now_ms()
        self._waited_ms += now_ms - self._looked_ms if self._waits else 0
        self._looked_ms = now_ms
        if self._waited_ms > self._limits.timeout_seconds * 1000:
            raise LimitExceededError(
                f"the statement took longer than {self._limits.timeout_seconds:g} seconds",
                hint="ask for less at once, or give it more time",
            )
        most = self._limits.memory_bytes + _OVERHEAD_BYTES
        if self._process is not None and _resident_bytes(self._process.pid) > most:
            raise LimitExceededError(
                f"the statement took more than {most // 2**20:,} MiB of memory",
                hint="ask for less at once, or give it more memory",
            )
        if self._watch is not None and now_ms - self._watched_ms >= WATCH_MS:
            self._watched_ms = now_ms
            self._watch(self._tables.read_so_far())


def _resident_bytes(pid: int) -> int:
    """Return the memory of a process; 0 where the system does not say."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return int(fields[1]) * _PAGE_BYTES


def _enlarge(descriptor: int) -> None:
    """Let a pipe hold more, where that can be set."""
    from fcntl import F_SETPIPE_SZ, fcntl

    fcntl(descriptor, F_SETPIPE_SZ, _PIPE_BYTES)


def _failure(message: protocol.Failed) -> DormouseError:
    """Return the error that the child had."""
    kind: Any = getattr(errors, message.error, None)
    if not (isinstance(kind, type) and issubclass(kind, DormouseError)):
        kind = InvariantError
    return kind(message.message, hint=message.hint)  # type: ignore[no-any-return]


def _ended(code: int) -> DormouseError:
    """Return the error for a child that ended without a word."""
    if code == -signal.SIGXCPU:  # SIGXCPU: the kernel's own limit of CPU time
        return LimitExceededError(
            "the statement took more CPU time than it may", hint="give it more time"
        )
    how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    return LimitExceededError(
        f"the process that computes the statement was ended {how}",
        hint="the statement may be nested too deeply, or need too much memory: make it simpler",
    )
