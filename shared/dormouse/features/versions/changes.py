"""The rows that were ingested since a version, read from the shards that ingest wrote.

Which shards these are is in the log: those that accepted ingests added. A compaction adds none, so
what it rewrote does not come again. The log and the shards are kept for the delay of garbage
collection.
"""

from __future__ import annotations

from collections.abc import Sequence

from dormouse.errors import NotFoundError
from dormouse.features.tables.versions import REBUILDING
from dormouse.model.shards import Shard
from dormouse.ports.services import Services
from dormouse.state_store import VersionRecord
from dormouse.tables.table import Table

_BEGINNINGS = {"reset table", "restore version"}
"""The changes after which the rows of earlier versions are not those of the table any more."""
_HINT = "read the table as it is now, and the changes since the version of that read"


def ingested_since(services: Services, table: Table, version: int) -> tuple[list[Shard], int]:
    """Return the shards that ingests added after a version, in order, and the newest version.

    Raises:
        NotFoundError: the version is yet to come; the log is not kept from it on any more, or a
            shard is deleted; or the table was reset, restored or rebuilt since.
    """
    store = services.store(table)
    history = store.history()
    newest = history[-1].version if history else 0
    if version > newest:
        raise NotFoundError(f"there is no version {version}; the newest is {newest}")
    _check_kept(table, history, version)
    since = [record for record in history if record.version > version]
    shards = [shard for record in since for shard in record.added]
    state = store.current()
    if state.generation < table.schema_generation:
        raise NotFoundError(
            f"table {table.name!r} is being reset and gets another schema: what was ingested since "
            f"version {version} cannot be read any more",
            hint=_HINT,
        )
    for shard in shards:
        if shard.id not in state.shards:
            raise _expired(table, version, f"shard {shard.id} is deleted")
    return shards, newest


def _check_kept(table: Table, history: Sequence[VersionRecord], version: int) -> None:
    if history and history[0].version > max(version, 1):
        raise _expired(table, version, f"the log is kept from version {history[0].version} on")
    for record in history:
        rebuilt = any(job.startswith(REBUILDING) for job in record.jobs)
        if record.version > version and (rebuilt or not _BEGINNINGS.isdisjoint(record.changes)):
            what = "rebuilt" if rebuilt else "reset or restored"
            raise NotFoundError(
                f"table {table.name!r} was {what} at version {record.version}, so that its rows "
                f"are not those of version {version} and what was ingested since",
                hint=_HINT,
            )


def _expired(table: Table, version: int, reason: str) -> NotFoundError:
    return NotFoundError(
        f"what was ingested into table {table.name!r} since version {version} is not kept any "
        f"more: {reason}",
        hint=f"{_HINT}; a longer gc_delay_seconds keeps changes for longer",
    )
