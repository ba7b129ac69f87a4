"""Compares two modules on the same random inputs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Attribute

from popgraph.backends.reference import evaluate, first_state, output_types, signature
from popgraph.dialects import element_types
from popgraph.dialects.program import WeightStore
from popgraph.dialects.program.sizes import sizes_of
from popgraph.support import dtypes
from popgraph.support.arrays import Array, random_array
from popgraph.support.sizes import leading_slices

State = Mapping[str, Array]


def random_inputs(types: Mapping[str, TensorType[Attribute]], seed: int = 0) -> dict[str, Array]:
    """One array per input."""
    generator = np.random.default_rng(seed)
    return {
        name: random_array(
            generator, type_.get_shape(), element_types.from_ir(type_.element_type).numpy
        )
        for name, type_ in types.items()
    }


def assert_close(actual: Array, expected: Array, tolerance: float, name: str) -> None:
    """Equal shapes and dtypes; values equal, or within `tolerance` of the largest (or of 1)."""
    assert actual.shape == expected.shape, f"{name}: shape {actual.shape}, not {expected.shape}"
    assert actual.dtype == expected.dtype, f"{name}: {actual.dtype}, not {expected.dtype}"
    if not dtypes.from_numpy(actual.dtype).is_float:
        np.testing.assert_array_equal(actual, expected, err_msg=name)
        return
    wide, wanted = actual.astype(np.float64), expected.astype(np.float64)
    finite = wanted[np.isfinite(wanted)]
    scale = float(np.abs(finite).max()) if finite.size else 1.0
    np.testing.assert_allclose(
        wide, wanted, rtol=tolerance, atol=tolerance * max(scale, 1.0), err_msg=name
    )


def assert_as_declared(
    module: ModuleOp, outputs: Mapping[str, Array], weights: WeightStore
) -> None:
    """Asserts that outputs have the declared types."""
    for name, type_ in output_types(module, weights):
        shape = type_.get_shape()
        if min(shape, default=0) < 0:  # unknown at this level
            continue
        dtype = element_types.from_ir(type_.element_type).numpy
        actual = outputs[name]
        assert actual.shape == shape, f"{name}: declared as {shape}, but it is {actual.shape}"
        assert actual.dtype == dtype, f"{name}: declared as {dtype}, but it is {actual.dtype}"


def _numbers(module: ModuleOp, seed: int) -> dict[str, int]:
    """A value for each size: random if loops end at sizes, else the bound."""
    generator, sizes = np.random.default_rng(seed), sizes_of(module)
    ends = any(size.outputs for size in sizes)
    return {
        size.name: int(generator.integers(size.least, size.bound + 1)) if ends else size.bound
        for size in sizes
    }


def _cut(
    module: ModuleOp, inputs: Mapping[str, Array], numbers: Mapping[str, int]
) -> dict[str, Array]:
    """Inputs with NaN after the ends of sizes; integers stay, since they may be indices."""
    found = dict(inputs)
    for size in sizes_of(module):
        for name in {place.tensor for place in size.inputs}:
            whole = found[name]
            if dtypes.from_numpy(whole.dtype).is_float:
                places = [place for place in size.inputs if place.tensor == name]
                found[name] = np.full_like(whole, np.nan)
                front, old = (
                    leading_slices({name: array}, places, numbers[size.name])[name]
                    for array in (found[name], whole)
                )
                front[...] = old
    return found


def assert_same_meaning(
    before: ModuleOp,
    after: ModuleOp,
    weights: WeightStore,
    *,
    tolerance: float = 0.0,
    seed: int = 0,
    steps: int = 2,
) -> None:
    """
    Asserts that `after` computes all outputs and variables of `before`, for `steps` steps.

    The modules may be of different levels, and `after` may have more outputs, such as gradients.
    A variable that `after` lacks counts as unchanged: programs need not hold all weights.
    Declared types of outputs are checked. If loops of `before` end at sizes, random sizes are
    drawn, and only elements before the ends are compared.
    `tolerance` is relative to the largest value.
    """
    modules = before, after
    numbers = _numbers(before, seed)
    scalars = {name: np.array(number, np.int64) for name, number in numbers.items()}
    inputs = _cut(before, random_inputs(signature(before), seed), numbers) | scalars
    states: list[State] = [first_state(module, weights) for module in modules]
    kept = states[0]
    for step in range(steps):
        results = []
        for index, module in enumerate(modules):
            given = {name: inputs[name] for name in signature(module)}
            outputs, states[index] = evaluate(module, given, weights, states[index])
            variables = {**kept, **states[index]}
            if index:
                assert_as_declared(module, outputs, weights)
            for size in sizes_of(before):
                outputs = leading_slices(outputs, size.outputs, numbers[size.name])
            results.append(outputs | {f"variable {k}": v for k, v in variables.items()})
        missing = set(results[0]) - set(results[1])
        assert not missing, f"gives no {', '.join(sorted(missing))} any more"
        for name, expected in results[0].items():
            assert_close(results[1][name], expected, tolerance, f"step {step}, {name}")
