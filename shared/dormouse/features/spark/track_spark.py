"""track_spark: handle the end of a Spark run: finish its job, or retry it.

An event only names a run, whose state is then read from EMR and from the table. So events may be
repeated, late or out of order, and the sweep makes up for a lost one. Drivers have no access to
queues, so the messages that follow from a commit are sent here.
"""

from __future__ import annotations

from dormouse.features.spark.jobs import (
    fail_statement,
    finish,
    is_spark_job_complete,
    retry_message,
)
from dormouse.features.spark.requests import load_spark_request, newest_spark_run
from dormouse.jobs.tracking import record, tracked_job
from dormouse.messages.stages import OutboundMessage, SparkRunChanged, TableChanged
from dormouse.model.jobs.job_events import Failed
from dormouse.ports.services import Services


def track_spark(services: Services, message: SparkRunChanged) -> list[OutboundMessage]:
    """Finish the job of a run if it is complete, else retry it.

    Raises:
        UnavailableError: EMR does not return the state of the run; retry the message.
    """
    run = services.spark.describe(message.run_id) if services.spark else None
    if run is None or not run.outcome:
        return []
    table = services.table(run.table_id)
    if table is None:
        return fail_statement(services, run.table_id, run.job_id)
    request = load_spark_request(services, run.table_id, run.job_id)
    if (
        request is None
    ):  # the process that deleted it may have crashed before it announced the change
        return [OutboundMessage("table-changes", TableChanged(table.id))]
    job = request.job
    state = services.store(table).current()
    if is_spark_job_complete(services, state, job):
        return finish(services, table, state, job)
    newest, _ = newest_spark_run(services, job)
    if run.attempt < newest:
        return []  # a late event: the next attempt has started
    reason = run.reason or (
        "it succeeded, but did not commit its job" if run.outcome == "succeeded" else "it failed"
    )
    reason = f"attempt {run.attempt}, run {message.run_id}: {reason}"
    record(services, tracked_job(job), Failed(reason))
    return [retry_message(services, request)]
