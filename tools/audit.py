"""What is pinned, held against the vulnerabilities that the package index knows of; `make audit`.

It ends with 1 for a known vulnerability, and with nothing else: where there is no network, or the
index lists none, it says plainly what was not audited. pip-audit has an environment of its own,
so that its packages are not among those that everything here needs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
HOME = ROOT / ".venv" / "audit"
OWN_PINS = ROOT / "requirements-audit.txt"
PINS = (
    ROOT / "requirements.txt",
    ROOT / "requirements-bench.txt",
    ROOT / "requirements-engines.txt",
    ROOT / "requirements-fuzz.txt",
    ROOT / "requirements-http.txt",
    ROOT / "requirements-large-engines.txt",
    ROOT / "requirements-lock.txt",
    ROOT / "requirements-site.txt",
    OWN_PINS,
)
SECONDS = 300

ACCEPTED: Mapping[str, str] = {}
"""Vulnerabilities that do not concern us, by id, with the reason why they do not."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an audit found: packages with a known vulnerability, and those it knows nothing of."""

    vulnerable: tuple[str, ...]
    unknown: tuple[str, ...]
    audited: int

    @property
    def text(self) -> str:
        """For people, a line for each package that is to be changed, and one for all others."""
        lines = list(self.vulnerable)
        if self.unknown:
            names = ", ".join(self.unknown[:5])
            more = f" and {len(self.unknown) - 5} more" if len(self.unknown) > 5 else ""
            lines.append(f"not audited, the index does not list them: {names}{more}")
        lines.append(f"{self.audited} packages audited, {len(self.vulnerable)} vulnerable")
        return "\n".join(lines)


class NotAuditedError(Exception):
    """Nothing could be audited; the message says why."""


def verdict(report: Mapping[str, Any], accepted: Mapping[str, str]) -> Verdict:
    """Judge a report of pip-audit in its JSON form."""
    vulnerable, unknown, audited = [], [], 0
    for package in report["dependencies"]:
        if "skip_reason" in package:
            unknown.append(package["name"])
            continue
        audited += 1
        for each in package["vulns"]:
            if not {each["id"], *each.get("aliases", ())} & accepted.keys():
                fixed = ", ".join(each["fix_versions"]) or "no version yet"
                name = f"{package['name']} {package['version']}: {each['id']}"
                vulnerable.append(f"{name}, repaired in {fixed}")
    return Verdict(tuple(vulnerable), tuple(unknown), audited)


def report_of(pins: Sequence[Path]) -> Mapping[str, Any]:
    """Ask the index. Raises NotAuditedError: it cannot be asked."""
    python = HOME / "bin" / "python"
    installed = HOME / ".installed"
    if not installed.is_file() or installed.read_text() != OWN_PINS.read_text():
        venv.create(HOME, with_pip=True)
        pip = ("pip", "install", "--quiet", "--disable-pip-version-check")
        _run(python, *pip, "--require-hashes", "--requirement", str(OWN_PINS))
        installed.write_text(OWN_PINS.read_text())
    requirements = [part for path in pins for part in ("--requirement", str(path))]
    options = ("--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off")
    answer = _run(python, "pip_audit", *options, *requirements, allowed=(0, 1))
    try:
        report: Mapping[str, Any] = json.loads(answer.stdout)
    except ValueError as error:
        raise NotAuditedError(_last_line(answer.stderr)) from error
    return report


def _probe() -> Path:
    """Return a file that names one package which every index has, to be asked about before all."""
    path = HOME / "probe.txt"
    own = next(line for line in OWN_PINS.read_text().splitlines() if line.startswith("pip-audit"))
    HOME.mkdir(parents=True, exist_ok=True)
    path.write_text(own.rstrip(" \\") + "\n")
    return path


def _run(
    python: Path, module: str, *arguments: str, allowed: Sequence[int] = (0,)
) -> subprocess.CompletedProcess[str]:
    command = [str(python), "-m", module, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotAuditedError(str(error)) from error
    if done.returncode not in allowed:
        raise NotAuditedError(_last_line(done.stderr))
    return done


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it ended without a word"])[-1]


def main(files: Sequence[str] = ()) -> int:
    """Audit files of pins, by default all there are; return the exit code."""
    try:
        if not verdict(report_of([_probe()]), {}).audited:  # some mirrors list no vulnerabilities
            raise NotAuditedError("the index lists no vulnerabilities of any package")
        result = verdict(report_of([Path(file) for file in files] or PINS), ACCEPTED)
    except NotAuditedError as error:
        print(f"dependencies were not audited: {error}", file=sys.stderr)
        return 0
    print(result.text, file=sys.stderr)
    return 1 if result.vulnerable else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
