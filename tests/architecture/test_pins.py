"""What is installed or shipped is what was locked: the version, and the very bytes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.sources import fail_for
from tests.support.pins import PINNED, ROOT, SHIPPED, pins_in

RECIPES = ("Makefile", "shared/Makefile")
EDITABLE = "--no-deps --no-build-isolation --editable ."
"""How the code itself is installed: built with what was locked, not with what an index has."""


def test_every_package_has_a_version_and_hashes_and_comes_from_no_place_that_is_named() -> None:
    fail_for(file for file in PINNED if not pins_in(file))


def test_a_pin_without_hashes_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.pins.ROOT", tmp_path)
    good = f"one==1 --hash=sha256:{'0' * 64}\n"
    for bad in (
        "one==1\n",
        "one>=1 --hash=sha256:00\n",
        f"{good}two==2\n",
        f"{good}{good.replace('==1', '==2')}",
        f"{good.strip()} --hash=sha256:0\n",
        f"--index-url https://example.com\n{good}",
        f"one @ https://example.com/one.whl --hash=sha256:{'0' * 64}\n",
    ):
        (tmp_path / "pins.txt").write_text(bad)
        with pytest.raises(ValueError, match="not pinned"):
            pins_in("pins.txt")
    (tmp_path / "pins.txt").write_text(f"# a comment\n{good}")
    assert pins_in("pins.txt") == {"one": "1"}


def test_no_recipe_installs_what_is_not_held_against_hashes() -> None:
    """But the code itself, which is built and installed without what it needs."""
    assert "setuptools" in pins_in("requirements.txt")
    for recipe in RECIPES:
        lines = (ROOT / recipe).read_text().replace("\\\n", "").splitlines()
        installing = [line for line in lines if re.search(r"pip install|\$\(PIP\)", line)]
        assert installing, recipe
        fail_for(f"{recipe}: {line}" for line in installing if not is_pinned(line))


def is_pinned(line: str) -> bool:
    is_named = line.startswith("PIP := ")  # others go on from there
    return is_named or "--require-hashes" in line or EDITABLE in line


def test_what_is_shipped_or_installed_beside_the_tests_has_the_versions_they_run_with() -> None:
    tested = pins_in("requirements.txt")
    fail_for(name for file in SHIPPED for name in pins_in(file) if name not in tested)
    fail_for(
        f"{file}: {name}=={version}, tested with {tested[name]}"
        for file in (*SHIPPED, "requirements-bench.txt", "requirements-site.txt")
        for name, version in pins_in(file).items()
        if tested.get(name, version) != version
    )


def test_functions_bring_the_client_of_aws_along_instead_of_that_of_the_runtime() -> None:
    """Lambda's own changes without notice, and may know no conditional writes."""
    assert {"botocore", "urllib3"} <= pins_in(SHIPPED[0]).keys()
