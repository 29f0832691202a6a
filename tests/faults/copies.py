"""Copies of the project, in which faults are planted and tests are run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from tests.faults.code import ROOT
from tests.support.depth import WHOLE

COPIED = ("shared", "cli", "spark", "functions", "tests", "events", "docs", "bench", "tools")
FILES = (
    *("pyproject.toml", "template.yaml", "samconfig.toml", "Makefile", "mkdocs.yml"),
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md"),
)
SECONDS = 900
"""A fault may make a loop endless: tests that have not ended by then are stopped."""
_times = count(10**9)


@dataclass(frozen=True, slots=True)
class Run:
    """How a run of tests ended."""

    code: int
    """The exit code of pytest, or minus the signal that ended it."""
    stopped: bool
    """Whether it was stopped, as it took too long."""
    failed: str
    """The first test that failed."""


class Copy:
    """A copy of the project, and the process that runs tests in it (`tests.faults.zygote`)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder.with_suffix(".txt")
        for name in COPIED:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        for name in (*FILES, *(path.name for path in ROOT.glob("requirements*.txt"))):
            shutil.copy2(ROOT / name, folder / name)
        paths = [str(folder / part) for part in ("shared", "cli", "spark", ".")]
        self._zygote = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.zygote"],
            cwd=folder,
            env={**os.environ, WHOLE: "1", "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, tests: Sequence[str], seconds: int = SECONDS) -> Run:
        """Run tests up to the first that fails; what pytest writes is then in `output`."""
        assert self._zygote.stdin and self._zygote.stdout
        asked = {"tests": tests, "output": str(self.output), "seconds": seconds}
        print(json.dumps(asked), file=self._zygote.stdin, flush=True)
        return Run(**json.loads(self._zygote.stdout.readline()))

    @contextmanager
    def planted(self, path: Path, text: str) -> Iterator[None]:
        """Give a file another text for a time.

        Each text gets a modification time that no other had, so no compiled code of another fits.
        """
        file = self.folder / path
        sound, times = file.read_text(), file.stat()
        file.write_text(text)
        time = next(_times)
        os.utime(file, (time, time))
        try:
            yield
        finally:
            file.write_text(sound)
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))

    def close(self) -> None:
        """End the process."""
        assert self._zygote.stdin
        self._zygote.stdin.close()
        self._zygote.wait()
