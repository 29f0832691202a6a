"""Debezium, embedded, on a PostgreSQL of its own: both come from Maven's repository.

`debezium/pom.xml` names them, and `debezium/jars.sha256` has the hash of each file.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.engines.install import BUILT, LeftOutError, run_client

HERE = Path(__file__).parent / "debezium"
JARS = BUILT / "debezium"
HASHES = HERE / "jars.sha256"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
SECONDS = 300


def feed(folder: Path) -> None:
    """Write what Debezium says of the changes that a folder describes, as `Feed.java` has it.

    Raises:
        LeftOutError: this machine has no Java or Maven, or cannot fetch what is needed.
    """
    if shutil.which("javac") is None:
        raise LeftOutError("there is no JDK on this machine")
    if platform.machine() not in ("x86_64", "AMD64"):
        raise LeftOutError("its PostgreSQL is built for another processor")
    jars = fetched()
    quick = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command = ["java", *quick, "-cp", f"{jars}/*", str(HERE / "Feed.java"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        raise AssertionError(f"Debezium ended with {done.returncode}: {done.stderr[-4000:]}")


def fetched() -> Path:
    """Return the folder of all jars, by way of this machine's Maven."""
    if not JARS.exists():
        BUILT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILT) as made:
            jars = Path(made) / "jars"
            where = f"-DoutputDirectory={jars}"
            run_client(["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), COPY, where])
            check(jars)
            if not JARS.exists():  # another process may have been faster
                jars.rename(JARS)
    return JARS


def check(jars: Path) -> None:
    """Hold jars against their hashes."""
    if hashes_of(jars) != HASHES.read_text():
        raise LeftOutError("the jars of Debezium are not those that were pinned")


def hashes_of(jars: Path) -> str:
    """Return a line for each jar: its hash and its name."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(jars.iterdir())
    ]
    return "".join(lines)


if __name__ == "__main__":
    sys.stdout.write(hashes_of(Path(sys.argv[1])))
