"""Tests graphcore operations in every element type, in NumPy and in C."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence

import numpy as np
import pytest

from popgraph.compiler import build as build_program
from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore import OPERATIONS
from popgraph.dialects.graphcore.base import INTEGERS, Array, GraphcoreOp
from popgraph.passes.base import Compilation
from popgraph.support import dtypes
from popgraph.support.errors import IndicesError
from tests.dialects.graphcore_run import Sample, assert_close, build, is_float, type_of
from tests.dialects.graphcore_samples import SAMPLES
from tests.dialects.graphcore_types import REAL, casts, each_type, is_admitted
from tests.dialects.test_graphcore_c import TOLERANCE, together
from tests.sampling import WHOLE, is_taken

SHARE = 5
"""A run takes every fifth sample: each operation and each type, but not each pair."""
EACH = each_type(SAMPLES)
CASTS = list(casts())


def some(samples: Sequence[Sample]) -> list[Sample]:
    """The samples of today's run; neighbours differ in type, so every operation is covered."""
    return [each for at, each in enumerate(samples) if is_taken(at, SHARE)]


def assert_same(actual: Array, expected: Array, tolerance: float) -> None:
    """Compares one-byte floats bit by bit, except for NaNs."""
    if is_float(expected):
        assert_close(actual, expected, tolerance)
        return
    assert actual.dtype == expected.dtype
    if not dtypes.from_numpy(expected.dtype).is_float:
        np.testing.assert_array_equal(actual, expected)
        return
    wide, wanted = actual.astype(np.float32), expected.astype(np.float32)
    np.testing.assert_array_equal(wide, wanted)
    numbers = wanted == wanted
    np.testing.assert_array_equal(np.signbit(wide[numbers]), np.signbit(wanted[numbers]))


def check(samples: Sequence[Sample]) -> None:
    """Compares all samples in one program, so that one compiler run is enough."""
    module, ops, arrays = together(samples)
    expected = [
        (sample, result)
        for sample, placed in zip(samples, ops, strict=True)
        for result in placed.evaluate(*sample.arrays)
    ]
    outputs = build_program(module, Compilation()).run({f"x{i}": x for i, x in enumerate(arrays)})
    for at, (sample, result) in enumerate(expected):
        try:
            assert_same(outputs[f"y{at}"], result, TOLERANCE.get(result.dtype.name, 4e-6))
        except AssertionError as error:
            raise AssertionError(f"{sample}: {error}") from error


@pytest.mark.parametrize("op", OPERATIONS, ids=lambda op: op.name)
def test_evaluate_gives_what_infer_promises(op: type[GraphcoreOp]) -> None:
    for sample in EACH:
        if sample.op is op:
            built = build(sample)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                results = built.op.evaluate(*built.arrays)
            assert [type_of(result) for result in results] == list(built.op.result_types), sample


def test_casts_of_every_pair_of_types_have_a_meaning() -> None:
    for sample in CASTS:
        (result,) = build(sample).op.evaluate(*sample.arrays)
        assert type_of(result) == build(sample).op.result_types[0]


GROUPS = 6
"""Number of programs that partition the samples."""


@pytest.mark.parametrize("group", range(GROUPS))
def test_c_equals_evaluate_in_every_type_fuzz(group: int) -> None:
    check(some(EACH)[group::GROUPS])


@pytest.mark.parametrize("name", sorted(INTEGERS.names))
def test_c_finds_indices_out_of_range_in_every_width(name: str) -> None:
    """Just outside of both bounds, at the limits of the type, and at the ignored index."""
    dtype = dtypes.BY_NAME[name].numpy
    ends = np.iinfo(dtype)
    for low, last, ignored in ((-4, 3, None), (0, 99, None), (0, 3, 100), (-100, 100, -101)):
        words = {} if ignored is None else {"ignored": ignored}
        properties = {"low": [low], "last": [last], **words}
        sample = Sample(gc.CheckIndicesOp, [np.zeros(3, dtype)], properties)
        program = build_program(build(sample).module(), Compilation())
        near = (low - 1, low, 0, last, last + 1, -101, 100, ends.min, ends.max)
        for index in (each for each in near if ends.min <= each <= ends.max):
            given = np.array([0, index, 0], dtype)
            legal = low <= int(given[1].astype(np.int64)) <= last or index == ignored
            found = contextlib.nullcontext() if legal else pytest.raises(IndicesError)
            with found as raised:
                (result,) = program.run({"x0": given}).values()
                np.testing.assert_array_equal(result, given)
            if raised is not None:
                assert f"index {given[1].astype(np.int64)} is out of range" in raised.value.what


@pytest.mark.parametrize("group", range(len(REAL) if WHOLE else 1))
def test_c_casts_every_pair_fuzz(group: int) -> None:
    check(some(CASTS)[group :: len(REAL) if WHOLE else 1])


def test_movements_are_sampled_in_every_type() -> None:
    moved = {
        dtypes.from_numpy(sample.arrays[0].dtype).name
        for sample in EACH
        if sample.op is gc.TransposeOp
    }
    assert moved == set(dtypes.BY_NAME) - {"f16", "bf16", "f32", "f64"}
    assert is_admitted(CASTS[0])
