"""Invokes functions at a fixed rate, as EventBridge rules do; run by `stack`."""

import json
import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast

from dormouse_cli.local.errors import LocalStackError
from dormouse_cli.local.plan import Schedule
from dormouse_cli.local.sandbox import Outcome

_log = logging.getLogger(__name__)


def scheduled_event(
    schedule: Schedule, event_id: str, now: float, account: str, region: str
) -> dict[str, Any]:
    """The event that EventBridge sends at `now` (Unix seconds)."""
    if schedule.input is not None:
        return cast(dict[str, Any], json.loads(str(schedule.input)))
    return {
        "version": "0",
        "id": event_id,
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": account,
        "time": datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": region,
        "resources": [schedule.arn],
        "detail": {},
    }


class ScheduleTimer:
    """One schedule at work: a thread that invokes its function once a period."""

    def __init__(
        self,
        schedule: Schedule,
        make_event: Callable[[Schedule], dict[str, Any]],
        invoke: Callable[[str, bytes], Outcome],
        stopping: threading.Event,
    ) -> None:
        """The first invocation comes one period after `start`."""
        self._schedule = schedule
        self._make_event = make_event
        self._invoke = invoke
        self._stopping = stopping
        self._thread = threading.Thread(target=self._run, name=schedule.name, daemon=True)

    def start(self) -> None:
        """Begin to count."""
        self._thread.start()

    def join(self) -> None:
        """Wait until the timer has ended, after `stopping` was set."""
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._schedule.rate_seconds):
            event = json.dumps(self._make_event(self._schedule)).encode()
            try:
                outcome = self._invoke(self._schedule.function, event)
            except LocalStackError:
                return  # the stack has begun to stop
            if outcome.failed and not self._stopping.is_set():
                _log.warning("%s failed on its schedule", self._schedule.function)
