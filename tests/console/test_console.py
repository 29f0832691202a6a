"""The console in a real browser: what people do with it, and that everybody can."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.expected_conditions import alert_is_present
from selenium.webdriver.support.ui import WebDriverWait

from dormouse.console import console_uri
from tests.console.conftest import PHONE, WIDE, Console

PLACES = (
    "#/",
    *(
        f"#/tables/flights{view}"
        for view in ("", "/partitions", "/shards", "/versions", "/properties", "/jobs", "/files")
    ),
    *("#/query?table=flights", "#/jobs", "#/queues", "#/queues/admin"),
)


def ready(console: Console, place: str) -> None:
    """Look at a place until all of it is there."""
    console.go(place)
    script = "return document.querySelector('main h1') && !document.querySelector('[aria-busy]')"
    console.until(lambda: console.driver.execute_script(script), place)


def complaints(console: Console) -> list[str]:
    """Return what the browser's own console complains of."""
    return [entry["message"] for entry in console.driver.get_log("browser")]


def test_all_places_load_and_ask_nothing_from_elsewhere(console: Console) -> None:
    for place in PLACES:
        ready(console, place)
    loaded = console.driver.execute_script(
        "return performance.getEntriesByType('resource').map(each => each.name)"
    )
    assert loaded
    assert [name for name in loaded if not name.startswith(console.url)] == []
    assert complaints(console) == []


def test_the_token_is_taken_out_of_the_address(console: Console) -> None:
    assert console.driver.current_url == f"{console.url}/#/"


def test_a_wrong_token_is_explained(console: Console) -> None:
    console.driver.get("about:blank")
    console.driver.get(console_uri(console.url, "wrong"))
    console.sees("Open the address again that the server printed")
    assert "flights" not in console.text()


def test_tables_are_shown_with_their_numbers_and_filtered(console: Console) -> None:
    console.sees("flights", "meters", "carrier, flight, day", "online")
    console.picture("console-tables")
    console.fill("input[type=search]", "met")
    console.until(lambda: "flights" not in console.text(), "the filter")
    assert "meters" in console.text()


def test_a_table_is_shown_with_its_columns_and_first_rows(console: Console) -> None:
    ready(console, "#/tables/flights")
    console.sees("row key", "sort key", "value, nullable", "2026-01-01", "null")
    console.picture("console-table")


def test_a_dropped_file_becomes_rows(console: Console) -> None:
    ready(console, "#/tables/meters")
    console.drop("june.csv", "meter,at,kwh\nash-01,2026-06-01T00:00:00,1.5\n")
    console.sees("june.csv", "ingested", "june.csv is rows of meters.")
    assert console.instance.table("meters").count() == 1
    console.picture("console-files")


def test_a_dropped_file_becomes_a_table(console: Console) -> None:
    console.drop("trees.csv", "id,height\noak,30\nash,25\n")
    console.sees("Row keys, in order")
    console.press("Send")
    console.sees("row key")  # without one, the request is refused, and what was typed stays
    console.fill("dialog input[name=row_keys]", "id")
    console.press("Send")
    console.sees("trees.csv is rows of trees.")
    assert console.instance.table("trees").count() == 2


def test_a_refused_file_is_read_about_and_sent_again(console: Console) -> None:
    ready(console, "#/tables/meters/files")
    console.drop("june.csv", "meter,at,kwh\nash-01,soon,1.5\n")
    console.sees("june.csv was refused", "line 2, column 'at'", "Why it was refused")
    reasons = "return document.querySelectorAll('main .reason').length"
    console.until(lambda: console.driver.execute_script(reasons) == 1, "the reason, once")
    console.picture("console-refused")
    console.drop("june.csv", "meter,at,kwh\nash-01,2026-06-01T00:00:00,1.5\n")
    console.sees("june.csv is rows of meters.")
    assert console.instance.table("meters").count() == 1


def test_a_statement_is_completed_run_charted_and_remembered(console: Console) -> None:
    ready(console, "#/query")
    console.fill("textarea", "SELECT dest, count(*) AS n FROM flights GROUP BY des")
    console.sees("dest")
    console.one("textarea").send_keys("\t")  # takes the suggestion
    statement = "SELECT dest, count(*) AS n FROM flights GROUP BY dest"
    assert console.one("textarea").get_attribute("value") == statement
    console.press("Run")
    console.sees("4 rows in", "SFO", "144")
    console.press("Chart")
    chart = console.one("svg.chart")
    assert chart.get_attribute("aria-label").startswith("n by dest: 4 values"), "null is one"
    console.picture("console-query")
    ready(console, "#/")
    ready(console, "#/query")
    assert console.one("textarea").get_attribute("value") == statement
    history = console.one("select[aria-label='Statements of before']")
    assert statement in history.get_attribute("textContent")


def test_names_that_are_words_of_sql_are_quoted(console: Console) -> None:
    import duckdb

    found = duckdb.sql(
        "SELECT keyword_name FROM duckdb_keywords() "
        "WHERE keyword_category IN ('reserved', 'type_function')"
    )
    words = [word for (word,) in found.fetchall()]
    script = (
        "const [words, answer] = arguments;"
        "import('/console/completion.js').then((page) => answer(words.filter((word) =>"
        " page.quoted(word) === word)))"
    )
    assert "at" in words
    assert console.driver.execute_async_script(script, [*words, "plain"]) == ["plain"]


def test_many_rows_come_in_pages(console: Console) -> None:
    ready(console, "#/query")
    console.fill("textarea", "SELECT flight, day FROM flights ORDER BY day")
    console.press("Run")
    console.sees("360 rows in", "1–100 of 360", "2026-01-01")
    console.press("Next")
    console.sees("101–200 of 360", "2026-04-11")


def test_a_wrong_statement_says_what_is_wrong(console: Console) -> None:
    ready(console, "#/query")
    console.fill("textarea", "SELECT * FROM flihgts")
    console.press("Run")
    console.sees("flihgts", "flights")  # the nearest name
    console.press("Explain")
    console.sees("flihgts")


def test_explain_shows_what_is_read(console: Console) -> None:
    ready(console, "#/query?table=flights")
    console.press("Explain")
    console.sees("read flights", "row groups", "requests", "ranges: ..")


def test_what_is_too_large_is_split_on_request(console: Console) -> None:
    console.instance.table("flights")
    ready(console, "#/tables/flights/partitions")
    console.sees("all keys", "..carrier=B", "120")
    console.picture("console-partitions")
    console.press("Split what is too large")
    console.sees("Large partitions are split.")


def test_a_property_is_changed(console: Console) -> None:
    ready(console, "#/tables/flights/properties")
    field = console.one("input[aria-label=gc_delay_seconds]")
    before = field.get_attribute("value")
    field.send_keys(Keys.CONTROL, "a", Keys.NULL, Keys.DELETE, Keys.TAB)
    assert field.get_attribute("value") == before  # nothing is no number: it stays what it is
    field.send_keys(Keys.CONTROL, "a", Keys.NULL, "1800", Keys.TAB)
    console.sees("gc_delay_seconds is 1800.")
    assert console.instance.table("flights").table.properties.gc_delay_seconds == 1800
    rules = console.one("input[aria-label=filters]")
    for answer, filters in (("dismiss", ""), ("accept", "where(false)")):
        rules.send_keys("where(false)", Keys.TAB)
        asked = WebDriverWait(console.driver, 30).until(alert_is_present())
        getattr(asked, answer)()
        console.sees("would hide" if answer == "dismiss" else "filters is where(false)")
        assert console.instance.table("flights").table.properties.filters == filters


def test_dead_letters_are_looked_into_and_sent_back(console: Console) -> None:
    body = json.dumps({"type": "no such request", "v": 2**53 + 1})
    reason = "the type 'no such request' is unknown"
    console.instance.queues.send_body("admin-dead", body, reason=reason)  # type: ignore[attr-defined]
    ready(console, "#/queues/admin")
    console.sees(reason, '"no such request"', '"v": 9007199254740993')
    console.picture("console-dead-letters")
    console.press("Send all back")
    console.sees("Sent back: the request is")


@pytest.mark.parametrize("hostile", ["<img src=x onerror=alert(1)>", "</script><b>x"])
def test_values_are_text_whatever_they_look_like(console: Console, hostile: str) -> None:
    row = {"carrier": hostile, "flight": 1, "day": "2026-01-01", "dest": hostile, "delay": 0}
    ready(console, "#/tables/flights")
    console.drop("hostile.jsonl", json.dumps(row) + "\n")
    console.sees("hostile.jsonl is rows of flights.")
    ready(console, "#/tables/flights")
    console.sees(hostile)
    assert complaints(console) == []


def test_keys_lead_everywhere(console: Console) -> None:
    body = console.one("body")
    body.send_keys("gq")
    console.sees("Ctrl Enter runs it")
    console.one("body").send_keys("gj")
    console.one("select[aria-label='State of the jobs']")
    console.one("body").send_keys("?")
    console.sees("run the statement")
    console.press("Close")
    console.one("body").send_keys("gt")
    console.one("input[type=search]")
    console.one("body").send_keys("/")
    focused = "return document.activeElement.getAttribute('aria-label')"
    console.until(lambda: console.driver.execute_script(focused) == "Filter tables", "the focus")


def test_dark_is_what_the_machine_prefers_or_the_button_says(console: Console) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    light = console.driver.execute_script(ground)
    console.prefers("dark")
    dark = console.driver.execute_script(ground)
    assert dark != light
    console.picture("console-dark")
    console.one("#theme").click()
    assert console.driver.execute_script(ground) == light
    console.driver.refresh()
    console.sees("flights")
    assert console.driver.execute_script(ground) == light
    console.driver.execute_script("localStorage.removeItem('dormouse-theme')")


@pytest.mark.parametrize("place", PLACES)
def test_a_phone_shows_each_place_without_scrolling_sideways(console: Console, place: str) -> None:
    console.size(*PHONE)
    ready(console, place)
    width = console.driver.execute_script("return document.documentElement.scrollWidth")
    assert width <= PHONE[0]
    if place == "#/tables/flights":
        console.picture("console-phone")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_nothing_keeps_anybody_out(console: Console, size: tuple[int, int], scheme: str) -> None:
    """As far as axe can tell: names, roles, contrast, order."""
    axe_core = pytest.importorskip("axe_core_python")
    console.size(*size)
    console.prefers(scheme)
    console.driver.execute_script((Path(axe_core.__file__).parent / "axe.min.js").read_text())
    found: list[Any] = []
    for place in PLACES:
        ready(console, place)
        if place.startswith("#/query"):
            console.press("Run")
            console.sees("100 rows in")
        result = console.driver.execute_async_script("axe.run().then(arguments[0])")
        found += [
            (place, each["id"], [node["html"][:120] for node in each["nodes"]])
            for each in result["violations"]
        ]
    assert found == []


def test_an_answer_that_is_too_large_for_one_response_comes_later(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dormouse.features.http.queries.STATEMENT_ROWS", 100)
    ready(console, "#/query")
    console.fill("textarea", "SELECT flight, day FROM flights ORDER BY day")
    console.press("Run")
    console.sees("360 rows in", "1–100 of 360", "2026-01-01")
    console.driver.execute_script(
        "URL.createObjectURL = (blob) => { blob.text().then((text) => { window.saved = text; });"
        " return '#/query'; };"
    )
    console.press("CSV")
    saved = str(console.until(lambda: console.driver.execute_script("return window.saved")))
    assert (len(saved.splitlines()), saved[:12]) == (361, '"flight","da')


def test_of_many_rows_that_come_later_the_first_are_shown(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dormouse.features.http.queries.STATEMENT_ROWS", 100)
    ready(console, "#/query")
    console.fill("textarea", "SELECT n FROM range(10001) AS numbers(n) ORDER BY n")
    console.press("Run")
    console.sees(" rows in ", "1–100 of ")
    assert "the first 10,000 rows in " in console.text()


NUMBERS = (
    "4e-4, 1e-9, 52.52885339772246e0, 1e-1 + 2e-1, -0e0, 9007199254740993, -9223372036854775808, "
    "2026, 1000001, CAST('12345678901234567890.50' AS decimal(38,2)), '1,000.0'"
)


def cells(console: Console, label: str) -> list[str]:
    """Return the texts of the first row of a table of rows."""
    script = (
        "const place = document.querySelector(`[aria-label='${arguments[0]}'] tbody tr`);"
        "return place && [...place.cells].map(each => each.textContent)"
    )
    return list(console.until(lambda: console.driver.execute_script(script, label), label))


def test_numbers_are_shown_with_all_their_digits_and_no_others(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = 2**53 + 1
    row = {"id": [large], "at": [0.00001234], "nested": [{"ids": [large, 2026], "t": "n1"}]}
    schema = "id: long, at: double, nested: struct<ids: list<long>, t: string>"
    table = console.instance.create_table("wide", schema, row_keys=["id"])
    table.ingest(pa.table(row))
    stored = [str(large), "0.00001234", f'{{"ids":[{large},2026],"t":"n1"}}']
    ready(console, "#/tables/wide")
    assert cells(console, "First rows") == stored

    wanted = ["0.0004", "1e-9", "52.52885339772246", "0.30000000000000004", "-0.0"]
    wanted += [str(large), str(-(2**63)), "2026", "1000001", "12345678901234567890.50", "1,000.0"]
    names = ", ".join(f"{each} AS c{place}" for place, each in enumerate(NUMBERS.split(", ")))
    for rows_of_one_answer in (100_000, 1):  # at once, and later
        monkeypatch.setattr("dormouse.features.http.queries.STATEMENT_ROWS", rows_of_one_answer)
        ready(console, "#/query")
        console.fill("textarea", f"SELECT {names} FROM flights LIMIT 2")
        console.press("Run")
        assert cells(console, "Result") == wanted
        ready(console, "#/")

    ready(console, "#/query")
    console.fill(
        "textarea",
        "SELECT DISTINCT flight, nullif(flight, 1) * 5e-4 AS n FROM flights WHERE flight < 4",
    )
    console.press("Run")
    console.press("Chart")
    label = console.one("svg.chart").get_attribute("aria-label")
    assert label == "n by flight: 2 values from 0.001 to 0.0015"  # without that which is null
