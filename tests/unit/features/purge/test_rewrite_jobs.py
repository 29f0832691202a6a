"""Which jobs rewrite the shards of a purge, in any state: all hold, and leave nothing out."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from dormouse.features import purge
from dormouse.features.compaction import _placed
from dormouse.features.purge import references_to
from dormouse.state.fold import Verdict
from dormouse.state.partitions import PartitionTree
from dormouse.state.state import AssignJob
from tests.support.depth import examples
from tests.support.machine import TableMachine, shard_of


def test_each_output_of_a_job_of_several_leaves_has_its_rows_in_each() -> None:
    leaves = list(PartitionTree.from_split_points([("b",), ("c",), ("d",)]).leaves())
    outputs = [shard_of(f"o{rows}", [("a",)] * rows) for rows in (3, 6, 1)]
    names = {leaf.id: number for number, leaf in enumerate(leaves)}
    placed = [new.rows_by_partition for new in _placed(outputs, leaves, [4, 0, 5, 1])]
    assert [[(names[leaf], rows) for leaf, rows in each] for each in placed] == [
        [(0, 3)],
        [(0, 1), (2, 5)],
        [(3, 1)],
    ]


class RewritingMachine(TableMachine):
    """The machine of the fold, in which a purge assigns jobs, too."""

    @rule(data=st.data())
    def assign_all_that_is_free(self, data: st.DataObject) -> None:
        if not len(self.state.shards):
            return
        shards = frozenset(data.draw(st.sets(st.sampled_from(sorted(self.state.shards)))))
        most = data.draw(st.sampled_from([300, 1500, purge.JOINED_BYTES]))
        with patch.object(purge, "JOINED_BYTES", most):
            jobs = [*purge.rewrite_jobs(self.state, references_to(self.state, shards))]
        for partition, inputs in jobs:
            assert self.go(AssignJob(self.name(), partition, inputs)) == Verdict()
        left = [r.shard for r in references_to(self.state, shards) if r.job is None]
        assert set(left) <= set(self.state.disputed)


TestRewritesInAnyHistory = RewritingMachine.TestCase
TestRewritesInAnyHistory.settings = settings(
    max_examples=examples(40), stateful_step_count=30, deadline=None
)
