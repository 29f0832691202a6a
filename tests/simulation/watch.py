"""What each step changed is looked at: new versions, objects put and deleted, logged failures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dormouse.errors import CorruptDataError, DormouseError, InvariantError
from dormouse.features.purge import REQUEST
from dormouse.ports import Services
from dormouse.stored.paths import shard_id_of
from dormouse.tables.table import Table
from tests.simulation.backpressure import Turn
from tests.simulation.event_log import Violation
from tests.simulation.instance import Instance
from tests.simulation.oracle import Oracle
from tests.simulation.processes import Call
from tests.simulation.published import PublishedWatch
from tests.simulation.versions import held_versions, restored_to
from tests.simulation.workload import Workload


@dataclass
class Watch:
    """Looks at an instance from outside, past all gates and faults.

    `tell` adds a line to the event log; `slack_ms` is how far apart clocks are; `explains` tells
    whether an error is about damage that was done on purpose, and names what is damaged. `begun`
    are the purges whose request was ever kept.
    """

    instance: Instance
    workload: Workload
    services: Services
    tell: Callable[[str], None]
    slack_ms: int
    explains: Callable[[CorruptDataError], bool] = lambda error: False
    oracles: dict[str, Oracle] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    published: dict[str, PublishedWatch] = field(default_factory=dict)
    _changed: set[str] = field(default_factory=set)
    _republished: set[str] = field(default_factory=set)

    def note(self, call: Call) -> None:
        """Note what a call may change."""
        if (call.service == "pages" and not call.is_read) or call.method == "create":
            self._changed.add(call.subject.partition(" ")[0])
        if call.service == "publications" and not call.is_read:
            self._republished.add(call.subject.partition(" ")[0])

    def look(self, turn: Turn) -> None:
        """Check what the last step changed.

        Raises:
            Violation: something is not as it must be.
        """
        self._look_at_failures()
        for state_id in self._changed:
            self._look_at_table(state_id.partition("/")[0], turn)
        self._changed.clear()
        for table_id in sorted(self._republished):
            self._look_at_published(table_id)
        self._republished.clear()
        self._look_at_storage()

    def oracle(self, table_id: str) -> Oracle:
        """Return what is known of a table."""
        if table_id not in self.oracles:
            self.oracles[table_id] = Oracle(
                table_id,
                self.workload.kinds[table_id],
                self.workload.shape,
                self.instance.storage.as_put,
                self.workload.dropped,
                self.workload.deletions,
                self.slack_ms,
            )
        return self.oracles[table_id]

    def published_of(self, table_id: str) -> PublishedWatch:
        """Return what is known of what was published of a table."""
        if table_id not in self.published:
            oracle, content = self.oracle(table_id), self.instance.storage.as_put
            self.published[table_id] = PublishedWatch(oracle, content, self.slack_ms)
        return self.published[table_id]

    @property
    def _now_ms(self) -> int:
        return self.instance.clock.now_ms()

    def _living(self, table_id: str) -> Table | None:
        table = self.instance.tables.get(table_id)
        return None if table is None or table.deleting else table

    def _look_at_failures(self) -> None:
        for error in self.instance.failures:
            for each in _flat(error):
                is_bug = isinstance(each, InvariantError) or not isinstance(each, DormouseError)
                if is_bug or (isinstance(each, CorruptDataError) and not self.explains(each)):
                    raise Violation(f"a function failed: {type(each).__name__}: {each}") from each
                self.tell(f"failed: {type(each).__name__}: {each}")
        self.instance.failures.clear()

    def _look_at_table(self, table_id: str, turn: Turn) -> None:
        table = self._living(table_id)
        if table is None:
            return
        state = self.services.store(table).current()
        oracle = self.oracle(table_id)
        if state.version != oracle.newest:
            self.tell(f"version {state.version} of table {table_id} ({table.name})")
            asked = self.workload.asked
            begun_with = restored_to(self.instance, asked, table, state.generation)
            oracle.see(state, self._now_ms, begun_with)
            limit = table.properties.compaction_jobs_limit
            if wrong := oracle.compactions.beyond_limit(state, limit, turn):
                oracle.fail(wrong)

    def _look_at_published(self, table_id: str) -> None:
        table = self._living(table_id)
        if table is not None:
            record = self.instance.publications.get(table_id)
            delay_ms = table.properties.gc_delay_seconds * 1000
            self.published_of(table_id).see(record, self._now_ms, delay_ms)

    def _look_at_storage(self) -> None:
        """Check what was put and deleted by the last step."""
        changes, self.instance.storage.changes = self.instance.storage.changes, []
        for change, path in changes:
            _, _, rest = path.partition("/purges/")  # the request's, or that of a step's result
            purge_id, is_request = rest.removesuffix(".json"), rest != "" and "/" not in rest
            if is_request and change == "put":
                self.begun.add(purge_id)
            table = self._living(path.partition("/")[0])
            if table is None:
                continue
            oracle = self.oracle(table.id)
            if change == "clash":  # a purge that is asked for again: its first request stays
                if "/iceberg/" in path:
                    oracle.fail(f"two publishers put {path} with other bytes")
            elif is_request:
                self._look_at_purge(oracle, purge_id, path if change == "put" else "")
            elif change == "delete":
                delay_ms = table.properties.gc_delay_seconds * 1000
                if table.id in self.published:
                    self.published_of(table.id).check_deleted(path, self._now_ms, delay_ms)
                if "/data/" not in path:
                    continue
                shard = shard_id_of(path) or ""
                held = held_versions(self.instance, table, self.slack_ms)
                oracle.check_deleted(shard, self._now_ms, delay_ms, held)

    def _look_at_purge(self, oracle: Oracle, purge_id: str, path: str) -> None:
        """See that a purge begins, whose request was put at a path, or that it is over."""
        if path:
            asked = REQUEST.decode(self.instance.storage.as_put(path), path)
            if asked.generation == oracle.generation:
                oracle.begin_purge(purge_id, self.workload.purges[purge_id])
            return
        record = self.instance.tracker.get(oracle.table_id, purge_id)
        finished = record is not None and record.state == "finished"
        table = self.instance.tables.get(oracle.table_id)
        purged = table.purged_version if table is not None else 0
        oracle.end_purge(purge_id, finished=finished, now_ms=self._now_ms, purged_version=purged)


def _flat(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [each for inner in error.exceptions for each in _flat(inner)]
    return [error]
