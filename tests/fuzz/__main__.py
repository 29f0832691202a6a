"""Fuzz everything for some minutes: ``python -m tests.fuzz MINUTES [NAME…]``, or `make fuzz`.

Each target runs in a process of its own, so that one that crashes is a finding and not the end.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from importlib.util import find_spec

from tests.fuzz.targets import all_targets

_KILLED_AFTER_SECONDS = 120
"""What no example takes: a target that is not done so long after its time is stuck."""
_GUIDED = re.compile(r"Done (\d+) runs")


def main() -> int:
    """Run each target for its share of the time; print the examples and findings of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("minutes", type=float)
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    targets = {n: t for n, t in all_targets().items() if not asked.names or n in asked.names}
    guides = find_spec("atheris") is not None
    shares = sum(1 + (guides and target.guided) for target in targets.values())
    seconds = 60 * asked.minutes / max(1, shares)
    begun = int(time.time())
    print(f"seed {begun}, {seconds:.0f} seconds each" + ("" if guides else ", without atheris"))
    findings = 0
    for name, target in targets.items():
        command = ["tests.fuzz.one", name, "--seconds", str(seconds), "--seed", str(begun)]
        findings += _run(name, command, seconds)
        if guides and target.guided:
            findings += _run(name, ["tests.fuzz.guided", name, str(int(seconds) + 1)], seconds)
    print(f"{findings} findings")
    return 1 if findings else 0


def _run(name: str, command: list[str], seconds: float) -> bool:
    """Run a target; print the outcome, and its whole output if it found something."""
    arguments = [sys.executable, "-X", "faulthandler", "-m", *command]
    how = command[0].rpartition(".")[2]
    try:
        done = subprocess.run(
            arguments, capture_output=True, text=True, timeout=seconds + _KILLED_AFTER_SECONDS
        )
    except subprocess.TimeoutExpired as stuck:
        print(f"{name} ({how}): FOUND: it is stuck\n{stuck.stdout}\n{stuck.stderr}", flush=True)
        return True
    guided = _GUIDED.search(done.stderr)
    result = guided[1] if guided else done.stdout.strip().rpartition(": ")[2]
    if done.returncode:
        print(f"{name} ({how}): FOUND\n{done.stdout}\n{done.stderr[-8000:]}", flush=True)
    else:
        print(f"{name} ({how}): {result} examples", flush=True)
    return done.returncode != 0


if __name__ == "__main__":
    sys.exit(main())
