"""`dormouse delete`, `dormouse table purge` and `forget`: rows hidden, removed for good and proved
so, or what they encrypt made unreadable.
"""

from collections.abc import Sequence
from typing import Annotated

import typer

from dormouse.client.requested import Purge, PurgeProgress
from dormouse.client.table import TableHandle
from dormouse.client.waiting import WAIT_SECONDS
from dormouse.features.purge import Proof
from dormouse.key_codec import KeyLike, part_from_text, part_to_python
from dormouse.tables.encryption import subject_of
from dormouse_cli import values
from dormouse_cli.session import table_named
from dormouse_cli.terminal import (
    Format,
    confirm,
    counted,
    note,
    print_facts,
    print_json,
    print_listing,
    progress_bars,
    progress_of,
    row_of,
)

WhereOption = Annotated[
    str, typer.Option(metavar="PREDICATE", help="Rows for which this SQL predicate is true.")
]
KeyOption = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE,…", help="Rows whose keys begin with this; repeat for more."),
]


def confirm_deletion(handle: TableHandle, where: str, keys: Sequence[KeyLike] = ()) -> None:
    """Ask whether the rows may be deleted."""
    rows = handle.count(exact=list(keys) or None, where=where or None)
    confirm(f"Delete {counted(rows, 'row')} of table {handle.name}?")


def delete_rows(
    name: values.TableName,
    where: WhereOption = "",
    key: KeyOption = None,
    force: values.ForceOption = False,
) -> None:
    """Delete all rows that match: hide them from every reader, at once.

    Rows that are ingested later are not affected, and earlier versions keep the deleted ones.
    Compactions leave them out. To remove rows from every object, for good: `dormouse table purge`.
    """
    handle = table_named(name)
    keys = values.parse_keys(key, handle.schema)
    if not force and bool(keys) != bool(where):
        confirm_deletion(handle, where, keys)
    version = handle.delete(where, keys)
    note(f"the rows were deleted; version {version} of table {name} is the first without them")


def purge(
    name: values.TableName,
    where: WhereOption = "",
    key: KeyOption = None,
    prove: Annotated[
        bool, typer.Option("--prove", help="Remove nothing; show what matches, and where.")
    ] = False,
    force: values.ForceOption = False,
    release_tags: values.ReleaseTagsOption = False,
    spark: values.SparkOption = False,
    properties: values.JobPropertyOption = None,
    timeout: values.TimeoutOption = WAIT_SECONDS,
    form: values.FormatOption = "table",
) -> None:
    """Remove all rows that match, for good, and prove it.

    Shards that hold such rows are rewritten without them, and the old ones deleted once the delay
    of garbage collection is over. Files in the ingest bucket are left alone. With --spark,
    Spark rewrites. The exit code is 1 while the table holds such rows; with --prove, also while any
    object does.
    """
    handle = table_named(name)
    keys = values.parse_keys(key, handle.schema)
    options = values.parse_spark(spark, properties)
    if not prove:
        if not force:
            proof = _proof(handle, where, keys)
            rows, shards = counted(proof.rows, "row"), counted(proof.shards, "shard")
            confirm(f"Remove {rows} of table {name} for good, and rewrite {shards}?")
        _watch(handle.purge(where, keys, spark=options, release_tags=release_tags), timeout)
        note(f"the rows were removed from table {name}")
    proof = _proof(handle, where, keys)
    _show(proof, form)
    now_ms = handle.services.clock.now_ms()
    if any(remnant.until_ms and remnant.until_ms < now_ms for remnant in proof.remains):
        note(f"some of it can be deleted now: `dormouse gc {name}` does that at once")
    if proof.rows or (prove and not proof.is_complete):
        raise typer.Exit(1)


def forget(
    name: values.TableName,
    subject: Annotated[
        list[str], typer.Option(help="A value of the table's subject_column; repeat for more.")
    ],
    force: values.ForceOption = False,
) -> None:
    """Forget the keys of subjects: what is encrypted in their rows is null from then on.

    That is so in every version, export and copy, at once: nothing is rewritten. Rows stay, with
    their other columns: `dormouse table purge` removes them. Rows that come later are readable.
    """
    handle = table_named(name)
    column = subject_of(handle.table.schema)
    subjects = [part_to_python(part_from_text(each, column), column) for each in subject]
    counts = counted(len(subjects), "subject")
    if not force:
        confirm(f"Forget the keys of {counts} of table {name} for good?")
    count = handle.forget(subjects)
    note(f"forgot {counted(count, 'key')} of {counts}; none is left")


def _proof(handle: TableHandle, where: str, keys: list[KeyLike]) -> Proof:
    with progress_of("objects looked at") as watch:
        return handle.prove_purge(where, keys, watch=watch)


def _watch(purge: Purge, timeout_seconds: float) -> None:
    with progress_bars() as progress:
        looked = progress.add_task("shards looked at", total=None)
        rewrites = progress.add_task("shards rewritten", total=None)
        most = 0

        def watch(now: PurgeProgress) -> None:
            nonlocal most
            most = max(most, now.to_rewrite)
            total = now.examined + now.to_examine
            progress.update(looked, completed=now.examined, total=total)
            progress.update(rewrites, completed=most - now.to_rewrite, total=most)

        purge.wait(timeout_seconds, watch=watch)


def _show(proof: Proof, form: Format) -> None:
    facts: dict[str, object] = {
        "version": proof.version,
        "rows_in_table": proof.rows,
        "objects_looked_at": proof.objects,
        "objects_that_hold_rows": len(proof.remains),
    }
    columns = ("object", "rows", "reason", "deleted_after")
    remains = [row_of(columns, r, object="path", deleted_after="until") for r in proof.remains]
    if form == "json":
        print_json({**facts, "remains": remains})
        return
    print_facts(facts, form)
    if remains:
        print_listing(columns, remains, form)
