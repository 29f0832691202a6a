"""Events of EMR Serverless, as they come through a queue: which run of Spark changed.

The form is EventBridge's event "EMR Serverless Job Run State Change".
"""

from __future__ import annotations

import msgspec

from dormouse.errors import InvalidRequestError
from dormouse.messages import SparkRunChanged


class _Detail(msgspec.Struct):
    jobRunId: str


class _Event(msgspec.Struct):
    detail: _Detail


def changed_run(body: str) -> SparkRunChanged:
    """Give the run that an event tells of.

    Raises:
        InvalidRequestError: it is no such event.
    """
    try:
        event = msgspec.json.decode(body, type=_Event)
    except msgspec.DecodeError as error:
        raise InvalidRequestError(f"not a valid event of a Spark run: {error}") from error
    return SparkRunChanged(event.detail.jobRunId)
