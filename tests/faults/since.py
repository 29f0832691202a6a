"""The faults that a change of the project concerns."""

from __future__ import annotations

import io
import subprocess
import zipfile
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
        ["git", "archive", "--format=zip", revision], cwd=code.root, capture_output=True, check=True
    )
    with zipfile.ZipFile(io.BytesIO(archive.stdout)) as files:
        files.extractall(folder)
    before = Code(folder)
    try:
        known = set(all_faults(folder))
    except MisfitError:  # they were written in another form: none counts as new
        known = set(faults)
    names = _changed_names(code, before) | _changed_names(before, code)
    return [
        fault
        for fault in faults
        if fault not in known
        or (_name_of(fault, code) in names and _has_changed(fault, code, before))
        or any(_texts(code, test) != _texts(before, test) for test in fault.tests)
    ]


def _changed_names(code: Code, other: Code) -> set[str]:
    """Return what the files define that differ from those of the other, and "" for anything else.

    To compare each function with its former self would take ten times as long.
    """
    texts = {place.path.relative_to(other.root): place.text for place in other.modules}
    return {""} | {
        name
        for name, places in code.places.items()
        for place in places
        if texts.get(place.path.relative_to(code.root)) != place.text
    }


def _name_of(fault: Fault, code: Code) -> str:
    """Return the name of a function, and "" for a module or a file that is not Python."""
    return "" if (code.root / fault.target).is_file() else fault.target.rpartition(":")[2]


def _has_changed(fault: Fault, code: Code, before: Code) -> bool:
    try:
        now, then = fault.target_in(code), fault.target_in(before)
    except MisfitError:
        return True
    if isinstance(now, Place) and isinstance(then, Place):
        return not same(now.node, then.node)
    return now != then


def _texts(code: Code, test: str) -> list[str]:
    """Return the texts of the file or folder that a test is in; none if it is not there."""
    try:
        path = code.root / code.test(test).partition("::")[0]
    except MisfitError:
        return []
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return [file.read_text() for file in files]
