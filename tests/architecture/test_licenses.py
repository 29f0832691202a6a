"""What is installed may be used in a product that is sold; what is shipped, without conditions."""

from __future__ import annotations

import re
from importlib.metadata import distribution

from tests.architecture.sources import fail_for
from tests.support.pins import SHIPPED, pins_in

PERMISSIVE = re.compile(
    r"\b(MIT|MIT-0|0?BSD(-[23]-Clause)?|Apache|PSF-2\.0|ISC|Zlib|CC0(-1\.0)?)\b", re.IGNORECASE
)
FOR_TOOLS = re.compile(r"\b(MPL-2\.0|MPL 2\.0)\b")
"""Asks for the source of the package itself, if it was changed and is passed on."""
KNOWN = {
    "cookiecutter": "BSD, said in its file alone",
    "text-unidecode": "the Artistic License, or the GPL: one may choose",
}
"""Packages whose metadata names no licence."""


def licence_of(name: str) -> str:
    """Return all that a package says of its licence, or ``?``."""
    metadata = distribution(name).metadata
    classifiers = metadata.get_all("Classifier") or []
    said = [
        metadata.get("License-Expression") or "",
        (metadata.get("License") or "").partition("\n")[0],
        *(c.rpartition(" :: ")[2] for c in classifiers if c.startswith("License")),
    ]
    return "; ".join(filter(None, said)) or "?"


def test_what_is_shipped_is_under_a_permissive_licence() -> None:
    said = {name: licence_of(name) for file in SHIPPED for name in pins_in(file)}
    fail_for(
        f"{name} is under {licence}"
        for name, licence in said.items()
        if "GPL" in licence or not PERMISSIVE.search(licence)
    )


def test_tools_are_under_licences_that_ask_for_nothing_of_what_is_made_with_them() -> None:
    elsewhere = {"colorama", "pywin32"}  # are installed on Windows alone
    names = pins_in("requirements.txt").keys() - KNOWN.keys() - elsewhere
    said = {name: licence_of(name) for name in names}
    fail_for(
        f"{name} is under {licence}"
        for name, licence in said.items()
        if "GPL" in licence or not (PERMISSIVE.search(licence) or FOR_TOOLS.search(licence))
    )
