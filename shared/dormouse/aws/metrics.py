"""What commits cost, as CloudWatch metrics in a function's log; wired by `wiring`."""

from __future__ import annotations

from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

from dormouse.statestore.protocol import CommitReport

NAMESPACE = "Dormouse"


def log_commit(state_id: str, report: CommitReport) -> None:
    """Print a report in CloudWatch's embedded metric format; the table and version go along."""
    metrics = EphemeralMetrics(namespace=NAMESPACE)
    metrics.set_default_dimensions(operation="commit")
    metrics.add_metric("CommitAttempts", MetricUnit.Count, report.attempts)
    metrics.add_metric("CommitBytes", MetricUnit.Bytes, report.size_bytes)
    metrics.add_metric("CommitMilliseconds", MetricUnit.Milliseconds, report.milliseconds)
    metrics.add_metric("CommitTransactions", MetricUnit.Count, report.transactions)
    metrics.add_metric("CommitRejected", MetricUnit.Count, report.rejected)
    metrics.add_metadata("table_id", state_id)
    metrics.add_metadata("version", report.version)
    metrics.flush_metrics()
