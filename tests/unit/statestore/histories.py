"""Random histories of a table, most of whose transactions hold, and some of which do not."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from dormouse.keys import Key, encode_key
from dormouse.log.log import fold_delta
from dormouse.state.partitions import ROOT, NewShard, PartitionTree, Shard
from dormouse.state.rules import needed_deletions
from dormouse.state.state import (
    DAY_MS,
    AddShards,
    AssignJob,
    DeleteShards,
    Deletion,
    DisputeReason,
    DisputeShards,
    Entry,
    ForgetDeletions,
    HideRows,
    ReleaseJob,
    ReplaceShards,
    ResetTable,
    ResolveDisputes,
    SplitPartition,
    TableState,
    Transaction,
)
from tests.support.sealing import sealing_of
from tests.support.strategies import short_keys
from tests.support.trees import initialise

ONE_LEAF = tuple(PartitionTree.from_split_points([]).by_id.values())


@dataclass(frozen=True)
class Delta:
    """What one commit call is given, and the clock's time at it."""

    transactions: tuple[Transaction, ...]
    time_ms: int
    generation: int

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(Entry(t, self.time_ms, self.generation) for t in self.transactions)


def shard_of(name: str, low: Key, high: Key, partition: str = ROOT) -> NewShard:
    shard = Shard.of(name, 10, 1000, min(low, high), max(low, high))
    return NewShard(shard, ((partition, 10),))


def merge_of(job: str, inputs: tuple[str, ...], output: NewShard) -> ReplaceShards:
    """The end of a job in the root that took all rows of shards of ten, and kept those of one."""
    taken = tuple((shard, 10) for shard in inputs)
    return ReplaceShards(job, ROOT, inputs, (output,), taken, 10 * len(inputs) - output.shard.rows)


def deletion_of(name: str, one: Key, other: Key) -> Deletion:
    """A deletion of the rows between two keys for which a column is true."""
    low, high = sorted((encode_key(one), encode_key(other)))
    return Deletion(name, '"done"', ("{}",), ((low, None if low == high else high),))


def addition(number: int, low: Key = ("a",), high: Key = ("z",)) -> AddShards:
    """A valid ingest job, another for each number."""
    return AddShards(f"job{number}", (f"source{number}",), (shard_of(f"s{number}", low, high),))


def fold_all(deltas: list[Delta]) -> TableState:
    state = TableState()
    for delta in deltas:
        state, _ = fold_delta(state, delta.entries)
    return state


@st.composite
def histories(draw: st.DrawFn, *, longest: int = 25) -> list[Delta]:
    """Deltas of one to three transactions; clocks wander, some transactions come twice."""
    deltas = [Delta((initialise(ONE_LEAF),), 1, 0)]
    state = fold_all(deltas)
    steps = st.sampled_from([-5, 0, 1, 60_000, DAY_MS, 16 * DAY_MS])
    for number in range(draw(st.integers(0, longest))):
        transactions = tuple(
            _next(draw, state, f"{number}-{i}", deltas) for i in range(draw(st.integers(1, 3)))
        )
        generation = max(0, state.generation - draw(st.sampled_from([0, 0, 0, 0, 1])))
        time_ms = max(0, state.time_ms + draw(steps))
        deltas.append(Delta(transactions, time_ms, generation))
        state, _ = fold_delta(state, deltas[-1].entries)
    return deltas


_causes = st.sampled_from(((None, None), ("p", None), (None, "r")))


def _next(draw: st.DrawFn, state: TableState, name: str, past: list[Delta]) -> Transaction:
    """Draw a transaction that holds in `state`, or repeat a past one."""
    free = sorted({r.partition for r in state.all_references() if r.job is None})
    kind = draw(st.sampled_from(_kinds(state, free, past)))
    if kind in ("hide", "forget"):
        return _of_rows(draw, state, kind, name)
    match kind:
        case "assign":
            leaf = draw(st.sampled_from(free))
            partition = draw(st.sampled_from([leaf, *state.partitions.ancestors(leaf)]))
            held = [s for s in sorted(state.shards) if [*state.references_below(partition, s)]]
            inputs = draw(st.lists(st.sampled_from(held), min_size=1, unique=True))
            return AssignJob(f"c{name}", partition, tuple(inputs), *draw(_causes))
        case "release":
            return ReleaseJob(draw(st.sampled_from(sorted(state.jobs))))
        case "replace":
            job = state.jobs[draw(st.sampled_from(sorted(state.jobs)))]
            shards = [state.shards[s] for s in job.inputs]
            low, high = min(s.min_key for s in shards), max(s.max_key for s in shards)
            span = state.partitions.get(job.partition).range
            whole = span.contains_span(encode_key(low), encode_key(high))
            outputs = (shard_of(f"o{name}", low, high, job.partition),) if whole else ()
            taken = tuple((s, draw(st.integers(0, 10))) for s in job.inputs)
            rows = sum(count for _, count in taken)
            outputs = outputs if rows >= 10 else ()
            written = sum(new.shard.rows for new in outputs)
            return ReplaceShards(job.id, job.partition, job.inputs, outputs, taken, rows - written)
        case "split":
            leaf = draw(st.sampled_from([p.id for p in state.partitions.leaves()]))
            rows_left = tuple(
                (r.shard, draw(st.integers(0, 10))) for r in state.references_in(leaf)
            )
            return SplitPartition(leaf, encode_key(draw(short_keys)), rows_left)
        case "seal":
            up_to = draw(st.sampled_from(sorted(set(state.sources.values()) | {state.version})))
            replaced = draw(st.integers(0, len(state.source_segments)))
            return sealing_of(state, f"g{name}", up_to=up_to, replaced=replaced)
        case "delete":
            gone = draw(st.sets(st.sampled_from(sorted(state.unreferenced)), min_size=1))
            return DeleteShards(tuple(sorted(gone)))
        case "dispute":
            shards = draw(st.sets(st.sampled_from(sorted(state.shards)), min_size=1, max_size=2))
            return DisputeShards(tuple(sorted(shards)), DisputeReason.BYTES_DAMAGED, f"d{name}")
        case "resolve":
            shard = draw(st.sampled_from(sorted(state.disputed)))
            return ResolveDisputes(((shard, state.disputed[shard].since_ms),))
        case "reset":
            tree = PartitionTree.from_split_points([draw(short_keys)])
            return ResetTable(state.generation + 1, tree.splits)
        case "repeat":
            delta = draw(st.sampled_from(past))
            return draw(st.sampled_from(delta.transactions))
    low, high = draw(short_keys), draw(short_keys)
    shards = (shard_of(f"s{name}", low, high),)
    return AddShards(f"a{name}", (f"source{name}",), shards, state.sealed_to)


def _of_rows(draw: st.DrawFn, state: TableState, kind: str, name: str) -> Transaction:
    """Draw a deletion, or that some are forgotten, if they can be."""
    if kind == "hide":
        return HideRows(deletion_of(f"h{name}", draw(short_keys), draw(short_keys)))
    needed = needed_deletions(state, state.deletions)
    numbers = [each.number for each in state.deletions]
    done = tuple(number for number in numbers if number not in needed)
    return ForgetDeletions(done or (draw(st.sampled_from(numbers)),))


def _kinds(state: TableState, free: list[str], past: list[Delta]) -> list[str]:
    kinds = ["add", "add", "repeat", "split", "hide"]
    kinds += ["forget"] if state.deletions else []
    kinds += ["assign"] * 2 if free else []
    kinds += ["release", "replace", "replace"] if state.jobs else []
    kinds += ["delete"] if state.unreferenced else []
    kinds += ["dispute"] if state.shards else []
    kinds += ["resolve"] if state.disputed else []
    kinds += ["seal"] if len(state.sources_up_to(state.version)) else []
    kinds += ["reset"] if len(past) > 10 else []
    return kinds
