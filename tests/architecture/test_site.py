"""The site: links between its pages, its navigation, and the API pages."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import yaml

import dormouse.client
from tests.architecture.sources import ROOT, fail_for
from tools.site_pages import link_targets, outside_pages, relinked

OUTSIDE = {"README.md": "overview.md", "bench/results/rows.md": "measurements/rows.md"}


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml without making the Python objects that it names."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


@pytest.fixture(scope="module")
def config() -> dict[str, object]:
    found = yaml.load((ROOT / "mkdocs.yml").read_text(), _Loader)
    assert isinstance(found, dict)
    return found


def pages_in(nav: object) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for part in nav.values():
            yield from pages_in(part)
    elif isinstance(nav, list):
        for part in nav:
            yield from pages_in(part)


def test_a_link_to_a_page_outside_docs_leads_to_its_place_in_the_site() -> None:
    assert relinked("[a](../README.md#try-it)", "docs/guide.md", OUTSIDE) == (
        "[a](overview.md#try-it)"
    )
    assert relinked("[a](../../bench/results/rows.md)", "docs/decisions/a.md", OUTSIDE) == (
        "[a](../measurements/rows.md)"
    )


def test_a_link_from_a_page_outside_docs_leads_to_the_page_in_docs() -> None:
    assert relinked('<img src="docs/images/a.png">', "README.md", OUTSIDE) == (
        '<img src="images/a.png">'
    )
    assert relinked("[a](../../docs/spark.md)", "bench/results/rows.md", OUTSIDE) == (
        "[a](../spark.md)"
    )


def test_other_links_stay_as_they_are() -> None:
    for text in (
        "[a](https://example.com/docs/a.md)",
        "[a](#here)",
        "[a](../tests/chaos)",  # is not in the site: the strict build reports it
    ):
        assert relinked(text, "docs/guide.md", OUTSIDE) == text


def test_every_link_leads_to_a_file_of_the_site() -> None:
    in_docs = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*")}
    in_site = in_docs | set(outside_pages())
    pages = [page for page in sorted(in_site) if page.endswith(".md")]
    assert len(pages) > 50
    fail_for(
        f"{page}: {target}"
        for page in pages
        for target in link_targets((ROOT / page).read_text(), page)
        if target not in in_site
    )


def test_every_page_is_in_the_navigation_and_every_entry_is_a_page(
    config: dict[str, object],
) -> None:
    docs = ROOT / "docs"
    decisions = {f"decisions/{path.name}" for path in (docs / "decisions").glob("[!R]*.md")}
    pages = {str(path.relative_to(docs)) for path in docs.rglob("*.md")} - decisions
    assert sorted(pages_in(config["nav"])) == sorted(pages | set(outside_pages().values()))


def test_the_build_is_strict_and_fetches_no_fonts(config: dict[str, object]) -> None:
    theme = config["theme"]
    assert config["strict"] is True
    assert isinstance(theme, dict) and theme["font"] is False


def test_the_api_page_shows_each_name_that_the_client_exports() -> None:
    page = (ROOT / "docs" / "api" / "client.md").read_text()
    shown = re.findall(r"^::: dormouse\.client\.(\w+)$", page, re.MULTILINE)
    assert sorted(shown) == sorted(dormouse.client.__all__)
