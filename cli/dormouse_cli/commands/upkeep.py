"""`dormouse compact`, `split`, `gc`, `work`: what happens by itself, asked for now."""

import time
from typing import Annotated

import typer
from rich.text import Text

from dormouse.client.instance import Instance
from dormouse.client.waiting import WAIT_SECONDS, dead_letter_error
from dormouse.errors import DiskFullError, InvalidRequestError
from dormouse.features.dead_letters import list_letters
from dormouse.messages.stages import STAGES
from dormouse_cli import values
from dormouse_cli.commands.ingest import wait_for
from dormouse_cli.session import Session, computing_apart, instance_of, table_of
from dormouse_cli.terminal import counted, note, notes

WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until nothing is pending.")]


def compact(
    ctx: typer.Context,
    name: values.TableName,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Merge all that each leaf holds, whatever the strategy says."),
    ] = False,
    spark: values.SparkOption = False,
    properties: values.JobPropertyOption = None,
    wait: WaitOption = False,
    timeout: values.TimeoutOption = WAIT_SECONDS,
) -> None:
    """Begin the compactions of a table that are due now, or merge all of each leaf partition.

    It works on tables that are offline too. A leaf with very many shards takes several
    compactions: run it again until it begins none. If the table has iceberg=on, --all also
    rewrites lone shards that old readers read slowly, or whose rows are partly dead.
    """
    options = values.parse_spark(spark, properties)
    count = instance_of(ctx).compact(name, everything=everything, spark=options)
    note(f"{counted(count, 'compaction')} of table {name} started")
    if wait:
        wait_for(table_of(ctx, name), timeout)


def split(
    ctx: typer.Context,
    name: values.TableName,
    partition: Annotated[
        str, typer.Argument(metavar="[PARTITION]", help="A leaf; by default all that are due.")
    ] = "",
    forced: Annotated[bool, typer.Option("--forced", help="Also those with few rows.")] = False,
    wait: WaitOption = False,
    timeout: values.TimeoutOption = WAIT_SECONDS,
) -> None:
    """Split the leaf partitions of a table that have too many rows now, or one of them.

    It works on tables that are offline too. A leaf whose rows all share one key stays whole.
    """
    count = instance_of(ctx).split(name, partition, forced=forced)
    note(f"{counted(count, 'split')} of table {name} started")
    if wait:
        wait_for(table_of(ctx, name), timeout)


def collect(ctx: typer.Context, name: values.TableName) -> None:
    """Delete the shards of a table that nothing needs any more and whose delay is over."""
    shards = instance_of(ctx).collect_garbage(name)
    note(f"{counted(shards, 'shard')} of table {name} will be deleted in a moment")


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

    Every process that uses the folder does some of this work while it runs; this one does nothing
    else. Any number of them may run. Ctrl-C ends it at any time: others continue what it began.

    With `--until-idle`, it does not wait for dead letters: it names them, and the exit code is 1.
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
                depth = sum(instance.queues.depths(_QUEUES).values())
                status.update(f"{depth:,} messages to work on" if depth else "waiting for work")
                if until_idle and not depth:
                    _check_dead_letters(instance)
                    if not instance.pending():
                        note("nothing is left to do")
                        return
                try:
                    folder.worker.work_for(LOOK_SECONDS)
                except DiskFullError as error:
                    if until_idle:
                        raise
                    # a path may have what Rich would take for markup
                    status.update(Text(error.explanation))
                    time.sleep(FULL_SECONDS)
        except KeyboardInterrupt:
            folder.background.was_woken = False  # else it would go on before it ends
            note("stopped; what is left is done by the next process that uses the folder")


def _check_dead_letters(instance: Instance) -> None:
    """Raise DeadLetterError, once no message is left but dead letters: nobody works on those."""
    for queue in _QUEUES:
        for letter in list_letters(instance.services, queue, 1):
            raise dead_letter_error("some work was not done", queue, letter)
