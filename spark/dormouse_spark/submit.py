"""spark-submit as a module, for `dormouse.lifeline` to run: ``python -m dormouse_spark.submit``.

It is that of this interpreter's PySpark, or else the one on the path.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from dormouse.features.spark import JVM_OPTIONS

_CONF = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC {JVM_OPTIONS}",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
}
_OPTIONS = (
    *("--driver-memory", "1g"),
    *(word for name, value in _CONF.items() for word in ("--conf", f"{name}={value}")),
)


def main() -> int:
    """Run spark-submit on the arguments of this process, with as little beside as it needs; return
    its exit code.
    """
    environment = {
        **os.environ,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_PYTHON": sys.executable,
    }
    spec = find_spec("pyspark")
    if spec is not None and spec.origin is not None:
        home = Path(spec.origin).parent
        environment["SPARK_HOME"] = str(home)
        command = str(home / "bin" / "spark-submit")
    else:
        command = shutil.which("spark-submit") or "spark-submit"
    return subprocess.run(
        [command, *_OPTIONS, *sys.argv[1:]], env=environment, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
