"""What a commit's report looks like in a log."""

from __future__ import annotations

import json

import pytest

from dormouse.aws.metrics import log_commit
from dormouse.statestore.protocol import CommitReport


def test_a_commit_is_logged_as_embedded_metrics_with_its_table_and_version(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = CommitReport(
        version=7, attempts=2, size_bytes=3000, milliseconds=40, transactions=3, rejected=1
    )
    log_commit("t1", report)
    log_commit("t2", report)
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["CommitAttempts"] == [2]
    assert first["CommitBytes"] == [3000]
    assert first["CommitMilliseconds"] == [40]
    assert (first["table_id"], second["table_id"]) == ("t1", "t2")
    assert first["version"] == 7
    (declared,) = first["_aws"]["CloudWatchMetrics"]
    assert declared["Namespace"] == "Dormouse"
    assert {metric["Name"] for metric in declared["Metrics"]} == {
        "CommitAttempts",
        "CommitBytes",
        "CommitMilliseconds",
        "CommitTransactions",
        "CommitRejected",
    }
