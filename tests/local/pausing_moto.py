"""moto's server, plain or atomic, pausing between check and write; for `test_local_atomicity`.

A race that is lost once in a hundred runs proves little. Here a caller that has checked a condition
waits for a second to get as far, or to be held up by a lock: in plain moto the two always meet, and
both believe that they have won; where calls are atomic, the second is held up.
"""

import argparse
import threading
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

from moto.dynamodb import comparisons, models
from moto.dynamodb.models import table
from moto.s3.models import S3Backend
from moto.sqs.models import Message

from dormouse_cli.local import moto_services
from dormouse_cli.local.moto_server import make_atomic, serve
from tests.support.waiting import LIMIT_SECONDS

MARK = "meet"
"""What the names of values, keys and bodies begin with whose callers are to meet."""


class MeetingPoints:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._arrived: defaultdict[str, int] = defaultdict(int)
        self._held_up = 0

    def arrive(self, name: str) -> None:
        with self._changed:
            self._arrived[name] += 1
            self._changed.notify_all()

    def wait_for(self, name: str, callers: int) -> None:
        with self._changed:
            is_met = self._changed.wait_for(
                lambda: self._held_up or self._arrived[name] >= callers, LIMIT_SECONDS
            )
        assert is_met, f"nobody else came to {name}"

    def hold_up(self, callers: int) -> None:
        """Count that many more callers, or fewer, as waiting for a lock."""
        with self._changed:
            self._held_up += callers
            self._changed.notify_all()

    def meet(self, name: str) -> None:
        if name.startswith(MARK):
            self.arrive(name)
            self.wait_for(name, callers=2)


class _WatchedLock:
    """A lock that knows which threads wait for it; a `threading.Condition` can use it."""

    def __init__(self, points: MeetingPoints) -> None:
        self._points, self._lock = points, threading.RLock()
        self._is_owned: Any = self._lock._is_owned  # type: ignore[attr-defined]
        self._release_save: Any = self._lock._release_save  # type: ignore[attr-defined]
        self._acquire_restore: Any = self._lock._acquire_restore  # type: ignore[attr-defined]
        self.release = self._lock.release

    def acquire(self) -> bool:
        if not self._lock.acquire(blocking=False):
            self._points.hold_up(1)
            self._lock.acquire()
            self._points.hold_up(-1)
        return True

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def watch_locks(points: MeetingPoints) -> None:
    setattr(moto_services, "LOCK", _WatchedLock(points))  # noqa: B010
    setattr(moto_services, "CHANGED", threading.Condition(_WatchedLock(points)))  # type: ignore[arg-type]  # noqa: B010


class _PausingCondition:
    """A DynamoDB condition after whose evaluation the caller waits for another."""

    def __init__(self, condition: Any, name: str, points: MeetingPoints) -> None:
        self._condition, self._name, self._points = condition, name, points

    def expr(self, item: Any) -> bool:
        holds = bool(self._condition.expr(item))
        self._points.meet(self._name)
        return holds


def pause_in_dynamodb(points: MeetingPoints) -> None:
    get_filter_expression = comparisons.get_filter_expression
    create_parser = comparisons.create_condition_expression_parser
    put_item = table.Table.put_item

    def pausing(condition: Any, values: Any) -> Any:
        marks = [text for value in (values or {}).values() for text in value.values()]
        name = next((text for text in marks if str(text).startswith(MARK)), None)
        return condition if name is None else _PausingCondition(condition, name, points)

    def pausing_condition(expression: Any, names: Any, values: Any) -> Any:
        return pausing(get_filter_expression(expression, names, values), values)

    def pausing_parser(expression: Any, names: Any, values: Any) -> Any:
        parsed = create_parser(expression, names, values).parse()
        return SimpleNamespace(parse=lambda: pausing(parsed, values))

    def put_between(self: Any, item_attrs: Any, *arguments: Any, **named: Any) -> Any:
        name = item_attrs.get("between", {}).get("S")
        if name is not None:
            points.wait_for(name, callers=1)
        item = put_item(self, item_attrs, *arguments, **named)
        if name is not None:
            points.arrive(name)
        return item

    for module in (models, table):
        setattr(module, "get_filter_expression", pausing_condition)  # noqa: B010
    setattr(models, "create_condition_expression_parser", pausing_parser)  # noqa: B010
    table.Table.put_item = put_between  # type: ignore[method-assign]


def pause_in_s3(points: MeetingPoints) -> None:
    put_object = S3Backend.put_object
    # moto's maps are not made for two writers: at once, one of them may answer 500 instead of
    # winning too. Both have checked by now, so one after the other is the race that is meant.
    write = threading.Lock()

    def pausing_put(self: Any, bucket_name: str, key_name: str, *rest: Any, **named: Any) -> Any:
        points.meet(key_name)
        with write:
            return put_object(self, bucket_name, key_name, *rest, **named)

    S3Backend.put_object = pausing_put  # type: ignore[method-assign]


def pause_in_sqs(points: MeetingPoints) -> None:
    mark_received = Message.mark_received

    def pausing_mark(self: Message, visibility_timeout: int | None = None) -> None:
        points.meet(self.body)
        mark_received(self, visibility_timeout)

    Message.mark_received = pausing_mark  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("plain", "atomic"))
    options = parser.parse_args()
    points = MeetingPoints()
    if options.kind == "atomic":
        make_atomic()
        watch_locks(points)
    pause_in_dynamodb(points)
    pause_in_s3(points)
    pause_in_sqs(points)
    serve(0)


if __name__ == "__main__":
    main()
