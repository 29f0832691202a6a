"""Phrases that are plainly wrong English, looked for in documents, help, errors and docstrings.

`make lint` runs it: it prints each place with what to write instead, and ends with 1 if there is
any.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PHRASES = (
    (r"\b(for|of|by|to|from) who\b", "who needs a person: the caller, those who"),
    (r"\b[Ww]hoever\b", "name the person or program: the caller, a program that"),
    (r"\b[Oo]nly who\b", "only those who, only the one who"),
    (r"\b(has|have) not (the|a|an|any)\b", "does not have, does not carry, lacks"),
    (r"\blives? for nothing\b", "does nothing else"),
    (r"\b(begins?|answers?) nothing any more\b", "begins nothing new, stops answering"),
    (r"\bby itself alone\b", "on its own"),
    (r", ask for that\b", "say how to ask for it"),
    (r"\bname the \w+'s one\b", "say which one"),
    (r"\bis for the \w+ to say\b", "say who or what decides"),
    (r"\bheld against what\b", "compared with"),
    (r"\blies? in the data bucket of no\b", "belongs to no"),
    (r"\bwhat it has then\b", "what it has afterwards"),
    (r"\b[Ww]hat came since is\b", "later changes are"),
    (r"\bit, however (small|large)\b", "even if it is small"),
    (r"\b[Rr]ows of which\b.* is true\b", "rows for which"),
    (r"\b[Aa] comma of a value\b", "a comma in a value"),
    (r"(^|[.:] +|\"\"\")Of (a|an) (instance|deployment|folder)\b", "for an instance, in a folder"),
    (r"(^|[.:] +|\"\"\")Of --", "write the sentence around the options"),
    (r"\b(is|are) not of type \w+; it is\b", "say what the value should be"),
)
"""What is not written, as regular expressions of one line, and what is written instead."""
LEFT_OUT: tuple[str, ...] = ()
"""What is not looked at."""
FILES = (
    *("README.md", "CONTRIBUTING.md", "template.yaml", "docs/**/*.md"),
    *("shared/**/*.py", "cli/**/*.py", "spark/**/*.py", "functions/**/*.py"),
    *("shared/dormouse/console/page/*.js", "shared/dormouse/console/page/*.html"),
)


def wrong_phrases(text: str) -> list[tuple[int, str, str]]:
    """Return the line, the phrase and what to write instead of each that is wrong in a text."""
    return [
        (number, match[0].strip(), instead)
        for number, line in enumerate(text.splitlines(), start=1)
        for phrase, instead in PHRASES
        if (match := re.search(phrase, line.strip()))
    ]


def main() -> None:
    """Print all that is wrong."""
    wrong = 0
    for path in sorted({path for pattern in FILES for path in ROOT.glob(pattern)}):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(LEFT_OUT):
            continue
        for number, phrase, instead in wrong_phrases(path.read_text()):
            print(f"{name}:{number}: {phrase!r}: {instead}")
            wrong += 1
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
