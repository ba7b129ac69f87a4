"""Tests of the example page that trains on digits, in a browser."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browsers import browser as browser
from tests.browsers import served

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None, reason="ziglang is not installed"
)
BUILD = Path(__file__).parents[2] / "examples/web/build.py"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    """The address of the built page."""
    pytest.importorskip("sklearn", reason="the digits are scikit-learn's")
    done = subprocess.run(
        [sys.executable, BUILD, tmp_path / "site"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with served(tmp_path / "site") as address:
        yield address


SEVEN = [(60, 50), (130, 45), (110, 100), (80, 150)]
"""Points of a drawn 7."""


def test_the_page_trains_reads_a_drawing_and_restores_its_state(browser: Any, site: str) -> None:
    page, errors = browser.new_page(), list[str]()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(site)
    page.click("#restore")
    page.wait_for_function(shows("status", "Nothing has been saved in this browser."))
    page.click("#train")
    page.wait_for_function("Number(document.getElementById('epoch').textContent) >= 5")
    page.click("#train")
    assert accuracy(page) > 0.9
    assert float(page.text_content("#loss")) < 0.4

    box = page.locator("#paper").bounding_box()
    points = [(box["x"] + x, box["y"] + y) for x, y in SEVEN]
    page.mouse.move(*points[0])
    page.mouse.down()
    for point in points[1:]:
        page.mouse.move(*point, steps=5)
    page.mouse.up()
    assert page.text_content("#answer") in {f"a {digit}" for digit in range(10)}
    assert page.evaluate("document.querySelectorAll('#samples .wrong').length") < 8

    page.click("#save")
    page.wait_for_function(shows("status", "Saved in this browser."))
    page.click("#reset")
    page.reload()
    page.click("#restore")
    page.wait_for_function(shows("status", "Restored."))
    assert accuracy(page) > 0.9
    assert not errors
    page.close()


def shows(name: str, text: str) -> str:
    return f"document.getElementById('{name}').textContent === '{text}'"


def accuracy(page: Any) -> float:
    return float(page.text_content("#accuracy").removesuffix("%")) / 100
