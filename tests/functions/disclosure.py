"""What functions disclose in logs, output and records, and whether it holds a value of a row."""

from __future__ import annotations

import base64
import io
import traceback
from importlib import import_module

import pytest

from dormouse.features.administration import VERBS
from dormouse.features.queries import QUERIES
from dormouse.messages.stages import IngestJob, encode
from dormouse.state.sources import Source, job_id_of
from tests.functions.conftest import TABLE_ID, Functions
from tests.support.lambda_context import Context
from tests.support.world import letters_file

SECRET = "hazel@example.com"
"""A value of rows: a key, or a part of one, and a note."""
FORMS = (SECRET, SECRET.encode().hex(), base64.b64encode(SECRET.encode()).decode().rstrip("="))


def run_scheduled(stage: str) -> bool:
    """Run a function as its schedule does; False if it failed, which Lambda logs."""
    try:
        import_module(f"functions.{stage}.handler").handle({}, Context(300_000))
    except Exception:
        traceback.print_exc()
        return False
    return True


def ingest(functions: Functions, *sources: Source) -> list[str]:
    return functions.deliver("ingest", encode(IngestJob(TABLE_ID, 0, job_id_of(sources), sources)))


def disclosed(functions: Functions, log: io.StringIO, capsys: pytest.CaptureFixture[str]) -> str:
    """Return all that was logged, printed and recorded, but for why requests were refused."""
    records = (
        str(record)
        for subject in (TABLE_ID, QUERIES)
        for record in functions.world.tracker.records(subject)
        if record.kind not in VERBS
    )
    return "\n".join((log.getvalue(), *capsys.readouterr(), *records))


def values_in(text: str) -> list[str]:
    """Return the lines that have a value of a row in them, in any form."""
    return [line for line in text.splitlines() if any(form in line for form in FORMS)]


def rows(secret: str) -> bytes:
    return letters_file([{"letter": secret, "at": 1, "note": secret}])
