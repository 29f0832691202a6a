"""The faults that a change of the project concerns."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

from tests.faults.code import Code, Place
from tests.faults.plants import Fault, all_faults
from tests.faults.snippets import MisfitError, same


def faults_since(revision: str, code: Code, faults: list[Fault], folder: Path) -> list[Fault]:
    """Return the faults that are new, or whose function or tests differ from those of a revision.

    A function differs if its parsed form does, tests if their file does. `folder` takes the files
    of the revision.
    """
    archive = subprocess.run(
        ["git", "archive", "--format=tar", revision], cwd=code.root, capture_output=True, check=True
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    before = Code(folder)
    try:
        known = set(all_faults(folder))
    except MisfitError:
        known = set()
    return [each for each in faults if each not in known or _is_changed(each, code, before)]


def _is_changed(fault: Fault, code: Code, before: Code) -> bool:
    try:
        now, then = fault.target_in(code), fault.target_in(before)
    except MisfitError:
        return True
    paths = [Path(code.test(test).partition("::")[0]) for test in fault.tests]
    if isinstance(now, Place) and isinstance(then, Place):
        is_same = same(now.node, then.node)
    else:
        is_same = now == then
    return not is_same or any(_texts(code.root / p) != _texts(before.root / p) for p in paths)


def _texts(path: Path) -> list[str]:
    """Return the texts of a file, or of those of a folder; none if it is not there."""
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return [file.read_text() for file in files if file.exists()]
