"""
Planted bugs of branches and loops, from their lowering to C, each with the fuzz that finds it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from xdsl.ir import Operation, SSAValue

import popgraph
from popgraph.backends.reference import evaluate, signature
from popgraph.compiler import lower
from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.broadcasting import scalar
from popgraph.dialects.program import ConstantOp
from popgraph.passes.base import Compilation
from popgraph.support.arrays import Array
from popgraph.testing import (
    Network,
    assert_close,
    build_network,
    controlled,
    random_inputs,
)
from tests.backends.test_control import COUNTING, parsed, sums
from tests.backends.test_control_fuzz import assert_planned
from tests.passes.control_programs import drawn_programs
from tests.passes.mutants import Mutant
from tests.passes.test_recurrent import assert_equations, assert_trains
from tests.passes.test_reverse_loop import check as check_unrolled
from tests.recurrences import recurrences


@dataclass(frozen=True)
class Hunt:
    """A strategy, and the claim about its examples that a bug breaks."""

    drawn: Callable[[], SearchStrategy[Any]]
    claim: Callable[[Any], None]
    most: int = 150
    """Largest number of examples until one breaks the claim."""


def check_network(network: Network, in_c: bool = False) -> None:
    compilation = Compilation()
    module = build_network(network, compilation.weights)
    inputs = random_inputs(signature(module))
    lower(module, compilation, level="graphcore")
    assert_planned(module, compilation, inputs, in_c=in_c)


def in_c(text: str, inputs: dict[str, Array]) -> None:
    compilation = Compilation()
    module = parsed(text, compilation)
    expected, _ = evaluate(module, inputs, compilation.weights)
    found = popgraph.compiler.build(module, compilation).run(inputs)
    for name, array in expected.items():
        assert_close(found[name], array, 1e-5, name)


def check_ends(go: bool, limit: int, top: float) -> None:
    """Checks a loop with early exit."""
    given = {"go": np.array(go), "limit": np.array(limit), "top": np.array(top, np.float32)}
    in_c(COUNTING, {"x": np.ones((5, 3), np.float32), **given})


def check_rows(trips: int, reverse: bool) -> None:
    """Checks a loop with a static trip count over rows."""
    rows = np.arange(3 * trips, dtype=np.float32).reshape(trips, 3)
    in_c(sums(trips, reverse), {"x": rows, "h": rows_of(1), "w": rows_of(2)})


def rows_of(number: float) -> Array:
    return np.full(3, number, np.float32)


ENDS = Hunt(
    lambda: st.tuples(st.booleans(), st.integers(0, 6), st.sampled_from([1.5, 2.5, 99.0])),
    lambda drawn: check_ends(*drawn),
    40,
)
ROWS = Hunt(
    lambda: st.tuples(st.integers(0, 6), st.booleans()), lambda drawn: check_rows(*drawn), 40
)
BRANCHES = Hunt(
    lambda: controlled(dtype="f64"), lambda network: check_network(network, in_c=True), 100
)
REVERSE = Hunt(drawn_programs, check_unrolled)
NETWORKS = Hunt(lambda: controlled(dtype="f64"), check_network, 150)
LAYERS = Hunt(lambda: recurrences(dtype="float64"), assert_equations)
TRAINED_LAYERS = Hunt(
    lambda: recurrences(dtype="float64").map(lambda case: replace(case, exact=False)),
    lambda case: assert_trains(case, "reference"),
)


@dataclass(frozen=True)
class Planted:
    """A bug, and the hunt that finds it."""

    mutant: Mutant
    hunt: Hunt

    def __str__(self) -> str:
        return str(self.mutant)


# Memory of bodies


def one_buffer(original: Any) -> Any:
    """Carried values have no second buffer to alternate with."""
    return lambda *args, finals, spares, **rest: original(
        *args, finals=finals, spares=finals, **rest
    )


def the_smallest(original: Any) -> Any:
    """The shared arena of branches has the size of the smaller one."""
    return lambda programs: min((one.arena.value.data for one in programs), default=0)


def spare_too_early(original: Any) -> Any:
    """The second buffers of a loop are freed before the loop."""

    def workspace(self: Any, op: Any, section: Any) -> Any:
        made = original(self, op, section)
        for spare in made.spares:
            spare.first = spare.last = spare.first - 1
        return made

    return workspace


# C


def printed(pattern: str, text: str) -> Callable[[Any], Any]:
    """Replaces a pattern in the C of a step."""

    def wrong(original: Any) -> Any:
        def lines(*args: Any) -> Iterator[str]:
            for line in original(*args):
                changed = re.sub(pattern, text, line)
                if changed or not line:
                    yield changed

        return lines

    return wrong


# Outlining and hoisting


def first_operand_decides(original: Any) -> Any:
    """Operations whose first operand is captured count as loop-invariant."""

    def wrong(body: Any, captured: Any, may_move: Any) -> list[Operation]:
        found = original(body, captured, may_move)
        for op in body.ops:
            if op not in found and may_move(op) and set(op.operands[:1]) <= set(captured):
                found += [op] if op.operands else []
        return [op for op in body.ops if op in found]

    return wrong


# Gradients


def all_stay(original: Any) -> Any:
    """Carried values count as loop-invariant."""

    def invariant(self: Any) -> Any:
        found = original(self)
        found.update(zip(self.loop.carried_arguments, self.loop.carried, strict=True))
        return found

    return invariant


# Recurrent layers


def gates_exchanged(original: Any) -> Any:
    """Swaps output gate and forget gate."""

    def gates(self: Any, value: Any, count: int) -> Any:
        made = original(self, value, count)
        return [made[0], made[2], made[1], made[3]] if count == 4 else made

    return gates


def forwards(original: Any) -> Any:
    return lambda self, direction, cell, reverse: original(self, direction, cell, False)


def one_step_more(original: Any) -> Any:
    """Sequences are one step longer."""

    def lengths(self: Any) -> Any:
        found = original.func(self)
        return None if found is None else gc.AddOp(found, scalar(1, found)).result

    return property(lengths)


def peepholes_turned(original: Any) -> Any:
    return lambda self: original(self)[::-1]


def first_direction(original: Any) -> Any:
    return lambda value, direction: original(value, 0)


def not_varied(original: Any) -> Any:
    return lambda *args: [replace(cell, varied=False) for cell in original(*args)]


def unclipped(original: Any) -> Any:
    return lambda self, place, value: self.functions[place](SSAValue.get(value))


def padding_kept(original: Any) -> Any:
    """Outputs after the end of a sequence repeat the last one instead of being zero."""

    def where(condition: Any, lhs: Any, rhs: Any) -> Any:
        is_zero = isinstance(SSAValue.get(rhs).owner, ConstantOp)
        return original(condition, lhs, lhs if is_zero else rhs)

    return where


CONTROL = "popgraph.passes.program"
PRINTER = "popgraph.backends.c.print.program:_ControlPrinter"
CANONICALIZE = "popgraph.passes.graphcore.canonicalize"
TRAINING = "popgraph.passes.graphcore.training"
RECURRENT = "popgraph.operators.recurrent"


def planted(hunt: Hunt, where: str, bug: str, target: str, wrong: Callable[[Any], Any]) -> Planted:
    return Planted(Mutant(where, bug, target, wrong), hunt)


CONTROL_MUTANTS: Sequence[Planted] = (
    planted(
        NETWORKS,
        "plan-memory",
        "what is carried has one buffer",
        f"{CONTROL}.write_section:LoopOp",
        one_buffer,
    ),
    planted(
        NETWORKS,
        "plan-memory",
        "branches share the smaller arena",
        f"{CONTROL}.plan_memory:scratch_bytes",
        the_smallest,
    ),
    planted(
        NETWORKS,
        "plan-memory",
        "the second buffer is free before the loop runs",
        f"{CONTROL}.plan_memory:_Planner._workspace",
        spare_too_early,
    ),
    planted(
        ENDS,
        "c",
        "rows of skipped iterations are not cleared",
        f"{PRINTER}._cleared",
        lambda original: lambda *_: iter(()),
    ),
    planted(
        ROWS,
        "c",
        "reverse loops run forwards",
        f"{PRINTER}.loop",
        printed(r"at = .* - turn;", "at = turn;"),
    ),
    planted(
        ENDS,
        "c",
        "the result is always the last buffer",
        f"{PRINTER}.loop",
        printed(r"^if \(.*memcpy.*$", ""),
    ),
    planted(
        ENDS,
        "c",
        "the condition is not checked before the first iteration",
        f"{PRINTER}._opening",
        printed(r"u8 go = .*;", "u8 go = 1;"),
    ),
    planted(
        ENDS,
        "c",
        "the condition is not checked after an iteration",
        f"{PRINTER}.loop",
        printed(r"^ +go = .*;", ""),
    ),
    planted(
        ROWS,
        "c",
        "rows have half their stride",
        f"{PRINTER}.loop",
        printed(r"at \* (\d+);", r"at * (\1 / 2);"),
    ),
    planted(
        BRANCHES,
        "c",
        "the branches are swapped",
        f"{PRINTER}.branch",
        printed(r"if \(\*", "if (!*"),
    ),
    planted(
        ROWS,
        "c",
        "carried values do not alternate",
        f"{PRINTER}.loop",
        printed(r"^ +table\[\d+\] = table\[\d+\];", ""),
    ),
    planted(
        NETWORKS,
        "hoist-invariants",
        "operations with a captured first operand are invariant",
        "popgraph.passes.structured.hoist_invariants:invariants",
        first_operand_decides,
    ),
    planted(
        REVERSE,
        "autodiff",
        "carried values are loop-invariant",
        f"{TRAINING}.residuals:Residuals._invariant",
        all_stay,
    ),
    planted(
        LAYERS,
        "onnx-to-graphcore",
        "the output gate and the forget gate are swapped",
        f"{RECURRENT}:LstmCell.gates",
        gates_exchanged,
    ),
    planted(
        LAYERS,
        "onnx-to-graphcore",
        "all directions are forward",
        f"{RECURRENT}:Layer._loop",
        forwards,
    ),
    planted(
        LAYERS,
        "onnx-to-graphcore",
        "sequences are one step longer",
        f"{RECURRENT}:Layer.lengths",
        one_step_more,
    ),
    planted(
        LAYERS,
        "onnx-to-graphcore",
        "peepholes are in reverse order",
        f"{RECURRENT}:Weights.peepholes",
        peepholes_turned,
    ),
    planted(
        LAYERS,
        "onnx-to-graphcore",
        "both directions have the weights of the first",
        f"{RECURRENT}:one",
        first_direction,
    ),
    planted(
        LAYERS,
        "onnx-to-graphcore",
        "attributes of cells are ignored",
        f"{RECURRENT}:cells_of",
        not_varied,
    ),
    planted(
        LAYERS,
        "onnx-to-graphcore",
        "nothing is clipped",
        f"{RECURRENT}:Cell.activated",
        unclipped,
    ),
    planted(
        LAYERS,
        "onnx-to-graphcore",
        "padding is not zero",
        f"{RECURRENT}:gc.WhereOp",
        padding_kept,
    ),
    planted(
        TRAINED_LAYERS,
        "autodiff",
        "the last gradient of a weight counts, not the sum",
        f"{TRAINING}.reverse_mode:ReverseMode.add",
        lambda original: lambda self, value, gradient: self.gradients.update({value: gradient}),
    ),
)
