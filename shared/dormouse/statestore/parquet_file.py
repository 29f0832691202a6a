"""The Parquet files state is kept in: what is common to deltas and snapshots; used by the codecs.

The footer says of each file what it is and in which format, and has a checksum of all of it, so
that a foreign file, one that is not as it was written, or one from a later version of Dormouse is
refused before any of it is believed.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.errors import CorruptDataError
from dormouse.stored import checksums

OWNER = "dormouse.owner"
"""The fact that says to which table, or which delta of it, a file belongs."""
_KIND, _FORMAT, _CHECKSUM = "dormouse.kind", "dormouse.format", "dormouse.checksum"


def write_file(
    tables: Iterable[pa.Table],
    schema: pa.Schema,
    kind: str,
    version: int,
    facts: Mapping[str, str],
    *,
    repeating: Sequence[str] = (),
    ascending: Sequence[str] = (),
) -> bytes:
    """Return a file with a row group for each of `tables`, and `facts` in its footer.

    The `repeating` columns have few values, each kept once. Each value of the `ascending` ones is
    kept without what it has in common with the beginning of the one before it.
    """
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        # Ids hardly repeat: dictionaries make the files larger.
        use_dictionary=list(repeating),  # type: ignore[arg-type]  # the stubs know no names
        column_encoding=dict.fromkeys(ascending, "DELTA_BYTE_ARRAY"),
        write_statistics=False,
        store_schema=False,
    ) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=max(1, table.num_rows))
        of_file = {_KIND: kind, _FORMAT: str(version), _CHECKSUM: checksums.BLANK}
        writer.add_key_value_metadata({**facts, **of_file})
    place, digits = checksums.compute_checksum(sink.getvalue())
    sink.seek(place)
    sink.write(digits)
    return sink.getvalue()


def open_file(
    body: bytes, kind: str, version: int, where: str
) -> tuple[pq.ParquetFile, dict[str, str]]:
    """Return a file, of which no row is read yet, and the facts in its footer.

    Raises:
        CorruptDataError: it is damaged, not of this kind, or of another format than `version`.
    """
    try:
        checksums.verify(body)
        file = pq.ParquetFile(pa.BufferReader(body))
        stored = file.metadata.metadata or {}
        facts = {key.decode(): value.decode() for key, value in stored.items()}
        facts.pop(_CHECKSUM, None)
        if facts.get(_KIND) != kind:
            raise CorruptDataError(f"{where} is not a Dormouse {kind}")
        found = int(facts.get(_FORMAT, ""))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptDataError(f"{where} is not a Dormouse {kind}: {error}") from error
    if found != version:
        raise CorruptDataError(
            f"{where} is a {kind} of format {found}; the one known here is {version}",
            hint="it was written by a later version: upgrade this one"
            if found > version
            else "it was written by an earlier version: read it with that one",
        )
    return file, facts


def read_rows(file: pq.ParquetFile, kind: str, where: str, groups: Sequence[int]) -> pa.Table:
    """Return the rows of some row groups of a file; `where` names it in errors.

    Raises:
        CorruptDataError: it is not readable.
    """
    try:
        # A thread of Arrow that still holds the body when Python ends would abort the process.
        return file.read_row_groups(list(groups), use_threads=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptDataError(f"{where} is not a readable {kind}: {error}") from error


def check_owner(facts: Mapping[str, str], owner: str, where: str) -> None:
    """Check that a file belongs where it was found.

    Raises:
        CorruptDataError: it does not: a file of another table, or another delta, was copied here.
    """
    if facts.get(OWNER) != owner:
        raise CorruptDataError(
            f"{where} should hold {owner} and holds {facts.get(OWNER, 'a file without an owner')}",
            hint="a file was copied to the wrong place: restore the object that was there",
        )
