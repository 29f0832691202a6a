"""`dormouse work`: a process that does the work of an instance in a folder."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from dormouse.client.instance import Instance
from dormouse.client.waiting import dead_letter_error
from dormouse.errors import DiskFullError, InvalidRequestError
from dormouse.features.dead_letters import list_letters
from dormouse.messages.stages import STAGES
from dormouse_cli.session import Session, computing_apart, instance_of
from dormouse_cli.terminal import note, notes

_QUEUES = tuple(stage.queue for stage in STAGES)
LOOK_SECONDS = 1.0
FULL_SECONDS = 5.0
"""How long a worker waits for room on a full disk before it looks again."""


def work(
    ctx: typer.Context,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="End when nothing is left to do now.")
    ] = False,
) -> None:
    """Do the work of an instance in a folder: ingest the files of its inbox, split, compact,
    collect.

    Every process that uses the folder works while it lives; this one does nothing else. Any
    number of them may run. Ctrl-C ends it at any time: others go on with what it leaves.

    With `--until-idle`, work whose message is a dead letter is no longer waited for: it is named,
    and the exit code is 1.
    """
    instance = instance_of(ctx)
    folder = instance.folder
    if folder is None:
        raise InvalidRequestError(
            "a deployment does its work by itself",
            hint="`dormouse work` is for an instance in a folder: --instance ./mice",
        )
    folder.database.check_writable()
    instance = computing_apart(ctx.ensure_object(Session), instance)
    with notes().status("looking for work") as status:
        try:
            while True:
                left = sum(instance.queues.depths(_QUEUES).values())
                status.update(f"{left:,} messages to work on" if left else "waiting for work")
                if until_idle and not left:
                    _check_dead_letters(instance)
                    if not instance.pending():
                        note("nothing is left to do")
                        return
                try:
                    folder.worker.work_for(LOOK_SECONDS)
                except DiskFullError as error:
                    if until_idle:
                        raise
                    status.update(error.explanation)
                    time.sleep(FULL_SECONDS)
        except KeyboardInterrupt:
            folder.background.was_woken = False  # else it would go on before it ends
            note("stopped; what is left is done by the next process that uses the folder")


def _check_dead_letters(instance: Instance) -> None:
    """Raise DeadLetterError, once no message is left but dead letters: nobody works on those."""
    for queue in _QUEUES:
        for letter in list_letters(instance.services, queue, 1):
            raise dead_letter_error("some work was not done", queue, letter)
