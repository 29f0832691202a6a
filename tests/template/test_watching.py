"""Whoever is called at night finds what the alarm means; and the dashboard shows what there is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from dormouse.aws.base.metrics import NAMESPACE, WATCHED, log_commit
from dormouse.model.metrics import Metric
from dormouse.state_store import CommitReport
from dormouse.stored.names import QUEUES, dead_letter_queue
from tests.template.conftest import NAMES, ROOT, STAGES, Template

GUIDE = (ROOT / "docs" / "operations.md").read_text()
PREFIX = f"dormouse-{NAMES.instance}-"


WORST_OF = {
    "compaction-lags": Metric.REFERENCES_PER_LEAF,
    "jobs-stand": Metric.OLDEST_JOB_AGE_SECONDS,
    "shards-disputed": Metric.DISPUTED_SHARDS,
    "unregistered": Metric.UNREGISTERED,
}


def sections() -> dict[str, str]:
    """Return the guide's sections by the anchors that their headings have."""
    parts = re.split(r"^#+ (.+)$", GUIDE, flags=re.MULTILINE)[1:]
    titles, texts = parts[::2], parts[1::2]
    return {t.lower().replace(" ", "-"): text for t, text in zip(titles, texts, strict=True)}


@pytest.fixture(scope="session")
def alarms(template: Template) -> dict[str, dict[str, Any]]:
    found = template.of_type("AWS::CloudWatch::Alarm").values()
    return {alarm["AlarmName"].removeprefix(PREFIX): alarm for alarm in found}


@pytest.fixture(scope="session")
def metrics(template: Template) -> list[list[Any]]:
    """All metrics of the dashboard."""
    (dashboard,) = template.of_type("AWS::CloudWatch::Dashboard").values()
    widgets = json.loads(dashboard["DashboardBody"])["widgets"]
    return [metric for widget in widgets for metric in widget["properties"]["metrics"]]


def test_every_alarm_has_a_paragraph_to_which_its_description_points(
    alarms: dict[str, dict[str, Any]],
) -> None:
    guide, explained = sections(), set()
    for name, alarm in alarms.items():
        meaning, pointer, anchor = alarm["AlarmDescription"].partition("See docs/operations.md#")
        assert len(meaning) > 20 and pointer, name
        assert f"`{name}`" in guide[anchor.strip()], name
        explained.add(anchor.strip())
    names = re.findall(r"`([a-z_-]+-(?:dead|age|errors))`", GUIDE)
    assert {*names} <= {*alarms}, "the guide explains an alarm that there is not"


def test_every_queue_and_function_is_watched_and_every_alarm_tells_somebody(
    alarms: dict[str, dict[str, Any]],
) -> None:
    expected = {dead_letter_queue(queue) for queue in QUEUES} | {f"{queue}-age" for queue in QUEUES}
    expected |= {f"{stage}-errors" for stage in STAGES}
    assert set(alarms) == expected | {"throttles", "sweep-missing", "contention"} | {*WORST_OF}
    assert all(alarm["AlarmActions"] for alarm in alarms.values())


@pytest.mark.parametrize("name", WORST_OF)
def test_an_alarm_of_tables_watches_what_is_told_by_instance(
    alarms: dict[str, dict[str, Any]], name: str
) -> None:
    alarm, measure = alarms[name], WORST_OF[name]
    assert measure in WATCHED
    assert (alarm["Namespace"], alarm["MetricName"]) == (NAMESPACE, measure.title)
    assert alarm["Dimensions"] == [{"Name": "instance", "Value": NAMES.instance}]
    assert alarm["Statistic"] == "Maximum", "of all tables, the one that is worst"


def test_a_sweep_that_does_not_run_is_noticed_by_its_silence(
    alarms: dict[str, dict[str, Any]],
) -> None:
    assert alarms["sweep-missing"]["TreatMissingData"] == "breaching"
    quiet = [alarm["TreatMissingData"] for name, alarm in alarms.items() if name != "sweep-missing"]
    assert set(quiet) == {"notBreaching"}


def commit_metrics(capsys: pytest.CaptureFixture[str]) -> set[str]:
    log_commit(NAMES.instance, "t", CommitReport(1, 1, 1, 1, 1, 1))
    (declared,) = json.loads(capsys.readouterr().out)["_aws"]["CloudWatchMetrics"]
    assert declared["Dimensions"] == [["instance"]]
    return {metric["Name"] for metric in declared["Metrics"]}


def searched(metrics: list[list[Any]]) -> Iterator[str]:
    """Return the names of metrics that the dashboard searches for, of all tables."""
    for metric in metrics:
        if isinstance(metric[0], dict):
            expression = metric[0]["expression"]
            assert f'SEARCH(\'{{{NAMESPACE},instance,table}} instance="test" ' in expression
            yield re.findall(r'MetricName="(\w+)"', expression)[0]


def test_the_dashboard_shows_every_measure_of_a_table_and_none_that_nobody_emits(
    metrics: list[list[Any]],
) -> None:
    assert set(searched(metrics)) == {measure.title for measure in Metric}


def test_what_is_watched_of_commits_is_what_commits_emit(
    metrics: list[list[Any]],
    alarms: dict[str, dict[str, Any]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    emitted = commit_metrics(capsys)
    shown = [metric for metric in metrics if metric[0] == NAMESPACE]
    assert shown
    for _, name, dimension, value, *_ in shown:
        assert name in emitted
        assert (dimension, value) == ("instance", NAMES.instance)
    contention = alarms["contention"]
    assert (contention["Namespace"], contention["MetricName"]) == (NAMESPACE, "CommitAttempts")
    assert contention["Dimensions"] == [{"Name": "instance", "Value": NAMES.instance}]


def test_the_dashboard_names_every_queue_function_table_and_bucket_as_they_are_called(
    metrics: list[list[Any]], template: Template
) -> None:
    def shown(namespace: str, dimension: str) -> set[str]:
        return {m[m.index(dimension) + 1] for m in metrics if m[0] == namespace}

    assert shown("AWS/SQS", "QueueName") == {
        NAMES.queue(name) for queue in QUEUES for name in (queue, dead_letter_queue(queue))
    }
    assert shown("AWS/Lambda", "FunctionName") == {PREFIX + stage for stage in STAGES}
    tables = {t["TableName"] for t in template.of_type("AWS::DynamoDB::Table").values()}
    assert shown("AWS/DynamoDB", "TableName") == tables
    buckets = template.of_type("AWS::S3::Bucket").values()
    assert shown("AWS/S3", "BucketName") == {bucket["BucketName"] for bucket in buckets}
    for bucket in buckets:  # without, S3 tells CloudWatch of no requests
        assert bucket["MetricsConfigurations"] == [{"Id": "all"}]


def test_the_guide_names_every_measure() -> None:
    assert {m.title for m in Metric} <= set(re.findall(r"`(\w+)`", GUIDE))
