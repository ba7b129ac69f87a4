"""Checks that bugs planted in branches and loops are found, from their lowering to C."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from hypothesis import Phase, given, settings

from popgraph.support.errors import PopgraphError
from tests.passes.control_mutants import CONTROL_MUTANTS, Planted

FOUND = (AssertionError, PopgraphError, KeyError, ValueError)
"""Errors that a bug may raise."""


def drawn_until_found(planted: Planted) -> int:
    """Number of examples drawn until one breaks the claim."""
    count = 0

    @settings(
        max_examples=planted.hunt.most,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        deadline=None,
    )
    @given(planted.hunt.drawn())
    def holds(drawn: Any) -> None:
        nonlocal count
        count += 1
        planted.hunt.claim(drawn)

    with warnings.catch_warnings(), planted.mutant.planted():
        warnings.simplefilter("ignore")
        with pytest.raises(FOUND):
            holds()
    return count


@pytest.mark.parametrize("planted", CONTROL_MUTANTS, ids=str)
def test_planted_bugs_of_control_flow_are_found(planted: Planted) -> None:
    assert drawn_until_found(planted) <= planted.hunt.most
