"""Which processes use a folder: known however they ended, and of one release."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dormouse.errors import InvalidRequestError
from dormouse.folder.processes import Process, is_alive, locked

JOIN = """
import sys
from pathlib import Path
from dormouse.folder.processes import Process
joined = Process.joined(Path(sys.argv[1]), "other", "0.1.0")
print("joined", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / ".processes"


def test_a_process_is_alive_until_it_leaves(folder: Path) -> None:
    process = Process.joined(folder, "one", "0.1.0")
    assert is_alive(folder, "one")
    process.leave()
    assert not is_alive(folder, "one")
    assert list(folder.iterdir()) == []


def test_who_was_killed_is_known_to_be_dead_at_once(folder: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", JOIN, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"joined\n"
        assert is_alive(folder, "other")
        other.kill()
        other.wait()
    assert not is_alive(folder, "other")
    Process.joined(folder, "one", "0.1.0").leave()
    assert list(folder.iterdir()) == [], "its file is cleaned up"


def test_two_releases_at_once_are_refused_and_one_after_the_other_is_not(folder: Path) -> None:
    earlier = Process.joined(folder, "one", "0.1.0")
    with pytest.raises(InvalidRequestError, match=r"release 0\.1\.0 .* release 0\.2\.0") as raised:
        Process.joined(folder, "two", "0.2.0")
    assert "end it" in raised.value.hint
    assert not is_alive(folder, "two")
    earlier.leave()
    Process.joined(folder, "two", "0.2.0").leave()


def test_leaving_a_folder_that_is_gone_is_no_error(folder: Path) -> None:
    process = Process.joined(folder, "one", "0.1.0")
    (folder / "one").unlink()
    process.leave()


def test_who_leaves_twice_closes_nothing_of_others(folder: Path) -> None:
    process = Process.joined(folder, "one", "0.1.0")
    process.leave()
    other = Process.joined(folder, "two", "0.1.0")
    process.leave()
    assert is_alive(folder, "two")
    other.leave()


def test_nobody_else_is_in_a_locked_block(tmp_path: Path) -> None:
    with locked(tmp_path):
        descriptor = os.open(tmp_path, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)
    with locked(tmp_path):
        pass


def test_a_file_system_without_locks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(InvalidRequestError, match="no locks") as raised, locked(tmp_path):
        pass
    assert "local disk" in raised.value.hint


FORKS = """
import os
import sys
from pathlib import Path
from dormouse.folder.processes import Process
joined = Process.joined(Path(sys.argv[1]), "parent", "0.1.0")
if os.fork() == 0:
    joined.leave()
    print("forked", flush=True)
sys.stdin.read()
"""


def test_a_child_that_outlives_its_parent_does_not_make_it_seem_alive(folder: Path) -> None:
    """What the parent worked on would be hidden from others for an hour."""
    with subprocess.Popen(
        [sys.executable, "-c", FORKS, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"forked\n"
        assert is_alive(folder, "parent"), "that the child leaves is nothing to the parent"
        parent.kill()
        parent.wait()
        assert not is_alive(folder, "parent")
