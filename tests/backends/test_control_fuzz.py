"""Fuzzes branches and loops down to planned memory and C, on random graphs of both."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
from hypothesis import given
from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.c.build_program import build as build_c
from popgraph.backends.reference import evaluate, signature
from popgraph.compiler import lower
from popgraph.dialects.check import check_ir
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.training.autodiff import Autodiff
from popgraph.passes.options import Options
from popgraph.support.arrays import Array
from popgraph.testing import assert_close, random_inputs
from tests.passes.control_graphs import ControlGraph, build, control_graphs
from tests.passes.control_programs import Drawn, drawn_programs
from tests.passes.sharing import sharing_all
from tests.passes.test_autodiff import Program
from tests.passes.test_fuzz import SMALL
from tests.passes.test_reverse_loop import THREE

TOLERANCE = 1e-9
"""One matmul for all rows adds in another order than one per row."""


@pytest.fixture(autouse=True)
def no_overflow_warnings() -> Iterator[None]:
    """Random graphs overflow, which NumPy warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def planned(module: ModuleOp, compilation: Compilation) -> ModuleOp:
    """The program for small vectors, with every decision that small tensors allow."""
    target = sharing_all(32, 32, SMALL)
    options = Options(machine=target.machine, tuning=target.tuning, threads=2, measured=())
    lowered = lower(module.clone(), compilation, options)
    check_ir(lowered, text=False)
    return lowered


def assert_planned(
    module: ModuleOp, compilation: Compilation, inputs: dict[str, Array], *, in_c: bool
) -> None:
    """The planned program computes what the graph does, in two runs; in NumPy or in C."""
    expected, _ = evaluate(module, inputs, compilation.weights)
    lowered = planned(module, compilation)
    executable = build_c(lowered, compilation.weights, threads=2) if in_c else None
    for _ in range(2):
        if executable is None:
            found, _ = evaluate(lowered, inputs, compilation.weights)
        else:
            found = executable.run(inputs)
        assert found.keys() == expected.keys()
        for name, array in expected.items():
            assert_close(found[name], array, TOLERANCE, name)


def check_graph(graph: ControlGraph, *, in_c: bool) -> None:
    module, compilation = build(graph), Compilation()
    assert_planned(module, compilation, random_inputs(signature(module)), in_c=in_c)


def check_gradients(drawn: Drawn, *, in_c: bool) -> None:
    """Gradients contain loops and branches, too."""
    program = Program(
        {}, THREE, lambda values: {"loss": drawn.build([values[name] for name in "abc"], True)}
    )
    Autodiff("loss").run(program.compilation, program.module)
    assert_planned(program.module, program.compilation, {}, in_c=in_c)


@given(control_graphs())
def test_planned_graphs_mean_the_same(graph: ControlGraph) -> None:
    check_graph(graph, in_c=False)


@given(drawn_programs())
def test_planned_gradients_mean_the_same(drawn: Drawn) -> None:
    check_gradients(drawn, in_c=False)


@pytest.mark.parametrize("gradients", [False, True])
def test_c_means_the_same(gradients: bool) -> None:
    if gradients:
        given(drawn_programs())(lambda drawn: check_gradients(drawn, in_c=True))()
    else:
        given(control_graphs())(lambda graph: check_graph(graph, in_c=True))()
