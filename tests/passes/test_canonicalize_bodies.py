"""Tests the canonicalization of loops and branches on random graphs with both."""

from __future__ import annotations

from hypothesis import given, settings
from xdsl.dialects.builtin import ModuleOp

from popgraph.dialects.check import check_ir
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.graphcore.canonicalize import Canonicalize
from popgraph.passes.graphcore.cse import EliminateCommonSubexpressions
from popgraph.passes.graphcore.dce import EliminateDeadCode
from popgraph.passes.graphcore.expand import Expand
from popgraph.passes.graphcore.fold_constants import FoldConstants
from popgraph.testing import assert_same_meaning
from tests.passes.control_graphs import ControlGraph, build, control_graphs

TOLERANCE = 1e-12
"""Products of all rows at once add in another order."""


def run(module: ModuleOp, *passes: Pass) -> None:
    """Runs the passes; the module means the same, and a second run changes nothing."""
    before, compilation = module.clone(), Compilation()
    for each in passes:
        each.run(compilation, module)
    check_ir(module)
    assert_same_meaning(before, module, compilation.weights, tolerance=TOLERANCE)


@given(control_graphs())
@settings(deadline=None)
def test_bodies_mean_the_same_afterwards(graph: ControlGraph) -> None:
    module = build(graph)
    check_ir(module)
    run(module, Canonicalize())
    text = str(module)
    run(module, Canonicalize())
    assert str(module) == text


@given(control_graphs())
@settings(deadline=None)
def test_the_passes_of_the_level_know_bodies(graph: ControlGraph) -> None:
    run(
        build(graph),
        FoldConstants(),
        Canonicalize(),
        Expand(),
        FoldConstants(),
        Canonicalize(),
        EliminateCommonSubexpressions(),
        EliminateDeadCode(),
    )
