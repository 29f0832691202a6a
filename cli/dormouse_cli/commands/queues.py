"""`dormouse queues` and `dormouse dlq`: messages in the queues and in their dead-letter queues."""

from typing import Annotated

import typer

from dormouse.errors import InvalidRequestError, UnavailableError
from dormouse.features.dead_letters import Redriven
from dormouse_cli.listings import Format, ListFormat, print_items, print_listing, row_of
from dormouse_cli.session import instance_of
from dormouse_cli.terminal import confirm, counted, note
from dormouse_cli.values import ForceOption, FormatOption, ListFormatOption

Queue = Annotated[
    str, typer.Argument(metavar="QUEUE", help="A queue's name, as `dormouse queues` lists it.")
]
Ids = Annotated[
    list[str] | None,
    typer.Option("--id", metavar="ID", help="Only the message with this id; repeatable."),
]
REASONS_SHOWN = 3


def queues(ctx: typer.Context, form: ListFormatOption = ListFormat.table) -> None:
    """Show every queue: messages waiting, in flight, delayed, and in its dead-letter queue."""
    states, unknown = instance_of(ctx).queue_states()
    columns = ("queue", "waiting", "in_flight", "delayed", "oldest_seconds", "dead")
    print_items(columns, states, form)
    if unknown:
        note(f"the age of the oldest messages is unknown: {unknown}")


def list_dead_letters(ctx: typer.Context, form: ListFormatOption = ListFormat.table) -> None:
    """Show how many dead letters each queue has, since when, and the commonest reasons.

    A dead letter is a message that failed three times, or that nothing can read.
    """
    rows = [
        row_of(("queue", "dead", "oldest"), each)
        | {"reasons": "; ".join(reason[:200] for reason in each.reasons[:REASONS_SHOWN])}
        for each in instance_of(ctx).dead_letters().summary()
    ]
    print_listing(("queue", "dead", "oldest", "reasons"), rows, form)


def show(ctx: typer.Context, queue: Queue, form: ListFormatOption = ListFormat.table) -> None:
    """Show the dead letters of a queue, the oldest first. They stay where they are."""
    letters = instance_of(ctx).dead_letters().show(queue)
    print_items(("id", "sent", "receives", "reason", "body"), letters, form)


def redrive(
    ctx: typer.Context,
    queue: Queue,
    ids: Ids = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All dead letters of the queue.")
    ] = False,
    form: FormatOption = Format.table,
) -> None:
    """Send dead letters back to their queue; each is deleted once it was sent.

    Find out first why they failed: without a repair they fail again.
    """
    if bool(ids) == everything:
        raise InvalidRequestError("say which dead letters: --id, once or more, or --all")
    result = instance_of(ctx).dead_letters().redrive(queue, ids or ())
    _account(result, "sent back", form)


def discard(
    ctx: typer.Context,
    queue: Queue,
    ids: Ids = None,
    force: ForceOption = False,
    form: FormatOption = Format.table,
) -> None:
    """Delete dead letters of a queue for good: what they ask for is never done."""
    dead_letters = instance_of(ctx).dead_letters()
    letters = [each for each in dead_letters.show(queue) if not ids or each.id in ids]
    if not letters and not ids:
        note(f"queue {queue} has no dead letters")
        return
    if letters and not force:
        print_items(("id", "sent", "reason", "body"), letters, form)
        count = counted(len(letters), "message")
        confirm(f"Discard {count} of {queue}? What they ask for is lost.")
    # Only what was shown: more may have become dead letters since.
    _account(dead_letters.discard(queue, ids or [each.id for each in letters]), "discarded", form)


def _account(result: Redriven, verb: str, form: Format) -> None:
    """Print the outcome of each message; raise an error if some are still dead letters."""
    outcomes = (
        (verb, result.sent),
        ("sent, not deleted", result.undeleted),
        ("left", result.unsent),
    )
    if form is Format.json:
        rows = [{"id": i, "outcome": outcome} for outcome, ids in outcomes for i in ids]
        print_listing(("id", "outcome"), rows, form)
    note(f"{counted(len(result.sent), 'message')} {verb}")
    if count := len(result.unsent) + len(result.undeleted):
        sent = f", {len(result.undeleted)} of them sent" if result.undeleted else ""
        raise UnavailableError(
            f"still among the dead letters: {counted(count, 'message')}{sent}",
            hint="run it again: what was sent is not sent twice",
        )
