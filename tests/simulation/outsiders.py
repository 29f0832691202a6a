"""Users who publish tables for readers of Iceberg, and such readers: engines of others.

A reader finds the newest metadata, then opens what it names, piece by piece and long after that:
as long as the delay allows. It knows no more of the instance than where the metadata is.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from dormouse.errors import NotFoundError, OutcomeUnknownError, UnavailableError
from dormouse.iceberg import avro
from dormouse.messages.requests import AdminRequest, PublishIceberg, SetProperties
from dormouse.storage import root_uri
from tests.simulation.fault_injection import HOUR_MS
from tests.simulation.instance import Worker
from tests.simulation.published import PublishedWatch

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

PUBLISHING = ("publish",) + ("iceberg",) * 2 + ("stop_publishers",) * 2
"""What users do, beside all else, in runs whose tables are published."""
EVERY_SEED = 3
"""In a run of each so many seeds tables are published."""
PROPERTIES: dict[str, tuple[object, ...]] = {
    "iceberg": ("on", "on", "on", "on", "off"),
    "iceberg_format": ("2", "2", "3"),
    "iceberg_parts": ("yes",),
}


def publishes(seed: int) -> bool:
    """Return whether tables are published in the run of a seed."""
    return seed % EVERY_SEED == EVERY_SEED - 1


class PublishingUsers(ABC):
    """The part of the users that is about readers of Iceberg."""

    random: Random
    publishes: bool
    stop_publishers_for: Callable[[], int]

    @abstractmethod
    def ask(self, request: AdminRequest) -> str:
        """Send a request."""

    def publish(self) -> str:
        """Ask for a table to be published at once: what is new of it, or all."""
        everything = self.random.random() < 0.5
        return self.ask(PublishIceberg(self._request(), self._name(), all=everything))

    def iceberg(self) -> str:
        """Ask for a table to be published in another way, or no more."""
        return self.ask(SetProperties(self._request(), self._name(), self._published(), ()))

    def stop_publishers(self) -> str:
        """Let nothing be published for a while."""
        return f"stop publishers for {self.stop_publishers_for() // 1000} s"

    def _published(self) -> dict[str, object]:
        """Draw the properties of a table that are about publishing; none in other runs."""
        if not self.publishes:
            return {}
        return {name: self.random.choice(values) for name, values in PROPERTIES.items()}

    @abstractmethod
    def _name(self) -> str:
        """Draw the name of a table."""

    @abstractmethod
    def _request(self) -> str:
        """Return the id of a new request."""


def read_as_outsider(
    worker: Worker,
    watch: PublishedWatch,
    random: Random,
    now_ms: Callable[[], int],
    sleep: Callable[[float], None],
) -> None:
    """Find the newest metadata of a table, and read its version or one that it lists, slowly.

    Raises:
        Violation: something is gone that must still be there.
    """
    services, table_id = worker.wiring.services, watch.oracle.table_id
    table = services.tables.get(table_id)
    record = services.publications.get(table_id) if table is not None else None
    if table is None or record is None or not record.metadata:
        return
    found_ms, path = now_ms(), record.metadata
    limit_ms = table.properties.gc_delay_seconds * 1000 - watch.slack_ms

    def get(uri: str) -> bytes:
        sleep(random.random() ** 3 * limit_ms / 1000)
        return services.storage.get(uri.removeprefix(f"{root_uri(services.storage)}/"))

    from_ms: int | None = found_ms
    try:
        body = json.loads(get(path))
        current = body["current-snapshot-id"]
        chosen = random.choice(body["snapshots"]) if random.random() < 0.3 else None
        if chosen is not None and chosen["snapshot-id"] != current:
            until_ms = watch.until_ms(chosen["snapshot-id"])
            from_ms = until_ms if until_ms is None else min(found_ms, until_ms)
        else:
            chosen = next(s for s in body["snapshots"] if s["snapshot-id"] == current)
        for manifest in avro.read_container(get(chosen["manifest-list"]))[1]:
            for entry in avro.read_container(get(manifest["manifest_path"]))[1]:
                get(entry["data_file"]["file_path"])
    except (UnavailableError, OutcomeUnknownError):
        return
    except NotFoundError as error:
        kept = worker.instance.tables.get(table_id)
        if kept is None or kept.deleting:
            return
        if from_ms is None or now_ms() - from_ms < limit_ms:
            watch.oracle.fail(f"a reader of {path}, found at {found_ms}, met {error}")


class Outsiders:
    """The readers of a run, and the time until which its publishers are stopped.

    What they do is drawn for themselves: runs in which nothing is published are as without them.
    """

    def __init__(self, simulation: Simulation) -> None:
        """Begin with publishers at work."""
        self.simulation, self.stopped_ms = simulation, 0
        self.random = Random(f"outsiders {simulation.seed}")

    def begin(self) -> None:
        """Let a reader begin to read a table that is published, or was."""
        run = self.simulation
        tables = [t for t in run.watch.published if run.instance.tables.get(t) is not None]
        if tables:
            watch = run.watch.published_of(self.random.choice(tables))
            run.start(
                "outsider",
                f"reads what is published of {watch.oracle.table_id}",
                lambda worker: read_as_outsider(
                    worker, watch, self.random, lambda: run.now_ms, run.sleep
                ),
            )

    def stop_publishers(self) -> int:
        """Let nothing be published for a while, as if the function failed; return how long."""
        for_ms = int(self.simulation.injector.between(1000, 12 * HOUR_MS))
        self.stopped_ms = max(self.stopped_ms, self.simulation.now_ms + for_ms)
        self.simulation.faults["publishers stopped"] += 1
        return for_ms

    def is_stopped(self, queue: str) -> bool:
        """Return whether what a queue feeds is stopped now."""
        return queue == "iceberg-changes" and self.simulation.now_ms < self.stopped_ms
