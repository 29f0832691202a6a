"""Processes that take turns: one runs at a time, from one call to the next, as the schedule says.

Each is a thread, and the baton says which of them may run. So a run depends on the order of turns
alone, never on the machine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

_Owner = TypeVar("_Owner")


@dataclass(eq=False)
class Task(Generic[_Owner]):
    """Something that `owner` does. It is not given a turn before `wake_ms`.

    `error` is what it ended with, if it raised.
    """

    owner: _Owner
    work: Callable[[], None]
    wake_ms: int = 0
    is_done: bool = False
    error: BaseException | None = None
    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))


class Scheduler(Generic[_Owner]):
    """Schedule tasks, one step at a time."""

    def __init__(self) -> None:
        """Begin without any."""
        self.tasks: list[Task[_Owner]] = []
        self.running: Task[_Owner] | None = None
        self._back = threading.Semaphore(0)

    def start(self, owner: _Owner, work: Callable[[], None]) -> Task[_Owner]:
        """Begin a task; it does nothing before its first turn."""
        task = Task(owner, work)
        self.tasks.append(task)
        threading.Thread(target=self._run, args=(task,), daemon=True).start()
        return task

    def awake(self, now_ms: int) -> list[Task[_Owner]]:
        """Return the tasks that may have a turn."""
        return [task for task in self.tasks if task.wake_ms <= now_ms]

    def give_turn(self, task: Task[_Owner]) -> None:
        """Let a task run until it waits for its next turn, or ends."""
        self.running = task
        task.turn.release()
        self._back.acquire()
        self.running = None
        if task.is_done:
            self.tasks.remove(task)

    def wait(self) -> None:
        """Wait for the next turn; called by the task that runs. Others just go on."""
        task = self.running
        if task is not None:
            self._back.release()
            task.turn.acquire()

    def _run(self, task: Task[_Owner]) -> None:
        task.turn.acquire()
        try:
            task.work()
        except BaseException as error:  # the simulation looks at it
            task.error = error
        finally:
            task.is_done = True
            self._back.release()
