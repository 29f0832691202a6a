"""Let an engine plan the look-up of one key in a published table, in its own environment; called by
`bench.iceberg` with the number of shards, the folder they are published in, and the engine.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.common.figures import emit
from bench.state.memory import KEYS, key

PYTHON = Path(sys.prefix) / "engines" / "bin" / "python"
PLANNER = Path(__file__).parent / "planner.py"


def main() -> None:
    """Print the CPU seconds that planning took, and how many files are left to read."""
    shards, folder, engine = sys.argv[1:]
    metadata = (Path(folder) / "newest").read_text()
    (wanted,) = key(KEYS // 2 + 3)
    done = subprocess.run(
        [PYTHON, PLANNER, engine, metadata, wanted], capture_output=True, text=True, check=True
    )
    emit("planning", engine, int(shards), **json.loads(done.stdout))


if __name__ == "__main__":
    main()
