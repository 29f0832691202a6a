"""Errors contain only text that terminals, queues and stores accept."""

from __future__ import annotations

import traceback

from dormouse.errors import DormouseError


def test_an_error_that_quotes_half_a_character_can_be_shown_and_kept() -> None:
    """Arguments that are not UTF-8 have such halves in them, and so has JSON that says so."""
    error = DormouseError("there is no table '\udcff'", hint="or '\ud800', that is")
    assert error.explanation.encode().decode() == (
        "there is no table '\\udcff'; or '\\ud800', that is"
    )


def test_what_to_do_is_in_the_traceback_that_a_notebook_shows() -> None:
    shown = traceback.format_exception(DormouseError("there is no table 'a'", hint="make one"))
    assert "".join(shown).endswith("DormouseError: there is no table 'a'\nhint: make one\n")
