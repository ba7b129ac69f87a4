"""Measures errors in units in the last place, and writes docs/accuracy.md."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import popgraph
from popgraph.compiler import build, load, lower
from popgraph.dialects.graphcore.base import Array
from popgraph.passes.graphcore.training.autodiff import Autodiff
from popgraph.support import dtypes
from tests.scalar_functions import FUNCTIONS, TYPES, Function, admits, model, spread


class Error(NamedTuple):
    """The largest error of a function, with its operands."""

    ulps: float
    operands: tuple[Any, ...]
    found: Any
    exact: Any


def wider(dtype: str) -> Any:
    """A wider type, in which functions are exact enough to judge results of `dtype`."""
    return np.longdouble if dtype == "f64" else np.float64


def ulps(found: Array, exact: Array, scale: Array) -> Array:
    """
    |found - exact| in units in the last place of max(|exact|, scale).

    Infinity counts as the successor of the largest number. NaN on one side only is infinitely far.
    """
    info = ml_dtypes.finfo(found.dtype)
    wide = exact.dtype.type
    end = wide(2) ** info.maxexp
    mine, other = (np.clip(each.astype(wide), -end, end) for each in (found, exact))
    size = np.clip(np.maximum(np.abs(other), scale), wide(info.tiny), end / 2)
    unit = np.ldexp(wide(1), np.frexp(size)[1] - 1 - info.nmant)
    nan = np.isnan(mine) | np.isnan(other)
    both = np.isnan(mine) & np.isnan(other)
    return np.where(nan, np.where(both, 0, np.inf), np.abs(mine - other) / unit)


def worst(function: Function, dtype: str, operands: tuple[Array, ...], found: Array) -> Error:
    """The largest error among the results of a function."""
    numpy = dtypes.BY_NAME[dtype].numpy
    wide = [each.astype(wider(dtype)) for each in operands]
    exact = np.asarray(function.exact(*wide)).astype(wider(dtype))
    scale = np.zeros_like(exact) if function.scale is None else function.scale(*wide)
    errors = ulps(found, exact, scale)
    if function.vanishes:
        least = np.maximum(np.abs(wide[0]), 1) * wider(dtype)(ml_dtypes.finfo(numpy).tiny)
        errors = np.where((np.abs(exact) < least) & (np.abs(found) < least), 0, errors)
    at = int(np.argmax(errors))
    return Error(float(errors[at]), tuple(each[at] for each in operands), found[at], exact[at])


def samples(dtype: str, kinds: int) -> tuple[Array, Array]:
    """First and second operands: all pairs of special numbers, random pairs of others."""
    numpy = dtypes.BY_NAME[dtype].numpy
    x, y = spread(numpy, kinds), spread(numpy, kinds, 2)
    y = np.random.default_rng(1).permutation(y)
    special = np.array([0, -0.0, 1, -1, 0.5, 2, -3, 1e4, np.inf, -np.inf, np.nan]).astype(numpy)
    pairs = np.array(list(product(special, repeat=2)), numpy).T
    return np.concatenate([x, pairs[0]]), np.concatenate([y, pairs[1]])


def functions_of(dtype: str) -> list[Function]:
    return [each for each in FUNCTIONS if admits(each, dtype)]


def inputs_of(functions: Sequence[Function], operands: tuple[Array, Array]) -> dict[str, Array]:
    """The inputs of `model`: the same operands for every function."""
    names = [(at, name) for at, each in enumerate(functions) for name in ("x", "y")[: each.arity]]
    return {f"{name}{at}": operands[name == "y"] for at, name in names}


def measure(dtype: str, kinds: int) -> dict[str, Error]:
    """The largest error of each function in one type."""
    functions, operands = functions_of(dtype), samples(dtype, kinds)
    program = popgraph.compile(model(functions, dtype, operands[0].size))
    with np.errstate(all="ignore"):
        found = program(**inputs_of(functions, operands))
        return {
            each.name: worst(each, dtype, operands[: each.arity], found[f"z{at}"])
            for at, each in enumerate(functions)
        }


class Slope(NamedTuple):
    """A gradient that is not finite although the exact one is, with its operands."""

    function: str
    operands: tuple[Any, ...]
    found: Any


def slope(function: Function, operands: Sequence[Array], at: int) -> Array:
    """The exact slope along one operand; by default, a central difference in extended precision."""
    if function.slopes:
        return np.asarray(function.slopes[at](*operands))
    least = np.finfo(np.longdouble).tiny * 2.0**100
    step = 2.0**-40 * np.maximum(np.abs(operands[at]), least)
    ends = []
    for moved in (operands[at] + step, operands[at] - step):
        ends.append(function.exact(*operands[:at], moved, *operands[at + 1 :]))
    return np.asarray((ends[0] - ends[1]) / (2 * step))


def gradients(dtype: str, kinds: int) -> dict[tuple[str, str], Array]:
    """The gradient of each function by each operand, on `samples`."""
    functions, operands = functions_of(dtype), samples(dtype, kinds)
    inputs = inputs_of(functions, operands)
    module, compilation = load(model(functions, dtype, operands[0].size))
    lower(module, compilation, until="onnx-to-graphcore")
    Autodiff("loss", gradients=tuple(inputs)).run(compilation, module)
    with np.errstate(all="ignore"):
        found = build(module, compilation).run(inputs)
    return {
        (each.name, name): found[f"Gradient___{name}{at}"]
        for at, each in enumerate(functions)
        for name in ("x", "y")[: each.arity]
    }


def endless_slopes(dtype: str, kinds: int) -> list[Slope]:
    """
    The first gradient of each function, if any, that is infinite or NaN but should be finite.

    A gradient should be finite where the operands, the function and the exact slope are. Subnormal
    bases of powers are excluded: x^(y - 1) overflows there, even if y * x^(y - 1) does not.
    """
    operands, found = samples(dtype, kinds), gradients(dtype, kinds)
    wrong = []
    for function in functions_of(dtype):
        for at, name in enumerate(("x", "y")[: function.arity]):
            mine, slopes = operands[: function.arity], found[function.name, name]
            with np.errstate(all="ignore"):
                bad = ~np.isfinite(slopes) & has_slope(function, mine, at)
            for first in np.flatnonzero(bad)[:1]:
                values = tuple(each[first] for each in mine)
                wrong.append(Slope(f"{function.name} by {name}", values, slopes[first]))
    return wrong


def has_slope(function: Function, operands: Sequence[Array], at: int) -> Array:
    """A mask of the operands whose gradient along one operand must be finite."""
    info = ml_dtypes.finfo(operands[0].dtype)
    wide = [each.astype(np.longdouble) for each in operands]
    exact, value = slope(function, wide, at), np.asarray(function.exact(*wide))
    there = np.abs(exact) < float(info.max) / 8
    there &= np.isfinite(wide[0]) & np.isfinite(wide[-1]) & (np.abs(value) <= float(info.max))
    if function.op == "Pow":
        there &= np.abs(wide[0]) >= float(info.tiny)
    return there


PAGE = Path(__file__).parent.parent / "docs" / "accuracy.md"
TEXT = """# Accuracy of functions

The table bounds the error of each function, in units in the last place (ulp) of the result: a
correctly rounded result has an error of at most 0.5. The largest measured error is in brackets
({how}). `make accuracy` writes this page, and the tests check every bound.

- 16-bit types were measured with all of their numbers, the others with {kinds} numbers of
  their whole range. These include infinities, subnormals and NaN, and more numbers where functions
  bend. Functions of two numbers were measured with as many pairs.
- Functions of f16 and bf16 are computed in f32 and rounded once. Functions that ONNX defines by
  other functions are rounded after each of them.
- bf16 products accumulate in f32. AVX512-BF16 flushes factors, products and sums below 2^-126
  to zero.
- `erf` and `pow` of f64, and sines of arguments beyond a million, come from the C library.

| function | f16 | bf16 | f32 | f64 |
| --- | --- | --- | --- | --- |
{rows}

{notes}

A gradient is finite if the exact slope is, at every finite operand at which the function
itself does not overflow. One exception: the slope of a power by a subnormal base may be infinite.
At infinities, functions return their limits. ONNX defines some functions as a product or a quotient
of infinity with zero or infinity, which is NaN: `Mish`, `Swish`, `HardSwish` and `Gelu` by erf of
minus infinity, and `Softsign` of both.
"""


def notes(functions: Sequence[Function]) -> list[str]:
    """The footnotes of the table, numbered from 1."""
    found = [note(each) for each in functions]
    return [text for text in dict.fromkeys(found) if text]


def note(function: Function) -> str:
    if function.vanishes:
        return "Results below the least normal number (times x, if that is above 1) may be 0."
    if function.of:
        return f"In units in the last place of the larger of the result and {function.of}."
    return ""


def row(function: Function, found: Mapping[str, Mapping[str, Error]]) -> str:
    """A row of the table: bounds, and measured errors in brackets."""
    texts = notes(FUNCTIONS)
    mark = f" [{texts.index(note(function)) + 1}]" if note(function) else ""
    cells = [
        f"{function.bound(dtype):g} ({errors[function.name].ulps:.3g})"
        if function.name in errors
        else ""
        for dtype, errors in found.items()
    ]
    return f"| {function.name}{mark} | {' | '.join(cells)} |"


def page(kinds: int) -> str:
    found = {dtype: measure(dtype, kinds) for dtype in TYPES}
    count = samples("f32", kinds)[0].size
    numbered = (f"[{at}] {text}" for at, text in enumerate(notes(FUNCTIONS), 1))
    return TEXT.format(
        how=platform.machine(),
        kinds=f"{count / 1e6:.1f} million",
        rows="\n".join(row(each, found) for each in FUNCTIONS),
        notes="\n\n".join(numbered),
    )


if __name__ == "__main__":
    PAGE.write_text(page(1 << 18))
