"""A person called at night finds what the alarm means; and the dashboard shows what there is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from dormouse.aws.logs import (
    DEAD_LETTERS,
    LATE_QUEUES,
    NAMESPACE,
    TROUBLED,
    TROUBLES,
    WATCHED,
    log_commit,
    log_queues,
)
from dormouse.messages.stages import QUEUES
from dormouse.messages.stages import STAGES as QUEUE_STAGES
from dormouse.state.jobs import Metric
from dormouse.state.rules import CommitReport
from dormouse.stored.paths import dead_letter_queue
from tests.template.conftest import LONGEST_INSTANCE, NAMES, ROOT, STAGES, Template

GUIDE = (ROOT / "docs" / "operations.md").read_text()
PREFIX = f"dormouse-{NAMES.instance}-"
MOST_CHARACTERS_OF_A_SEARCH = 1024


OF_THE_WHOLE = {
    *("function-errors", "sweep-missing", "contention"),
    *("http-api-errors", "token-api-errors"),
}
WORST_OF = {
    "dead-letters": DEAD_LETTERS,
    "queues-late": LATE_QUEUES,
    "compaction-lags": WATCHED.title,
    "tables-troubled": TROUBLED,
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


def metrics_of(template: Template) -> list[list[Any]]:
    """Return all metrics of the dashboard."""
    (dashboard,) = template.of_type("AWS::CloudWatch::Dashboard").values()
    widgets = json.loads(dashboard["DashboardBody"])["widgets"]
    return [metric for widget in widgets for metric in widget["properties"]["metrics"]]


@pytest.fixture(scope="session")
def metrics(template: Template) -> list[list[Any]]:
    return metrics_of(template)


@dataclass(frozen=True)
class Search:
    """A search for metrics: whose names, and whose values of dimensions, are exactly these."""

    schema: str
    values: dict[str, set[str]]


def searches(metrics: list[list[Any]]) -> Iterator[Search]:
    """Yield what the dashboard searches for; each value must be in quotes, else parts match too."""
    whole = re.compile(r"SEARCH\('\{([\w/,]+)\} (.+)', '(?:Sum|Maximum|p90)', (?:60|300)\)")
    term = re.compile(r'(\w+)=\(?("[^"]+"(?: OR "[^"]+")*)\)?')
    for metric in metrics:
        if isinstance(metric[0], dict):
            found = whole.fullmatch(metric[0]["expression"])
            assert found, metric
            assert term.sub("", found[2]).strip() == "", "something is not searched for exactly"
            values = {
                name: set(re.findall('"([^"]+)"', group)) for name, group in term.findall(found[2])
            }
            yield Search(found[1], values)


def test_every_alarm_has_a_paragraph_to_which_its_description_points(
    alarms: dict[str, dict[str, Any]],
) -> None:
    guide = sections()
    for name, alarm in alarms.items():
        meaning, pointer, anchor = alarm["AlarmDescription"].partition("See docs/operations.md#")
        assert len(meaning) > 20 and pointer, name
        assert f"`{name}`" in guide[anchor.strip()], name
    headed = re.findall(r"^### .+\n\n(`.+`)\n\n", GUIDE, flags=re.MULTILINE)
    assert {*re.findall("`([a-z-]+)`", " ".join(headed))} == {*alarms}


def test_every_alarm_is_known_and_notifies(alarms: dict[str, dict[str, Any]]) -> None:
    assert set(alarms) == {*OF_THE_WHOLE} | {*WORST_OF}
    assert all(alarm["AlarmActions"] for alarm in alarms.values())


@pytest.mark.parametrize("name", WORST_OF)
def test_an_alarm_over_tables_reads_the_metrics_of_the_instance(
    alarms: dict[str, dict[str, Any]], name: str
) -> None:
    alarm, metric = alarms[name], WORST_OF[name]
    assert (alarm["Namespace"], alarm["MetricName"]) == (NAMESPACE, metric)
    assert alarm["Dimensions"] == [{"Name": "instance", "Value": NAMES.instance}]
    assert alarm["Statistic"] == "Maximum", "of all tables, the one that is worst"


def test_a_run_of_any_function_that_crashes_or_times_out_counts_for_an_alarm(
    alarms: dict[str, dict[str, Any]], template: Template
) -> None:
    filters = {f["LogGroupName"]: f for f in template.of_type("AWS::Logs::MetricFilter").values()}
    assert {*filters} == {f"/aws/lambda/{PREFIX}{stage}" for stage in STAGES}
    alarm = alarms["function-errors"]
    for each in filters.values():
        (counted,) = each["MetricTransformations"]
        named = counted["MetricNamespace"], counted["MetricName"]
        assert named == (alarm["Namespace"], alarm["MetricName"])
        assert counted["MetricValue"] == "1"
        pattern = each["FilterPattern"]
        assert '$.type = "platform.report"' in pattern
        ends = re.findall(r'\.record\.status = "(\w+)"', pattern)
        assert {*ends} == {"error", "failure", "timeout"}
    assert all(template.function(s)["LoggingConfig"] == {"LogFormat": "JSON"} for s in STAGES)


def test_what_the_sweep_finds_in_queues_is_what_alarms_watch(
    alarms: dict[str, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    log_queues(NAMES.instance, DEAD_LETTERS, "dead", {"admin": 2, "files": 1})
    log_queues(NAMES.instance, LATE_QUEUES, "late", {"queries": 901.0})
    lines = map(json.loads, capsys.readouterr().out.splitlines())
    metrics = [line for line in lines if "_aws" in line]
    assert [line.get(DEAD_LETTERS) for line in metrics] == [[2.0], None]
    assert [line.get(LATE_QUEUES) for line in metrics] == [None, [1.0]]
    for line in metrics:
        (declared,) = line["_aws"]["CloudWatchMetrics"]
        assert declared["Dimensions"] == [["instance"]]
        assert declared["Namespace"] == NAMESPACE
    assert {alarms[name]["Threshold"] for name in ("dead-letters", "queues-late")} == {0}
    log_queues(NAMES.instance, DEAD_LETTERS, "dead", {})
    assert capsys.readouterr().out == ""


def test_failures_of_the_http_api_are_those_that_aws_counts(
    alarms: dict[str, dict[str, Any]], template: Template
) -> None:
    alarm = alarms["http-api-errors"]
    api = "HttpApi"
    assert (alarm["Namespace"], alarm["MetricName"]) == ("AWS/ApiGateway", "5xx")
    assert alarm["Dimensions"] == [{"Name": "ApiId", "Value": template.names.ref(api)}]
    shown = {metric[1] for metric in metrics_of(template) if metric[0] == "AWS/ApiGateway"}
    assert shown == {"Count", "4xx", "5xx"}


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


def test_the_dashboard_shows_every_measure_of_a_table_and_none_that_nobody_emits(
    metrics: list[list[Any]],
) -> None:
    of_tables = [s for s in searches(metrics) if s.schema == f"{NAMESPACE},instance,table"]
    assert all(search.values["instance"] == {NAMES.instance} for search in of_tables)
    shown = {name for search in of_tables for name in search.values["MetricName"]}
    assert shown == {measure.title for measure in Metric}


def test_what_is_watched_of_commits_is_what_commits_emit(
    metrics: list[list[Any]], alarms: dict[str, dict[str, Any]], capsys: pytest.CaptureFixture[str]
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
    found = list(searches(metrics))

    def shown(namespace: str, dimension: str, metric: str) -> set[str]:
        (search,) = (
            search
            for search in found
            if search.schema == f"{namespace},{dimension}"
            and search.values["MetricName"] == {metric}
        )
        return search.values[dimension]

    queues = {NAMES.queue(queue) for queue in QUEUES}
    dead = {NAMES.queue(dead_letter_queue(queue)) for queue in QUEUES}
    waiting = [
        search.values["QueueName"]
        for search in found
        if search.values["MetricName"] == {"ApproximateNumberOfMessagesVisible"}
    ]
    assert waiting == [dead, queues]
    assert shown("AWS/SQS", "QueueName", "ApproximateAgeOfOldestMessage") == queues
    for metric in ("Errors", "Throttles", "Duration"):
        assert shown("AWS/Lambda", "FunctionName", metric) == {PREFIX + stage for stage in STAGES}
    tables = {t["TableName"] for t in template.of_type("AWS::DynamoDB::Table").values()}
    for metric in ("ReadThrottleEvents", "WriteThrottleEvents"):
        assert shown("AWS/DynamoDB", "TableName", metric) == tables
    buckets = template.of_type("AWS::S3::Bucket").values()
    s3 = {m[m.index("BucketName") + 1] for m in metrics if m[0] == "AWS/S3"}
    assert s3 == {bucket["BucketName"] for bucket in buckets}
    for bucket in buckets:  # without, S3 sends CloudWatch no request metrics
        assert bucket["MetricsConfigurations"] == [{"Id": "all"}]


def test_no_search_is_longer_than_cloudwatch_takes_however_long_the_name_of_the_instance() -> None:
    longest = metrics_of(Template.read(Instance="i" * LONGEST_INSTANCE))
    expressions = [metric[0]["expression"] for metric in longest if isinstance(metric[0], dict)]
    assert max(map(len, expressions)) <= MOST_CHARACTERS_OF_A_SEARCH


def test_the_guide_names_every_measure() -> None:
    assert {m.title for m in Metric} <= set(re.findall(r"`(\w+)`", GUIDE))


def test_the_guide_says_how_long_a_message_of_each_queue_may_wait() -> None:
    text, anyone = sections()["a-queue-is-stuck"], "an hour (all others)"
    for stage in QUEUE_STAGES:
        names = {900: "a quarter of an hour", 1800: "half an hour", 7200: "two hours"}
        if stage.late_seconds == 3600:
            assert f"`{stage.queue}`" not in text.partition(anyone)[0]
        else:
            (named,) = re.findall(rf"{names[stage.late_seconds]} \((.+?)\)", text)
            assert f"`{stage.queue}`" in named


def test_the_guide_explains_each_trouble_of_a_table() -> None:
    guide = sections()
    found = re.findall(r"- \*([a-z-]+)\*: \[.+?\]\(#(.+?)\)", guide["a-table-is-in-trouble"])
    assert {name for name, _ in found} == {name for name, _ in TROUBLES.values()}
    assert {anchor for _, anchor in found} <= guide.keys()
