"""A file that ends who reads it before there is a job for it is refused the third time."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from dormouse.client.inferring import check_file, estimate_splits, infer_schema
from dormouse.errors import RefusedSourceError
from dormouse.files.formats import counted_reading
from dormouse.schema.schema import parse_schema
from dormouse.tables.properties import Properties

SCHEMA = parse_schema("k:long", ["k"])


class PanicException(BaseException):
    """As PyO3 names the panic of a library in Rust."""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    file = tmp_path / "rows.csv"
    file.write_text("k\n1\n")
    return file


def dies(file: Path) -> None:
    process = os.fork()
    if not process:
        try:
            with counted_reading(file):
                os._exit(86)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 86


def test_the_third_attempt_refuses_a_file_at_every_door_and_says_the_way_out(file: Path) -> None:
    dies(file)
    assert infer_schema(file, ["k"]).schema == SCHEMA, "one death may be bad luck"
    dies(file)
    check_file(file, SCHEMA, Properties())
    for _ in range(2):
        dies(file)
    doors = {
        "infer_schema": lambda: infer_schema(file, ["k"]),
        "check_file": lambda: check_file(file, SCHEMA, Properties()),
        "estimate_splits": lambda: estimate_splits(SCHEMA, [file], 2),
    }
    for name, door in doors.items():
        with pytest.raises(RefusedSourceError, match="2 processes ended while they read") as error:
            door()
        assert "'rows.csv'" in str(error.value), name
    copy = file.rename(file.with_name("copy.csv"))
    with pytest.raises(RefusedSourceError):
        check_file(copy, SCHEMA, Properties())
    copy.write_text("k\n2\n")
    check_file(copy, SCHEMA, Properties())
    Path(error.value.hint.rpartition("rm ")[2]).unlink()
    file.write_text("k\n1\n")
    check_file(file, SCHEMA, Properties())


def test_what_ends_the_reading_without_its_process_is_no_death(file: Path) -> None:
    for error in (KeyboardInterrupt, SystemExit, RefusedSourceError, ValueError):
        for _ in range(3):
            with pytest.raises(error), counted_reading(file):
                raise error("so it is")
    for _ in range(3):
        with pytest.raises(RefusedSourceError, match="library that"), counted_reading(file):
            raise PanicException
    dies(file)
    with counted_reading(file), counted_reading(file), counted_reading(file):
        pass  # an attempt that lives is no death
    dies(file)
    with counted_reading(file):
        pass


def test_a_file_is_read_where_no_marker_can_be(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = file.with_name("taken")
    taken.mkdir()
    (taken / f"dormouse-reading-{os.getuid()}").write_text("not a folder")
    for nowhere in (taken, file.with_name("none")):
        monkeypatch.setattr(tempfile, "tempdir", str(nowhere))
        for _ in range(3):
            dies(file)
        assert infer_schema(file, ["k"]).schema == SCHEMA
    with pytest.raises(FileNotFoundError), counted_reading(file.with_name("no.csv")):
        file.with_name("no.csv").read_bytes()
