"""The audit of dependencies fails for what is vulnerable, and names what it cannot check."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tools import audit

GOOD = {"name": "good", "version": "1", "vulns": []}
BAD = {
    "name": "bad",
    "version": "1",
    "vulns": [{"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["2"]}],
}
SKIPPED = {"name": "odd", "skip_reason": "not found"}
Index = Callable[..., None]


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """Have pip-audit, which is installed already, give an answer and an exit code."""
    (tmp_path / "bin").mkdir()
    pins = tmp_path / "pins.txt"
    pins.write_text("pip-audit==1 \\\n    --hash=sha256:00")
    (tmp_path / ".installed").write_text(pins.read_text())
    monkeypatch.setattr(audit, "HOME", tmp_path)
    monkeypatch.setattr(audit, "OWN_PINS", pins)

    def answer(output: str, code: int, trouble: str = "") -> None:
        python = tmp_path / "bin" / "python"
        python.write_text(f"#!/bin/sh\necho '{trouble}' >&2\necho '{output}'\nexit {code}\n")
        python.chmod(0o700)

    return answer


def report(*packages: object) -> str:
    return json.dumps({"dependencies": packages})


def test_a_known_vulnerability_fails_and_names_the_version_that_repairs_it(
    index: Index, capsys: pytest.CaptureFixture[str]
) -> None:
    index(report(GOOD, BAD), 1)
    assert audit.main() == 1
    assert "bad 1: PYSEC-1, repaired in 2" in capsys.readouterr().err


def test_what_was_accepted_with_a_reason_does_not_fail(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    index(report(GOOD, BAD), 1)
    monkeypatch.setattr(audit, "ACCEPTED", {"CVE-1": "the function it is in is never called"})
    assert audit.main() == 0


def test_packages_that_the_index_does_not_know_are_said_to_be_not_audited(
    index: Index, capsys: pytest.CaptureFixture[str]
) -> None:
    index(report(GOOD, SKIPPED), 0)
    assert audit.main() == 0
    shown = capsys.readouterr().err
    assert "not audited, the index does not list them: odd" in shown
    assert "1 packages audited" in shown


def test_an_index_that_knows_nothing_is_not_taken_for_a_clean_bill(
    index: Index, capsys: pytest.CaptureFixture[str]
) -> None:
    index(report(SKIPPED), 0)
    assert audit.main() == 0
    assert "were not audited" in capsys.readouterr().err


def test_without_a_network_nothing_fails_and_nothing_is_claimed(
    index: Index, capsys: pytest.CaptureFixture[str]
) -> None:
    for code in (1, 2):
        index("", code, trouble="Connection refused")
        assert audit.main() == 0
        assert capsys.readouterr().err == "dependencies were not audited: Connection refused\n"


def test_every_list_of_pins_is_audited() -> None:
    assert {*audit.PINS} == {*audit.ROOT.glob("requirements*.txt")}
