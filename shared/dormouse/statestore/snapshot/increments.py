"""Increments: what changed in a state since a snapshot of it, or since the increment before.

A snapshot of a large state is rarely due. In between, an increment saves a reader the fold of what
was committed since: its rows replace those of the snapshot, a column at a time.

An increment is a Parquet file like a snapshot (`items`), whose rows are those of `changes`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from dormouse.errors import CorruptDataError
from dormouse.statestore.by_key.blocks import (
    KeyIndex,
    all_rows,
    encode_key_index,
    with_key_index,
    without_key_index,
)
from dormouse.statestore.by_key.rows import blocks_of_changes
from dormouse.statestore.parquet_file import open_file, write_file
from dormouse.statestore.snapshot.changes import COLUMNS_OF, GONE, TYPES, StateChanges
from dormouse.statestore.snapshot.columns import Column, column, piece
from dormouse.statestore.snapshot.items import ITEMS, key_facts, row_group
from dormouse.stored.decoding import decode_json

KIND, FORMAT = "increment", 1

_AFTER, _COUNTS = "dormouse.after", "dormouse.counts"
_SCHEMA = pa.schema(list(TYPES.items()))


def encode_increment(
    increment: StateChanges, before: Mapping[str, KeyIndex] | None = None
) -> bytes:
    """Return the stored form of an increment; `before` are the key indexes of those before it."""
    rows = {**increment.rows, "reference": _placed(increment.rows)}
    groups = (row_group(item, rows[item], _SCHEMA) for item in ITEMS)
    counts = msgspec.json.encode(increment.counts).decode()
    facts = {**increment.facts, _AFTER: str(increment.after), _COUNTS: counts}
    body = write_file(groups, _SCHEMA, KIND, FORMAT, facts, repeating=["item", "partition", "job"])
    if increment.by_key is None:
        return body
    blocks = blocks_of_changes(increment.by_key)
    of_state = key_facts(facts, increment.after)
    indexed = encode_key_index(facts["dormouse.table"], of_state, blocks, before)
    return with_key_index(body, indexed)


def _known_ids(rows: Mapping[str, pa.Table]) -> Column:
    """Return the ids of shards that the rows of other items have."""
    return pa.concat_arrays([column(rows[item], "id") for item in ("shard", "unreferenced")])


def _placed(rows: Mapping[str, pa.Table]) -> pa.Table:
    """Return the references with the places of shards in other items: 2 bytes instead of 17.

    Only a shard that is in none keeps its id.
    """
    references = rows["reference"]
    places = pc.index_in(piece(references, "id"), _known_ids(rows))
    ids = pc.if_else(pc.is_valid(places), pa.scalar(None, pa.string()), piece(references, "id"))
    return (
        references.drop_columns(["id"]).append_column("shard_row", places).append_column("id", ids)
    )


def _named(references: pa.Table, known: Column) -> pa.Table:
    """Return the references of `_placed` with the ids of all shards."""
    ids = pc.coalesce(piece(references, "id"), known.take(piece(references, "shard_row")))
    named = references.drop_columns(["shard_row", "id"]).append_column("id", ids)
    return named.select([*COLUMNS_OF["reference"], GONE])


def decode_increment(
    table_id: str, body: bytes, where: str, *, by_key: bool = False
) -> StateChanges:
    """Return an increment of this table, with the rows of its key index if they are wanted.

    `where` names it in errors.

    Raises:
        CorruptDataError: it is damaged, another table's, or from a later version of Dormouse.
    """
    file, facts = open_file(without_key_index(body), KIND, FORMAT, where)
    if facts.get("dormouse.table") != table_id:
        raise CorruptDataError(f"{where} is not an increment of table {table_id}")
    try:
        groups = facts["dormouse.items"].split()
        rows = {}
        for item, names in COLUMNS_OF.items():
            # A thread of Arrow that still holds the body when Python ends would abort the process.
            wanted = [*names, GONE, *(["shard_row"] if item == "reference" else [])]
            found = file.read_row_group(groups.index(item), wanted, use_threads=False)
            rows[item] = found.select(wanted).combine_chunks()
        rows["reference"] = _named(rows["reference"], _known_ids(rows))
        counts = decode_json(facts[_COUNTS].encode(), tuple[int, ...])
        indexed = all_rows(table_id, body, where) if by_key else None
        made = StateChanges(int(facts[_AFTER]), facts, counts, rows, indexed)
        if made.version <= made.after:
            raise ValueError(f"version {made.version} does not follow {made.after}")
        return made
    except (pa.ArrowException, OSError, LookupError, TypeError, ValueError) as error:
        raise CorruptDataError(f"{where} does not hold what changed: {error!r}") from error
