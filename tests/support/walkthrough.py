"""Documents as they are run: their command blocks, and what they say that these print.

A block of ``sh`` is commands; a block of ``text`` right after it is what they print. In that, ``…``
stands for anything in its line, and a line of nothing else for any lines; white space and the
lengths of rules do not count. Blocks of another kind are not run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """Commands in a document, where they stand, and what they print, if it says so."""

    document: str
    line: int
    commands: str
    shown: str | None

    @property
    def place(self) -> str:
        """Return its position."""
        return f"{self.document}:{self.line}"


def blocks(document: Path) -> list[Block]:
    """Return the command blocks of a document, in its order."""
    text = document.read_text()
    found: list[Block] = []
    end = 0
    for fence in _FENCED.finditer(text):
        kind, body = fence[1], fence[2]
        if kind == "sh":
            line = text.count("\n", 0, fence.start()) + 2
            found.append(Block(document.name, line, body, None))
        elif kind == "text" and found and not text[end : fence.start()].strip():
            last = found[-1]
            found[-1] = Block(last.document, last.line, last.commands, body)
        end = fence.end()
    return found


def script(found: list[Block], outputs: Path) -> str:
    """Return a shell script of all blocks, each with a file of its output; it ends at a failure."""
    parts = ["set -eu\n"]
    for number, block in enumerate(found):
        parts.append(f"exec > {outputs / str(number)} 2>&1\n{block.commands}")
    return "".join([*parts, f"exec > {outputs / 'end'}\n"])


def matches(shown: str, printed: str) -> bool:
    """Return whether a document shows what was printed."""
    pattern = "".join(
        r"(?:.*\n)*?" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + r"\n"
        for line in _lines(shown)
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in _lines(printed))) is not None


def _lines(text: str) -> list[str]:
    """Return the lines with something in them, white space and rules made short."""
    lines = (re.sub("─+", "─", " ".join(line.split())) for line in text.splitlines())
    return [line for line in lines if line]
