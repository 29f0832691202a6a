"""What happened in a run, line by line, and the lines that lead to a violation."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b

START_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happened: at which step and time, to whom, what, and what became of it."""

    step: int
    time_ms: int
    who: str
    what: str
    fate: str = ""

    def __str__(self) -> str:
        """Return it as a line."""
        seconds, ms = divmod(self.time_ms - START_MS, 1000)
        minutes, seconds = divmod(seconds, 60)
        hours, minutes = divmod(minutes, 60)
        end = f"  -> {self.fate}" if self.fate else ""
        clock = f"{hours:3d}:{minutes:02d}:{seconds:02d}.{ms:03d}"
        return f"{self.step:6d} {clock}  {self.who:<22} {self.what}{end}"


@dataclass
class EventLog:
    """All lines of a run."""

    lines: list[Line] = field(default_factory=list)

    def tell(self, step: int, time_ms: int, who: str, what: str, fate: str = "") -> None:
        """Add a line."""
        self.lines.append(Line(step, time_ms, who, what, fate))

    def digest(self) -> str:
        """Return what is the same for two runs just if their stories are."""
        text = "\n".join(map(str, self.lines))
        return blake2b(text.encode(), digest_size=16).hexdigest()

    def about(self, subject: str, most: int) -> list[str]:
        """Return the last lines that name a subject, or are of a process that did just before."""
        concerned: dict[str, bool] = {}
        found: list[str] = []
        for line in self.lines:
            if subject in line.what:
                concerned[line.who] = True
            elif line.what.startswith("begins"):
                concerned[line.who] = False
            if not subject or subject in line.what or concerned.get(line.who):
                found.append(str(line))
        return found[-most:]


class Violation(AssertionError):
    """Something is not as it must be; `subject` is a table's id, or nothing."""

    def __init__(self, text: str, subject: str = "") -> None:
        """Say what."""
        super().__init__(text)
        self.subject = subject
