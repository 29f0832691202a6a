"""The age of the oldest message of each queue, from CloudWatch."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from dormouse.aws.base.clients import client
from dormouse.aws.base.failures import reading
from dormouse.stored.names import InstanceNames

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch import CloudWatchClient
    from mypy_boto3_cloudwatch.type_defs import MetricDataQueryTypeDef

_LOOK_BACK = timedelta(minutes=15)
"""SQS publishes its metrics about every minute, and none for an idle queue."""


class CloudWatchAges:
    """`client.ports.QueueAges` of one instance."""

    def __init__(self, client: CloudWatchClient, names: InstanceNames) -> None:
        """Read the metrics of the queues of `names`."""
        self._client, self._names = client, names

    @staticmethod
    def of(names: InstanceNames) -> CloudWatchAges:
        """Return it with a client that has the default configuration."""
        return CloudWatchAges(client("cloudwatch"), names)

    def ages(self, queues: Sequence[str], now_ms: int) -> dict[str, float]:
        """Return the age in seconds of the oldest message of each queue that has recent metrics.

        Raises:
            UnavailableError: CloudWatch does not answer, or denies access.
        """
        now = datetime.fromtimestamp(now_ms / 1000, UTC)
        with reading("CloudWatch"):
            answer = self._client.get_metric_data(
                MetricDataQueries=[self._query(i, queue) for i, queue in enumerate(queues)],
                StartTime=now - _LOOK_BACK,
                EndTime=now,
                ScanBy="TimestampDescending",
            )
        newest = {found["Id"]: found["Values"] for found in answer["MetricDataResults"]}
        known = {queue: newest.get(f"q{i}") for i, queue in enumerate(queues)}
        return {queue: values[0] for queue, values in known.items() if values}

    def _query(self, number: int, queue: str) -> MetricDataQueryTypeDef:
        return {
            "Id": f"q{number}",
            "MetricStat": {
                "Metric": {
                    "Namespace": "AWS/SQS",
                    "MetricName": "ApproximateAgeOfOldestMessage",
                    "Dimensions": [{"Name": "QueueName", "Value": self._names.queue(queue)}],
                },
                "Period": 60,
                "Stat": "Maximum",
            },
        }
