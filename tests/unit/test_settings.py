"""The settings of a process, and the errors for wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from dormouse import settings
from dormouse.errors import InvalidRequestError
from dormouse.settings import DEFAULT_MEMORY_BYTES, Settings, spark_environment

GIVEN = {"DORMOUSE_INSTANCE": "prod", "DORMOUSE_ACCOUNT": "123456789012", "TMPDIR": "/scratch"}


def test_what_is_not_said_has_a_default() -> None:
    settings = Settings.from_environment(GIVEN)
    assert settings == Settings("prod", "123456789012", Path("/scratch"), DEFAULT_MEMORY_BYTES)


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_is_not_taken_for_the_instance_of_the_environment(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="no instance is named"):
        Settings.from_environment(GIVEN, instance=name)


def test_a_caller_can_name_another_instance_than_the_environment() -> None:
    assert Settings.from_environment(GIVEN, instance="test").names.queue("files") == (
        "dormouse-test-files"
    )


def test_a_missing_instance_is_said_with_what_to_do() -> None:
    with pytest.raises(InvalidRequestError) as raised:
        Settings.from_environment({})
    assert "DORMOUSE_INSTANCE" in raised.value.hint


@pytest.mark.parametrize("text", ["0", "-1", "2 GB", "1e9"])
def test_a_senseless_memory_size_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="DORMOUSE_MEMORY_BYTES"):
        Settings.from_environment({**GIVEN, "DORMOUSE_MEMORY_BYTES": text})


def test_spark_is_there_where_spark_submit_and_java_are_unless_it_is_not_wanted(
    tmp_path: Path,
) -> None:
    for name in ("java", "spark-submit"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    there = {"PATH": str(tmp_path), "OTHER": "kept"}
    assert spark_environment(there) == there
    assert spark_environment({**there, "DORMOUSE_SPARK": "no"}) is None
    (tmp_path / "java").unlink()
    assert spark_environment(there) is None
    home = tmp_path / "home" / "bin"
    home.mkdir(parents=True)
    (home / "java").touch()
    assert spark_environment({**there, "JAVA_HOME": str(home.parent)}) is not None


@pytest.mark.parametrize(("answers", "expected"), [("exit 1", None), ("exit 0", dict)])
def test_the_java_of_macos_that_only_says_that_there_is_none_is_no_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: str, expected: type | None
) -> None:
    for name, does in (("java", "exit 1"), ("spark-submit", ""), ("java_home", answers)):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(settings, "_STUB", str(tmp_path / "java"))
    monkeypatch.setattr(settings, "_FINDS_JAVA", str(tmp_path / "java_home"))
    found = spark_environment({"PATH": str(tmp_path)})
    assert found is None if expected is None else isinstance(found, expected)


def test_a_java_in_the_current_folder_is_nobodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch()
    monkeypatch.chdir(tmp_path)
    assert spark_environment({"PATH": str(tmp_path)}) is None
