"""Install the engines that are large, below ``build`` and ``.venv``, unless they are there; run by
``make test-engines``.

Every file is held against its hash. Where one cannot be had, the engines that need it are left out,
and ``build/engines/left-out.json`` says why.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "build" / "engines"
PINS = ROOT / "requirements-large-engines.txt"
LARGE_HOME = ROOT / ".venv" / "large-engines"
LARGE_PYTHON = LARGE_HOME / "bin" / "python"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
SECONDS = 1200


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file of Maven's repository, by its coordinates, and the SHA-256 of it."""

    coordinates: str
    sha256: str

    @property
    def file(self) -> str:
        """The name of the file."""
        _, name, version, *ending = self.coordinates.split(":")
        return f"{name}-{version}.{ending[0] if ending else 'jar'}"

    @property
    def version(self) -> str:
        """The version of it."""
        return self.coordinates.split(":")[2]


_RUNTIME = "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13"
JARS = {
    "spark-1.11": Artifact(
        f"{_RUNTIME}:1.11.0", "63c3b812549dc232c1920865ff42436df8604a9bbacd693930985c06bd97e6dc"
    ),
    "spark-1.10": Artifact(
        f"{_RUNTIME}:1.10.2", "7124a5da756f69c815f3f778691167ed00dfd813dde2c26025278aa35f35abb8"
    ),
}
"""Iceberg for Spark; Spark itself is among what everything here needs."""
TRINO_SERVER = Artifact(
    "io.trino:trino-server:476:tar.gz",
    "cfd5accde17e8ebd251eeeb78aed1f490e77bb3a164d95a0f454bf8a7c1cbd3f",
)
TRINO = BUILT / "trino-server-476"


class LeftOutError(Exception):
    """What an engine needs cannot be had here."""


def main() -> int:
    """Install all that can be had; say what is left out."""
    BUILT.mkdir(parents=True, exist_ok=True)
    left_out: dict[str, str] = {}
    for engine, install in INSTALLS.items():
        try:
            install()
        except LeftOutError as error:
            left_out[engine] = str(error)
            print(f"left out {engine}: {error}", file=sys.stderr)
    (BUILT / "left-out.json").write_text(json.dumps(left_out))
    return 0


def fetch(artifact: Artifact) -> Path:
    """Return the file of an artifact, by way of this machine's Maven."""
    path = BUILT / artifact.file
    if not path.exists():
        where = f"-DoutputDirectory={BUILT}"
        run_client(["mvn", "-q", "-B", COPY, f"-Dartifact={artifact.coordinates}", where])
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != artifact.sha256:
        path.unlink()
        raise LeftOutError(f"{artifact.file} is not the one that was pinned: {found}")
    return path


def install_spark(engine: str) -> None:
    """Fetch a release of Iceberg for Spark."""
    if shutil.which("java") is None:
        raise LeftOutError("there is no Java, which Spark needs")
    fetch(JARS[engine])


def install_packages() -> None:
    """Make the environment of ClickHouse, and of Trino's client and its Java."""
    stamp = LARGE_HOME / ".installed"
    if stamp.exists() and stamp.read_text() == PINS.read_text():
        return
    venv.create(LARGE_HOME, clear=True, with_pip=True)
    pip = [str(LARGE_PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run_client([*pip, "--require-hashes", "--no-deps", "--requirement", str(PINS)])
    stamp.write_text(PINS.read_text())


def install_trino() -> None:
    """Unpack Trino's server with the one plugin that reads Iceberg."""
    install_packages()
    if TRINO.exists():
        return
    archive, unpacked = fetch(TRINO_SERVER), BUILT / "unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)
    with tarfile.open(archive) as tar:
        # an argument of `extractall` only since Python 3.11.4
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(unpacked)
    for plugin in (unpacked / TRINO.name / "plugin").iterdir():
        if plugin.name != "iceberg":
            shutil.rmtree(plugin)
    (unpacked / TRINO.name).rename(TRINO)
    shutil.rmtree(unpacked)
    archive.unlink()


def run_client(command: list[str]) -> None:
    """Run a client of packages; what it says last is why an engine is left out."""
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)
    except FileNotFoundError:
        raise LeftOutError(f"there is no {command[0]} on this machine") from None
    except subprocess.TimeoutExpired:
        raise LeftOutError(f"{Path(command[0]).name} took longer than {SECONDS} seconds") from None
    except subprocess.CalledProcessError as error:
        said = [line for line in (error.stdout + error.stderr).splitlines() if line.strip()]
        last = said[-1] if said else f"exit code {error.returncode}"
        raise LeftOutError(f"{Path(command[0]).name} says: {last}") from None


INSTALLS = {
    "spark-1.11": lambda: install_spark("spark-1.11"),
    "spark-1.10": lambda: install_spark("spark-1.10"),
    "clickhouse": install_packages,
    "trino": install_trino,
}

if __name__ == "__main__":
    sys.exit(main())
