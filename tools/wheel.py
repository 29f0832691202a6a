"""Builds the wheel and installs it into environments of their own, for tests and benchmarks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = (
    "LICENSE",
    "MANIFEST.in",
    "README.md",
    "cli",
    "functions",
    "pyproject.toml",
    "samconfig.toml",
    "setup.py",
    "shared",
    "spark",
    "template.yaml",
)
"""What a wheel is built from."""
LIMIT_SECONDS = 300


def build_wheel(folder: Path) -> Path:
    """Build the wheel into `folder`. Sources are copied: building leaves files beside them."""
    sources = folder / "sources"
    sources.mkdir(parents=True)
    for name in SOURCES:
        path = ROOT / name
        if path.is_dir():
            ignored = shutil.ignore_patterns("*.egg-info", "__pycache__")
            shutil.copytree(path, sources / name, ignore=ignored)
        else:
            shutil.copyfile(path, sources / name)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(sources)], check=True)
    return next(folder.glob("dormouse_tables-*.whl"))


class Environment:
    """An empty environment, into which the wheel is installed with some extras."""

    def __init__(self, folder: Path, wheel: Path, extras: str = "") -> None:
        """Make the environment below `folder`; `extras` are written ``[local]``."""
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.folder = folder / "environment"
        venv.create(self.folder, with_pip=True)
        self.empty_bytes = size_bytes(self.folder)
        # Only pip sees how this machine reaches an index.
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([self.program("python"), *install, f"{wheel}{extras}"], check=True)

    def program(self, name: str) -> str:
        """Return the path of a program of the environment."""
        return str(self.folder / "bin" / name)

    def ended(
        self, program: str, *arguments: str, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in a folder of its own, with no variables but `variables`."""
        path = os.pathsep.join((str(self.folder / "bin"), os.defpath))
        return subprocess.run(
            [self.program(program), *arguments],
            cwd=self.home,
            env={"HOME": str(self.home), "PATH": path, **variables},
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )

    def run(self, program: str, *arguments: str, **variables: str) -> str:
        """Return what a program prints.
        Raises RuntimeError: it failed; the message is what it said.
        """
        done = self.ended(program, *arguments, **variables)
        if done.returncode:
            raise RuntimeError(f"{program} {' '.join(arguments)}: {done.stderr}")
        return done.stdout


def size_bytes(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(
        path.lstat().st_size for path in folder.rglob("*") if path.is_symlink() or path.is_file()
    )
