"""The version that a request names: by its number, a tag, or a time."""

from __future__ import annotations

from dormouse.features.tables.versions import read_version
from dormouse.features.versions.tags import is_tag, tagged
from dormouse.key_forms.text import parse_part
from dormouse.model.state import TableState
from dormouse.ports import Services
from dormouse.schema.schema import Primitive
from dormouse.tables.table import Table


def read_as_of(
    services: Services, table: Table, as_of: int | str | None
) -> tuple[Table, TableState]:
    """Return the table as it is now, and its state at a version, tag or ISO 8601 time; the newest
    for None.

    Raises:
        InvalidRequestError: it is none of these.
        NotFoundError: the table has no such tag, or that version is not kept any more, is yet to
            come, or has rows of an earlier schema.
    """
    if as_of is None:
        return read_version(services, table)
    if isinstance(as_of, int):
        return read_version(services, table, version=as_of)
    if is_tag(as_of):
        return read_version(services, table, version=tagged(services, table, as_of).version)
    time_us = int(parse_part(as_of, Primitive.TIMESTAMP))
    return read_version(services, table, time_ms=time_us // 1000)
