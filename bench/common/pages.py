"""Pages that show figures between two marks, which a benchmark rewrites."""

from __future__ import annotations

END = "<!-- end of figures -->"


def begin(by: str) -> str:
    """Return the mark at which the figures of a target of make begin."""
    return f"<!-- figures: made by make {by} -->"


def page_with(page: str, by: str, text: str) -> str:
    """Return a page with `text` as the figures of a target of make.

    Raises:
        ValueError: it has no marks of that target.
    """
    before, mark, rest = page.partition(begin(by))
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"the page has no {begin(by)} with {END} after it")
    return f"{before}{mark}\n\n{text}\n\n{END}{after}"
