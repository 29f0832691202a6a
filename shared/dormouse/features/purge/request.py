"""purge_rows: rows to be removed → a purge, whose steps then run by themselves."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from hashlib import blake2b

from dormouse.errors import InvalidRequestError
from dormouse.features.purge.purge import PurgeRequest, encode_request
from dormouse.features.requests.resolve_table import living
from dormouse.features.requests.work import Begun, Purge
from dormouse.features.tables.versions import read_version
from dormouse.jobs.tracking import record
from dormouse.key_forms.json import key_of_json
from dormouse.messages import OutboundMessage, PurgeStep
from dormouse.ports import Services
from dormouse.requests import PurgeRows
from dormouse.sql.conditions import parse_condition
from dormouse.stored.names import purge_path
from dormouse.tables.row_rules import group_keys, row_rules
from dormouse.tables.table import Table


def purge_rows(services: Services, request: PurgeRows) -> Begun:
    """Keep the request beside the table's shards; a redelivery finds it there.

    Raises:
        InvalidRequestError: it does not say which rows, or the table cannot remove just those.
        NotFoundError: no table of that name exists, or it is being deleted.
    """
    table, state = read_version(services, living(services, request))
    purge = wanted_rows(table, request)
    purge = replace(purge, generation=state.generation, requested_ms=services.clock.now_ms())
    path = purge_path(table.id, purge.id)
    services.storage.put(path, encode_request(purge, path))
    # Not what it removes: records live longer than what is to be forgotten.
    record(services, table.id, purge.id, "purge", "assigned", subject=request.request_id)
    return Begun([OutboundMessage("purges", PurgeStep(table.id, purge.id))], Purge(purge.id))


def purge_id_of(request_id: str) -> str:
    """Return the id of the purge that a request asks for; a redelivery asks for the same."""
    return blake2b(request_id.encode(), digest_size=8).hexdigest()


def wanted_rows(table: Table, request: PurgeRows) -> PurgeRequest:
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
            key_of_json(table.schema, key, f"key {number}")
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
