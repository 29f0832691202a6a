"""spark-submit as a module, for `lifeline` to run; `python -m dormouse_cli.local.spark_submit`."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path


def main() -> int:
    """Run spark-submit of this interpreter's pyspark on the arguments; return its exit code."""
    found = find_spec("pyspark")
    assert found is not None and found.origin is not None, "pyspark is not installed"
    home = Path(found.origin).parent
    python = {"PYSPARK_DRIVER_PYTHON": sys.executable, "PYSPARK_PYTHON": sys.executable}
    return subprocess.run(
        [home / "bin" / "spark-submit", *sys.argv[1:]],
        env={**os.environ, **python, "SPARK_HOME": str(home)},
        check=False,
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
