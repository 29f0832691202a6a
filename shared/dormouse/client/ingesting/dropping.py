"""Drop files into the ingest bucket: their keys, the upload, and the wait for their rows."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from dormouse.client.table import TableHandle
from dormouse.client.waiting import FILE_QUEUES, WAIT_SECONDS, Watch, source_names
from dormouse.errors import InvalidRequestError, NotFoundError, RefusedSourceError
from dormouse.features.ingest.known_sources import (
    ids_of,
    look_up_sources,
    refusal_of,
    remembered_ids,
)
from dormouse.model.sources import (
    NO_FILES,
    TEXT_ENDINGS,
    Source,
    format_of,
    is_file,
    table_name_of,
    with_on_error,
)
from dormouse.model.state import TableState
from dormouse.ports.services import NO_TABLE, JobRecord, Services
from dormouse.sources.frames import Frame, how_to_frame
from dormouse.sources.path_columns import folder_prefix
from dormouse.statestore.source_lookup import ingested_of
from dormouse.tables.table import Table

MAX_NAMED = 10
"""How many files an error names."""
_PATTERN = re.compile(r"[*?\[]")
Ingestible = Frame | str | Path | Iterable[str | Path]
"""A frame; or a file, a folder or a pattern of files; or several of these."""


def paths_of(what: object) -> list[str | Path]:
    """Return the paths that were given: one, or several.

    Raises:
        InvalidRequestError: something else was given.
    """
    if isinstance(what, str | Path):
        return [what]
    if hint := how_to_frame(what):
        raise InvalidRequestError(f"a {type(what).__name__} is no frame", hint=hint)
    given = what if isinstance(what, Iterable) and not isinstance(what, Mapping) else [what]
    paths: list[str | Path] = []
    for path in given:
        if not isinstance(path, str | Path):
            raise InvalidRequestError(
                f"values of type {type(path).__name__} cannot be ingested",
                hint="give a frame that speaks Arrow, or paths of files; rows become one by "
                "pyarrow.Table.from_pylist(rows), columns by pyarrow.table(columns), batches by "
                "pyarrow.RecordBatchReader.from_batches(schema, batches); single rows go to `with "
                "table.writer() as w: w.write(row)`",
            )
        paths.append(path)
    if not paths and isinstance(what, Iterator):
        raise InvalidRequestError(
            f"the {type(what).__name__} has no paths: it was read before, or is empty",
            hint="an iterator is read once: make it again, or give a list",
        )
    return paths


@contextmanager
def local_copies(
    paths: Sequence[str | Path], scratch: str | Path | None = None
) -> Iterator[list[str | Path]]:
    """Yield paths of files here, with copies of what is named by a URL such as ``s3://other/a.csv``
    or ``s3://other/folder``; the copies are removed in the end.

    Raises:
        NotFoundError: there is nothing at a URL.
        InvalidRequestError: it cannot be read.
    """
    # a name that begins with a dot is in no key, so the same URL has the same key again
    with tempfile.TemporaryDirectory(prefix=".copies-", dir=scratch) as folder:
        yield [_copy(path, Path(folder)) if "://" in str(path) else path for path in paths]


def _copy(url: str | Path, folder: Path) -> Path:
    try:
        remote, at = fs.FileSystem.from_uri(str(url))
        is_there = remote.get_file_info(at).type is not fs.FileType.NotFound
        local = folder / at.lstrip("/")
        local.parent.mkdir(parents=True, exist_ok=True)
        if is_there:
            fs.copy_files(at, str(local), source_filesystem=remote)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidRequestError(f"{str(url)!r} cannot be read: {error}") from error
    if not is_there:
        raise NotFoundError(f"there is nothing at {str(url)!r}")
    return local


def files_to_drop(table_name: str, paths: Iterable[str | Path]) -> list[tuple[str, Path]]:
    """Return the key of each file in the ingest bucket, in the table's folder there.

    A file has its own name, or if others have that too, the path that was given. A folder means all
    files below it, each named by its path in the folder; a pattern, such as ``data/*/*.parquet``,
    the files that fit it, each named by its path below the folder before the first star. What is
    no file by its name (`is_file`), such as ``_SUCCESS``, is left out, also if a shell named it.
    Folders above a file that are called ``column=value`` stay in its name, which gives its rows
    that value.

    Raises:
        NotFoundError: a file does not exist, a folder has none, none fits a pattern, or all that
            was given is left out.
        InvalidRequestError: two files have the same name, and were given by the same path.
        RefusedSourceError: a name is refused as a key, or its ending is no known format.
    """
    given = [Path(path) for path in paths]
    found = [(name, file) for path in given for name, file in _files(path)]
    if given and not found:
        named = ", ".join(repr(str(path)) for path in given[:MAX_NAMED])
        raise NotFoundError(f"there is no file to ingest among {named}", hint=NO_FILES)
    shared = _repeated(name for name, _ in found)
    found = [(_given(file) if name in shared else name, file) for name, file in found]
    if twice := _repeated(name for name, _ in found):
        raise InvalidRequestError(
            f"several files are called {', '.join(sorted(twice))}",
            hint="ingest them one after the other, or under different names",
        )
    return [(ingest_key(table_name, name), path) for name, path in found]


def _repeated(names: Iterable[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


def _given(path: Path) -> str:
    """Return a path as it was given, as the name of an object: from no root, and without folders
    such as ``..`` and ``.cache`` that would make it no file.
    """
    return "/".join(part for part in path.parts if part != path.anchor and is_file(part))


def _files(path: Path) -> list[tuple[str, Path]]:
    """Return the files that a path means, in order, each with its name below the table's folder."""
    if path.is_file():
        name = folder_prefix(path.parent) + path.name
        return [(name, path)] if is_file(name) else []
    if path.is_dir():
        files = _below(path, path.rglob("*"))
        if not files:
            raise NotFoundError(f"there are no files in the folder {str(path)!r}", hint=NO_FILES)
        return files
    plain = takewhile(lambda part: not _PATTERN.search(part), path.parts)
    folder = Path(*plain)
    if folder == path:
        raise NotFoundError(f"there is no file {str(path)!r}")
    files = _below(folder, folder.glob(str(path.relative_to(folder))))
    if not files:
        raise NotFoundError(f"no file fits {str(path)!r}", hint=NO_FILES)
    return files


def _below(folder: Path, paths: Iterable[Path]) -> list[tuple[str, Path]]:
    own = folder_prefix(folder)
    named = sorted((path.relative_to(folder), path) for path in paths if path.is_file())
    found = [(own + name.as_posix(), path) for name, path in named]
    return [(name, path) for name, path in found if is_file(name)]


def ingest_key(table_name: str, name: str) -> str:
    """Return the key to drop a file of this name under.

    Raises:
        RefusedSourceError: the key would be refused, as one with ``..`` or control characters, or
            ignored, or the ending of the name is no known format.
    """
    key = f"{table_name}/{name}"
    table_name_of(key)
    if not is_file(key):
        raise RefusedSourceError(f"{name!r} would be ignored", hint=NO_FILES)
    format_of(key)
    return key


def check_on_error(on_error: str | None, keys: Sequence[str]) -> None:
    """Check that rows of these files, or of a frame if there are none, can be skipped if asked.

    Raises:
        InvalidRequestError: they cannot, or another word was given.
    """
    if on_error not in (None, "refuse", "skip"):
        raise InvalidRequestError(f"on_error is refuse or skip, not {on_error!r}")
    others = [key for key in keys if format_of(key)[0] not in TEXT_ENDINGS]
    if on_error == "skip" and (others or not keys):
        named = repr(others[0].partition("/")[2]) if others else "a frame"
        raise InvalidRequestError(
            f"rows of {named} cannot be skipped",
            hint="rows of CSV and JSON files can; in other files, values have types",
        )


def drop_files(
    handle: TableHandle,
    files: Sequence[tuple[str, Path]],
    again: bool,
    watch: Callable[[Source], None] | None,
    *,
    once: bool = False,
    on_error: str | None = None,
) -> Ingested:
    """Upload files under their keys; `again`, in a folder of their own below that of the table.

    With `once`, an object that has such a key already is kept, and taken for the file. `on_error`
    says what becomes of rows that cannot be read, if not the table does.
    """
    before = handle.state()  # before the upload: a file may be ingested at once
    own = f"{handle.name}/"
    beside = f"{own}again-{handle.services.ids.new()}/" if again else own
    sources = []
    for key, local in files:
        dropped = beside + key.removeprefix(own)
        dropped = with_on_error(dropped, on_error) if on_error else dropped
        sources.append(handle.bucket.drop(dropped, local, once=once))
        if watch is not None:
            watch(sources[-1])
    known = _ingested_before(handle.services, handle.current(), before, sources)
    return Ingested(handle, tuple(sources), known)


def _ingested_before(
    services: Services, table: Table, before: TableState, sources: Sequence[Source]
) -> frozenset[str]:
    """Return the ids of dropped sources which the table had ingested at an earlier state of it."""
    if not len(before.sources) and not before.all_source_segments:
        return frozenset()
    named = remembered_ids(table, sources)
    try:
        found = ingested_of(services.storage, table.id, before, named)
    except NotFoundError:  # segments were merged since; few files are ingested that quickly
        return look_up_sources(services, table, sources).ids
    return ids_of(named, found)


@dataclass(frozen=True, slots=True, repr=False)
class Ingested:
    """Files on their way into a table."""

    handle: TableHandle
    sources: tuple[Source, ...]
    known: frozenset[str] = frozenset()
    """The ids of those sources that were rows of the table before: they add nothing."""

    def __repr__(self) -> str:
        """Return how many files there are, and how many of them add nothing."""
        files = f"{len(self.sources)} file{'s'[: len(self.sources) != 1]} for {self.handle.name}"
        return f"Ingested({files}{f', {len(self.known)} known' if self.known else ''})"

    def wait(self, timeout_seconds: float = WAIT_SECONDS, *, watch: Watch | None = None) -> None:
        """Wait until each file is ingested or refused.

        Raises:
            RefusedSourceError: some were refused, and why; the others are ingested.
            NotFoundError: the table was deleted.
            TimedOutError: some were neither after `timeout_seconds`.
            DeadLetterError: only a dead letter is left of some.
        """
        refused: dict[str, JobRecord] = {}
        left = list(self.sources)
        services = self.handle.services

        def _deciding(table: Table, source: Source) -> list[str]:
            """Return the tables that may have refused a file: if its folder is not called after
            the table any more, nobody's, or the one that is called so now.
            """
            name = table_name_of(source.key)
            other = None if name == table.name else services.tables.named(name)
            beside = [] if name == table.name else [NO_TABLE, *([other.id] if other else [])]
            return [table.id, *beside]

        def look() -> int:
            table = self.handle.current()
            left[:] = look_up_sources(services, table, left).fresh(left)
            refusals = ((s.id, refusal_of(services, s, *_deciding(table, s))) for s in left)
            found = {source: record for source, record in refusals if record is not None}
            left[:] = [s for s in left if s.id not in found]
            refused.update(found)
            return len(left)

        polling = self.handle.polling
        awaited = polling.awaited(self.handle, lambda: source_names(left), FILE_QUEUES)
        polling.until_nothing(look, timeout_seconds=timeout_seconds, watch=watch, awaited=awaited)
        if refused:
            raise RefusedSourceError(
                "\n".join(f"{r.subject} was refused: {r.reason}" for r in refused.values())
            )
