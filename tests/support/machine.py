"""A hypothesis machine that does random things to a table, with the rows' keys as its oracle.

`go` makes a change: here by the fold alone; tests of stores make it commit instead.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dormouse.keys import Key, KeyRange, encode_key
from dormouse.state.fold import Verdict, apply
from dormouse.state.partitions import ROOT, NewShard, PartitionTree, Shard
from dormouse.state.rules import AlreadyCommitted, Outcome, Rejected
from dormouse.state.state import (
    AddShards,
    AssignJob,
    DeleteShards,
    DisputeReason,
    DisputeShards,
    Entry,
    ExtendTree,
    ReleaseJob,
    ReplaceShards,
    ResetTable,
    ResolveDisputes,
    SplitPartition,
    TableState,
    Transaction,
)
from dormouse.state.validation import broken_invariants
from tests.support.strategies import short_keys
from tests.support.trees import initialise


def shard_of(name: str, keys: list[Key], *placed: tuple[str, int]) -> NewShard:
    """A shard whose rows have just these keys, placed in the root by default."""
    ordered = sorted(keys)
    shard = Shard.of(name, len(keys), 100 * len(keys), ordered[0], ordered[-1])
    return NewShard(shard, placed or ((ROOT, len(keys)),))


class TableMachine(RuleBasedStateMachine):
    """Random transactions; the oracle is the rows' keys, and which shard holds which."""

    def __init__(self) -> None:
        super().__init__()
        self.state = TableState()
        self.keys_of: dict[str, list[Key]] = {}
        self.rows: Counter[Key] = Counter()
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"n{self.count:04d}"

    def go(self, transaction: Transaction) -> Verdict:
        entry = Entry(transaction, self.count, self.state.generation)
        before = self.state
        self.state, verdict = apply(self.state, entry)
        if verdict.violations:
            assert self.state is before
        else:  # whatever was applied is recognised when it comes again
            again, second = apply(self.state, entry)
            assert second.repeated or isinstance(transaction, ResetTable)
            assert again is self.state or isinstance(transaction, ResetTable)
        return verdict

    @initialize(points=st.lists(short_keys, unique=True, max_size=4))
    def initialise(self, points: list[Key]) -> None:
        tree = PartitionTree.from_split_points(sorted(points))
        assert self.go(initialise(tree)) == Verdict()

    @rule(data=st.data(), keys=st.lists(short_keys, min_size=1, max_size=6))
    def add_a_shard_placed_on_any_level(self, data: st.DataObject, keys: list[Key]) -> None:
        name = self.name()
        partitions = sorted(self.state.partitions.by_id)
        chosen = data.draw(st.sampled_from(partitions))
        span = self.state.partitions.get(chosen).range
        held = [key for key in keys if span.contains(encode_key(key))]
        if not held:
            return
        new = shard_of(name, held, (chosen, len(held)))
        looked_up_to = self.state.sealed_to
        assert self.go(AddShards(name, (f"source-{name}",), (new,), looked_up_to)) == Verdict()
        self.keys_of[name] = held
        self.rows.update(held)

    @rule(data=st.data())
    def assign(self, data: st.DataObject) -> None:
        references = sorted(self.state.all_references(), key=lambda r: (r.partition, r.shard))
        if references:
            tree, one = self.state.partitions, data.draw(st.sampled_from(references))
            at = data.draw(st.sampled_from([one.partition, *tree.ancestors(one.partition)]))
            within = [r for r in references if at in (r.partition, *tree.ancestors(r.partition))]
            same = sorted({r.shard for r in within})
            inputs = tuple(data.draw(st.sets(st.sampled_from(same), min_size=1)))
            self.go(AssignJob(self.name(), at, inputs))

    @rule(data=st.data(), cut=st.booleans())
    def finish_a_job(self, data: st.DataObject, cut: bool) -> None:
        if not len(self.state.jobs):
            return
        job = self.state.jobs[data.draw(st.sampled_from(sorted(self.state.jobs)))]
        span = self.state.partitions.get(job.partition).range
        merged = sorted(
            k for s in job.inputs for k in self.keys_of[s] if span.contains(encode_key(k))
        )
        middle = len(merged) // 2 if cut else 0
        outputs = []
        for part in (merged[:middle], merged[middle:]):
            if part:
                name = self.name()
                outputs.append(shard_of(name, part, (job.partition, len(part))))
                self.keys_of[name] = part
        taken = tuple(
            (s, sum(map(span.contains, map(encode_key, self.keys_of[s])))) for s in job.inputs
        )
        before = self.state.disputed
        done = ReplaceShards(job.id, job.partition, job.inputs, tuple(outputs), taken)
        assert self.go(done) == Verdict()
        assert self.state.disputed == before, "all rows were taken, each once"

    @rule(data=st.data())
    def release_a_job(self, data: st.DataObject) -> None:
        if len(self.state.jobs):
            self.go(ReleaseJob(data.draw(st.sampled_from(sorted(self.state.jobs)))))

    @rule(data=st.data(), at=short_keys)
    def split(self, data: st.DataObject, at: Key) -> None:
        leaf = data.draw(st.sampled_from([leaf.id for leaf in self.state.partitions.leaves()]))
        self.go(SplitPartition(leaf, encode_key(at)))

    @rule(points=st.lists(short_keys, min_size=1, max_size=3, unique=True))
    def extend_the_tree_by_several_splits(self, points: list[Key]) -> None:
        tree, splits = self.state.partitions, []
        for at in points:
            leaf = tree.leaf_containing(encode_key(at))
            if leaf.range.min < at:
                tree = tree.split(leaf.id, encode_key(at))
                splits.append((leaf.id, encode_key(at)))
        if splits:
            assert self.go(ExtendTree(tuple(splits))) == Verdict()

    @rule(data=st.data())
    def dispute_a_shard(self, data: st.DataObject) -> None:
        if len(self.state.shards):
            shard = data.draw(st.sampled_from(sorted(self.state.shards)))
            damaged = DisputeShards((shard,), DisputeReason.BYTES_DAMAGED, self.name())
            assert self.go(damaged) == Verdict()
            assert shard in self.state.disputed

    @rule(data=st.data())
    def settle_a_dispute(self, data: st.DataObject) -> None:
        if len(self.state.disputed):
            shard = data.draw(st.sampled_from(sorted(self.state.disputed)))
            since_ms = self.state.disputed[shard].since_ms
            assert self.go(ResolveDisputes(((shard, since_ms),))) == Verdict()
            assert shard not in self.state.disputed

    @rule()
    def forget_what_nothing_references(self) -> None:
        gone = tuple(sorted(set(self.state.unreferenced) - set(self.state.disputed)))
        if gone:
            assert self.go(DeleteShards(gone)) == Verdict()
        for shard in self.state.disputed:
            assert self.go(DeleteShards((shard,))).violations

    @rule(points=st.lists(short_keys, unique=True, max_size=2))
    def clear(self, points: list[Key]) -> None:
        tree = PartitionTree.from_split_points(sorted(points))
        generation = self.state.generation + 1
        assert self.go(ResetTable(generation, tree.splits)) == Verdict()
        self.rows.clear()

    @invariant()
    def no_invariant_is_broken(self) -> None:
        assert not broken_invariants(self.state)

    @invariant()
    def every_row_is_referenced_exactly_once(self) -> None:
        found: Counter[Key] = Counter()
        for reference in self.state.all_references():
            span = self.state.partitions.get(reference.partition).range
            found.update(k for k in self.keys_of[reference.shard] if span.contains(encode_key(k)))
        assert found == self.rows

    @invariant()
    def a_query_of_everything_reads_every_row_exactly_once(self) -> None:
        found: Counter[Key] = Counter()
        for span, references in self.state.partitions_to_read(KeyRange()):
            for reference in references:
                found.update(
                    k for k in self.keys_of[reference.shard] if span.contains(encode_key(k))
                )
        assert found == self.rows


def verdict_of(outcome: Outcome) -> Verdict:
    """Return the outcome of a commit in the words of the fold."""
    if isinstance(outcome, Rejected):
        return Verdict(outcome.violations)
    return Verdict(repeated=isinstance(outcome, AlreadyCommitted))
