"""Tests compiled graphcore operations against `evaluate`."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from xdsl.builder import ImplicitBuilder
from xdsl.dialects.builtin import ModuleOp

from popgraph.compiler import build as build_program
from popgraph.dialects.graphcore import OPERATIONS
from popgraph.dialects.graphcore.base import Array, GraphcoreOp
from popgraph.dialects.program import GraphOp, ReturnOp
from popgraph.passes.base import Compilation
from popgraph.support import dtypes
from tests.dialects.graphcore_run import Sample, assert_close, place, type_of
from tests.dialects.graphcore_samples import SAMPLES, each_float_type

TOLERANCE = {"f64": 1e-12, "f32": 4e-6, "f16": 2e-3, "bf16": 2e-2}
"""Largest distance of C from `evaluate`, relative to the largest element."""


def together(samples: Sequence[Sample]) -> tuple[ModuleOp, list[GraphcoreOp], list[Array]]:
    """A graph of all samples, so that one compiler run is enough; with its inputs."""
    arrays = [array for sample in samples for array in sample.arrays]
    names = [f"x{at}" for at in range(len(arrays))]
    graph = GraphOp("main", names, [type_of(array) for array in arrays])
    values = iter(graph.block.args)
    with ImplicitBuilder(graph.block):
        ops = [place(sample, values) for sample in samples]
        results = [result for op in ops for result in op.results]
        ReturnOp(results, [f"y{at}" for at in range(len(results))])
    return ModuleOp([graph]), ops, arrays


@pytest.mark.budget(10)
@pytest.mark.parametrize("op", OPERATIONS, ids=lambda op: op.name)
def test_graphcore_c_equals_evaluate(op: type[GraphcoreOp]) -> None:
    samples = each_float_type([sample for sample in SAMPLES if sample.op is op])
    module, ops, arrays = together(samples)
    expected = [
        (sample, result)
        for sample, placed in zip(samples, ops, strict=True)
        for result in placed.evaluate(*sample.arrays)
    ]
    program = build_program(module, Compilation())
    outputs = program.run({f"x{at}": array for at, array in enumerate(arrays)})
    for at, (sample, result) in enumerate(expected):
        dtype = dtypes.from_numpy((sample.arrays or [result])[0].dtype).name
        try:
            assert_close(outputs[f"y{at}"], result, TOLERANCE.get(dtype, 0))
        except AssertionError as error:
            raise AssertionError(f"{sample}: {error}") from error
