"""`dormouse queues, dlq, access`: messages in the queues of an instance and in their dead-letter
queues, and who may do what with which tables by way of its services.
"""

from enum import StrEnum
from typing import Annotated

import typer

from dormouse.access import VERBS
from dormouse.errors import InvalidRequestError, UnavailableError
from dormouse.features.dead_letters import Redriven
from dormouse_cli.session import tables_beginning, the_instance
from dormouse_cli.terminal import (
    Format,
    confirm,
    counted,
    note,
    print_facts,
    print_items,
    print_listing,
    row_of,
)
from dormouse_cli.values import ForceOption, FormatOption, ListFormatOption, TableName

Queue = Annotated[
    str, typer.Argument(metavar="QUEUE", help="A queue's name, as `dormouse queues` lists it.")
]
Ids = Annotated[
    list[str] | None,
    typer.Option("--id", metavar="ID", help="Only the message with this id; repeatable."),
]
REASONS_SHOWN = 3


def queues(form: ListFormatOption = "table") -> None:
    """Show every queue: messages waiting, in flight, delayed, and in its dead-letter queue."""
    states, unknown = the_instance().queue_states()
    columns = ("queue", "waiting", "in_flight", "delayed", "oldest_seconds", "dead")
    print_items(columns, states, form)
    if unknown:
        note(f"the age of the oldest messages is unknown: {unknown}")


def list_dead_letters(form: ListFormatOption = "table") -> None:
    """Show how many dead letters each queue has, since when, and the commonest reasons.

    A dead letter is a message that failed three times, or that nothing can read.
    """
    rows = [
        row_of(("queue", "dead", "oldest"), each)
        | {"reasons": "; ".join(reason[:200] for reason in each.reasons[:REASONS_SHOWN])}
        for each in the_instance().dead_letters().summary()
    ]
    print_listing(("queue", "dead", "oldest", "reasons"), rows, form)


def show(queue: Queue, form: ListFormatOption = "table") -> None:
    """Show the dead letters of a queue, the oldest first. They stay where they are."""
    letters = the_instance().dead_letters().show(queue)
    print_items(("id", "sent", "receives", "reason", "body"), letters, form)


def redrive(
    queue: Queue,
    ids: Ids = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All dead letters of the queue.")
    ] = False,
    form: FormatOption = "table",
) -> None:
    """Send dead letters back to their queue; each is deleted once it was sent.

    Find out first why they failed: without a repair they fail again.
    """
    if bool(ids) == everything:
        raise InvalidRequestError("say which dead letters: --id, once or more, or --all")
    result = the_instance().dead_letters().redrive(queue, ids or ())
    _account(result, "sent back", form)


def discard(
    queue: Queue, ids: Ids = None, force: ForceOption = False, form: FormatOption = "table"
) -> None:
    """Delete dead letters of a queue for good: what they ask for is never done."""
    dead_letters = the_instance().dead_letters()
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
    if form == "json":
        rows = [{"id": i, "outcome": outcome} for outcome, ids in outcomes for i in ids]
        print_listing(("id", "outcome"), rows, form)
    note(f"{counted(len(result.sent), 'message')} {verb}")
    if count := len(result.unsent) + len(result.undeleted):
        sent = f", {len(result.undeleted)} of them sent" if result.undeleted else ""
        raise UnavailableError(
            f"still among the dead letters: {counted(count, 'message')}{sent}",
            hint="run it again: what was sent is not sent twice",
        )


_COLUMNS = ("principal", "tables", "verbs", "hidden_columns")
_BY_INSTANCE = "there are no access rules: IAM alone decides who may ask services of this instance"
_NONE_LEFT = "no access rule is left: nobody may do anything; `dormouse access off` ends that"


class _Verb(StrEnum):
    read = "read"
    write = "write"
    administer = "administer"


Principal = Annotated[
    str,
    typer.Argument(
        metavar="PRINCIPAL",
        help="The ARN of a role or user, aws-id:…, jwt:issuer#subject or local; "
        "* stands for any characters.",
    ),
]
Tables = Annotated[
    str,
    typer.Argument(
        metavar="TABLES",
        help="The name of a table; * stands for any characters.",
        autocompletion=tables_beginning,
    ),
]


def list_rules(form: ListFormatOption = "table") -> None:
    """Show the access rules of the instance.

    Services of the instance that answer any caller, such as the catalog, let each principal do what
    its rules say. Rules do not bind principals that read objects, items or queues by own rights.
    """
    rules = the_instance().access_rules()
    if rules is None:
        note(_BY_INSTANCE)
    elif not rules:
        note(_NONE_LEFT)
    print_items(_COLUMNS, rules or (), form)


def grant(
    principal: Principal,
    tables: Tables,
    verbs: Annotated[
        list[_Verb], typer.Argument(metavar="VERB...", help=f"{', '.join(VERBS)}; one or more.")
    ],
    hide: Annotated[
        list[str] | None,
        typer.Option(
            "--hide", metavar="COLUMN", help="A column to hide from them; repeat for more."
        ),
    ] = None,
    force: ForceOption = False,
) -> None:
    """Let a principal read, write or administer tables.

    A rule of the same principal for the same tables is replaced. Rules add up: a column is hidden
    only if every rule by which the principal reads the table hides it.
    """
    instance = the_instance()
    if instance.access_rules() is None and not force:
        confirm(
            "There are no access rules, so all who may ask services of this instance may use all "
            "that they offer. From this rule on, they serve only what rules grant. Go on?"
        )
    instance.grant(principal, tables, [verb.value for verb in verbs], hide or ())
    table = instance.services.tables.named(tables) if "*" not in tables else None
    names = {field.name for field in table.schema.fields} if table is not None else {*(hide or ())}
    for column in hide or ():
        if column not in names:
            note(f"warning: table {tables} has no column {column}; it is hidden once there is one")
    note(f"{principal} may {', '.join(verbs)} {tables}")


def revoke(principal: Principal, tables: Tables) -> None:
    """Remove the rule of a principal for tables. Other rules may still apply to both."""
    instance = the_instance()
    remaining = instance.revoke(principal, tables)
    note(f"the access rule of {principal} for {tables} is removed")
    permitted = instance.permission(principal, tables)
    if permitted.verbs and "*" not in f"{principal}{tables}":
        verbs = ", ".join(verb for verb in VERBS if verb in permitted.verbs)
        note(f"by other rules, {principal} may still {verbs} {tables}")
    if not remaining:
        note(_NONE_LEFT)


def off(force: ForceOption = False) -> None:
    """Remove all access rules: IAM alone decides again who may use the services of the instance."""
    instance = the_instance()
    rules = instance.access_rules()
    if rules is not None and not force:
        confirm(
            f"Remove all {len(rules):,} access rules? All who may ask services of this instance "
            "may then use all that they offer."
        )
    instance.clear_access_rules()
    note(_BY_INSTANCE)


def check(principal: Principal, table: TableName, form: FormatOption = "table") -> None:
    """Show what a principal may do with a table, and which columns it does not see.

    The ARN of a session is taken for that of its role. Nothing says whether there is such a
    principal or table: rules apply to names.
    """
    permitted = the_instance().permission(principal, table)
    verbs: list[str] = [verb for verb in VERBS if verb in permitted.verbs]
    facts = {"verbs": verbs, "hidden_columns": sorted(permitted.hidden)}
    text = {name: values or "none" for name, values in facts.items()}
    print_facts(text if form == "table" else facts, form)
