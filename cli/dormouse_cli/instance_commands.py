"""`dormouse instance …`: the properties that tables have where they set none of their own."""

from __future__ import annotations

from collections.abc import Container

import typer

from dormouse.model.properties import KNOWN, properties_of
from dormouse.model.tables import property_origins
from dormouse_cli.arguments import parse_properties
from dormouse_cli.parameters import FormatOption
from dormouse_cli.property_output import PROPERTY_COLUMNS, property_rows
from dormouse_cli.session import instance_of
from dormouse_cli.table_settings import Names, Settings
from dormouse_cli.terminal import Format, print_listing


def show(ctx: typer.Context, form: FormatOption = Format.table) -> None:
    """Show the properties of the instance, and which of them are set."""
    _show(instance_of(ctx).defaults(), KNOWN, form)


def set_defaults(ctx: typer.Context, settings: Settings, form: FormatOption = Format.table) -> None:
    """Set properties of the instance. Tables that set none of their own have them at once."""
    changed = instance_of(ctx).set_defaults(parse_properties(settings))
    _show(changed, [text.partition("=")[0] for text in settings], form)


def unset_defaults(ctx: typer.Context, names: Names, form: FormatOption = Format.table) -> None:
    """Take properties of the instance back: they have their defaults again."""
    _show(instance_of(ctx).set_defaults(unset=names), names, form)


def _show(defaults: dict[str, int | str], names: Container[str], form: Format) -> None:
    rows = property_rows(properties_of(defaults), property_origins((), defaults))
    print_listing(PROPERTY_COLUMNS, [row for row in rows if row["property"] in names], form)
