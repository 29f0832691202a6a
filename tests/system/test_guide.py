"""The guide and the README as a newcomer follows them: each command, in one session, as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import LIMIT_SECONDS
from tests.support.walkthrough import Block, blocks, matches, script

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "docs" / "guide.md"]
BLOCKS = [block for document in DOCUMENTS for block in blocks(document)]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[Block, str]:
    """Run all blocks in one shell on one local stack; return what each that succeeded printed."""
    folder, home = tmp_path_factory.mktemp("outputs"), tmp_path_factory.mktemp("newcomer")
    (folder / "script").write_text(script(BLOCKS, folder))
    command = [sys.executable, "-m", "dormouse_cli", "local", "run", "--", "sh"]
    imports = os.pathsep.join(str(ROOT / name) for name in ("shared", "cli"))
    subprocess.run(
        [*command, str(folder / "script")],
        cwd=home,
        env={**os.environ, "PYTHONPATH": imports},
        timeout=LIMIT_SECONDS,
        check=False,
    )
    printed = {
        block: (folder / str(number)).read_text()
        for number, block in enumerate(BLOCKS)
        if (folder / str(number)).exists()
    }
    if not (folder / "end").exists():
        failed, why = printed.popitem()
        print(f"{failed.place} failed:\n{failed.commands}\nit printed:\n{why}")
    return printed


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_what_a_document_shows_is_what_is_printed(block: Block, outputs: dict[Block, str]) -> None:
    assert block in outputs, f"{block.place} failed or was not reached"
    assert block.shown is None or matches(block.shown, outputs[block]), (
        f"{block.place} shows\n{block.shown}\nbut it prints\n{outputs[block]}"
    )
