"""What commits and tables look like in a log, for CloudWatch to take metrics from."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from dormouse.aws.logs import TROUBLED, TROUBLES, WATCHED, LoggedMetrics, log_commit, logger
from dormouse.state.jobs import Metric
from dormouse.state.rules import CommitReport


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is logged besides metrics."""
    stream = io.StringIO()
    monkeypatch.setattr(logger.registered_handler, "stream", stream)
    return stream


def metrics_in(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Return the lines with metrics that were printed since the last look."""
    lines = map(json.loads, capsys.readouterr().out.splitlines())
    return [line for line in lines if "_aws" in line]


def test_a_commit_is_logged_as_embedded_metrics_with_its_table_and_version(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = CommitReport(
        version=7, attempts=2, size_bytes=3000, milliseconds=40, transactions=3, rejected=1
    )
    log_commit("dev", "t1", report)
    log_commit("dev", "t2", report)
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["CommitAttempts"] == [2]
    assert first["CommitBytes"] == [3000]
    assert first["CommitMilliseconds"] == [40]
    assert (first["table_id"], second["table_id"]) == ("t1", "t2")
    assert first["version"] == 7
    (declared,) = first["_aws"]["CloudWatchMetrics"]
    assert declared["Namespace"] == "Dormouse"
    assert declared["Dimensions"] == [["instance"]]
    assert first["instance"] == "dev"
    assert {metric["Name"] for metric in declared["Metrics"]} == {
        "CommitAttempts",
        "CommitBytes",
        "CommitMilliseconds",
        "CommitTransactions",
        "CommitRejected",
    }


@pytest.mark.parametrize("service", ["", "dormouse"])
def test_what_is_measured_of_a_table_has_just_the_dimensions_instance_and_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, service: str
) -> None:
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", service)
    LoggedMetrics("dev").emit("letters", dict.fromkeys(Metric, 1.5))
    logged, watched, troubled = metrics_in(capsys)
    (declared,) = logged["_aws"]["CloudWatchMetrics"]
    assert declared["Namespace"] == "Dormouse"
    assert declared["Dimensions"] == [["instance", "table"]]
    assert (logged["instance"], logged["table"]) == ("dev", "letters")
    units = {metric["Name"]: metric["Unit"] for metric in declared["Metrics"]}
    assert units == {measure.title: measure.unit for measure in Metric}
    assert logged["OldestJobAge"] == [1.5]
    for line, name in ((watched, WATCHED.title), (troubled, TROUBLED)):
        (by_instance,) = line["_aws"]["CloudWatchMetrics"]
        assert by_instance["Dimensions"] == [["instance"]]
        assert [metric["Name"] for metric in by_instance["Metrics"]] == [name]


@pytest.mark.parametrize("metric", TROUBLES)
def test_a_table_is_in_trouble_once_a_metric_is_above_its_limit(
    capsys: pytest.CaptureFixture[str], log: io.StringIO, metric: Metric
) -> None:
    trouble, most = TROUBLES[metric]
    LoggedMetrics("dev").emit("letters", {metric: most})
    (_,) = metrics_in(capsys)
    assert log.getvalue() == ""
    LoggedMetrics("dev").emit("letters", {metric: most + 1})
    _, troubled = metrics_in(capsys)
    assert troubled[TROUBLED] == [1]
    said = json.loads(log.getvalue())
    assert (said["table"], said["troubles"]) == ("letters", [trouble])


def test_a_metric_has_the_dimensions_of_its_own_table_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    LoggedMetrics("dev").emit("letters", {Metric.ROWS_INGESTED: 7})
    (logged,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert logged["RowsIngested"] == [7]
