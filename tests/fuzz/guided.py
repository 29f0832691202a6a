"""Run one target of pure Python guided by coverage: ``python -m tests.fuzz.guided NAME SECONDS``.

Needs atheris, which `make fuzz` installs. The process ends by itself, with an error at a finding.
"""

from __future__ import annotations

import sys
from typing import Any

import atheris  # type: ignore[import-not-found,unused-ignore]  # no dependency of the tests


def main() -> None:
    """Let atheris choose the bytes that hypothesis makes examples of."""
    name, seconds = sys.argv[1:]
    with atheris.instrument_imports(include=["dormouse", "dormouse_cli"]):
        from tests.fuzz.targets import all_targets
    from hypothesis import HealthCheck, given, settings

    target = all_targets()[name]

    def check(given_one: Any) -> None:
        target.check(given_one)

    quiet = settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))
    test: Any = given(target.strategy)(quiet(check))
    atheris.Setup([sys.argv[0], f"-max_total_time={seconds}"], test.hypothesis.fuzz_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
