"""`dormouse queues` and `dormouse dlq`: messages in the queues and in their dead-letter queues."""

from __future__ import annotations

from typing import Annotated

import typer
from msgspec.structs import asdict

from dormouse.client.operations import DeadSummary
from dormouse.errors import InvalidRequestError, UnavailableError
from dormouse.features.dead_letters import Redriven
from dormouse.ports import DeadLetter
from dormouse_cli.listings import Format, ListFormat, print_listing
from dormouse_cli.session import instance_of
from dormouse_cli.terminal import confirm, counted, iso_time, note
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
    print_listing(columns, [asdict(state) for state in states], form)
    if unknown:
        note(f"the age of the oldest messages is unknown: {unknown}")


def list_dead_letters(ctx: typer.Context, form: ListFormatOption = ListFormat.table) -> None:
    """Show how many dead letters each queue has, since when, and the commonest reasons.

    A dead letter is a message that failed three times, or that nothing can read.
    """
    rows = [_summary_row(each) for each in instance_of(ctx).dead_letters().summary()]
    print_listing(("queue", "dead", "oldest", "reasons"), rows, form)


def show(ctx: typer.Context, queue: Queue, form: ListFormatOption = ListFormat.table) -> None:
    """Show the dead letters of a queue, the oldest first. They stay where they are."""
    rows = [_row(each) for each in instance_of(ctx).dead_letters().show(queue)]
    print_listing(("id", "sent", "receives", "reason", "body"), rows, form)


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
    lost = [each for each in dead_letters.show(queue) if not ids or each.id in ids]
    if not lost and not ids:
        note(f"queue {queue} has no dead letters")
        return
    if lost and not force:
        print_listing(("id", "sent", "reason", "body"), [_row(each) for each in lost], form)
        count = counted(len(lost), "message")
        confirm(f"Discard {count} of {queue}? What they ask for is lost.")
    # Only what was shown: more may have become dead letters since.
    _account(dead_letters.discard(queue, ids or [each.id for each in lost]), "discarded", form)


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


def _summary_row(summary: DeadSummary) -> dict[str, object]:
    shown = [reason[:200] for reason in summary.reasons[:REASONS_SHOWN]]
    return {
        "queue": summary.queue,
        "dead": summary.dead,
        "oldest": iso_time(summary.oldest_ms) if summary.oldest_ms is not None else "",
        "reasons": "; ".join(shown),
    }


def _row(dead_letter: DeadLetter) -> dict[str, object]:
    return {
        "id": dead_letter.id,
        "sent": iso_time(dead_letter.sent_ms),
        "receives": dead_letter.receives,
        "reason": dead_letter.reason,
        "body": dead_letter.body,
    }
