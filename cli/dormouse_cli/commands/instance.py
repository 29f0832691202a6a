"""`dormouse instance …`: the properties that tables have where they set none of their own."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import asdict

import typer

from dormouse.client.operations import SparkStatus
from dormouse.settings import library_version
from dormouse.tables.properties import KNOWN, properties_of
from dormouse.tables.table import property_sources
from dormouse_cli.commands.table import Names, Settings
from dormouse_cli.listings import Format, print_facts, print_listing
from dormouse_cli.session import instance_of
from dormouse_cli.terminal import print_json, with_consent
from dormouse_cli.values import (
    PROPERTY_COLUMNS,
    ForceOption,
    FormatOption,
    parse_properties,
    property_rows,
)


def show(ctx: typer.Context, form: FormatOption = Format.table) -> None:
    """Show the properties of the instance, which of them are set, and what it has of Spark."""
    instance = instance_of(ctx)
    _show(instance.defaults(), KNOWN, form)
    standing = instance.spark()
    if form is Format.json:
        print_json({"spark": asdict(standing)})
    else:
        print_facts({"Spark": _application(standing), "package": _package(standing)}, form)


def _application(standing: SparkStatus) -> str:
    if standing.unknown:
        return f"not known: {standing.unknown}"
    if not standing.application:
        return "no application: functions do heavy jobs, too"
    return f"application {standing.application}, {standing.state}"


def _package(standing: SparkStatus) -> str:
    match standing.package:
        case "missing":
            return "missing: the first job for Spark brings it"
        case "fits":
            return f"fits: {standing.version}, of this version of the library, {standing.library}"
        case "other version":
            return (
                f"other version: {standing.version}, of version {standing.library} of the library; "
                f"this command is of {library_version()}"
            )


def set_defaults(
    ctx: typer.Context,
    settings: Settings,
    force: ForceOption = False,
    form: FormatOption = Format.table,
) -> None:
    """Set properties of the instance. Tables that set none of their own have them at once.

    Asks first if new filters or aggregations hide rows that a table has.
    """
    instance, given = instance_of(ctx), parse_properties(settings)
    with_consent(lambda yes: instance.set_defaults(given, hide_rows=yes), force)
    _show(instance.defaults(), [text.partition("=")[0] for text in settings], form)


def unset_defaults(ctx: typer.Context, names: Names, form: FormatOption = Format.table) -> None:
    """Unset properties of the instance: their defaults hold again."""
    _show(instance_of(ctx).set_defaults(unset=names), names, form)


def _show(defaults: dict[str, int | str], names: Container[str], form: Format) -> None:
    rows = property_rows(properties_of(defaults), property_sources((), defaults))
    print_listing(PROPERTY_COLUMNS, [row for row in rows if row["property"] in names], form)
