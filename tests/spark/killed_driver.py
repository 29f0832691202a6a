"""A driver of a bulk import that is killed at its commit; run by a test as a process of its own.

``killed_driver.py before|after ARGUMENTS…``: the arguments are those of the job.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from dormouse.log.engine import StateStore
from dormouse.state.state import AddShards
from dormouse_spark.entry import main

commit = StateStore.commit


def killed(self: StateStore, *transactions: Any, generation: int) -> Any:
    """Commit, and be killed before or after it."""
    is_last = any(isinstance(each, AddShards) for each in transactions)
    if is_last and sys.argv[1] == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    outcomes = commit(self, *transactions, generation=generation)
    if is_last:
        os.kill(os.getpid(), signal.SIGKILL)
    return outcomes


if __name__ == "__main__":
    StateStore.commit = killed  # type: ignore[method-assign]
    sys.exit(main("ingest", sys.argv[2:]))
