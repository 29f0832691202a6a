"""purge_rows: rows to be removed → a purge, whose steps then run by themselves."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from hashlib import blake2b

from dormouse.errors import InvalidRequestError
from dormouse.features.purge.purge import PurgeRequest, encode_request
from dormouse.features.purge.remaining_objects import remaining_objects
from dormouse.features.purge.stored import load_purge
from dormouse.features.requests.ends import End, Look
from dormouse.features.requests.resolve_table import living
from dormouse.features.requests.work import Begun, Work
from dormouse.features.tables.versions import read_version
from dormouse.jobs.tracking import record
from dormouse.key_forms.codec import KeyCodec
from dormouse.messages import OutboundMessage, PurgeStep
from dormouse.ports import Services
from dormouse.replies import Counts
from dormouse.requests import PurgeRows
from dormouse.sql.conditions import parse_condition
from dormouse.stored.paths import purge_path
from dormouse.tables.row_rules import group_keys, row_rules
from dormouse.tables.table import Table


class PurgeWork(Work, frozen=True, tag="purge"):
    """A purge."""

    purge_id: str

    @property
    def job_ids(self) -> list[str]:
        """The purge."""
        return [self.purge_id]

    def messages_again(self, services: Services, table: Table) -> list[OutboundMessage]:
        """Return a step, if the purge goes on."""
        is_left = load_purge(services, table.id, self.purge_id) is not None
        return [OutboundMessage("purges", PurgeStep(table.id, self.purge_id))] if is_left else []

    def ends(self, look: Look) -> Iterator[End]:
        """Return how a purge stands: it goes on until the objects are gone that held its rows."""
        if load_purge(look.services, look.table.id, self.purge_id) is not None:
            yield look.pending(self.kind, self.purge_id, look.record(self.purge_id))
            return
        told = look.record(self.purge_id)
        left = remaining_objects(look) if told is not None and told.state == "finished" else []
        if left:
            reason = (
                "no row of it is found in the table any more, but objects that may hold such rows "
                f"are not deleted yet: {len(left)}, among them {left[0]}"
            )
            yield End(self.kind, self.purge_id, "unfinished", reason, is_pending=True)
            return
        removed = told.rows if told is not None else 0
        yield look.over(
            self.kind,
            self.purge_id,
            told,
            lambda: End(self.kind, self.purge_id, counts=Counts(finished=1, removed=removed)),
        )

    def extra_patience_ms(self, table: Table) -> int:
        """Return the delays after which objects go: when nobody can need them any more."""
        properties = table.properties
        return (properties.gc_delay_seconds + properties.orphan_age_seconds) * 1000


def request_purge(services: Services, request: PurgeRows) -> Begun:
    """Keep the request beside the table's shards; a redelivery finds it there.

    Raises:
        InvalidRequestError: it does not say which rows, or the table cannot remove just those.
        NotFoundError: no table of that name exists, or it is being deleted.
    """
    table, state = read_version(services, living(services, request))
    purge = build_purge_request(table, request)
    purge = replace(purge, generation=state.generation, requested_ms=services.clock.now_ms())
    path = purge_path(table.id, purge.id)
    services.storage.put(path, encode_request(purge, path))
    # Not what it removes: records live longer than what is to be forgotten.
    record(services, table.id, purge.id, "purge", "assigned", subject=request.request_id)
    return Begun([OutboundMessage("purges", PurgeStep(table.id, purge.id))], PurgeWork(purge.id))


def purge_id_of(request_id: str) -> str:
    """Return the id of the purge that a request asks for; a redelivery asks for the same."""
    return blake2b(request_id.encode(), digest_size=8).hexdigest()


def build_purge_request(table: Table, request: PurgeRows) -> PurgeRequest:
    """Return the rows that are asked for, checked against the table, without generation and time.

    Raises:
        InvalidRequestError: it does not say which rows, or the table cannot remove just those.
    """
    purge = PurgeRequest(purge_id_of(request.request_id), spark=request.spark or None)
    if bool(request.where.strip()) == bool(request.keys):
        raise InvalidRequestError(
            "say which rows to purge: either by a predicate or by keys",
            hint="a predicate can name key columns too",
        )
    if request.keys:
        keys = [
            KeyCodec(table.schema).from_json(key, f"key {number}")
            for number, key in enumerate(request.keys, start=1)
        ]
        _check_groups(table, {f.name for f in table.schema.keys[: max(map(len, keys))]})
        return replace(purge, keys=tuple(dict.fromkeys(keys)))
    condition = parse_condition(request.where, table.schema)
    _check_groups(table, condition.columns)
    ids = ((name, table.schema.field_named(name).id) for name in sorted(condition.columns))
    return replace(purge, where=condition.sql, columns=tuple(ids))


def _check_groups(table: Table, columns: Collection[str]) -> None:
    """Refuse what would remove parts of rows: stored rows of one group are one row of the table."""
    if not row_rules(table.schema, table.properties).aggregates:
        return
    shared = [field.name for field in group_keys(table.schema, table.properties)]
    alone = sorted(set(columns) - set(shared))
    if alone:
        raise InvalidRequestError(
            f"a purge of {table.name!r} cannot look at {', '.join(alone)}: the table aggregates, "
            "and what is stored may be a part only of the row that is meant",
            hint="columns for purges: " + ", ".join(shared),
        )
