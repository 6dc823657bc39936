"""A real browser without a window, for the tests of the page: Chromium with its driver, where both are installed."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
MISSING = "no browser: install the packages chromium and chromium-driver (see CONTRIBUTING.md)"
REQUIRED = "PROBES_BROWSER"  # `make browser` sets it, so that a missing browser is a failure there


def need() -> tuple[str, str]:
    """The browser and its driver; skips the test where one is missing, or fails it where they are required."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if browser is None or driver is None or find_spec("selenium") is None:
        if os.environ.get(REQUIRED):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    return browser, driver


@contextmanager
def chromium(width: int = 1300, height: int = 1000) -> Iterator[Any]:
    """A browser without a window and without a network."""
    browser, driver = need()
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for word in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "hide-scrollbars", f"window-size={width},{height}"):
        options.add_argument(f"--{word}")
    options.add_argument("--host-resolver-rules=MAP * ~NOTFOUND")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options, webdriver.ChromeService(driver))
    try:
        yield found
    finally:
        found.quit()


def load(browser: Any, page: Path) -> None:
    """Open a report and wait until it has drawn."""
    browser.get(page.as_uri())
    wait(browser, "document.body && document.body.dataset.ready === 'yes'")


def wait(browser: Any, condition: str, seconds: float = 60) -> None:
    """Wait until a JavaScript expression holds."""
    end = time.monotonic() + seconds
    while not browser.execute_script(f"return Boolean({condition})"):
        assert time.monotonic() < end, f"{condition} does not hold; {browser.get_log('browser')}"
        time.sleep(0.02)
