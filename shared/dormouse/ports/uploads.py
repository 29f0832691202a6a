"""The upload of a local file as an object, begun while the file is still being written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class Upload(Protocol):
    """The upload of a local file to a path; the object exists once `complete` has stored it.

    A crash before that leaves at most an `UnfinishedUpload`, which is no object and is aborted
    later. End each upload with `complete` or `abort`.
    """

    def advance(self, final_bytes: int) -> None:
        """Note that the first `final_bytes` of the file exist and will not change.

        They may be sent in the background; an error of that is raised here or by `complete`.
        """

    def complete(self) -> bool:
        """Store the file, which is now whole, as an object if there is none at its path.

        Return whether it was stored; if not, nothing is changed. What was sent is deleted unless
        it was stored.
        """

    def abort(self) -> None:
        """Delete what was sent; the object will not exist. Does nothing after `complete`."""


@dataclass(frozen=True, slots=True)
class UnfinishedUpload:
    """An upload that was begun and neither completed nor aborted; `id` is the storage's own."""

    path: str
    id: str
    started_ms: int


class Uploads(Protocol):
    """What a data root does with local files."""

    def upload(self, path: str, local: Path) -> bool:
        """Store a local file as `put` does, without loading it into memory.

        The file must not be changed any more: it may be another name of the object from now on.
        """

    def start_upload(self, path: str, local: Path) -> Upload:
        """Start to upload a local file that is still being written."""

    def list_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        """Yield the uploads to paths that begin with `prefix` which are not finished."""

    def abort_uploads(self, uploads: Iterable[UnfinishedUpload]) -> None:
        """Delete what was sent of uploads; those that were finished meanwhile are left alone."""


class WholeUpload:
    """An upload that sends nothing before the file is whole: to a disk or memory of this machine.

    So it leaves nothing unfinished but what `upload` of its storage itself leaves.
    """

    def __init__(self, storage: Uploads, path: str, local: Path) -> None:
        """Upload `local` to `path` by the storage's `upload`."""
        self._storage, self._path, self._local = storage, path, local

    def advance(self, final_bytes: int) -> None:
        """Do nothing."""

    def complete(self) -> bool:
        """Store the file if there is no object at its path; return whether it was stored."""
        return self._storage.upload(self._path, self._local)

    def abort(self) -> None:
        """Do nothing: nothing was sent."""
