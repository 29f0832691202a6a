"""How long messages have waited, by the metrics of CloudWatch."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import boto3
import pytest
from botocore.exceptions import ConnectionClosedError

from dormouse.aws.queues import queue_ages
from dormouse.errors import UnavailableError
from dormouse.messages.stages import QUEUES
from dormouse.stored.paths import InstanceNames
from tests.contract.mocked_aws import REGION, mocked_aws

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch import CloudWatchClient

NAMES = InstanceNames("test", "123456789012")
NOW = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
NOW_MS = round(NOW.timestamp() * 1000)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[CloudWatchClient]:
    with mocked_aws(monkeypatch):
        yield boto3.client("cloudwatch", region_name=REGION)


def measured(client: CloudWatchClient, queue: str, minutes_ago: int, seconds: float) -> None:
    client.put_metric_data(
        Namespace="AWS/SQS",
        MetricData=[
            {
                "MetricName": "ApproximateAgeOfOldestMessage",
                "Dimensions": [{"Name": "QueueName", "Value": NAMES.queue(queue)}],
                "Timestamp": NOW - timedelta(minutes=minutes_ago),
                "Value": seconds,
            }
        ],
    )


def test_the_newest_age_of_each_queue_counts_and_the_others_are_not_known(
    client: CloudWatchClient,
) -> None:
    measured(client, "files", 9, 500)
    measured(client, "files", 2, 20)
    measured(client, "admin", 3, 0)
    measured(client, "purges", 60, 7)
    assert queue_ages(NAMES, QUEUES, NOW_MS, client) == {"files": 20, "admin": 0}


def test_a_failed_request_for_ages_raises_a_dormouse_error(
    client: CloudWatchClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(**_: object) -> None:
        raise ConnectionClosedError(endpoint_url="cloudwatch")

    monkeypatch.setattr(client, "get_metric_data", silent)
    with pytest.raises(UnavailableError, match="CloudWatch"):
        queue_ages(NAMES, QUEUES, NOW_MS, client)
