"""Events of EMR Serverless from a queue: which run of Spark changed its state.

The form is EventBridge's event "EMR Serverless Job Run State Change".
"""

from __future__ import annotations

import msgspec

from dormouse.errors import InvalidRequestError
from dormouse.messages.stages import Id, SparkRunChanged
from dormouse.stored.decoding import decode_json


class _Detail(msgspec.Struct):
    jobRunId: Id


class _Event(msgspec.Struct):
    detail: _Detail


def changed_run(body: str) -> SparkRunChanged:
    """Return the run that an event names.

    Raises:
        InvalidRequestError: it is no such event.
    """
    try:
        event = decode_json(body, _Event)
    except ValueError as error:
        raise InvalidRequestError(f"not a valid event of a Spark run: {error}") from error
    return SparkRunChanged(event.detail.jobRunId)
