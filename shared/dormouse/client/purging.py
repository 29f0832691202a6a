"""Purges of one table: request them, wait for them, prove them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import structs

from dormouse.client.listing import RequestedWork
from dormouse.client.table import TableHandle
from dormouse.errors import InvalidRequestError
from dormouse.features.administration import administer
from dormouse.features.purge import (
    Proof,
    PurgeRequest,
    build_purge_request,
    load_matches,
    load_purge,
    referenced_of,
    unchecked_shards,
)
from dormouse.features.purge_rows import Progress, prove_purge
from dormouse.features.row_matcher import RowMatcher
from dormouse.key_codec import KeyCodec, KeyLike
from dormouse.messages.requests import PurgeRows
from dormouse.messages.stages import SelectionMessage
from dormouse.tables.properties import SparkOptions
from dormouse.tables.table import Table


@dataclass(frozen=True, slots=True)
class PurgeProgress:
    """The progress of a purge: shards examined, to be examined, and to be rewritten."""

    examined: int
    to_examine: int
    to_rewrite: int

    @property
    def left(self) -> int:
        """The number of shards to be examined or rewritten."""
        return self.to_examine + self.to_rewrite


@dataclass(frozen=True, repr=False)
class Purge(RequestedWork[PurgeProgress, None]):
    """A requested purge. Its steps run in the instance, whether the caller waits or not.

    Once it has ended, the table has no matching row; objects with such rows may be deleted later.
    """

    queue = "purges"
    rows: PurgeRequest

    def progress(self) -> PurgeProgress | None:
        """Return the progress; None once the purge is finished or has failed."""
        services, table_id = self.handle.services, self.table.id
        request = load_purge(services, table_id, self.id)
        if request is None:
            return None
        known = load_matches(services, table_id, self.id)
        state = self.handle.state()
        rewritten = referenced_of(state, known.matching)
        return PurgeProgress(
            len(known), len(unchecked_shards(state, request, known)), len(rewritten)
        )

    def _result(self) -> None:
        record = self.handle.services.tracker.get(self.table.id, self.id)
        if record is not None and record.state == "failed":
            raise InvalidRequestError(f"the purge failed: {record.reason}")

    def proof(self, watch: Progress | None = None) -> Proof:
        """Look for rows that match, in the table and in every object."""
        return _prove(self.handle, self.table, self.rows, watch)


def start_purge(
    handle: TableHandle,
    table: Table,
    where: str,
    keys: Sequence[KeyLike],
    spark: SparkOptions | None,
    release_tags: bool = False,
) -> Purge:
    """Request a purge.

    Raises:
        InvalidRequestError: not exactly one of `where` and `keys` is given, or it does not fit the
            table; or the table has tags, and they are not to be released.
        NotFoundError: the table was deleted.
    """
    request = _request(handle, table, where, keys)
    request = structs.replace(request, spark=spark, release_tags=release_tags)
    rows = build_purge_request(table, request)
    handle.queues.send(administer(handle.services, request))
    return Purge(handle, table, rows.id, rows)


def proof_of(
    handle: TableHandle,
    table: Table,
    where: str,
    keys: Sequence[KeyLike],
    watch: Progress | None,
) -> Proof:
    """Look for the rows that a purge would remove, in the table and in every object.

    Raises:
        InvalidRequestError: as `start_purge`.
    """
    rows = build_purge_request(table, _request(handle, table, where, keys))
    return _prove(handle, table, rows, watch)


def _request(handle: TableHandle, table: Table, where: str, keys: Sequence[KeyLike]) -> PurgeRows:
    parts = KeyCodec(table.schema).keys_to_json(keys)
    selection = SelectionMessage(keys=parts, where=where)
    return PurgeRows(handle.services.ids.new(), table.name, selection)


def _prove(handle: TableHandle, table: Table, rows: PurgeRequest, watch: Progress | None) -> Proof:
    matcher = RowMatcher.of(rows, table.schema, table.properties.keep)
    return prove_purge(handle.services, table, matcher, watch)
