"""A data root in a local folder, an implementation of `ports.Storage`; `aws` has the S3 bucket.

``tests/contract/test_storage.py`` tests what both promise.
"""

import errno
import io
import os
import re
import shutil
import stat
from abc import abstractmethod
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from dormouse.errors import DiskFullError, InvalidRequestError, NotFoundError, UnavailableError
from dormouse.ports import Storage, StoredObject, Upload, WholeUpload
from dormouse.system import OwnFolder

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


INCOMING = ".incoming"
"""The folder of files that are not whole yet, below the root."""
PIECE_BYTES = 256 * 1024
"""How much of a stream is in memory at a time."""
FULL = (errno.ENOSPC, errno.EDQUOT)
"""The errors of a disk without room, for anybody or for this user."""
FREE_SPACE = "free some space on it; what was begun goes on then, and nothing is done twice"
UNLINKABLE = (errno.EXDEV, errno.EMLINK, errno.EPERM, errno.ENOTSUP)
"""The errors of a file that cannot have another name there, but can be copied."""
_UNWRITABLE = (
    *(errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTSUP),
    *(errno.ENAMETOOLONG, errno.EISDIR),
)
_NO_FILE = (errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ENXIO, errno.ELOOP)
"""The errors of nothing, a folder, a socket, or a link to itself in the place of a file."""
_LINK_ATTEMPTS = 10
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\\]")
_NO_PARTS = {"", ".", ".."}


FILE_SCHEME = "file://"


def root_uri(storage: Storage) -> str:
    """Return the URI of a data root as published metadata has it, without a slash at its end.

    A folder's has the scheme: of the readers of Iceberg some refuse a bare path, and all take the
    scheme. Nothing is escaped, since they escape nothing.
    """
    uri = storage.uri.rstrip("/")
    return uri if "://" in uri else f"{FILE_SCHEME}{uri}"


def check_path(path: str) -> str:
    """Return `path` if it names an object below a data root.
    Raises InvalidRequestError: it is empty or absolute, contains ``..`` or empty parts, or has
    backslashes or control characters.
    """
    if not _NO_PARTS.isdisjoint(path.split("/")):
        raise InvalidRequestError(
            f"{path!r} is not a path below the data root",
            hint="paths are relative, with single slashes, and without '.' and '..'",
        )
    return _check_characters(path)


def check_prefix(prefix: str) -> str:
    """Return `prefix` if it can begin paths below a data root. Raises InvalidRequestError."""
    *folders, _ = prefix.split("/")
    if folders:
        check_path("/".join(folders))
    return _check_characters(prefix)


def _check_characters(text: str) -> str:
    if _FORBIDDEN.search(text):
        raise InvalidRequestError(f"{text!r} contains backslashes or control characters")
    return text


def read_pieces(file: BinaryIO, start: int, end: int) -> Iterator[bytes]:
    """Yield the bytes of a file from `start` up to `end`, or fewer if it is shorter."""
    file.seek(start)
    rest = end - start
    while rest and (piece := file.read(min(rest, PIECE_BYTES))):
        rest -= len(piece)
        yield piece


class FolderStorage(Storage):
    """A data root in a local folder, safe for many threads and processes.

    An object is written to a temporary file, flushed to disk, and then linked to its name. So
    readers see all of it or nothing, and one of several writers wins. A crash leaves at most a file
    in ``.incoming``.
    """

    def __init__(self, root: Path) -> None:
        """Use the folder `root`, which is created with the first object."""
        self._root = root.resolve()

    @property
    def uri(self) -> str:
        """The path of the folder."""
        return str(self._root)

    def get(self, path: str) -> bytes:
        """Return a whole object. Raises NotFoundError."""
        with self._opened(path) as file:
            return file.read()

    def put(self, path: str, body: bytes) -> bool:
        """Store an object if its path is free; otherwise return False and change nothing."""
        return self._create(path, io.BytesIO(body))

    def upload(self, path: str, local: Path) -> bool:
        """Store a local file as `put` does: as another name of it, or a copy from another disk."""
        target = self._file(path)
        if target.exists():
            return False
        try:
            with writing_files(self._root):
                flush(local)
                return _link(local, target)
        except OSError as error:
            if error.errno not in UNLINKABLE:
                raise
        with local.open("rb") as content:
            return self._create(path, content)

    def start_upload(self, path: str, local: Path) -> Upload:
        """Return an upload that stores the file when it is whole: the disk is near."""
        self._file(path)
        return WholeUpload(self, path, local)

    @property
    def is_remote(self) -> bool:
        """Return False: a read takes less time than to hand it to another thread."""
        return False

    def open(self, path: str, size_bytes: int) -> BinaryIO:
        """Open an object to seek and read. Raises NotFoundError."""
        return self._opened(path)

    def stream(self, path: str, size_bytes: int, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes of an object from `start` up to `end`, piece by piece."""
        with self.open(path, size_bytes) as file:
            yield from read_pieces(file, start, end)

    def link(self, path: str, local: Path) -> bool:
        """Make `local` a second name of an object's file; False if it is on another disk."""
        with self._opened(path), _looking_for(path):
            try:
                os.link(self._file(path), local)
            except OSError as error:
                if error.errno in UNLINKABLE:
                    return False
                raise
        return True

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects whose path begins with `prefix`, in path order.
        Raises UnavailableError: a folder cannot be read, so what is in it is unknown.
        """
        check_prefix(prefix)
        folder = self._root / prefix.rpartition("/")[0]
        objects: list[StoredObject] = []
        for directory, folders, files in os.walk(folder, onerror=_check_listed):
            if Path(directory) == self._root and INCOMING in folders:
                folders.remove(INCOMING)
            below = Path(directory).relative_to(self._root).as_posix()
            for name in files:
                path = name if below == "." else f"{below}/{name}"
                if path.startswith(prefix) and (stored := self._stored(path)):
                    objects.append(stored)
        yield from sorted(objects, key=lambda item: item.path)

    def folders(self, below: str = "") -> Iterator[str]:
        """Yield the folders of a folder that hold anything, in order."""
        paths = (self._root / check_prefix(below)).glob("*")
        inner = sorted(path for path in paths if path.name != INCOMING)
        yield from (path.name for path in inner if any(each.is_file() for each in path.rglob("*")))

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; missing ones are ignored. Folders that are empty then go with them."""
        for path in paths:
            with suppress(IsADirectoryError, NotADirectoryError):  # then there is no object
                self._file(path).unlink(missing_ok=True)
        for folder in sorted({self._file(path).parent for path in paths}, reverse=True):
            self._remove_if_empty(folder)

    def _opened(self, path: str) -> BinaryIO:
        with _looking_for(path):
            return _StoredFile(self._place(path), opener=regular_file)

    def _file(self, path: str) -> Path:
        return Path(self._place(path))

    def _place(self, path: str) -> str:
        if check_path(path).partition("/")[0] == INCOMING:
            raise InvalidRequestError(f"{path!r} is in the folder of unfinished objects")
        return f"{self._root}/{path}"  # a Path takes longer to make than a file to open

    def _create(self, path: str, content: BinaryIO) -> bool:
        target = self._file(path)
        if target.exists():
            return False
        incoming = self._root / INCOMING
        with writing_files(self._root):
            incoming.mkdir(parents=True, exist_ok=True)
            with OwnFolder(dir=incoming) as own:
                # Not a temporary file, which nobody else may read: the umask says who may.
                aside = Path(own) / "object"
                with aside.open("xb") as file:
                    shutil.copyfileobj(content, file, 1 << 20)
                    file.flush()
                    os.fsync(file.fileno())
                return _link(aside, target)

    def _remove_if_empty(self, folder: Path) -> None:
        """Remove a folder and those above it that hold nothing; others may be quicker."""
        while folder != self._root:
            try:
                folder.rmdir()
            except OSError:  # it holds something, or is gone
                return
            folder = folder.parent

    def _stored(self, path: str) -> StoredObject | None:
        try:
            with _looking_for(path):
                status = (self._root / path).stat()
        except NotFoundError:  # deleted while the folder was walked
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        return StoredObject(path, status.st_size, status.st_mtime_ns // 1_000_000)


def _link(file: Path, target: Path) -> bool:
    """Link a file to its name, durably; return whether the name was free.

    Others may remove the folder at any time while it is empty.
    Raises UnavailableError: others did so every time.
    """
    for _ in range(_LINK_ATTEMPTS):
        with suppress(FileNotFoundError):
            _make_folder(target.parent)
        try:
            os.link(file, target)
        except FileExistsError:
            return False
        except FileNotFoundError:
            continue
        flush(target.parent)
        return True
    raise UnavailableError(f"{target.parent} is removed by others all the time; try again")


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, whose names last as that of what will be put there."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        flush(folder.parent)


@contextmanager
def writing_files(root: Path) -> Iterator[None]:
    """Raise what the file system of the folder `root` refuses as errors that say what to do.

    Raises:
        DiskFullError: the disk is full.
        InvalidRequestError: files cannot be written, or not linked, there.
    """
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise DiskFullError(f"the disk of {root} is full", hint=FREE_SPACE) from error
        if error.errno in _UNWRITABLE:
            raise InvalidRequestError(
                f"no file can be written in {root}: {error.strerror}",
                hint="see that you may write there, that the file system has hard links, and that "
                "the name is short enough and free",
            ) from error
        raise


def regular_file(path: str | Path, flags: int) -> int:
    """Open a file; of a pipe or a device, which has no end, raise what a folder raises."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise IsADirectoryError(errno.EISDIR, "it is no file", str(path))
    return descriptor


def flush(path: Path) -> None:
    """Make the content of a file, or the names in a folder, survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _looking_for(path: str) -> Iterator[None]:
    """Raise what keeps an object from being opened as errors that say so."""
    try:
        yield
    except PermissionError as error:
        raise _unreadable(error) from error
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        raise NotFoundError(f"there is no object {path!r}") from error


def _unreadable(error: OSError) -> UnavailableError:
    """Return the error of a file or folder that this user may not read."""
    return UnavailableError(
        f"{error.filename} cannot be read: {error.strerror}",
        hint="see that you may read all files and folders of the instance",
    )


def _check_listed(error: OSError) -> None:
    """Raise what kept a folder from being listed, unless it is gone, or cannot be there."""
    if isinstance(error, PermissionError):
        raise _unreadable(error) from error
    is_missing = isinstance(error, FileNotFoundError | NotADirectoryError)
    if not is_missing and error.errno != errno.ENAMETOOLONG:
        raise error


class ReadOnlyFile(io.RawIOBase):
    """A file with a position, that can only be read; a subclass has `read`, or `readinto`."""

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Read into a buffer; return how many bytes."""
        view = memoryview(buffer).cast("B")
        body = self.read(len(view)) or b""
        view[: len(body)] = body
        return len(body)


class _StoredFile(io.FileIO):
    """A file of which all that is asked for is read, and no more, as a buffer would."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next bytes, `size` unless the file ends."""
        body = super().read(size)
        while size and 0 < len(body) < size and (more := super().read(size - len(body))):
            body += more
        return body


class SeekableFile(ReadOnlyFile):
    """A file of a known size with a position, `_at`; a subclass reads from there, and moves it."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes, self._at = size_bytes, 0

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position of the next read, and return it. Raises ValueError if it is negative."""
        starts = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size_bytes}
        at = starts[whence] + offset
        if at < 0:
            raise ValueError(f"cannot seek to {at}")
        self._at = at
        return at


class WrappedFile(ReadOnlyFile):
    """A file around another one; a subclass says what else a read does."""

    def __init__(self, file: BinaryIO) -> None:
        """Read `file`, and close it with this one."""
        self._file = file

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._file.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position of the next read, and return it."""
        return self._file.seek(offset, whence)

    @abstractmethod
    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, at most `size`."""

    def close(self) -> None:
        """Close both files."""
        self._file.close()
        super().close()


# Readahead: make the next items of a stream on another thread while the current one is used.
#
# Merging and writing both release the interpreter's lock, so one compaction uses two cores.

_Item = TypeVar("_Item")

DEPTH = 4
"""How many items are made ahead; an item is usually one batch, which is small."""


def read_ahead(items: Iterable[_Item]) -> Generator[_Item, None, None]:
    """Yield `items` in their order; an error while an item is made is raised when that item is due.

    If it is closed early, making items ends, too: a generator that makes them is closed.
    """
    source = iter(items)
    try:
        yield from _next(source)  # of few rows it is all there is: no thread is begun for these
        second = _next(source)
    except BaseException:
        _close(source)
        raise
    if not second:
        return
    with ThreadPoolExecutor(1) as thread:
        pending: deque[Future[list[_Item]]] = deque()
        try:
            for _ in range(DEPTH):
                pending.append(thread.submit(_next, source))
            yield from second
            while chunk := pending.popleft().result():
                pending.append(thread.submit(_next, source))
                yield from chunk
        finally:
            for future in pending:
                future.cancel()
            thread.submit(_close, source).result()


def _next(source: Iterator[_Item]) -> list[_Item]:
    """Return the next item in a list; an empty list at the end."""
    for item in source:
        return [item]
    return []


def _close(source: Iterator[_Item]) -> None:
    close = getattr(source, "close", None)
    if close is not None:
        close()
