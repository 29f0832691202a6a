"""Users who tag versions of tables, untag them and restore them; and what then must hold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from random import Random

from dormouse.log.pinning import CLOCK_MARGIN_MS
from dormouse.messages.requests import AdminRequest, RestoreVersion, TagVersion, UntagVersion
from dormouse.ports import Services
from dormouse.state.versions import OwnerKind, Pin
from dormouse.tables.table import Table
from tests.simulation.instance import Instance

VERSIONS = ("tag",) * 4 + ("restore",) * 4 + ("untag",)
"""What users do with versions, in some of the runs."""
EVERY_SEED = 4
"""In a run of each so many seeds users tag and restore versions."""
TAGS = ("red", "blue")
RECENT = 6
"""Of so many versions before the newest users speak."""


class VersionUsers(ABC):
    """The part of the users that is about versions. They see the newest version of each table."""

    instance: Instance
    random: Random
    operations: tuple[str, ...]

    @abstractmethod
    def ask(self, request: AdminRequest) -> str:
        """Send a request."""

    def tag(self) -> str:
        """Ask for a tag."""
        name, version, _ = self._seen()
        return self.ask(TagVersion(self._request(), name, version, self.random.choice(TAGS)))

    def untag(self) -> str:
        """Ask for a tag to be removed."""
        name, _, tag = self._seen()
        return self.ask(UntagVersion(self._request(), name, tag or TAGS[0]))

    def restore(self) -> str:
        """Ask for an earlier version to be the newest."""
        name, version, tag = self._seen()
        as_of = tag if tag and self.random.random() < 0.5 else version
        return self.ask(RestoreVersion(self._request(), name, as_of))

    @cached_property
    def services(self) -> Services:
        """What a user sees of the instance, past all faults."""
        return self.instance.worker("users").wiring.services

    def _seen(self) -> tuple[str, int, str]:
        """Draw a table, one of its last versions, and one of its tags if it has any."""
        tables = [table for table in self.instance.tables.all() if not table.deleting]
        if not tables:
            return self._name(), 1, ""
        table = self.random.choice(tables)
        newest = self.services.store(table).current().version
        tags = sorted(tags_of(self.instance, table)) or [""]
        version = max(1, newest - self.random.randint(1, RECENT))
        return table.name, version, self.random.choice(tags)

    def _releases(self) -> bool:
        """Draw whether what removes rows is to release the tags that hold them."""
        return "tag" in self.operations and self.random.random() < 0.7

    @abstractmethod
    def _name(self) -> str:
        """Draw the name of a table."""

    @abstractmethod
    def _request(self) -> str:
        """Return the id of a new request."""


def operations_with_versions(seed: int, operations: tuple[str, ...]) -> tuple[str, ...]:
    """Return the operations of the run of a seed."""
    return (*operations, *VERSIONS) if seed % EVERY_SEED == EVERY_SEED - 1 else operations


def pins_of(instance: Instance, table: Table) -> list[Pin]:
    """Return the confirmed pins of a table as they are stored, past all faults."""
    return [pin for pin in instance.pages.pins.all(table.state_id) if pin.is_confirmed]


def tags_of(instance: Instance, table: Table) -> dict[str, Pin]:
    """Return the tags of a table."""
    pins = pins_of(instance, table)
    return {pin.owner.name: pin for pin in pins if pin.owner.kind is OwnerKind.TAG}


def is_tagged(instance: Instance, table: Table, version: int) -> bool:
    """Return whether a version of a table has a tag."""
    return version in (pin.version for pin in tags_of(instance, table).values())


def held_versions(instance: Instance, table: Table, slack_ms: int) -> Iterator[int]:
    """Yield the versions of which no shard may be deleted; none if clocks are too far apart."""
    if slack_ms < CLOCK_MARGIN_MS:
        yield from (pin.version for pin in pins_of(instance, table))


def restored_to(instance: Instance, asked: list[AdminRequest], table: Table, at: int) -> int | None:
    """Return the version with which generation `at` of a table begins; None if with no rows."""
    for request in asked:
        became = instance.tables.became.get(request.request_id)
        is_it = became is not None and (became.id, became.generation) == (table.id, at)
        if isinstance(request, RestoreVersion) and is_it and became is not None:
            if isinstance(request.as_of, int):
                return request.as_of
            pins = instance.pages.pins.all(table.state_id)
            return next((p.version for p in pins if p.owner.name == became.restored), None)
    return None
