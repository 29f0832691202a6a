"""Flip single bits of a shard, and print what each stage makes of them: make bench-bit-flips."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.figures import page_with
from tests.bit_flips.trial import HARMLESS, REFUSED, WRONG, Trial

PAGE = Path(__file__).parents[2] / "bench" / "results" / "bit-flips.md"


def table(trial: Trial, number: int, seed: int) -> tuple[list[str], int]:
    """Return the lines of a table of what became of flips, and how many gave something wrong."""
    flips = list(trial.flips(number, seed))
    kinds = list(dict.fromkeys(flip.region for flip in flips))
    lines = [
        f"| {len(flips):,} bits, seed {seed} | {' | '.join(kinds)} | wrong |",
        f"|---|{'---|' * (len(kinds) + 1)}",
    ]
    wrong = 0
    for stage in trial.stages:
        counts = Counter((flip.region, trial.judged(stage, flip)) for flip in flips)
        cells = [
            f"{counts[kind, REFUSED]} refused, {counts[kind, HARMLESS]} harmless" for kind in kinds
        ]
        here = sum(counts[kind, WRONG] for kind in kinds)
        lines.append(f"| {stage} | {' | '.join(cells)} | {here} |")
        wrong += here
        print(lines[-1], file=sys.stderr, flush=True)
    return lines, wrong


def main() -> int:
    """Print the table; 1 if any stage made something wrong of a flipped bit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flips", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--page", action="store_true", help="put the table into bench/results/bit-flips.md"
    )
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        lines, wrong = table(Trial(Path(folder)), options.flips, options.seed)
    print("\n".join(lines))
    if options.page:
        PAGE.write_text(page_with(PAGE.read_text(), "bench-bit-flips", "\n".join(lines)))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
