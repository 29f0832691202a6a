"""Ingested objects: what they are called, which table they belong to, and what identifies them."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated

import msgspec

from dormouse.errors import RefusedSourceError

READ_ENDINGS = (".parquet", ".csv", ".json", ".jsonl", ".ndjson")
"""How the names of files end that can become rows; `format_of` knows what may follow."""
_ENDINGS_HINT = (
    "files end in .parquet, .csv, .json, .jsonl or .ndjson, and in .gz after that if gzipped"
)
WholeNumber = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
ObjectKey = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
ObjectTag = Annotated[str, msgspec.Meta(max_length=1024)]
"""Keys, and ETags and version ids, no longer than those of S3."""


@dataclass(frozen=True, slots=True)
class Source:
    """One object dropped into the ingest bucket, in one version of its content.

    Bucket, key and ETag identify it: the same content dropped again under the same key is the same
    source, and is ingested once. `version` is its version id where that is known, else empty. It
    helps to download the object and is no part of its identity, since a notification of a versioned
    bucket names it and a listing does not: both must mean the same source. Nor is `dropped_ms`,
    when the object was put by the clock of S3, which a notification says, and 0 where nobody does.
    `again` is the request that means to have it once more: so it is another source for each such
    request.
    """

    bucket: str
    key: ObjectKey
    etag: ObjectTag
    size_bytes: WholeNumber
    version: ObjectTag = ""
    again: ObjectTag = ""
    dropped_ms: WholeNumber = 0

    @property
    def id(self) -> str:
        """The 32 hex digits under which the table remembers having ingested it."""
        again = (self.again,) if self.again else ()
        parts = "\0".join((self.bucket, self.key, self.etag, *again))
        return blake2b(parts.encode(), digest_size=16).hexdigest()


def table_name_of(key: str) -> str:
    """Return the name of the table whose folder an ingest key lies in.

    Raises:
        RefusedSourceError: the key climbs (``..``), holds control characters, or has no folder.
    """
    name, slash, rest = key.partition("/")
    if not slash or not name or not rest or rest.endswith("/"):
        raise RefusedSourceError(
            f"the key {key!r} names no table", hint="drop files under <table name>/"
        )
    if ".." in key.split("/"):
        raise RefusedSourceError(f"the key {key!r} has '..' in it")
    if any(ord(c) < 32 or ord(c) == 127 for c in key):
        raise RefusedSourceError(f"the key {key!r} has control characters in it")
    return name


def format_of(key: str) -> tuple[str, bool]:
    """Return which of `READ_ENDINGS` a key has, in small letters, and whether it is gzipped.

    Raises:
        RefusedSourceError: it has none, so that nobody would read it.
    """
    name = key.rpartition("/")[2].lower()
    plain = name.removesuffix(".gz")
    for ending in READ_ENDINGS:
        if plain.endswith(ending):
            return ending, plain != name
    raise RefusedSourceError(f"{name!r} is of no known format", hint=_ENDINGS_HINT)


def job_id_of(sources: tuple[Source, ...], generation: int = 0) -> str:
    """Return the id of the ingest job of just these sources, whoever forms it.

    Once its table was emptied, a job of the same sources is another: what is kept of the one by its
    id says nothing of the other.
    """
    parts = "".join(sorted(s.id for s in sources)) + (f" {generation}" if generation else "")
    return blake2b(parts.encode(), digest_size=16).hexdigest()
