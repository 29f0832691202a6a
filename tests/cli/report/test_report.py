"""The page of a report: whole without a network, and of nobody's making but ours."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.cli.conftest import Dormouse
from tests.support.instances import InMemory

HOSTILE = '</script><script>alert("x")</script><img src=x onerror=alert(1)>'
SCHEMA = {
    "rowKeyFields": [{"name": "letter", "type": "StringType"}],
    "valueFields": [{"name": "<b>note</b>", "type": "StringType", "nullable": True}],
}


class Tags(HTMLParser):
    """Collects the tags of a page with their attributes, and its text outside of scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags[-1:] and self.tags[-1][0] != "script":
            self.text.append(data)


def page_of(dormouse: Dormouse, name: str) -> str:
    result = dormouse("report", name, "--output", "report.html")
    assert result.exit_code == 0, result.output
    assert "MB" in result.stderr
    from plotly.offline import get_plotlyjs

    return Path("report.html").read_text().replace(get_plotlyjs(), "")


def scripts_of(html: str) -> list[str]:
    return [json.dumps(attributes) for tag, attributes in Tags(html).tags if tag == "script"]


@pytest.fixture
def hostile(dormouse: Dormouse, memory: InMemory) -> Dormouse:
    """A table whose rows, columns, files and reasons are all out to run in a browser."""
    Path("schema.json").write_text(json.dumps(SCHEMA))
    Path("splits.txt").write_text(json.dumps([HOSTILE]) + "\n")
    added = dormouse("table", "add", "t", "--schema", "schema.json", "--splits", "splits.txt")
    assert added.exit_code == 0, added.output
    header = "letter,<b>note</b>\n"
    memory.world.drop("t/good.csv", f"{header}a,1\nz,2\n".encode())
    memory.world.drop(f"t/{HOSTILE}.csv", HOSTILE.encode() + b"\nx\n")
    memory.world.settle()
    return dormouse


def test_nothing_a_user_wrote_becomes_part_of_the_page(hostile: Dormouse) -> None:
    html = page_of(hostile, "t")
    assert "alert(" in html, "it is escaped"
    assert HOSTILE not in html
    tags = Tags(html)
    assert not any(tag in ("img", "b") and "onerror" in a for tag, a in tags.tags)
    assert not any(name.startswith("on") for _, a in tags.tags for name in a)
    assert len(scripts_of(html)) == 4, "the library's and one for each picture"
    assert any(HOSTILE in text for text in tags.text), "people read it as it was written"


def test_a_page_asks_for_nothing_from_elsewhere(hostile: Dormouse) -> None:
    for tag, attributes in Tags(page_of(hostile, "t")).tags:
        assert tag not in ("link", "img", "iframe", "object"), tag
        assert not {"src", "href"} & attributes.keys(), tag


def test_a_page_shows_the_table_its_jobs_refused_files_queues_and_properties(
    flights: Dormouse, memory: InMemory
) -> None:
    Path("bad.csv").write_text("carrier\n")
    flights("ingest", "flights", "bad.csv", "--wait")
    memory.world.dead_letters.add("admin", "x")
    text = " ".join(" ".join(Tags(page_of(flights, "flights")).text).split())
    facts = ("flights", "rows 5", "leaf partitions 1", "compaction_files 12")
    for found in (*facts, "flights/bad.csv", "carrier string row key", "partition-splits"):
        assert found in text, found


def test_a_table_without_rows_has_a_page_too(dormouse: Dormouse) -> None:
    Path("schema.json").write_text(json.dumps(SCHEMA))
    dormouse("table", "add", "empty", "--schema", "schema.json")
    assert "No rows yet" in page_of(dormouse, "empty")
    assert "No rows yet" in dormouse("report", "empty", "--output", "-").stdout
    assert not Path("-").exists()


def test_what_cannot_be_reported_or_written_is_said(flights: Dormouse) -> None:
    assert flights("report", "nothing", "--output", "report.html").exit_code == 3
    assert not Path("report.html").exists()
    result = flights("report", "flights", "--output", "no/such/folder.html")
    assert result.exit_code == 3
    assert "cannot write 'no/such/folder.html'" in result.stderr
    assert flights("report", "flights").exit_code == 2
