"""track_spark: a run of Spark ended → its job is done, or to be tried again.

What the event says is not believed, only that there is a run to look at: so events that come twice,
late or in another order do no harm, and `sweep` makes up for one that never came. A driver reaches
no queue, so what follows from its commit is sent from here.
"""

from __future__ import annotations

from dormouse.features.spark.jobs import again, finish, is_settled, kind_of
from dormouse.features.spark.requests import newest_run, spark_request
from dormouse.jobs.tracking import record
from dormouse.messages import OutboundMessage, SparkRunChanged, TableChanged
from dormouse.ports import Services


def track_spark(services: Services, message: SparkRunChanged) -> list[OutboundMessage]:
    """See what became of the run's job; send it to be tried again if it is not done.

    Raises:
        UnavailableError: Spark does not say how the run stands; the message should come again.
    """
    run = services.spark.describe(message.run_id) if services.spark else None
    if run is None or not run.outcome:
        return []
    table = services.table(run.table_id)
    if table is None:
        return []
    request = spark_request(services, run.table_id, run.job_id)
    if request is None:  # whoever forgot it may have died before it announced the change
        return [OutboundMessage("table-changes", TableChanged(table.id))]
    job = request.job
    state = services.store(table).current()
    if is_settled(services, state, job):
        return finish(services, table, state, job)
    newest, _ = newest_run(services, job)
    if run.attempt < newest:
        return []  # told late: the next attempt was begun long ago
    reason = run.reason or (
        "it ended well, and did not do what it was to"
        if run.outcome == "succeeded"
        else "it failed"
    )
    reason = f"attempt {run.attempt}, run {message.run_id}: {reason}"
    record(services, table.id, job.job_id, kind_of(job), "failed", reason=reason)
    return [again(services, request)]
