"""The structured log of a function: every line has the ids of its table, job and version."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

from dormouse.aws.queues import SqsOutbox
from dormouse.messages.stages import QUEUES, STAGE_OF, Message
from dormouse.state.jobs import Metric
from dormouse.state.rules import CommitReport
from dormouse.stored.paths import InstanceNames, dead_letter_queue

# CloudWatch metrics of commits and tables, written to a function's log.
#
# CloudWatch extracts them from the log (embedded metric format), so there is no call that can fail.

NAMESPACE = "Dormouse"
_NO_SERVICE = ""  # else Powertools adds a dimension of its own


DEAD_LETTERS, LATE_QUEUES, TROUBLED = "DeadLetters", "LateQueues", "TroubledTables"
"""By instance: how many queues have dead letters, and in how many messages wait too long; and 1 for
each table in trouble."""
WATCHED = Metric.REFERENCES_PER_LEAF
"""The metric that an alarm watches by its maximum over all tables: published by instance, too."""
TROUBLES: Mapping[Metric, tuple[str, float]] = {
    Metric.OLDEST_JOB_AGE_SECONDS: ("jobs-stand", 6 * 3600.0),
    Metric.ICEBERG_LAG_SECONDS: ("iceberg-lags", 1800.0),
    Metric.DISPUTED_SHARDS: ("shards-disputed", 0.0),
    Metric.UNREGISTERED: ("unregistered", 0.0),
}
"""What is the matter with a table for which a metric is above its limit."""


class LoggedMetrics:
    """`ports.Metrics` of an instance, with the dimensions ``instance`` and ``table``.

    `WATCHED` is published a second time, with the dimension ``instance`` alone. So is that a table
    is in trouble, which the log then names.
    """

    def __init__(self, instance: str) -> None:
        self._instance = instance

    def emit(self, table_name: str, values: Mapping[Metric, float]) -> None:
        """Write the metrics of a table to the log."""
        self._print(values, table=table_name)
        if WATCHED in values:
            self._print({WATCHED: values[WATCHED]})
        limits = {
            name: (values.get(metric, 0.0), most) for metric, (name, most) in TROUBLES.items()
        }
        if troubles := [name for name, (value, most) in limits.items() if value > most]:
            logger.error("a table is in trouble", table=table_name, troubles=troubles)
            _publish([(TROUBLED, MetricUnit.Count, 1)], instance=self._instance)

    def _print(self, values: Mapping[Metric, float], **dimensions: str) -> None:
        numbers = [(each.title, MetricUnit(each.unit), values[each]) for each in values]
        _publish(numbers, {}, instance=self._instance, **dimensions)


def _publish(
    numbers: Iterable[tuple[str, MetricUnit, float]],
    facts: Mapping[str, str | int] = MappingProxyType({}),
    **dimensions: str,
) -> None:
    """Write metrics to the log with their dimensions, and facts that are none."""
    metrics = EphemeralMetrics(namespace=NAMESPACE, service=_NO_SERVICE)
    for name, value in dimensions.items():
        metrics.add_dimension(name, value)
    for name, unit, number in numbers:
        metrics.add_metric(name, unit, number)
    for name, fact in facts.items():
        metrics.add_metadata(name, fact)
    metrics.flush_metrics()


def log_commit(instance: str, state_id: str, report: CommitReport) -> None:
    """Write the metrics of a commit to the log, by instance, with table id and version."""
    numbers = [
        ("CommitAttempts", MetricUnit.Count, report.attempts),
        ("CommitBytes", MetricUnit.Bytes, report.size_bytes),
        ("CommitMilliseconds", MetricUnit.Milliseconds, report.milliseconds),
        ("CommitTransactions", MetricUnit.Count, report.transactions),
        ("CommitRejected", MetricUnit.Count, report.rejected),
    ]
    _publish(numbers, {"table_id": state_id, "version": report.version}, instance=instance)


logger = Logger()

_IDS = {
    "table_id": "table_id",
    "name": "table",
    "job_id": "job_id",
    "partition": "partition",
    "queue": "queue",
    "request_id": "request_id",
    "run_id": "run_id",
}
"""Fields of messages, and their keys in log lines."""

_VERSION = "state_version"


@contextmanager
def about(message: Message) -> Iterator[None]:
    """Add the ids of a message to every log line of the block."""
    values = {key: getattr(message, name, None) for name, key in _IDS.items()}
    texts = {key: value for key, value in values.items() if isinstance(value, str)}
    with about_ids(texts):
        yield


@contextmanager
def about_ids(ids: dict[str, str]) -> Iterator[None]:
    """Add ids to every log line of the block, and the version once a commit has set it."""
    try:
        with logger.append_context_keys(**ids):
            yield
    finally:
        logger.remove_keys([_VERSION])


def log_queues(instance: str, metric: str, message: str, queues: Mapping[str, float]) -> None:
    """Write to the log what is the matter with queues, and publish how many they are, if any."""
    if queues:
        logger.error(message, queues=dict(queues))
        _publish([(metric, MetricUnit.Count, len(queues))], instance=instance)


def note_commit(instance: str, state_id: str, report: CommitReport) -> None:
    """Log the metrics of a commit, and add its version to the following log lines."""
    log_commit(instance, state_id, report)
    logger.append_keys(**{_VERSION: report.version})


# What in the queues needs a person: the sweep publishes it, and two alarms watch that. An alarm for
# each queue would cost $2.60 a month.


def watch_queues(
    outbox: SqsOutbox,
    names: InstanceNames,
    now_ms: int,
    ages: Callable[[InstanceNames, Sequence[str], int], dict[str, float]],
) -> None:
    """Publish which queues have dead letters, and in which messages have waited for longer than
    `late_seconds` of their stage. CloudWatch is asked only about queues that are not empty.

    Raises:
        UnavailableError: SQS or CloudWatch does not answer; what was known by then is published.
        NotFoundError: there is no such queue.
    """
    depths = outbox.depths([*QUEUES, *map(dead_letter_queue, QUEUES)])
    dead = {q: letters for q in QUEUES if (letters := depths[dead_letter_queue(q)])}
    log_queues(names.instance, DEAD_LETTERS, "there are dead letters", dead)
    if busy := [queue for queue in QUEUES if depths[queue]]:
        waiting = ages(names, busy, now_ms)
        late = {q: age for q, age in waiting.items() if age > STAGE_OF[q].late_seconds}
        log_queues(names.instance, LATE_QUEUES, "messages wait too long", late)
