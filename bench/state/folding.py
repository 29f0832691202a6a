"""Measure the fold of a commit beside that of an earlier release, in turns, in one run.

Called with a number of references and a snapshot of so many. Two processes fold the mix of
`workload` onto it, one with this code and one with that of the commit `BEFORE`, which git checks
out to a folder of its own. They take turns, a batch at a time: what slows the machine for a while
slows both, so ratios hold on a busy machine, too.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

BEFORE = "ad924375"
"""The commit before the fold became quicker."""
ROOT = Path(__file__).parents[2]
COMMITS = 51
"""A batch of the mix: a commit that assigns 25 jobs, 25 that ingest, and 25 that compact."""
TURNS = 40
IDENTITY = "bench/0"
WARM_UP = 3
"""The first turns, which load modules, are not counted."""


def fold_in_turns(snapshot: Path) -> Iterator[float]:
    """Yield the CPU seconds of folding each batch onto a snapshot, with the code imported here.

    Python's cyclic collector is off, as its runs belong to no commit.
    """
    from bench.state.memory import TABLE
    from bench.state.workload import Clock, Ids, Mix
    from dormouse.fold.fold import Verdict
    from dormouse.model.transactions import Entry
    from dormouse.statestore.delta.codec import decode_delta, encode_delta
    from dormouse.statestore.log.reader import fold_delta
    from dormouse.statestore.snapshot.codec import decode_snapshot

    state, clock = decode_snapshot(TABLE, snapshot.read_bytes(), "bench"), Clock()
    deltas = Mix(state, Ids(clock, 3), 4).deltas()
    gc.disable()
    while True:
        # decoded, as from a log: texts that no earlier commit has hashed or compared
        batch = [
            decode_delta(
                encode_delta([Entry(each, clock.ms, 0) for each in delta], IDENTITY),
                IDENTITY,
                "a delta",
            )
            for delta in islice(deltas, COMMITS)
        ]
        gc.collect()
        verdicts: list[Verdict] = []
        began = time.process_time()
        for entries in batch:
            state, judged = fold_delta(state, entries)
            verdicts += judged
        seconds = time.process_time() - began
        if any(verdict.violations for verdict in verdicts):
            raise ValueError("transactions of the mix were refused")
        yield seconds


@contextmanager
def folder(tree: Path, snapshot: Path) -> Iterator[Iterator[float]]:
    """Begin a process that folds with the code in `tree`; what it yields it measures when asked."""
    paths = os.pathsep.join(map(str, (tree, tree / "shared")))
    with subprocess.Popen(
        [sys.executable, __file__, "fold", str(snapshot)],
        env={**os.environ, "PYTHONPATH": paths},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        to_it, from_it = process.stdin, process.stdout
        assert to_it
        assert from_it

        def seconds() -> Iterator[float]:
            while True:
                to_it.write(b"\n")
                to_it.flush()
                yield float(from_it.readline())

        yield seconds()


def measure(references: int, snapshot: Path) -> None:
    """Print what the fold of a commit takes, before and now, and the ratio."""
    from bench.common.figures import emit
    from dormouse.statestore.by_key.blocks import without_key_index

    git = ["git", "-C", str(ROOT), "worktree"]
    with TemporaryDirectory() as parent, ExitStack() as stack:
        tree = str(Path(parent) / "before")
        subprocess.run([*git, "add", "--quiet", "--detach", tree, BEFORE], check=True)
        stack.callback(subprocess.run, [*git, "remove", "--force", tree], check=True)
        plain = Path(parent) / "snapshot"  # the earlier release knows no key index
        plain.write_bytes(without_key_index(snapshot.read_bytes()))
        both = [stack.enter_context(folder(Path(t), plain)) for t in (tree, ROOT)]
        turns = list(islice(zip(*both, strict=True), WARM_UP + TURNS))[WARM_UP:]
    before, now = zip(*turns, strict=True)
    emit(
        "fold",
        "commit",
        references,
        before_cpu_microseconds=median(before) / COMMITS * 1e6,
        now_cpu_microseconds=median(now) / COMMITS * 1e6,
        now_to_before=median(n / b for b, n in turns),
    )


def main() -> None:
    """Measure at a size and from a snapshot: two arguments."""
    match sys.argv[1:]:
        case ["fold", snapshot]:
            for _, seconds in zip(sys.stdin, fold_in_turns(Path(snapshot)), strict=False):
                print(seconds, flush=True)
        case [references, snapshot]:
            measure(int(float(references)), Path(snapshot))
        case _:
            sys.exit("usage: python -m bench.state.folding REFERENCES PATH_OF_THE_SNAPSHOT")


if __name__ == "__main__":
    main()
