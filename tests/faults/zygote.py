"""A process that has imported what all tests need, and forks for each run of tests.

Importing pytest, Arrow, DataFusion, botocore and others takes longer than most tests. Nothing of
the project is imported here, as that is what planted faults change. Runs are asked for on standard
input, and answered on standard output, one JSON object a line.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import Phase, settings

PACKAGES = (
    *("aws_lambda_powertools", "boto3", "botocore.auth", "botocore.client", "botocore.httpsession"),
    *("cachetools", "datafusion", "duckdb", "hypothesis.stateful", "hypothesis.strategies", "isal"),
    *("jinja2", "moto", "moto.dynamodb", "moto.s3", "moto.sqs", "msgspec", "numpy", "pandas"),
    *(
        "polars",
        "pyarrow.compute",
        "pyarrow.csv",
        "pyarrow.dataset",
        "pyarrow.parquet",
        "rich.live",
    ),
    *("rpds", "samtranslator.translator.transform", "sqlglot", "typer.testing"),
    *("xdist.scheduler", "yaml", "werkzeug.serving"),
)


EXAMPLES = 100
"""Between those of `make test` and of `make test-all`: each fault is looked for by few tests."""


class FirstFailure:
    """Remembers the first test of a run that failed, and looks for no simpler examples."""

    nodeid = ""

    def pytest_configure(self) -> None:
        """Take the first example that fails as it is: Hypothesis may simplify it for minutes."""
        phases = [phase for phase in Phase if phase not in (Phase.shrink, Phase.explain)]
        settings.register_profile("faults", settings(), phases=phases, max_examples=EXAMPLES)
        settings.load_profile("faults")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Look at the end of a test, or of what is done before and after it."""
        if report.failed and not self.nodeid:
            self.nodeid = report.nodeid


def main() -> None:
    """Import the packages; then run tests as long as any are asked for."""
    for package in PACKAGES:
        with contextlib.suppress(ImportError):
            importlib.import_module(package)
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        print(json.dumps(_run(**json.loads(line))), flush=True)
    os._exit(0)  # without what packages do at the end: DuckDB would list what it has not freed


def _run(tests: Sequence[str], output: str, seconds: int) -> dict[str, object]:
    """Run tests in a process of their own, which ends with all that it started."""
    failure = Path(f"{output}.failure")
    failure.unlink(missing_ok=True)
    child = os.fork()
    if not child:
        _be_pytest(tests, output, failure)
    stopped = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        _kill(child)

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    _, status = os.waitpid(child, 0)
    signal.alarm(0)
    _kill(child)
    failed = failure.read_text() if failure.exists() else ""
    return {"code": os.waitstatus_to_exitcode(status), "stopped": stopped, "failed": failed}


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _be_pytest(tests: Sequence[str], output: str, failure: Path) -> None:
    os.setsid()
    written = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(written, 1)
    os.dup2(written, 2)
    first, code = FirstFailure(), int(pytest.ExitCode.INTERNAL_ERROR)
    sys.argv = ["pytest", *tests]
    try:
        code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests], plugins=[first]))
        failure.write_text(first.nodeid)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
