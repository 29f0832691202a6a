"""No credentials leak: no request is logged, no link is made that lets its holder read."""

from __future__ import annotations

import re

from tests.architecture.sources import LIBRARY, ROOT, fail_for, sources

TELLING = re.compile(
    r"set_stream_logger|generate_presigned|log_event|getLogger\(['\"](boto|urllib3)"
    r"|get_frozen_credentials|get_session_token|assume_role"
)
TELLERS = {
    "aws/http_proxy.py": {"get_frozen_credentials"},
    "aws/keys.py": {"assume_role"},
    "aws/uploads.py": {"generate_presigned"},
}
"""The one place that lends credentials, narrowed to one table, if the stack's parameter says so;
those that make links, each to put one object into the ingest bucket or to get a file of a result;
and those that sign requests of the console, on the machine of who has the
credentials."""


def test_no_code_logs_requests_or_hands_out_credentials() -> None:
    texts = {source.place.removeprefix(f"{LIBRARY}/"): source.text for source in sources(LIBRARY)}
    texts["template.yaml"] = (ROOT / "template.yaml").read_text()
    telling = {
        place: {match[0] for match in TELLING.finditer(text)} for place, text in texts.items()
    }
    fail_for(
        f"{place} has {sorted(words)}"
        for place, words in telling.items()
        if words != TELLERS.get(place, set())
    )
