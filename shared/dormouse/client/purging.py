"""A requested purge of one table: followed to its end, and proved."""

from dataclasses import dataclass, replace

from dormouse.client.listing import RequestedWork
from dormouse.errors import InvalidRequestError
from dormouse.features import purge
from dormouse.features.purge_rows import prove_purge
from dormouse.jobs import Progress


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

    Once it has ended, the table has no matching row of before it; objects with such rows may be
    deleted later.
    """

    queue = "purges"
    rows: purge.PurgeRequest

    def progress(self) -> PurgeProgress | None:
        """Return the progress; None once the purge is finished or has failed."""
        services, table_id = self.handle.services, self.table.id
        request = purge.load_purge(services, table_id, self.id)
        if request is None:
            return None
        matches = purge.load_matches(services, table_id, self.id)
        state = self.handle.state()
        rewritten = purge.referenced_of(state, matches.matching)
        return PurgeProgress(
            len(matches), len(purge.unchecked_shards(state, request, matches)), len(rewritten)
        )

    def _result(self) -> None:
        record = self.handle.services.tracker.get(self.table.id, self.id)
        if record is not None and record.state == "failed":
            raise InvalidRequestError(f"the purge failed: {record.reason}")

    def proof(self, watch: Progress | None = None) -> purge.Proof:
        """Look for rows that match, in the table and in every object."""
        table = self.handle.current()  # its state may be in another log since
        if table.schema_generation == self.table.schema_generation:  # a name may be another column
            table = replace(table, schema=self.table.schema)
        return prove_purge(self.handle.services, table, self.rows, watch)
