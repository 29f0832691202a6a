"""Purges and exports are requested by message, and their outcomes checked by the ledger."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.client.instance import Instance
from dormouse.features.export import export_id_of, load_export, load_manifest
from dormouse.features.purge import load_purge, purge_id_of
from dormouse.messages.requests import ExportRows, PurgeRows
from dormouse.messages.stages import OutboundMessage, SelectionMessage
from tests.chaos.row_ledger import Expected, RowLedger
from tests.chaos.tables import Plan
from tests.chaos.tally import Tally

FILES_PER_PURGE = 3


@dataclass(frozen=True, slots=True)
class AskedPurge:
    """A purge of some files' rows."""

    plan: Plan
    request: PurgeRows
    files: frozenset[int]


@dataclass(frozen=True, slots=True)
class AskedExport:
    """An export, and what was known when it was asked for."""

    plan: Plan
    request: ExportRows
    expected: Expected


class Requests:
    """The requests of a run that are not over yet."""

    def __init__(
        self, instance: Instance, ledgers: Mapping[str, RowLedger], tally: Tally, seed: int
    ) -> None:
        self._instance, self._ledgers, self._tally = instance, ledgers, tally
        self._random = random.Random(f"{seed}-requests")
        self._open: list[AskedPurge | AskedExport] = []
        self.purges: list[AskedPurge] = []

    def purge(self, plan: Plan) -> None:
        """Ask for the purge of a few files that are ingested; of none, where there are too few."""
        ledger = self._ledgers[plan.name]
        found = sorted(ledger.to_purge)
        if len(found) <= FILES_PER_PURGE:
            return
        files = frozenset(self._random.sample(found, FILES_PER_PURGE))
        listed = ", ".join(map(str, sorted(files)))
        request = PurgeRows(
            self._new_id(), plan.name, SelectionMessage(where=f"file IN ({listed})")
        )
        ledger.purge_begins(files)
        asked = AskedPurge(plan, request, files)
        self.purges.append(asked)
        self._send(asked)

    def export(self, plan: Plan) -> None:
        """Ask for an export of all rows."""
        request = ExportRows(self._new_id(), plan.name, to=f"exports/{self._new_id()}")
        self._send(AskedExport(plan, request, self._ledgers[plan.name].expected()))

    def look(self) -> list[str]:
        """See which are over, and judge them; return those which are not."""
        self._open = [asked for asked in self._open if not self._is_over(asked)]
        return [f"{type(a.request).__name__} of table {a.plan.name}" for a in self._open]

    def _new_id(self) -> str:
        return f"request-{self._random.getrandbits(64):016x}"

    def _send(self, asked: AskedPurge | AskedExport) -> None:
        self._open.append(asked)
        self._tally.count("requests made", type(asked.request).__name__)
        self._instance.queues.send([OutboundMessage("admin", asked.request)])

    def _is_over(self, asked: AskedPurge | AskedExport) -> bool:
        handle = self._instance.table(asked.plan.name)
        record = handle.services.tracker.get(handle.table.id, asked.request.request_id)
        if record is None:
            return False
        if record.state == "refused":
            self._tally.wrong(f"table {asked.plan.name}: a request was refused: {record.reason}")
            return True
        if isinstance(asked, AskedPurge):
            return self._is_purged(asked)
        return self._is_exported(asked)

    def _is_purged(self, asked: AskedPurge) -> bool:
        handle = self._instance.table(asked.plan.name)
        purge_id = purge_id_of(asked.request.request_id)
        if load_purge(handle.services, handle.table.id, purge_id) is not None:
            return False
        record = handle.services.tracker.get(handle.table.id, purge_id)
        if record is not None and record.state == "failed":
            self._tally.wrong(f"table {handle.name}: a purge failed: {record.reason}")
        self._ledgers[handle.name].purge_ended(asked.files)
        return True

    def _is_given_up(self, asked: AskedExport) -> bool:
        """Return whether an export failed because what it was to read was collected before."""
        handle = self._instance.table(asked.plan.name)
        export_id = export_id_of(asked.request.request_id)
        record = handle.services.tracker.get(handle.table.id, export_id)
        if record is None or record.state != "failed":
            return False
        if load_export(handle.services, handle.table.id, export_id) is not None:
            return False  # it failed for now
        self._tally.count("requests made", "of these exports given up, too late")
        if "gc_delay_seconds" not in record.reason:
            self._tally.wrong(f"table {handle.name}: an export failed: {record.reason}")
        return True

    def _is_exported(self, asked: AskedExport) -> bool:
        results = self._instance.services.results
        manifest = load_manifest(results, asked.request.to)
        if manifest is None:
            return self._is_given_up(asked)
        parts: Sequence[pa.Table] = [
            pq.read_table(results.open(f"{asked.request.to}/{file.name}", file.size_bytes))
            for file in manifest.files
        ]
        rows = [row for part in parts for row in asked.plan.rows_of(part)]
        if sum(part.num_rows for part in parts) != manifest.rows:
            self._tally.wrong(f"table {asked.plan.name}: the manifest counts {manifest.rows} rows")
        # It reads the version of when it was begun, which may be from before a purge that is over.
        expected = Expected(asked.expected.must, frozenset())
        for sentence in self._ledgers[asked.plan.name].differences(expected, rows):
            self._tally.wrong(f"{sentence}; in an export")
        return True
