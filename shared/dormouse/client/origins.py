"""Where rows come from: the file of each, the commit, and the shards that held it since."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from dormouse.client.table import TableHandle
from dormouse.client.versions import RowQuery
from dormouse.errors import InvalidRequestError, NotFoundError
from dormouse.features.versions import read_as_of
from dormouse.key_codec import KeyLike
from dormouse.query.rows import query_rows, query_slices
from dormouse.query.selection import Selection, selected_ranges, slices_to_read
from dormouse.schema.schema import ETAG, FILE, INGESTED_AT, ROW_NUMBER, SHARD, VERSION
from dormouse.shards.reading import read_own_footers
from dormouse.state.state import TableState
from dormouse.state.versions import AsOf, iso_time
from dormouse.tables.row_rules import origin_fields, row_rules
from dormouse.tables.table import Table

MOST_ROWS = 1000
"""The most rows of a key whose origins an answer has."""
MOST_STEPS = 100
MOST_NAMES = 100_000
"""So many objects of the table's folder are looked at for the names of files."""


@dataclass(frozen=True, slots=True)
class ShardStep:
    """A shard, the job that wrote it, and when; it was merged from the shards `made_of`, or written
    from files if there are none.
    """

    shard: str
    job: str
    written: str
    made_of: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RowOrigin:
    """Where a row comes from; None is not known.

    `file` and `etag` name the object, `row` is its line there if it is text, else the number of the
    row, from 1. `version` is that of the commit that added it, `ingested_at` its time. `shards`
    hold it, several only if it is made of several rows. `steps` are these shards and those that
    they were merged from, as far as they are not deleted yet. `files` may have it, by their names,
    if `file` is not known.
    """

    key: Mapping[str, Any]
    file: str | None
    etag: str | None
    row: int | None
    version: int | None
    ingested_at: str | None
    shards: tuple[str, ...]
    steps: tuple[ShardStep, ...]
    files: tuple[str, ...]


def why(handle: TableHandle, key: KeyLike, as_of: AsOf | None) -> list[RowOrigin]:
    """Return where the rows of a key come from, in key order; see `TableHandle.why`."""
    services = handle.services
    table, state = read_as_of(services, handle.current(), as_of)
    rules = row_rules(table.schema, table.properties)
    names = [field.name for field in table.schema.keys]
    hidden = [field.name for field in origin_fields(rules, table.properties)]
    hidden += [SHARD.name] if rules.keeps_tags else []
    wanted = RowQuery(exact=key, columns=[*names, *hidden], limit=MOST_ROWS + 1)
    selection = wanted.select(table, state.version, services.clock.now_ms())
    rows = query_rows(services, table, state, selection).to_arrow()
    if rows.num_rows > MOST_ROWS:
        raise InvalidRequestError(
            f"more than {MOST_ROWS:,} rows have this key", hint="give more columns of the key"
        )
    origins = []
    for row in rows.to_pylist():
        own = {name: row[name] for name in names}
        shard = row.get(SHARD.name)
        shards = (str(shard),) if shard else tuple(_holding(handle, table, state, selection))
        steps, sources = _steps(handle, table, state, shards)
        at = row.get(INGESTED_AT.name)
        origin = RowOrigin(
            key=own,
            file=row.get(FILE.name),
            etag=row.get(ETAG.name),
            row=row.get(ROW_NUMBER.name),
            version=row.get(VERSION.name),
            ingested_at=None if at is None else iso_time(round(at.timestamp() * 1000)),
            shards=shards,
            steps=steps,
            files=() if row.get(FILE.name) else tuple(_names(handle, sources)),
        )
        origins.append(origin)
    return origins


def _holding(
    handle: TableHandle, table: Table, state: TableState, selection: Selection
) -> Iterator[str]:
    """Yield the shards that have stored rows of a selection, of a table that combines rows."""
    ids = set()
    for part in slices_to_read(state, selected_ranges(table, selection)):
        for each in part:
            if each.shard.id in ids:
                continue
            batches = query_slices(handle.services, table, [[each]], selection)
            if any(batch.num_rows for batch in batches):
                ids.add(each.shard.id)
                yield each.shard.id


def _steps(
    handle: TableHandle, table: Table, state: TableState, shards: Sequence[str]
) -> tuple[tuple[ShardStep, ...], set[str]]:
    """Return shards and those that they were merged from, newest first, and the ids of the sources
    that went into them.
    """
    steps: list[ShardStep] = []
    sources: set[str] = set()
    queue, ids = list(shards), set(shards)
    while queue and len(steps) < MOST_STEPS:
        shards_there = [state.shards[each] for each in queue if each in state.shards]
        queue, storage, cache = [], handle.services.storage, handle.services.cache
        for each in shards_there:
            try:
                (footer,) = read_own_footers(storage, table.id, [each], table.schema, cache)
            except NotFoundError:
                continue  # deleted since
            provenance = footer.provenance
            steps.append(
                ShardStep(
                    each.id,
                    provenance.job,
                    iso_time(provenance.written_ms),
                    provenance.lineage.inputs,
                )
            )
            sources.update(provenance.lineage.sources)
            queue += [shard for shard in provenance.lineage.inputs if shard not in ids]
            ids.update(provenance.lineage.inputs)
    return tuple(steps), sources


def _names(handle: TableHandle, sources: set[str]) -> Iterator[str]:
    """Yield the keys of the objects in the table's folder that are among some sources."""
    objects = handle.services.sources.list(f"{handle.name}/", since_ms=0) if sources else iter(())
    for source in islice(objects, MOST_NAMES):
        if source.remembered_id in sources:
            yield source.key
