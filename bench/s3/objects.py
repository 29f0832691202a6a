"""Objects as files below a folder, one folder for each bucket, with uploads in parts.

An object appears whole or not at all: its file is written elsewhere and then linked, which fails if
there is one. An input may be a symbolic link to a file that somebody else keeps. Unlike on S3, no
key can begin with that of another object and a slash.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.s3.messages import Refusal

MIN_PART_BYTES = 5 * 1024**2
"""What each part of an upload must have, except the last one."""
_ASIDE = ".uploads"


@dataclass(frozen=True, slots=True)
class Found:
    """An object: its key, file, size, ETag, and the time at which it was written."""

    key: str
    file: Path
    size_bytes: int
    etag: str
    modified_s: float


class Objects:
    """The objects of all buckets, and the uploads in progress; safe for many threads."""

    def __init__(self, root: Path) -> None:
        """Keep buckets in folders below `root`; a folder that is there is a bucket."""
        self._root = root
        self._numbers = itertools.count(1)
        (root / _ASIDE).mkdir(parents=True, exist_ok=True)

    def new_file(self) -> Path:
        """Return where the next body can be kept until it becomes an object or a part."""
        return self._root / _ASIDE / f"body-{next(self._numbers)}"

    def create_bucket(self, bucket: str) -> None:
        """Create a bucket; one that is there is no error."""
        (self._root / bucket).mkdir(exist_ok=True)

    def find(self, bucket: str, key: str) -> Found:
        """Return an object.

        Raises:
            Refusal: there is none.
        """
        file = self._bucket(bucket) / key
        if not file.is_file():
            raise Refusal(404, "NoSuchKey")
        return _found(key, file)

    def list(self, bucket: str, prefix: str, after: str) -> Iterator[Found]:
        """Return the objects whose key begins with `prefix` and follows `after`, in order."""
        top = self._bucket(bucket)
        files = (Path(at, name) for at, _, names in os.walk(top) for name in names)
        keys = sorted(file.relative_to(top).as_posix() for file in files)
        for key in keys:
            if key.startswith(prefix) and key > after:
                yield _found(key, top / key)

    def put(self, bucket: str, key: str, body: Path, *, once: bool) -> Found:
        """Make the file `body` an object; with `once`, only if there is none.

        Raises:
            Refusal: there is one.
        """
        file = self._bucket(bucket) / key
        file.parent.mkdir(parents=True, exist_ok=True)
        if once:
            try:
                file.hardlink_to(body)
            except FileExistsError as error:
                raise Refusal(412, "PreconditionFailed") from error
            finally:
                body.unlink()
        else:
            body.replace(file)
        return _found(key, file)

    def delete(self, bucket: str, key: str) -> None:
        """Delete an object; one that is not there is no error."""
        (self._bucket(bucket) / key).unlink(missing_ok=True)

    def begin(self, bucket: str) -> str:
        """Begin an upload in parts, and return its id."""
        self._bucket(bucket)
        upload = f"upload-{next(self._numbers)}"
        (self._root / _ASIDE / upload).mkdir()
        return upload

    def put_part(self, upload: str, number: int, body: Path) -> Found:
        """Make the file `body` a part of an upload, instead of an earlier one of this number."""
        file = self._upload(upload) / str(number)
        body.replace(file)
        return _found(str(number), file)

    def complete(
        self, bucket: str, key: str, upload: str, parts: Sequence[tuple[int, str]], *, once: bool
    ) -> Found:
        """Make an object of the parts with these numbers and ETags.

        Raises:
            Refusal: a part is missing, another one, or too small, or there is an object already.
        """
        folder = self._upload(upload)
        files = [folder / str(number) for number, _ in parts]
        for file, (_, etag) in zip(files, parts, strict=True):
            if not file.is_file() or _found("", file).etag != etag:
                raise Refusal(400, "InvalidPart")
        if any(file.stat().st_size < MIN_PART_BYTES for file in files[:-1]):
            raise Refusal(400, "EntityTooSmall")
        if [number for number, _ in parts] != sorted({number for number, _ in parts}) or not parts:
            raise Refusal(400, "InvalidPartOrder")
        if once and (self._bucket(bucket) / key).exists():
            raise Refusal(412, "PreconditionFailed")  # the parts stay, as those of S3 do
        whole = self.new_file()
        files[0].rename(whole)
        with whole.open("ab") as target:
            for file in files[1:]:
                with file.open("rb") as source:
                    shutil.copyfileobj(source, target, 1024**2)
        shutil.rmtree(folder)
        return self.put(bucket, key, whole, once=once)

    def abort(self, upload: str) -> None:
        """Delete the parts of an upload."""
        shutil.rmtree(self._upload(upload))

    def _bucket(self, bucket: str) -> Path:
        if not (self._root / bucket).is_dir():
            raise Refusal(404, "NoSuchBucket")
        return self._root / bucket

    def _upload(self, upload: str) -> Path:
        folder = self._root / _ASIDE / upload
        if not upload or not folder.is_dir():
            raise Refusal(404, "NoSuchUpload")
        return folder


def _found(key: str, file: Path) -> Found:
    status = file.stat()
    etag = f'"{status.st_size:x}-{status.st_mtime_ns:x}"'
    return Found(key, file, status.st_size, etag, status.st_mtime)
