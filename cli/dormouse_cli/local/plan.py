"""What a template asks for, resolved: plain values that `deploy` and the Lambda host carry out.

Made by `template.read`. Names are those that the resources have on AWS.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dormouse.errors import DormouseError


class LocalStackError(DormouseError):
    """The local stack cannot do what was asked; the message says what to change."""


class TemplateError(LocalStackError):
    """The template holds something that the local stack does not understand, and where."""


class StartError(LocalStackError):
    """A process of the local stack did not come up."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A bucket, queue, table or Spark application; its properties are those of the template."""

    name: str
    arn: str
    properties: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PlannedFunction:
    """A Lambda function, its code as folders on this machine."""

    logical_id: str
    name: str
    arn: str
    handler: str
    code: Path
    layers: tuple[Path, ...]
    timeout_seconds: int
    memory_mb: int
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class EventSource:
    """An event source mapping: which queue invokes which function, and how."""

    function: str
    queue_name: str
    queue_arn: str
    batch_size: int
    batching_window_seconds: int
    reports_item_failures: bool
    maximum_concurrency: int | None


@dataclass(frozen=True, slots=True)
class PlannedSchedule:
    """A function that is invoked at a fixed rate; with `input` instead of the usual event."""

    arn: str
    function: str
    rate_seconds: int
    input: Any


@dataclass(frozen=True, slots=True)
class EventRule:
    """A rule of EventBridge: which events go to which queues."""

    name: str
    pattern: dict[str, Any]
    queue_arns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HttpRoute:
    """A route of an HTTP API: which function answers a method, or ``ANY``, of a path.

    The last part of a path may be ``{name+}``, which matches all that follows.
    """

    method: str
    path: str
    function: str

    @property
    def key(self) -> str:
        """The route as AWS calls it."""
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class Deployment:
    """All that the local stack runs; functions are known by their names."""

    parameters: Mapping[str, str]
    buckets: tuple[Stored, ...]
    queues: tuple[Stored, ...]
    tables: tuple[Stored, ...]
    spark_applications: tuple[Stored, ...]
    functions: tuple[PlannedFunction, ...]
    event_sources: tuple[EventSource, ...]
    schedules: tuple[PlannedSchedule, ...]
    rules: tuple[EventRule, ...]
    routes: tuple[HttpRoute, ...] = ()

    def with_at_most(self, concurrency: int) -> "Deployment":
        """The same deployment, whose event sources run no more batches at once than that."""
        sources = tuple(
            replace(source, maximum_concurrency=min(source.maximum_concurrency, concurrency))
            if source.maximum_concurrency is not None
            else source
            for source in self.event_sources
        )
        return replace(self, event_sources=sources)

    def function(self, name: str) -> PlannedFunction:
        """The function of that name, logical id or stage. Raises LocalStackError: there is none."""
        for function in self.functions:
            if name in (function.name, function.logical_id, function.code.name):
                return function
        stages = ", ".join(sorted(function.code.name for function in self.functions))
        raise LocalStackError(f"there is no function {name!r}", hint=f"there are: {stages}")
