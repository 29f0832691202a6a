"""A table in numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from dormouse.showing import HtmlText, Shown, show_facts


@dataclass(frozen=True, slots=True, repr=False)
class Status(Shown):
    """A table in numbers, all but `pending` at one version.

    `shards` are those with rows that count, and `size_bytes` the size of their files; `references`
    the rows of a shard in a partition;
    `rows` is what the references say, an estimate where a partition was split not long ago.
    `files_waiting` counts the files that were dropped for the table, and are neither ingested nor
    refused. `pending` counts these, assigned jobs, and messages in the instance's working queues,
    those of other tables too: 0 means that all is done.
    """

    rows: int
    size_bytes: int
    shards: int
    references: int
    partitions: int
    leaf_partitions: int
    version: int
    files_waiting: int
    pending: int

    def _shown(self) -> tuple[str, HtmlText]:
        return show_facts("status", asdict(self))
