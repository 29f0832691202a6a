"""Ingested objects: their names, the table they belong to, and their identity."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Annotated

import msgspec

from dormouse.errors import InvalidRequestError, RefusedSourceError
from dormouse.schema.row_tags import row_tags, tags_of, tags_of_key, without_tags
from dormouse.tables.table import Table

TEXT_ENDINGS = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".ndjson")
READ_ENDINGS = (".parquet", ".arrow", ".arrows", ".feather", *TEXT_ENDINGS)
"""The name endings of files that can be ingested; `format_of` says what may follow."""
COMPRESSED_ENDINGS = (".gz", ".bz2", ".zst")
"""What may follow, if the file is compressed."""
_UNFINISHED_OR_MARKER = ("._COPYING_", "_$folder$")
"""How Hadoop names a copy that has not ended, and an object that stands for a folder."""
NO_FILES = (
    "names that begin with a dot, or with an underscore and have no =, are no files, nor is what "
    "lies in such folders: rename them to have them ingested"
)
"""What `is_file` leaves out, as a hint."""
_ENDINGS_HINT = (
    "files end in .parquet, .arrow, .arrows, .feather, .csv, .tsv, .txt, .json, .jsonl or .ndjson, "
    "and in .gz, .bz2 or .zst after that if they are compressed"
)
_KEYED = re.compile(r"[^/]+/once-([0-9a-f]{32}(?:-[0-9]{5,})?)\.([0-9a-f]{32})\.(?:parquet|jsonl)")
"""The keys of objects whose rows have an idempotency key; `keyed_name` makes them."""
_NO_TEXT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
"""Control characters, and what Python has in place of bytes that are not UTF-8."""
_CHOICE = re.compile(r"(?<=/)on-error=(refuse|skip)/")
"""A folder that says what becomes of rows that cannot be read, whatever the table says."""
WholeNumber = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
ObjectKey = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
ObjectTag = Annotated[str, msgspec.Meta(max_length=1024)]
"""The longest keys, ETags and version ids are those of S3."""


@dataclass(frozen=True, slots=True)
class Source:
    """One object dropped into the ingest bucket, with one version of its content.

    Bucket, key and ETag identify it: the same content dropped again under the same key is the same
    source, and is ingested once. `version` is the version id if known, else empty. It is used to
    download the object and is not part of the identity, since a notification from a versioned
    bucket has it and a listing does not. `repeat_request` is the id of a request to ingest the
    object once more; with it, the source is a different one for each such request. `tags` are the
    row tags that a request gives its rows, beside those that its key says; as text
    (`schema.row_tags`).
    """

    bucket: str
    key: ObjectKey
    etag: ObjectTag
    size_bytes: WholeNumber
    version: ObjectTag = ""
    repeat_request: ObjectTag = ""
    dropped_ms: WholeNumber = 0
    tags: ObjectTag = ""

    @property
    def id(self) -> str:
        """The 32 hex digits that tell this source from all others."""
        repeat = (self.repeat_request,) if self.repeat_request else ()
        parts = "\0".join((self.bucket, self.key, self.etag, *repeat))
        return blake2b(parts.encode(), digest_size=16).hexdigest()

    @property
    def remembered_id(self) -> str:
        """The 32 hex digits under which a table remembers that it ingested this source.

        That of rows with an idempotency key says nothing but the key, so it is the same after the
        table was renamed or copied, and for other rows under that key. A file is the same whether
        or not its rows that cannot be read are skipped.
        """
        key = _CHOICE.sub("", self.key)
        keyed = None if self.repeat_request else _KEYED.fullmatch(without_tags(key))
        if keyed is None:
            return self.id if key == self.key else replace(self, key=key).id
        return blake2b(f"once {keyed[1]}".encode(), digest_size=16).hexdigest()


def on_error_of(key: str) -> str:
    """Return what a key says about rows that cannot be read: refuse, skip, or nothing."""
    choice = _CHOICE.search(key)
    return choice[1] if choice else ""


def with_on_error(key: str, on_error: str) -> str:
    """Return the key under which a file is dropped in a table's folder to say that."""
    name, _, rest = key.partition("/")
    return f"{name}/on-error={on_error}/{rest}"


def row_tags_of(source: Source) -> str:
    """Return the row tags of the rows of a source, as text: those that its key says, and those that
    the request gave which named it.
    Raises RefusedSourceError: its key says none that can be, or others than the request.
    """
    tags = tags_of_key(source.key)
    for key, value in tags_of(source.tags).items():
        if tags.setdefault(key, value) != value:
            raise RefusedSourceError(
                f"a folder of the file gives row tag {key!r} another value than the request"
            )
    try:
        return row_tags(tags)
    except InvalidRequestError as error:
        raise RefusedSourceError(str(error), hint=error.hint) from error


def have_row_tags(sources: Iterable[Source]) -> bool:
    """Return whether rows of some sources may have row tags."""
    return any(source.tags or without_tags(source.key) != source.key for source in sources)


def digest_of_key(idempotency_key: str) -> str:
    """Return the 32 hex digits that stand for an idempotency key, at whichever door it is given."""
    text = idempotency_key.encode(errors="surrogatepass")
    return blake2b(text, digest_size=16).hexdigest()


def keyed_name(digest: str, part: str, table: Table, ending: str) -> str:
    """Return the name, in a table's folder, of rows whose idempotency key has a digest.

    The last digits differ for each table, and change when it is reset, restored or renamed: an
    object that is refused or forgotten since then is never in the way of a repeat.
    """
    return f"once-{digest}{part}.{_beginning_of(table)}.{ending}"


def is_from_before(source: Source, table: Table) -> bool:
    """Return whether the rows of a source have an idempotency key, and were meant for a table as it
    was before it was reset, restored or renamed, or for another of its name.
    """
    keyed = _KEYED.fullmatch(without_tags(source.key))
    return keyed is not None and keyed[2] != _beginning_of(table)


def _beginning_of(table: Table) -> str:
    beginning = f"{table.id} {table.generation} {table.files_since_ms}"
    return blake2b(beginning.encode(), digest_size=16).hexdigest()


def ids_at_origins(source: Source, table: Table) -> Iterator[str]:
    """Yield the ids that a source had if it was ingested where the table was copied from, or, if it
    lies in the table's folder, in the folder of an earlier name of it.

    Example: a table was copied from `flights` in a folder to `trips` of a deployment. The object
    `trips/may.csv` of the deployment's bucket is the file `flights/may.csv` of the folder's inbox,
    if its ETag is the same.
    """
    name, _, rest = _CHOICE.sub("", source.key).partition("/")
    for origin in table.origins:
        if origin.bucket or name == table.name:
            bucket = origin.bucket or source.bucket
            yield replace(source, bucket=bucket, key=f"{origin.table_name}/{rest}").id


def is_file(path: str) -> bool:
    """Return whether an object is a file to ingest, by its key or its path below a folder.

    All ways in ask this, and ignore what is no file: what Spark's committers, Hive, Delta and
    others keep beside the data, and what stands for a folder in S3. The rule is that of Spark as a
    reader (`HadoopFSUtils.shouldFilterOutPathName`): no part begins with a dot, or with an
    underscore unless it has an ``=``, and none ends like the copies of `hdfs dfs -put` that have
    not ended. Spark's exception for names that begin with ``_metadata`` is left out: it lets Spark
    find footers, which have no rows.

    Example: ``t/_p=1/part-0.csv`` is one; ``t/_temporary/0/part-0.csv``, ``t/_SUCCESS``,
    ``t/.part-0.csv.crc``, ``t/p=1/`` and ``t/p=1_$folder$`` are none.
    """
    return path[-1:] not in ("", "/") and not any(map(_is_hidden, path.split("/")))


def is_file_below(prefix: str, key: str) -> bool:
    """Return whether the object of a key is a file where a prefix of the key was named: what lies
    above the last part of the prefix was named too, so it may be called anything.

    Example: ``_landing/a.csv`` is one below ``_landing/``, and ``_landing/_SUCCESS`` is none.
    """
    return is_file(key[prefix.rfind("/") + 1 :])


def _is_hidden(part: str) -> bool:
    is_internal = part.startswith("_") and "=" not in part
    return is_internal or part.startswith(".") or part.endswith(_UNFINISHED_OR_MARKER)


def table_name_of(key: str) -> str:
    """Return the name of the table in whose folder an ingest key lies.
    Raises RefusedSourceError: the key contains ``..``, control characters or what is not UTF-8, or
    has no folder.
    """
    name, slash, rest = key.partition("/")
    if not slash or not name or not rest:
        raise RefusedSourceError(
            f"the key {key!r} names no table", hint="drop files under <table name>/"
        )
    if ".." in key.split("/"):
        raise RefusedSourceError(f"the key {key!r} has '..' in it")
    if _NO_TEXT.search(key):
        raise RefusedSourceError(
            f"the key {key!r} has control characters in it, or is not UTF-8", hint="rename the file"
        )
    return name


def format_of(key: str) -> tuple[str, str]:
    """Return which of `READ_ENDINGS` a key has, in lower case, and which of `COMPRESSED_ENDINGS`
    follows, or nothing.
    Raises RefusedSourceError: it has none of them, so no reader would accept the file.
    """
    name = key.rpartition("/")[2].lower()
    compression = next((ending for ending in COMPRESSED_ENDINGS if name.endswith(ending)), "")
    plain = name.removesuffix(compression)
    for ending in READ_ENDINGS:
        if plain.endswith(ending):
            return ending, compression
    raise RefusedSourceError(f"{name!r} is of no known format", hint=_ENDINGS_HINT)


def job_id_of(sources: tuple[Source, ...], generation: int = 0) -> str:
    """Return the id of the ingest job of exactly these sources, the same for every process.

    Jobs of the same sources before and after a reset of the table have different ids, so that
    records of the one do not apply to the other.
    """
    parts = "".join(sorted(s.id for s in sources)) + (f" {generation}" if generation else "")
    return blake2b(parts.encode(), digest_size=16).hexdigest()
