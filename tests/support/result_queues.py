"""Queues of somebody else, to which results of queries are sent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dormouse.ports import gone, not_listed


@dataclass
class MemoryResultQueues:
    """`ResultQueues` that keeps what it is sent; queues that are `missing` are listed, but gone."""

    listed: tuple[str, ...] = ("answers",)
    missing: set[str] = field(default_factory=set)
    bodies: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)

    def check(self, queue: str) -> None:
        if queue not in self.listed:
            raise not_listed(queue, self.listed)
        if queue in self.missing:
            raise gone(queue)

    def send(self, queue: str, group: str, bodies: Sequence[str]) -> None:
        self.check(queue)
        self.groups.append(group)
        self.bodies += bodies

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(body) for body in self.bodies]
