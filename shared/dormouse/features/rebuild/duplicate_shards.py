"""Find the shards of a compaction whose rows other shards of the same run have.

A run writes either one series of shards (*whole*, numbers below 1,000,000), or several *parts* side
by side (numbers from 1,000,000 on). If a run crashes and its job is then cut into parts, both may
be there.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from dormouse.model.versions.provenance import Provenance
from dormouse.stored.paths import PART_NUMBERS, run_of_shard

MARKER_NUMBER = 2**63
"""The shard number with which a run marker takes part in a rebuild; no shard has it."""


def is_marker(shard_id: str) -> bool:
    """Return whether an id was made for a run marker, rather than for a shard."""
    return run_of_shard(shard_id)[1] == MARKER_NUMBER


def duplicate_shards(
    shards: Mapping[str, Provenance], marked: Mapping[str, Container[int]]
) -> frozenset[str]:
    """Return the shards of compactions that do not count, because others have their rows.

    `marked` has the shard numbers that the marker of each run lists, for runs that have one.

    Example: a run of job j wrote all rows to j-0, its last shard, and crashed before its commit.
    The job was cut into two parts, which wrote j-1000000 and j-2000000 with the same rows. Later, a
    process that was believed dead wrote part 9, j-9000000. Which of these have the rows that count?
    The first rule that applies decides:

    1. A shard of the whole was merged, such as j-0 into k-0: the run was committed as a whole, so
       the parts are duplicates.
    2. The run has a marker: it was put before a commit in parts, so the parts that it lists count.
       The whole, and parts that it does not list (j-9000000), are duplicates.
    3. A part was merged: the run was committed in parts, so the whole is a duplicate.
    4. The whole is complete: nothing is known of a commit, and the whole surely has all rows.
       Parts without a marker may lack some, so they are duplicates.

    Otherwise, no shard is a duplicate; `choose_runs` decides whether the run counts.
    """
    merged = {
        shard
        for provenance in shards.values()
        for shard in (*provenance.lineage.inputs, *provenance.lineage.superseded)
    }
    whole_merged = {run for run, number in map(run_of_shard, merged) if number < PART_NUMBERS}
    parts_merged = {run for run, number in map(run_of_shard, merged) if number >= PART_NUMBERS}
    duplicates: set[str] = set()
    for run, by_number in _compactions(shards).items():
        whole = {shard for number, shard in by_number.items() if number < PART_NUMBERS}
        parts = set(by_number.values()) - whole
        if run in whole_merged:
            duplicates |= parts
        elif run in marked:
            counted = marked[run]
            duplicates |= {
                shard
                for number, shard in by_number.items()
                if not is_marker(shard) and number not in counted
            }
        elif run in parts_merged:
            duplicates |= whole
        elif any(shards[shard].last for shard in whole):
            duplicates |= parts
    return frozenset(duplicates)


def _compactions(shards: Mapping[str, Provenance]) -> dict[str, dict[int, str]]:
    """Return the shards of each run of a compaction, by their number in the run."""
    runs: dict[str, dict[int, str]] = {}
    for shard, provenance in shards.items():
        if provenance.lineage.inputs:
            run, number = run_of_shard(shard)
            runs.setdefault(run, {})[number] = shard
    return runs
