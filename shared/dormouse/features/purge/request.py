"""purge_rows: save the request of a purge, and start its first step."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from hashlib import blake2b

from dormouse.access.rules import EVERYTHING
from dormouse.errors import InvalidRequestError
from dormouse.features.purge.purge import PurgeRequest, encode_request
from dormouse.features.purge.remaining_objects import remaining_objects
from dormouse.features.purge.stored import load_purge
from dormouse.features.requests.outcomes import JobCheck, JobOutcome
from dormouse.features.requests.resolve_table import resolve_live_table
from dormouse.features.requests.work import RequestResult, StoredWork
from dormouse.features.tables.tags import refuse_tagged, release_tags
from dormouse.features.tables.versions import read_version
from dormouse.jobs.tracking import record
from dormouse.messages.replies import Counts
from dormouse.messages.requests import PurgeRows
from dormouse.messages.stages import OutboundMessage, PurgeStep
from dormouse.model.jobs.job_events import Assigned, TrackedJob
from dormouse.ports.services import Services
from dormouse.query.selection_codec import decode_selection
from dormouse.stored.paths import purge_path
from dormouse.tables.row_rules import group_keys, row_rules
from dormouse.tables.table import Table


class PurgeWork(StoredWork, frozen=True, tag="purge"):
    """The purge of a request."""

    purge_id: str

    @property
    def job_ids(self) -> list[str]:
        """The id of the purge."""
        return [self.purge_id]

    def unfinished_messages(self, services: Services, table: Table) -> list[OutboundMessage]:
        """Return the message of a step, if the purge is running."""
        is_left = load_purge(services, table.id, self.purge_id) is not None
        return [OutboundMessage("purges", PurgeStep(table.id, self.purge_id))] if is_left else []

    def outcomes(self, check: JobCheck) -> Iterator[JobOutcome]:
        """Yield the outcome of the purge: pending until all objects with its rows are deleted."""
        if load_purge(check.services, check.table.id, self.purge_id) is not None:
            yield check.unfinished(self.kind, self.purge_id, check.record(self.purge_id))
            return
        known = check.record(self.purge_id)
        left = remaining_objects(check) if known is not None and known.state == "finished" else []
        if left:
            reason = (
                "the table has none of its rows any more, but objects that may hold such rows "
                f"are not deleted yet: {len(left)}, among them {left[0]}"
            )
            yield JobOutcome(self.kind, self.purge_id, "unfinished", reason, is_pending=True)
            return
        removed = known.rows if known is not None else 0
        yield check.ended(
            self.kind,
            self.purge_id,
            known,
            lambda: JobOutcome(
                self.kind, self.purge_id, counts=Counts(finished=1, removed=removed)
            ),
        )

    def extra_wait_ms(self, table: Table) -> int:
        """Return the delays until garbage collection and audit have deleted such objects."""
        properties = table.properties
        return (properties.gc_delay_seconds + properties.orphan_age_seconds) * 1000


def request_purge(services: Services, request: PurgeRows) -> RequestResult:
    """Save the request beside the table's shards, where a redelivery finds it.

    Raises:
        InvalidRequestError: it selects no rows, or rows that this table cannot remove separately;
            or the table has tags, and they are not to be released.
        NotFoundError: no table has that name, or it is being deleted.
    """
    table, state = read_version(services, resolve_live_table(services, request))
    purge = build_purge_request(table, request)
    if request.release_tags:
        release_tags(services, table)
    refuse_tagged(services, table, "rows")
    now_ms = services.clock.now_ms()
    selection = replace(purge.selection, version=state.version, time_ms=now_ms)
    purge = replace(purge, generation=state.generation, selection=selection)
    path = purge_path(table.id, purge.id)
    services.storage.put(path, encode_request(purge, path))
    # The record has no key or value of the purge: records are kept longer than those may be.
    record(services, TrackedJob(table.id, purge.id, "purge"), Assigned(subject=request.request_id))
    return RequestResult(
        [OutboundMessage("purges", PurgeStep(table.id, purge.id))], PurgeWork(purge.id)
    )


def purge_id_of(request_id: str) -> str:
    """Return the id of the purge of a request, derived from the request's id."""
    return blake2b(request_id.encode(), digest_size=8).hexdigest()


def build_purge_request(table: Table, request: PurgeRows) -> PurgeRequest:
    """Return the rows to remove, checked against the table, without generation and time.

    Raises:
        InvalidRequestError: it selects no rows, or rows that this table cannot remove separately.
    """
    asked, schema = request.selection, table.schema
    others = asked.ranges or asked.columns or asked.limit is not None or asked.as_of is not None
    if others or bool(asked.where.strip()) == bool(asked.keys):
        raise InvalidRequestError(
            "say which rows to purge: either by a predicate or by keys, and nothing else",
            hint="a predicate can name key columns too",
        )
    selection = decode_selection(asked, schema, permission=EVERYTHING, version=0, time_ms=0)
    if selection.condition is not None:
        _check_groups(table, selection.condition.columns)
    else:
        _check_groups(table, {f.name for f in schema.keys[: max(map(len, asked.keys))]})
    return PurgeRequest(
        purge_id_of(request.request_id), schema, selection, spark=request.spark or None
    )


def _check_groups(table: Table, columns: Collection[str]) -> None:
    """Refuse columns that can differ between the stored rows of one group.

    All stored rows of a group are one row of the table. Removing some of them would change that row
    instead of removing it.
    """
    if not row_rules(table.schema, table.properties).aggregates:
        return
    shared = [field.name for field in group_keys(table.schema, table.properties)]
    alone = sorted(set(columns) - set(shared))
    if alone:
        raise InvalidRequestError(
            f"a purge of {table.name!r} cannot select rows by {', '.join(alone)}: the table "
            "aggregates, so a stored row may be only a part of a row of the table",
            hint="columns that a purge can use: " + ", ".join(shared),
        )
