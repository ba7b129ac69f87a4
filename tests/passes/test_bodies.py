"""Tests the canonicalization of loops and branches on random graphs with both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from popgraph.dialects.graphcore import ReshapeOp
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.graphcore.canonicalize import Canonicalize
from popgraph.passes.graphcore.cse import EliminateCommonSubexpressions
from popgraph.passes.graphcore.dce import EliminateDeadCode
from popgraph.passes.graphcore.expand import Expand
from popgraph.passes.graphcore.fold_constants import FoldConstants
from popgraph.support.errors import PopgraphError
from popgraph.testing import assert_same_meaning
from tests.checking import check_ir
from tests.passes.control_graphs import (
    ControlGraph,
    build,
    control_graphs,
    single_loops,
)
from tests.passes.mutants import Mutant, always

TOLERANCE = 1e-12
"""One matmul for all rows adds in another order than one per row."""


def run(module: ModuleOp, *passes: Pass) -> None:
    """Runs the passes and checks that the module means the same."""
    before, compilation = module.clone(), Compilation()
    for each in passes:
        each.run(compilation, module)
    check_ir(module)
    assert_same_meaning(before, module, compilation.weights, tolerance=TOLERANCE)


@given(control_graphs())
@settings(deadline=None)
def test_canonicalized_bodies_mean_the_same(graph: ControlGraph) -> None:
    module = build(graph)
    check_ir(module)
    run(module, Canonicalize())
    text = str(module)
    run(module, Canonicalize())
    assert str(module) == text


@given(single_loops())
@settings(deadline=None)
def test_canonicalized_loops_mean_the_same(graph: ControlGraph) -> None:
    run(build(graph), Canonicalize())


@given(control_graphs())
@settings(deadline=None)
def test_graphcore_passes_on_bodies(graph: ControlGraph) -> None:
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


# Planted bugs

BODIES = "popgraph.passes.graphcore.canonicalize"


def only_own(original: Callable[..., set[SSAValue]]) -> Any:
    """Drops carried values that are used only by the next iteration."""

    def wrong(op: Any) -> set[SSAValue]:
        used = {
            argument
            for argument, final in zip(op.carried_arguments, op.finals, strict=True)
            if final.first_use is not None
        }
        carried = set(op.carried_arguments)
        return original(op) - (carried - used)

    return wrong


def from_zero(original: Any) -> Any:
    """Every counter begins at zero."""
    return lambda draft, operand: (
        draft.op.index if operand.type == draft.op.index.type else (original(draft, operand))
    )


def first_only(original: Any) -> Any:
    """All values count as equal to the first one."""
    return lambda values: iter([0 for _ in values])


def with_index(original: Any) -> Any:
    """A reshape of the loop index counts as loop-invariant."""

    def wrong(body: Any, captured: Any, may_move: Any) -> Any:
        found = original(body, captured, may_move)
        return [*found, *(inner for inner in body.ops if isinstance(inner, ReshapeOp))]

    return wrong


BUGS = (
    Mutant(
        "canonicalize",
        "drops values that later iterations need",
        f"{BODIES}.loops:_needed",
        only_own,
    ),
    Mutant("canonicalize", "counts from zero", f"{BODIES}.bodies:LoopDraft.capture", from_zero),
    Mutant(
        "canonicalize",
        "merges any two captured values",
        f"{BODIES}.loops:first_of_equals",
        first_only,
    ),
    Mutant(
        "canonicalize", "hoists reshapes of the index", f"{BODIES}.loops:invariants", with_index
    ),
    Mutant("canonicalize", "every row is known", f"{BODIES}.projections:_is_known", always),
    Mutant(
        "canonicalize", "all counters count by one", f"{BODIES}.loops:CountByIndex._counts", always
    ),
)


@pytest.mark.parametrize("bug", BUGS, ids=str)
def test_a_planted_bug_of_bodies_is_found(bug: Mutant) -> None:
    @settings(max_examples=1000, phases=[Phase.generate], report_multiple_bugs=False, deadline=None)
    @given(single_loops())
    def keeps_meaning(graph: ControlGraph) -> None:
        with bug.planted():
            run(build(graph), Canonicalize())

    with pytest.raises((AssertionError, PopgraphError, KeyError)):
        keeps_meaning()
