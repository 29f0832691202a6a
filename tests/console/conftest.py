"""A browser that looks at the console of an instance in a folder, which works meanwhile."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dormouse.client.instance import Instance
from dormouse.console import console_uri, is_console, with_console
from dormouse.features.http.calls import guarded
from dormouse.features.http.serve_http import serve_http
from dormouse.http.loopback import LoopbackServer
from tests.support.waiting import eventually

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
TOKEN = "the-token"
WIDE, PHONE = (1300, 720), (390, 844)
ARGUMENTS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars"),
)
PICTURES = os.environ.get("DORMOUSE_PICTURES")
"""The folder into which tests put pictures of the console, if it is set."""


@dataclass
class Console:
    """The page, as somebody uses it."""

    instance: Instance
    driver: Any
    url: str

    def go(self, place: str) -> None:
        """Look at a place, by what follows the # of the address."""
        self.driver.execute_script("location.hash = arguments[0]", place)
        self.until(lambda: self.driver.execute_script("return location.hash") == place)

    def until(self, is_true: Callable[[], object], what: str = "what was expected") -> Any:
        """Wait until something is true, and return it."""
        try:
            return eventually(is_true)
        except AssertionError as error:
            raise AssertionError(f"{what} did not come: {self.text()[:2000]}") from error

    def text(self) -> str:
        """Return what can be read on the page."""
        return str(self.driver.execute_script("return document.body.innerText"))

    def sees(self, *texts: str) -> None:
        """Wait until texts can be read."""
        for text in texts:
            self.until(partial(self._has, text), repr(text))

    def _has(self, text: str) -> bool:
        return text in self.text()

    def one(self, selector: str) -> Any:
        """Wait for an element, and return it."""
        from selenium.webdriver.common.by import By

        return self.until(
            lambda: next(iter(self.driver.find_elements(By.CSS_SELECTOR, selector)), None), selector
        )

    def press(self, label: str) -> None:
        """Press the button that is called so."""
        script = (
            "const found = [...document.querySelectorAll('button, a')].find("
            "each => each.textContent.trim() === arguments[0] && !each.disabled);"
            "if (found) found.click(); return Boolean(found)"
        )
        self.until(lambda: self.driver.execute_script(script, label), f"the button {label!r}")

    def drop(self, name: str, content: str) -> None:
        """Drop a file on the page."""
        script = (
            "const data = new DataTransfer();"
            "data.items.add(new File([arguments[1]], arguments[0]));"
            "window.dispatchEvent(new DragEvent('drop', {dataTransfer: data, cancelable: true}))"
        )
        self.driver.execute_script(script, name, content)

    def fill(self, selector: str, text: str) -> None:
        """Type into a field, in place of what is there."""
        field = self.one(selector)
        field.clear()
        field.send_keys(text)

    def size(self, width: int, height: int) -> None:
        """Make the page so large, as a phone or a screen has it."""
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500},
        )

    def prefers(self, scheme: str) -> None:
        """Prefer light or dark, as a person who has set up the machine so."""
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
        )

    def picture(self, name: str) -> None:
        """Take a picture, if the docs show it and pictures are wanted."""
        if PICTURES and (Path(PICTURES) / f"{name}.png").exists():
            self.driver.save_screenshot(str(Path(PICTURES) / f"{name}.png"))


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver")
    if BROWSER is None or DRIVER is None:
        pytest.skip("there is no Chromium with its driver: the console is not looked at")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    profile = tmp_path_factory.mktemp("browser")
    for argument in (*ARGUMENTS, f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield found
    found.quit()


def flights() -> Any:
    import pyarrow as pa

    days = range(360)
    return pa.table(
        {
            "carrier": ["AA", "B6", "UA"] * 120,
            "flight": pa.array([1 + day % 40 for day in days], pa.int32()),
            "day": [date(2026, 1, 1) + timedelta(days=day) for day in days],
            "dest": ["SFO", "JFK", None, "LAX", "SFO"] * 72,
            "delay": [float(day * 7 % 50 - 9) for day in days],
        }
    )


@pytest.fixture
def console(tmp_path: Path, driver: Any) -> Iterator[Console]:
    with Instance.open(tmp_path / "mice") as instance:
        table = instance.create_table(
            "flights",
            "carrier: string, flight: int, day: date, dest: string?, delay: double?",
            row_keys=["carrier", "flight"],
            sort_keys=["day"],
            split_points=[("B",), ("M",)],
        )
        table.ingest(flights())
        instance.create_table(
            "meters", "meter: string, at: timestamp, kwh: double?", row_keys=["meter", "at"]
        )
        answer = with_console(partial(serve_http, instance))
        with LoopbackServer(guarded(answer, TOKEN, is_open=is_console)) as server:
            driver.get("about:blank")
            driver.get_log("browser")  # what the page of another test was refused
            found = Console(instance, driver, server.url)
            found.size(*WIDE)
            found.prefers("light")
            driver.get(console_uri(server.url, TOKEN))
            found.sees("flights", "360")
            yield found
            driver.get("about:blank")
