"""Spark without Spark: what our jobs use of a SparkContext, done in the process of the driver.

A task that fails is run again from its input, as Spark does, and so is what was not kept of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dormouse.errors import OutcomeUnknownError, UnavailableError

ATTEMPTS = 4
"""How often Spark runs a task before it gives the job up."""

Partition = list[Any]


class LocalContext:
    """Stands for a SparkContext."""

    defaultParallelism = 2  # noqa: N815  # Spark's name

    def parallelize(self, items: Iterable[Any], slices: int) -> LocalRdd:
        """Spread items over partitions."""
        given = list(items)
        size = -(-len(given) // slices) if slices else 1
        parts = [given[n * size : (n + 1) * size] for n in range(slices)]
        return LocalRdd([lambda part=part: part for part in parts])


@dataclass
class LocalRdd:
    """Partitions, each made when it is asked for."""

    make: list[Callable[[], Partition]]
    kept: dict[int, Partition] | None = field(default=None)

    def mapPartitionsWithIndex(  # noqa: N802  # Spark's name
        self, task: Callable[[int, Iterator[Any]], Iterable[Any]]
    ) -> LocalRdd:
        """Run a task for each partition, with its number."""
        return LocalRdd([self._task(n, task) for n in range(len(self.make))])

    def mapPartitions(self, task: Callable[[Iterator[Any]], Iterable[Any]]) -> LocalRdd:  # noqa: N802
        """Run a task for each partition."""
        return self.mapPartitionsWithIndex(lambda _, found: task(found))

    def filter(self, wanted: Callable[[Any], bool]) -> LocalRdd:
        """Return what of each partition is wanted."""
        return self.mapPartitions(lambda found: filter(wanted, found))

    def partitionBy(self, parts: int, number: Callable[[Any], int]) -> LocalRdd:  # noqa: N802
        """Send pairs to the partitions that their keys say."""
        shuffled: list[list[Any]] = []

        def shuffle() -> list[list[Any]]:
            if not shuffled:
                shuffled.extend([] for _ in range(parts))
                for n in range(len(self.make)):
                    for pair in self.partition(n):
                        shuffled[number(pair[0])].append(pair)
            return shuffled

        return LocalRdd([lambda n=n: shuffle()[n] for n in range(parts)])

    def persist(self, _: object) -> LocalRdd:
        """Keep each partition once it is made."""
        self.kept = {}
        return self

    def unpersist(self) -> LocalRdd:
        """Keep them no more."""
        self.kept = None
        return self

    def collect(self) -> list[Any]:
        """Return all items."""
        return [item for n in range(len(self.make)) for item in self.partition(n)]

    def partition(self, number: int) -> Partition:
        """Return one partition, recomputed if it is not stored; a failed attempt is retried."""
        if self.kept is not None and number in self.kept:
            return self.kept[number]
        for attempt in range(1, ATTEMPTS + 1):
            try:
                made = self.make[number]()
                break
            except (UnavailableError, OutcomeUnknownError) as error:
                if attempt == ATTEMPTS:
                    raise UnavailableError(f"Spark stopped the job: {error}") from error
        if self.kept is not None:
            self.kept[number] = made
        return made

    def _task(
        self, number: int, task: Callable[[int, Iterator[Any]], Iterable[Any]]
    ) -> Callable[[], Partition]:
        return lambda: list(task(number, iter(self.partition(number))))
