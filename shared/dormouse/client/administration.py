"""Copy a table to another instance."""

from __future__ import annotations

from dataclasses import dataclass

from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.features.copying import Progress
from dormouse.features.copying import copy_table as copy_between


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy of version `version` of a table.

    `shards` counts its shards, `copied` those that this call copied. If an earlier call had
    finished the copy, `was_complete` says so, and nothing was copied.
    """

    table: TableHandle
    version: int
    rows: int
    shards: int
    copied: int
    was_complete: bool


def copy_table(
    source: TableHandle, target: Instance, name: str = "", *, watch: Progress | None = None
) -> Copied:
    """Copy the newest version of a table into another instance, by default under the same name.

    The source stays as it is. The copy becomes visible when all of it is there. A call that was
    interrupted is continued by the next one. What the table has ingested stays ingested in the
    copy.

    Raises:
        AlreadyExistsError: the target has a table of that name, other than this very copy.
        NotFoundError: the table was deleted.
        CorruptDataError: a shard of the source is damaged or lost.
        InvalidRequestError: no table can have that name; or shards of the source are disputed.
        ContendedError: another process has copied it meanwhile.
    """
    report, messages = copy_between(
        source.services,
        source.current(),
        source.bucket.name,
        target.services,
        name or source.name,
        watch,
    )
    target.queues.send(messages)
    return Copied(
        target.table(report.table.name),
        report.version,
        report.rows,
        report.shards,
        report.copied,
        report.was_complete,
    )
