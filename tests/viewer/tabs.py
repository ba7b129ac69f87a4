"""Tabs of the browser in which pages are tested."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def opened(browser: Any, address: str) -> Iterator[Any]:
    """A tab that shows an address; fails if its console has messages."""
    tab = browser.new_page(viewport={"width": 1300, "height": 800})
    said: list[str] = []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.goto(address)
    tab.wait_for_selector("#status:has-text('kernel')")
    yield tab
    tab.close()
    assert not said
