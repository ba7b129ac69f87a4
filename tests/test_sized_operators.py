"""Tests that docs/sizes.md matches the operators whose sizes may vary."""

from __future__ import annotations

from tests.operators import DOCS
from tests.sampling import share
from tests.sized_operators import HEAD, MODELS, row, unprobed

PAGE = (DOCS / "sizes.md").read_text()
SHARE = 8
"""One operator in this many is tested a day."""


def lines() -> dict[str, list[str]]:
    """The cells of the page's table, by operator."""
    table = [line.split("|")[1:-1] for line in PAGE.splitlines() if line.startswith("| ")]
    return {name.strip(): [cell.strip() for cell in cells] for name, *cells in table[2:]}


def test_the_sizes_page_lists_every_operator() -> None:
    assert PAGE.startswith(HEAD)
    assert sorted(lines()) == sorted(MODELS)
    assert f"Not tried: {', '.join(unprobed())}." in PAGE
    assert "Error" not in PAGE, "a model is none"


def test_the_sizes_page_matches_programs() -> None:
    """`make pages` updates the page."""
    known = lines()
    for operator in share("operators that sizes flow through", sorted(MODELS), SHARE):
        name, *found = row(operator)
        assert found == known[name]
