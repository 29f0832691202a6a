"""Kinds of objects that are put once and verified when they are read."""

from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from dormouse.errors import NotFoundError
from dormouse.ports import Storage
from dormouse.stored import checksums, decoding

FORMAT = 1
_Form = TypeVar("_Form", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Kind(Generic[_Form]):
    """A kind of stored object: its name in messages, its form, and what to do about a damaged
    one.
    """

    name: str
    form: type[_Form]
    hint: str = ""

    def encode(self, body: _Form, path: str) -> bytes:
        """Return the stored form of an object, for `path`."""
        return decoding.encode_stored(self.name, FORMAT, path, body)

    def decode(self, content: bytes, path: str) -> _Form:
        """Parse the result of `encode`.
        Raises CorruptDataError: the object at `path` is damaged, or is of another kind.
        """
        with decoding.raise_corrupt(f"{path} is not {self.name}", hint=self.hint):
            return decoding.decode_stored(self.name, FORMAT, path, content, self.form)

    def put(self, storage: Storage, path: str, body: _Form) -> bool:
        """Put the object; return False if there is one already, which stays."""
        return storage.put(path, self.encode(body, path))

    def save(self, storage: Storage, path: str, body: _Form) -> _Form:
        """Put the object; return the one that was put first. If that is gone by now, return this
        one: the job has ended.
        Raises CorruptDataError: the one that was put first is damaged.
        """
        return body if self.put(storage, path, body) else self.get(storage, path) or body

    def get(self, storage: Storage, path: str) -> _Form | None:
        """Return the object at a path; None if there is none.
        Raises CorruptDataError: the object is damaged.
        """
        try:
            return self.decode(storage.get(path), path)
        except NotFoundError:
            return None


class _Sealed(msgspec.Struct, frozen=True):
    v: int


class ManifestKind(Kind[_Form]):
    """A kind of object that others read too: the fields of its form as JSON, then the number of the
    format, and a checksum of all other bytes.
    """

    def encode(self, body: _Form, path: str) -> bytes:
        """Return the stored form of a manifest, which is the same for each path."""
        fields = msgspec.json.encode(body)
        end = msgspec.json.encode({"v": FORMAT, "checksum": checksums.BLANK})
        return decoding.with_checksum(msgspec.json.format(fields[:-1] + b"," + end[1:], indent=2))

    def decode(self, content: bytes, path: str) -> _Form:
        """Parse the result of `encode`.
        Raises CorruptDataError: the object at `path` is damaged, or is no manifest.
        """
        with decoding.raise_corrupt(f"{path} is not {self.name}", hint=self.hint):
            checksums.verify(content)
            decoding.check_format(decoding.decode_json(content, _Sealed).v, FORMAT)
            return decoding.decode_json(content, self.form)


class ResultFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of rows that a manifest lists; `name` is relative to the manifest."""

    name: str
    rows: int
    size_bytes: int


def list_jobs(
    storage: Storage, prefix: str, before_ms: float = float("inf")
) -> tuple[dict[str, int], list[str]]:
    """Return when the jobs that are stored below a prefix were requested, by their ids, and the
    paths of leftovers: parts, from up to a time, of jobs that have ended, or never began.

    The request of a job is ``<prefix><id>.json``, its parts are below ``<prefix><id>/``.
    """
    requests: dict[str, int] = {}
    parts: list[tuple[str, str]] = []
    for item in storage.list(prefix):
        job_id, slash, _ = item.path.removeprefix(prefix).partition("/")
        if not slash:
            requests[job_id.removesuffix(".json")] = item.modified_ms
        elif item.modified_ms <= before_ms:
            parts.append((job_id, item.path))
    return requests, [path for job_id, path in parts if job_id not in requests]


def delete_below(storage: Storage, prefix: str) -> None:
    """Delete all objects of the parts of a job."""
    storage.delete([item.path for item in storage.list(prefix)])
