"""Choose which shards of a partition to rewrite, each by itself or with others.

Age-off: compaction drops expired rows from what it merges, but a partition without new rows is not
merged. A row that was fresh when its shard was written has expired one age later. A shard is
therefore due one age after it was written, and the shard that replaces it one age after that.

Published tables: a full compaction also rewrites what is alone in its leaf, if some readers of
Iceberg read it slowly, or if some of its rows are dead, which all of them have to skip.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence

from dormouse.features.planning.compaction import CompactionPlan, plan_full_compactions
from dormouse.iceberg.encodings import quick_shards
from dormouse.iceberg.files.liveness import live_shards
from dormouse.model.state import TableState
from dormouse.stored.paths import id_prefix
from dormouse.tables.properties import Properties
from dormouse.tables.published import is_published

LEAST_INTERVAL_MS = 60 * 60 * 1000
"""The shortest interval between two rewrites of a row, however short the age is."""


def plan_everything(state: TableState, properties: Properties) -> list[CompactionPlan]:
    """Propose what a full compaction does: merge all runs of each leaf, and rewrite shards that
    should not stay as they are though nothing is to be merged with them.
    """
    plans = plan_full_compactions(state)
    if not is_published(properties):
        return plans
    groups = live_shards(state).values()
    partly_live = {live.shard.id for group in groups for live in group if live.dead}
    return plans + plan_rewrites(state, properties, partly_live | {*quick_shards(state)}, plans)


def plan_age_off(
    state: TableState,
    properties: Properties,
    age_ms: int,
    now_ms: int,
    planned: Sequence[CompactionPlan],
    among: Iterable[str] | None = None,
) -> list[CompactionPlan]:
    """Propose to rewrite the shards that are at least an age old.

    With `among`, only these partitions are looked at.
    """
    newest = id_prefix(now_ms - max(age_ms, LEAST_INTERVAL_MS))
    looked_at = [*(state.references if among is None else among)]
    shards = (r.shard for partition in looked_at for r in state.references_in(partition))
    due = {shard for shard in shards if shard[: len(newest)] <= newest}
    return plan_rewrites(state, properties, due, planned, looked_at) if due else []


def plan_rewrites(
    state: TableState,
    properties: Properties,
    due: Container[str],
    planned: Sequence[CompactionPlan],
    among: Iterable[str] | None = None,
) -> list[CompactionPlan]:
    """Propose to rewrite free references of leaves, `among` these partitions, to shards that are
    due.

    A plan has at most `compaction_files` shards of a partition, oldest first. Disputed shards, and
    those of `planned` compactions, are left out.
    """
    taken = {(plan.partition, shard) for plan in planned for shard in plan.inputs}
    jobs = Counter([job.partition for job in state.jobs.values()])
    jobs.update(plan.partition for plan in planned)
    plans = []
    looked_at = state.references if among is None else among
    for partition in sorted(p for p in looked_at if state.free_in(p)):
        if not state.partitions.get(partition).is_leaf:
            continue
        inputs = [
            reference.shard
            for reference in state.references_in(partition)
            if reference.job is None
            and reference.shard in due
            and reference.shard not in state.disputed
            and (partition, reference.shard) not in taken
        ]
        size = properties.compaction_files
        batches = [tuple(inputs[i : i + size]) for i in range(0, len(inputs), size)]
        room = max(0, properties.compaction_jobs_per_partition - jobs[partition])
        plans += [CompactionPlan(partition, batch) for batch in batches[:room]]
    return plans
