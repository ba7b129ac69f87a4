"""Tests that scalar functions keep their error bounds over their whole range."""

from __future__ import annotations

import re

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from popgraph.compiler import load, lower
from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore import GRAPHCORE
from popgraph.dialects.graphcore.base import FLOATS
from tests.accuracy import PAGE, endless_slopes, functions_of, measure, row, ulps
from tests.sampling import WHOLE
from tests.scalar_functions import FUNCTIONS, TYPES, erfc, model

KINDS = 1 << 13
"""Samples over the whole range, in addition to those near bends."""
EXACT_BY_NATURE = {gc.BitcastOp, gc.CastOp, gc.CompareOp, gc.FmaOp, gc.IsNanOp, gc.WhereOp}
"""Operations that select, round once by definition, or have no float result."""
SAME_BITS = {gc.ExpNonpositiveOp}
"""Operations with the bits of one that is measured: `tests/backends/test_c_expressions.py`."""


@pytest.mark.parametrize("dtype", TYPES)
def test_errors_are_within_their_bounds(dtype: str) -> None:
    found = measure(dtype, KINDS)
    beyond = {
        each.name: found[each.name]
        for each in functions_of(dtype)
        if found[each.name].ulps > each.bound(dtype)
    }
    assert not beyond


SLOPES = TYPES if WHOLE else ("f16", "f32")
"""The types whose gradients are tested; other types share their formulas."""


@pytest.mark.parametrize("dtype", SLOPES)
def test_gradients_are_finite_where_slopes_are(dtype: str) -> None:
    assert not endless_slopes(dtype, KINDS)


def lowered() -> ModuleOp:
    module, compilation = load(model(FUNCTIONS, "f32", 4))
    return lower(module, compilation, until="expand")


def test_every_scalar_function_is_measured() -> None:
    elementwise = {
        op
        for op in GRAPHCORE.operations
        if issubclass(op, gc.Elementwise) and op.ELEMENTS.names & FLOATS.names
    }
    assert elementwise - EXACT_BY_NATURE - SAME_BITS <= {type(op) for op in lowered().walk()}


def test_the_page_states_every_bound() -> None:
    listed = [line for line in PAGE.read_text().splitlines() if re.match(r"\| [A-Z]", line)]
    nothing = {dtype: {} for dtype in TYPES}
    functions = {row(each, nothing).split(" | ")[0]: each for each in FUNCTIONS}
    assert sorted(line.split(" | ")[0] for line in listed) == sorted(functions), "make accuracy"
    for line in listed:
        bounds = re.sub(r" \([^)|]*\) (?=\|)", " ", line).split(" | ")
        for cell, dtype in zip(bounds[1:], TYPES, strict=True):
            stated = cell.strip(" |")
            assert stated in ("", f"{functions[line.split(' | ')[0]].bound(dtype):g}"), line


def test_units_in_the_last_place() -> None:
    exact = np.array([1.0, 1.0, 2.0**128, 1e-45, np.nan, 1.0])
    found = np.array([1.0, 1 + 2.0**-23, np.inf, 0, np.nan, np.nan], np.float32)
    wanted = [0, 1, 0, 1e-45 / 2.0**-149, 0, np.inf]
    np.testing.assert_allclose(ulps(found, exact, np.zeros(6)), wanted)


def test_the_exact_erf_is_right() -> None:
    """Compares with tabulated values."""
    x = np.array([0.5, 2.0, 5.0, 10.0], np.longdouble)
    wanted = [
        0.4795001221869535,
        4.677734981047266e-3,
        1.5374597944280349e-12,
        2.088487583762545e-45,
    ]
    np.testing.assert_allclose(erfc(x).astype(np.float64), wanted, rtol=1e-15)
