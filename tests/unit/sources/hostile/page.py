"""bench/results/hostile-files.md: how Dormouse and other readers read the hostile files here.

``python -m tests.unit.sources.hostile.page`` writes it, from `cases.py` and `peers.json`.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.sources.hostile.cases import CASES, Case

HERE = Path(__file__).parent
PAGE = HERE.parents[3] / "bench" / "results" / "hostile-files.md"
_HEAD = """# Hostile files

Broken and ambiguous CSV and JSON files: how Dormouse reads each, and how other readers do, given
the type of the column, with default settings otherwise. Each file has a key `k` and the column `v`;
`?` marks a nullable type. Generated from `tests/unit/sources/hostile`, with {versions}.

"""


def _ours(case: Case) -> str:
    if isinstance(case.outcome, str):
        return "refused"
    return _shown([repr(value) for value in case.outcome])


def _shown(values: list[str]) -> str:
    return f"`{', '.join(values)}`" if values else "no rows"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def page() -> str:
    """Return the text of the page."""
    peers = json.loads((HERE / "peers.json").read_text())
    names = list(peers["versions"])
    versions = ", ".join(f"{name} {peers['versions'][name]}" for name in names)
    text = _HEAD.format(versions=versions)
    for ending, title in (("csv", "CSV"), ("json", "JSON lines")):
        text += f"## {title}\n\n| file | type | Dormouse | {' | '.join(names)} |\n"
        text += "|---" * (3 + len(names)) + "|\n"
        for case in CASES:
            if case.ending == ending:
                found = (_cell(peers["outcomes"][case.name][name]) for name in names)
                row = (case.name, f"`{case.kind}`", _cell(_ours(case)), *found)
                text += f"| {' | '.join(row)} |\n"
        text += "\n"
    return text.rstrip("\n") + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
