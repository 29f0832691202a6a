"""How properties are shown, and what a change did to them."""

from __future__ import annotations

from collections.abc import Mapping

from dormouse.tables.properties import KNOWN, Properties

PROPERTY_COLUMNS = ("property", "value", "set_by")


def property_rows(properties: Properties, origins: Mapping[str, str]) -> list[dict[str, object]]:
    """Return a row of each property: its name, value, and who set it."""
    return [
        {"property": name, "value": getattr(properties, name), "set_by": origins[name]}
        for name in KNOWN
    ]
