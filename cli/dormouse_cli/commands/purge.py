"""`dormouse delete` and `dormouse table purge`: rows hidden, or removed for good and proved so."""

from __future__ import annotations

from typing import Annotated

import typer

from dormouse.client.purging import Purge, PurgeProgress
from dormouse.client.table import TableHandle
from dormouse.client.waiting import WAIT_SECONDS
from dormouse.features.purge import Proof
from dormouse.key_codec import KeyCodec, KeyLike
from dormouse_cli.listings import Format, print_facts, print_listing
from dormouse_cli.session import table_of
from dormouse_cli.terminal import (
    confirm,
    counted,
    iso_time,
    note,
    print_json,
    progress_bars,
    progress_of,
)
from dormouse_cli.values import (
    ForceOption,
    FormatOption,
    JobPropertyOption,
    ReleaseTagsOption,
    SparkOption,
    TableName,
    TimeoutOption,
    parse_spark,
)

WhereOption = Annotated[
    str, typer.Option(metavar="PREDICATE", help="Rows for which this SQL predicate is true.")
]
KeyOption = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE,…", help="Rows whose keys begin with this; repeat for more."),
]


def delete_rows(
    ctx: typer.Context,
    name: TableName,
    where: WhereOption = "",
    key: KeyOption = None,
    force: ForceOption = False,
) -> None:
    """Delete all rows that match: hide them from every reader, at once.

    What comes later is not affected, and earlier versions keep the rows. Compactions leave them
    out. To remove rows from every object, for good: `dormouse table purge`.
    """
    handle = table_of(ctx, name)
    codec = KeyCodec(handle.schema)
    keys: list[KeyLike] = [codec.from_assignments(text) for text in key or ()]
    if not force and bool(keys) != bool(where):
        rows = handle.count(exact=keys or None, where=where or None)
        confirm(f"Delete {counted(rows, 'row')} of table {name}?")
    version = handle.delete(where, keys)
    note(f"the rows were deleted; version {version} of table {name} is the first without them")


def purge(
    ctx: typer.Context,
    name: TableName,
    where: WhereOption = "",
    key: KeyOption = None,
    prove: Annotated[
        bool, typer.Option("--prove", help="Remove nothing; show what matches, and where.")
    ] = False,
    force: ForceOption = False,
    release_tags: ReleaseTagsOption = False,
    spark: SparkOption = False,
    properties: JobPropertyOption = None,
    timeout: TimeoutOption = WAIT_SECONDS,
    form: FormatOption = Format.table,
) -> None:
    """Remove all rows that match, for good, and prove it.

    Shards that hold such rows are rewritten without them, and the old ones deleted once the delay
    of garbage collection is over. Files in the ingest bucket are left alone. With --spark,
    Spark rewrites. The exit code is 1 while the table holds such rows; with --prove, also while any
    object does.
    """
    handle = table_of(ctx, name)
    codec = KeyCodec(handle.schema)
    keys: list[KeyLike] = [codec.from_assignments(text) for text in key or ()]
    options = parse_spark(spark, properties)
    if not prove:
        if not force:
            _confirm(handle, where, keys)
        _watch(handle.purge(where, keys, spark=options, release_tags=release_tags), timeout)
        note(f"the rows were removed from table {name}")
    proof = _proof(handle, where, keys)
    _show(proof, form)
    now_ms = handle.services.clock.now_ms()
    if any(remnant.until_ms and remnant.until_ms < now_ms for remnant in proof.remains):
        note(f"some of it can be deleted now: `dormouse gc {name}` does that at once")
    if proof.rows or (prove and not proof.is_complete):
        raise typer.Exit(1)


def _confirm(handle: TableHandle, where: str, keys: list[KeyLike]) -> None:
    proof = _proof(handle, where, keys)
    rows, shards = counted(proof.rows, "row"), counted(proof.shards, "shard")
    confirm(f"Remove {rows} of table {handle.name} for good, and rewrite {shards}?")


def _proof(handle: TableHandle, where: str, keys: list[KeyLike]) -> Proof:
    with progress_of("objects looked at") as watch:
        return handle.prove_purge(where, keys, watch=watch)


def _watch(purge: Purge, timeout_seconds: float) -> None:
    with progress_bars() as progress:
        looked = progress.add_task("shards looked at", total=None)
        rewritten = progress.add_task("shards rewritten", total=None)
        most = 0

        def watch(now: PurgeProgress) -> None:
            nonlocal most
            most = max(most, now.to_rewrite)
            total = now.examined + now.to_examine
            progress.update(looked, completed=now.examined, total=total)
            progress.update(rewritten, completed=most - now.to_rewrite, total=most)

        purge.wait(timeout_seconds, watch=watch)


def _show(proof: Proof, form: Format) -> None:
    facts: dict[str, object] = {
        "version": proof.version,
        "rows_in_table": proof.rows,
        "objects_looked_at": proof.objects,
        "objects_that_hold_rows": len(proof.remains),
    }
    remains: list[dict[str, object]] = [
        {
            "object": remnant.path,
            "rows": remnant.rows,
            "reason": remnant.reason,
            "deleted_after": iso_time(remnant.until_ms) if remnant.until_ms is not None else None,
        }
        for remnant in proof.remains
    ]
    if form is Format.json:
        print_json({**facts, "remains": remains})
        return
    print_facts(facts, form)
    if remains:
        print_listing(("object", "rows", "reason", "deleted_after"), remains, form)
