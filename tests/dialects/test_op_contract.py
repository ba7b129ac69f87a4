"""Tests the contract of graphcore operations: types, meaning, text, expansion, gradient."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from _pytest.mark import ParameterSet
from xdsl.ir import SSAValue

from popgraph.dialects import check, element_types
from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore import OPERATIONS, Composite
from popgraph.dialects.graphcore.base import Array
from popgraph.support import dtypes
from tests.checking import check_ir
from tests.dialects.graphcore_run import (
    Built,
    Sample,
    analytic,
    assert_close,
    build,
    expanded,
    has_floats,
    is_float,
    run,
    type_of,
)
from tests.dialects.graphcore_samples import ONE_TYPE, SAMPLES, each_float_type

TOLERANCE = {"f64": 1e-12, "f32": 2e-6, "f16": 6e-3, "bf16": 5e-2}
"""Largest distance of an expansion from `evaluate`, relative to the largest element."""


def cases(samples: Sequence[Sample]) -> list[ParameterSet]:
    """
    One parameter per operation, with all of its samples: a test per sample costs more than its
    work.
    """
    found: dict[str, list[Sample]] = {}
    for sample in samples:
        found.setdefault(sample.op.name, []).append(sample)
    return [pytest.param(each, id=name) for name, each in found.items()]


@contextmanager
def naming(sample: Sample) -> Iterator[None]:
    """Adds the sample to errors raised inside."""
    try:
        yield
    except Exception as error:
        error.add_note(f"sample: {sample}")
        raise


ALL = each_float_type(SAMPLES)


def test_every_operation_has_samples() -> None:
    assert {sample.op for sample in SAMPLES} == set(OPERATIONS)


def test_the_graphcore_dialect_stays_small() -> None:
    assert len(OPERATIONS) <= 108


@pytest.mark.parametrize("samples", cases(ALL))
def test_evaluate_gives_what_infer_promises(samples: Sequence[Sample]) -> None:
    for sample in samples:
        with naming(sample):
            check_results(build(sample))


def check_results(built: Built) -> None:
    for array in built.arrays:
        array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        results = built.op.evaluate(*built.arrays)
    assert [type_of(result) for result in results] == list(built.op.infer())
    assert [type_of(result) for result in results] == list(built.op.result_types)


@pytest.mark.parametrize("samples", cases(SAMPLES))
def test_text_is_read_back(samples: Sequence[Sample]) -> None:
    for sample in samples:
        with naming(sample):
            module = build(sample).module()
            check.check_ir(module)
            own = f'"{sample.op.name}"' not in str(module)
            assert own, "operations have a syntax of their own"


@pytest.mark.parametrize("samples", cases([one for one in ALL if issubclass(one.op, Composite)]))
def test_expansion_means_the_same(samples: Sequence[Sample]) -> None:
    for sample in samples:
        with naming(sample):
            check_expansion(build(sample))


def check_expansion(built: Built) -> None:
    values = expanded(built)
    assert [value.type for value in values] == list(built.op.result_types)
    results = run(built.block, built.arrays)
    for value, result in zip(values, built.op.results, strict=True):
        dtype = dtypes.from_numpy(built.arrays[0].dtype).name
        assert_close(results[value], results[result], TOLERANCE.get(dtype, 0))
    check_ir(built.module(values))


def weights_for(built: Built, seed: int) -> list[Array | None]:
    """Random gradients of the float results, None for others."""
    random = np.random.default_rng(seed)
    return [
        random.standard_normal(type_.get_shape())
        if element_types.from_ir(type_.element_type).is_float
        else None
        for type_ in built.op.infer()
    ]


def total(built: Built, arrays: Sequence[Array], weights: Sequence[Array | None]) -> float:
    results = built.op.evaluate(*arrays)
    return float(
        sum(
            np.sum(result * weight)
            for result, weight in zip(results, weights, strict=True)
            if weight is not None
        )
    )


def finite_differences(built: Built, at: int, weights: Sequence[Array | None]) -> Array:
    """The slopes of the weighted results along every element of operand `at`."""
    step = 1e-6
    slope = np.zeros(built.arrays[at].shape)
    for index in np.ndindex(*slope.shape):
        ends = []
        for sign in (1, -1):
            moved = list(built.arrays)
            moved[at] = moved[at].copy()
            moved[at][index] += sign * step
            ends.append(total(built, moved, weights))
        slope[index] = (ends[0] - ends[1]) / (2 * step)
    return slope


def differentiable(sample: Sample) -> bool:
    built = build(sample)
    return (
        sample.smooth
        and has_floats(sample)
        and (sample.op.is_differentiable() or issubclass(sample.op, Composite))
        and any(
            element_types.from_ir(type_.element_type).name == "f64" for type_ in built.op.infer()
        )
    )


NO_GRADIENT = {gc.DetachOp}
"""Operations whose gradient is absent by definition."""
WIDE = [each.with_floats("f64") for each in SAMPLES if each.op not in ONE_TYPE]
SMOOTH = [each for each in WIDE if differentiable(each)]


@pytest.mark.parametrize("samples", cases(SMOOTH))
def test_gradient_is_the_slope(samples: Sequence[Sample]) -> None:
    for sample in samples:
        with naming(sample):
            check_gradient(sample)


def check_gradient(sample: Sample) -> None:
    built = build(sample)
    weights = weights_for(built, 5)
    present = [at for at, weight in enumerate(weights) if weight is not None]
    # All result gradients at once, then each alone with None for the others.
    for chosen in [present] if len(present) == 1 else [present, *([at] for at in present)]:
        built = build(sample)
        some = [weight if at in chosen else None for at, weight in enumerate(weights)]
        for at, gradient in enumerate(analytic(built, some)):
            if not is_float(built.arrays[at]):
                assert gradient is None
                continue
            expected = finite_differences(built, at, some)
            if sample.op in NO_GRADIENT:
                assert gradient is None
            elif gradient is None:
                np.testing.assert_array_equal(expected, 0)
            else:
                assert_close(gradient, expected, 1e-6)
        check_ir(built.module())


def test_every_differentiable_operation_has_smooth_samples() -> None:
    without = {op for op in OPERATIONS if op.is_differentiable()}
    assert without - {sample.op for sample in SMOOTH} == set()


def test_a_broken_gradient_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that the test can fail: a wrong gradient of tanh is found."""

    def broken(self: gc.TanhOp, dy: SSAValue) -> tuple[SSAValue, ...]:
        return (gc.MulOp(dy, gc.SubOp(self.result, self.result)).result,)

    monkeypatch.setattr(gc.TanhOp, "gradient", broken)
    sample = next(sample for sample in SMOOTH if sample.op is gc.TanhOp)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check_gradient(sample)


def test_every_module_of_operations_is_in_the_dialect() -> None:
    folder = Path(gc.__file__).parent
    wanted = {path.stem for path in folder.glob("*.py") if "@operation" in path.read_text()}
    assert {op.__module__.rpartition(".")[2] for op in OPERATIONS} == wanted
