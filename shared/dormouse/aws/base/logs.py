"""The structured log of a function: every line has the ids of its table, job and version."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aws_lambda_powertools import Logger

from dormouse.aws.base.metrics import log_commit
from dormouse.messages.stages import Message
from dormouse.state_store import CommitReport

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
    found = {key: value for key, value in values.items() if isinstance(value, str)}
    with about_ids(found):
        yield


@contextmanager
def about_ids(ids: dict[str, str]) -> Iterator[None]:
    """Add ids to every log line of the block, and the version once a commit has set it."""
    try:
        with logger.append_context_keys(**ids):
            yield
    finally:
        logger.remove_keys([_VERSION])


def note_commit(instance: str, state_id: str, report: CommitReport) -> None:
    """Log the metrics of a commit, and add its version to the following log lines."""
    log_commit(instance, state_id, report)
    logger.append_keys(**{_VERSION: report.version})
