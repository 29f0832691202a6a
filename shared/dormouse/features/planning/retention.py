"""Which shards to rewrite so that rows which have aged off leave storage, not only the answers.

Compaction drops such rows from what it merges anyway; but where nothing is ingested any more,
nothing is merged. A row that had its time when its shard was written has aged off one age later,
so a shard is due once in each age, and what was written of it when it was is due an age after that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dormouse.features.planning.compaction import CompactionPlan
from dormouse.model.state import TableState
from dormouse.stored.paths import id_prefix
from dormouse.tables.properties import Properties

LEAST_INTERVAL_MS = 60 * 60 * 1000
"""However short an age is, no shard is rewritten more often than this."""


def plan_rewrites(
    state: TableState,
    properties: Properties,
    age_ms: int,
    now_ms: int,
    planned: Sequence[CompactionPlan],
) -> list[CompactionPlan]:
    """Propose rewriting free references of leaves whose shards were begun an age ago, or longer.

    They go in batches of at most `compaction_files` of a partition, oldest first. What is disputed
    is left alone, and what is `planned` already to those plans.
    """
    newest = id_prefix(now_ms - max(age_ms, LEAST_INTERVAL_MS))
    due = {shard for shard in state.shards if shard[: len(newest)] <= newest}
    due -= {*state.unreferenced, *state.disputed}
    if not due:
        return []
    taken = {(plan.partition, shard) for plan in planned for shard in plan.inputs}
    jobs = Counter([job.partition for job in state.jobs.values()])
    jobs.update(plan.partition for plan in planned)
    plans = []
    for partition in sorted(p for p, held in state.references.items() if held.free):
        if not state.partitions.get(partition).is_leaf:
            continue
        inputs = [
            reference.shard
            for reference in state.references_in(partition)
            if reference.job is None
            and reference.shard in due
            and (partition, reference.shard) not in taken
        ]
        size = properties.compaction_files
        batches = [tuple(inputs[i : i + size]) for i in range(0, len(inputs), size)]
        room = max(0, properties.compaction_jobs_per_partition - jobs[partition])
        plans += [CompactionPlan(partition, batch) for batch in batches[:room]]
    return plans
