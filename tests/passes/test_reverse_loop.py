"""
Tests gradients of loops and branches against finite differences, and against unrolled programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from xdsl.dialects.builtin import NameLoc, NoneAttr, StringAttr
from xdsl.ir import Region, SSAValue

from popgraph.backends.reference import evaluate
from popgraph.dialects import element_types
from popgraph.dialects import graphcore as gc
from popgraph.dialects.check import check_ir
from popgraph.dialects.graphcore.base import Operand
from popgraph.dialects.graphcore.broadcasting import scalar
from popgraph.dialects.program.control_signatures import UNBOUNDED
from popgraph.passes.base import Pass
from popgraph.passes.graphcore.canonicalize import Canonicalize
from popgraph.passes.graphcore.cse import EliminateCommonSubexpressions
from popgraph.passes.graphcore.dce import EliminateDeadCode
from popgraph.passes.graphcore.expand import Expand
from popgraph.passes.graphcore.fold_constants import FoldConstants
from popgraph.passes.graphcore.fuse_softmax_loss import FuseSoftmaxLoss
from popgraph.passes.graphcore.training.autodiff import Autodiff
from popgraph.support.arrays import Array
from popgraph.support.errors import DifferentiationError, PopgraphError
from tests.passes.control_programs import SHAPE, Drawn, Loop, drawn_programs
from tests.passes.mutants import Mutant
from tests.passes.test_autodiff import Program, Values, sum_all

GENERATOR = np.random.default_rng(7)
Variables = Mapping[str, Array]
THREE = {name: GENERATOR.normal(size=SHAPE) for name in "abc"}


def gradients(program: Program, *, text: bool = False) -> dict[str, Array]:
    """The outputs of the program: the loss and its gradients."""
    Autodiff("loss").run(program.compilation, program.module)
    check_ir(program.module, text=text)
    return evaluate(program.module, program.inputs, program.compilation.weights)[0]


def check(drawn: Drawn, *, text: bool = False) -> None:
    """Values and gradients equal the unrolled program."""

    def build(rolled: bool) -> Callable[[Values], dict[str, Operand]]:
        return lambda values: {"loss": drawn.build([values[name] for name in "abc"], rolled)}

    program = Program({}, THREE, build(True))
    found = gradients(program, text=text)
    if text:
        assert_passes_keep(program, found)
    expected = gradients(Program({}, THREE, build(False)))
    assert_same(found, expected)


@given(drawn_programs())
def test_gradients_of_control_flow_are_those_of_unrolled_programs(drawn: Drawn) -> None:
    check(drawn, text=True)


def assert_same(found: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    """Equality up to rounding; a missing gradient is zero."""
    nothing = np.zeros(())
    for name in {**found, **expected}:
        pair = np.broadcast_arrays(found.get(name, nothing), expected.get(name, nothing))
        np.testing.assert_allclose(*pair, rtol=1e-9, atol=1e-9, err_msg=name)


LATER: tuple[Pass, ...] = (
    FuseSoftmaxLoss(),
    FoldConstants(),
    Canonicalize(),
    Expand(),
    FoldConstants(),
    Canonicalize(),
    EliminateCommonSubexpressions(),
    EliminateDeadCode(),
)
"""Passes after autodiff in the pipeline."""


def assert_passes_keep(program: Program, expected: Mapping[str, Array]) -> None:
    """Later passes keep a module with bodies valid, and its meaning."""
    for later in LATER:
        later.run(program.compilation, program.module)
        check_ir(program.module)
        found, _ = evaluate(program.module, program.inputs, program.compilation.weights)
        assert found.keys() == expected.keys()
        assert_same(found, expected)
    once = str(program.module)
    EliminateDeadCode().run(program.compilation, program.module)
    assert str(program.module) == once


SLOPE_STEP = 1e-6


def slopes(program: Program, variables: Variables) -> dict[str, Array]:
    """Central differences of the loss."""

    def loss(name: str, moved: Array) -> Array:
        state = {**variables, name: moved}
        outputs, _ = evaluate(program.module, program.inputs, program.compilation.weights, state)
        return outputs["loss"]

    found = {}
    for name, array in variables.items():
        slope = np.zeros(array.shape)
        for place in np.ndindex(array.shape):
            step = np.zeros(array.shape)
            step[place] = SLOPE_STEP
            slope[place] = (loss(name, array + step) - loss(name, array - step)) / (2 * SLOPE_STEP)
        found[f"Gradient___{name}"] = slope
    return found


@given(drawn_programs(depth=1))
def test_gradients_of_control_flow_are_slopes(drawn: Drawn) -> None:
    """Without `detach`, whose gradient is not a slope."""

    def build(values: Values) -> dict[str, Operand]:
        return {"loss": drawn.build([values[name] for name in "abc"], True)}

    program = Program({}, THREE, build)
    if any(isinstance(op, gc.DetachOp) for op in program.module.walk()):
        return
    expected = slopes(program, THREE)
    found = gradients(program)
    for name, slope in expected.items():
        largest = max(1.0, np.abs(slope).max())
        np.testing.assert_allclose(found.get(name, slope * 0), slope, atol=1e-5 * largest)


# A recurrent network

STEPS, BATCH, WIDTH, UNITS = 4, 3, 2, 5
CELL = {
    "x": GENERATOR.normal(size=(STEPS, BATCH, WIDTH)),
    "w": GENERATOR.normal(size=(WIDTH, UNITS)),
    "r": GENERATOR.normal(size=(UNITS, UNITS)) / 2,
    "bias": GENERATOR.normal(size=UNITS),
    "h": GENERATOR.normal(size=(BATCH, UNITS)),
}


def recurrent(**steering: int) -> Program:
    def cell(
        _: SSAValue, now: Sequence[SSAValue], rows: Sequence[SSAValue], rest: Sequence[SSAValue]
    ) -> tuple[Sequence[Operand], Sequence[Operand]]:
        (h,), (x,), (w, r, bias) = now, rows, rest
        after = gc.TanhOp(gc.AddOp(gc.AddOp(gc.MatMulOp(x, w), gc.MatMulOp(h, r)), bias))
        return [after], [after]

    def build(v: Values) -> dict[str, Operand]:
        loop = Loop(STEPS, cell, **steering).rolled([v["h"]], [v["x"]], [v["w"], v["r"], v["bias"]])
        last, all_of_them = loop.results
        squares = gc.MulOp(all_of_them, all_of_them)
        return {"loss": gc.AddOp(sum_all(squares), sum_all(last))}

    return Program({}, CELL, build)


@pytest.mark.parametrize("steering", [{}, {"limit": 2}, {"limit": 0}, {"until": 1}])
def test_gradients_of_a_recurrent_network_are_slopes(steering: dict[str, int]) -> None:
    program = recurrent(**steering)
    expected = slopes(program, CELL)
    found = gradients(program, text=True)
    for name, slope in expected.items():
        np.testing.assert_allclose(found[name], slope, atol=1e-6)
    assert_passes_keep(program, found)


def test_gradients_of_loop_weights_are_one_matmul_over_all_iterations() -> None:
    """
    The reverse loop keeps two matmuls, for dx and dh; three other reductions are done once after
    it.
    """
    program = recurrent()
    gradients(program)
    EliminateDeadCode().run(program.compilation, program.module)
    forward, backward = (op for op in program.graph.block.ops if isinstance(op, gc.LoopOp))
    inside = [op for op in backward.block.ops if isinstance(op, gc.MatMulOp | gc.ReduceSumOp)]
    assert [type(op) for op in inside] == [gc.MatMulOp, gc.MatMulOp]  # of dx and dh
    assert len(backward.carried) == 1
    after = [op for op in program.graph.block.ops if isinstance(op, gc.MatMulOp)]
    assert [len(op.result.type.get_shape()) for op in after] == [2, 2]  # type: ignore[attr-defined]
    assert len(forward.stacked) == 2  # the output and the input of the loop: nothing else is kept


def test_rows_of_skipped_iterations_do_not_reach_the_gradients() -> None:
    """Skipped iterations contribute nothing, whatever their rows hold."""
    program = recurrent(limit=2)
    weights, state = program.compilation.weights, dict(CELL)
    gradients(program)
    state["x"] = CELL["x"].copy()
    state["x"][2:] = np.inf
    expected, _ = evaluate(program.module, {}, weights, CELL)
    found, _ = evaluate(program.module, {}, weights, state)
    for name in ("w", "r", "bias", "h", "x"):
        np.testing.assert_array_equal(found[f"Gradient___{name}"], expected[f"Gradient___{name}"])


# Errors


def unsteady(trips: int, step: Callable[[SSAValue], Operand]) -> Program:
    """A loop with one carried value and a limit."""

    def build(values: Values) -> dict[str, Operand]:
        loop = Loop(trips, lambda turn, now, rows, rest: ([step(now[0])], []), limit=2)
        made = loop.rolled([values["a"]])
        made.location = NameLoc(StringAttr("loop 1"), NoneAttr())
        return {"loss": sum_all(made.results[0])}

    return Program({}, {"a": THREE["a"]}, build)


def test_gradients_of_unbounded_loops_are_refused() -> None:
    with pytest.raises(DifferentiationError, match="an unbounded trip count") as caught:
        gradients(unsteady(UNBOUNDED, gc.TanhOp))
    assert "node 'loop 1'" in str(caught.value)
    assert "static bound" in str(caught.value)


def test_an_operation_without_gradient_inside_a_body_is_named() -> None:
    def step(value: SSAValue) -> Operand:
        half, other, wide = (element_types.BY_NAME[name] for name in ("f16", "bf16", "f64"))
        same_bits = gc.BitcastOp(gc.CastOp(value, to=half), to=other)
        same_bits.location = NameLoc(StringAttr("bits 1"), NoneAttr())
        return gc.CastOp(same_bits, to=wide)

    with pytest.raises(DifferentiationError, match="bitcast has no gradient") as caught:
        gradients(unsteady(3, step))
    assert "node 'bits 1'" in str(caught.value)


# Planted bugs

TRAINING = "popgraph.passes.graphcore.training"


def wrong_step(original: Any) -> Any:
    """The old carried values of an iteration are replaced by the new ones."""

    def stack(self: gc.LoopOp, value: SSAValue) -> SSAValue:
        pairs = zip(self.carried_arguments, self.yielded_carried, strict=True)
        after = next((last for first, last in pairs if first is value), value)
        return original(self, after)

    return stack


def inverted(original: Any) -> Any:
    """Gradients go back through the other branch."""

    def backwards(outer: Any, region: Region, *others: Any) -> Any:
        cond = region.parent
        assert isinstance(cond, gc.CondOp)
        first, second = cond.regions
        return original(outer, second if region is first else first, *others)

    return backwards


def same_order(original: Any) -> Any:
    def finish(self: Any, trips: int, *, reverse: bool, count: Any) -> Any:
        return original(self, trips, reverse=not reverse and count is None, count=count)

    return finish


def one_more(original: Any) -> Any:
    """One more iteration is reversed than ran."""

    def finish(self: Any, trips: int, *, reverse: bool, count: Any) -> Any:
        if count is not None:
            count = gc.AddOp(count, scalar(1, count)).result
        return original(self, trips, reverse=reverse, count=count)

    return finish


BUGS = {
    "a residual of the wrong step": ("popgraph.dialects.graphcore:LoopOp.stack", wrong_step),
    "carried values without gradients": (
        f"{TRAINING}.reverse_loop:_ReverseLoop._wanted",
        lambda _: lambda self: [],
    ),
    "the branches are swapped": (f"{TRAINING}.reverse_cond:_backwards", inverted),
    "iterations in forward order": (f"{TRAINING}.loop_draft:LoopDraft.finish", same_order),
    "one iteration too many": (f"{TRAINING}.loop_draft:LoopDraft.finish", one_more),
}


@pytest.mark.parametrize("bug", BUGS)
def test_bugs_of_reverse_loops_are_found(bug: str) -> None:
    target, wrong = BUGS[bug]

    @settings(max_examples=400, phases=[Phase.generate], report_multiple_bugs=False)
    @given(drawn_programs())
    def holds(drawn: Drawn) -> None:
        with Mutant("autodiff", bug, target, wrong).planted():
            check(drawn)

    with pytest.raises((AssertionError, PopgraphError, ValueError)):
        holds()
