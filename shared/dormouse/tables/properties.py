"""The properties of a table: checked, found by name, and put together from settings.

A table's own value takes precedence, then the instance's, then the default. `property_fields`
declares them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Literal, get_args, get_origin, get_type_hints

import msgspec

from dormouse.errors import InvalidRequestError
from dormouse.keys.ranges import INT64_MAX
from dormouse.stored.decoding import convert_plain
from dormouse.tables.property_fields import PropertyFields


class Properties(PropertyFields, frozen=True, forbid_unknown_fields=True):
    """The properties of one table."""

    def __post_init__(self) -> None:
        """Refuse values that a property cannot have, however the properties were made."""
        for known in KNOWN.values():
            known.check(getattr(self, known.name))


@dataclass(frozen=True, slots=True)
class Property:
    """One property as the documentation and errors describe it. `choices` lists all values of a
    property that has only a few.
    """

    name: str
    default: int | str
    least: int | None
    choices: tuple[str, ...]
    description: str
    is_fixed: bool
    pattern: str = ""

    @property
    def unit(self) -> str:
        """The unit of a number, which is the last word of the property's name; empty if it has
        none.
        """
        end = self.name.rpartition("_")[2]
        return end if end in ("seconds", "bytes", "rows", "files", "fields") else ""

    def check(self, value: object) -> int | str:
        """Return `value` if the property can have it.

        Raises:
            InvalidRequestError: it cannot; the message says what is allowed.
        """
        if isinstance(self.default, int):
            if not isinstance(value, int) or isinstance(value, bool):
                raise InvalidRequestError(f"{self.name} must be a whole number, not {value!r}")
            if self.least is not None and value < self.least:
                raise InvalidRequestError(f"{self.name} must be at least {self.least}, not {value}")
            if value > INT64_MAX:
                raise InvalidRequestError(f"{self.name} must be a number of 64 bits")
            return value
        if not isinstance(value, str):
            raise InvalidRequestError(f"{self.name} must be text, not {value!r}")
        if not re.search(self.pattern, value):
            raise InvalidRequestError(f"{self.name} cannot be {value!r}", hint=self.description)
        if self.choices and value not in self.choices:
            near = get_close_matches(value, self.choices, 1)
            raise InvalidRequestError(
                f"{self.name} cannot be {value!r}",
                hint=f"did you mean {near[0]}?" if near else "it is " + _either(self.choices),
            )
        return value


def _either(choices: tuple[str, ...]) -> str:
    return f"{', '.join(choices[:-1])} or {choices[-1]}"


def _known() -> dict[str, Property]:
    hints = get_type_hints(Properties, include_extras=True)
    known = {}
    for field in msgspec.structs.fields(Properties):
        kind, meta = get_args(hints[field.name])
        known[field.name] = Property(
            name=field.name,
            default=field.default,
            least=meta.ge,
            choices=get_args(kind) if get_origin(kind) is Literal else (),
            description=meta.description,
            is_fixed=bool((meta.extra or {}).get("fixed")),
            pattern=meta.pattern or "",
        )
    return known


KNOWN: Mapping[str, Property] = _known()
"""All properties by name, in the order of their declarations."""


def property_named(name: str) -> Property:
    """Return the property of that name.

    Raises:
        InvalidRequestError: there is none; the hint names the nearest.
    """
    if name not in KNOWN:
        near = get_close_matches(name, KNOWN, 1)
        raise InvalidRequestError(
            f"there is no property {name!r}",
            hint=f"did you mean {near[0]}?" if near else "`dormouse table show NAME` lists them",
        )
    return KNOWN[name]


def parse_settings(body: object) -> dict[str, int | str]:
    """Return the values set in parsed JSON, each checked against its property.

    Raises:
        InvalidRequestError: an unknown name or a bad value; the message says which.
    """
    if not isinstance(body, Mapping):
        raise InvalidRequestError("properties must be a JSON object of names and values")
    return {name: property_named(str(name)).check(value) for name, value in body.items()}


def properties_of(*settings: Mapping[str, int | str]) -> Properties:
    """Return the properties with these settings. Later settings override earlier ones; the rest are
    defaults.
    """
    values: dict[str, int | str] = {}
    for each in settings:
        values.update(each)
    return _made(tuple((name, type(value), value) for name, value in values.items()))


@lru_cache(maxsize=256)
def _made(settings: tuple[tuple[str, type, int | str], ...]) -> Properties:
    """Return the properties with some settings, which are checked once: each query asks for them.

    The types are there because 1 and True are equal, but only one of them is a number of files.
    """
    return convert_plain({name: value for name, _, value in settings}, Properties)


def parse_properties(body: object) -> Properties:
    """Build properties from parsed JSON, with defaults for what it does not set.

    Raises:
        InvalidRequestError: an unknown name or a bad value; the message says which.
    """
    return properties_of(parse_settings(body))
