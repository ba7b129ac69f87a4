"""Tests `plan-memory`: live ranges, in-place results, views, the size of the arena."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp, StringAttr

from popgraph.backends.c.build_program import build
from popgraph.backends.reference import evaluate, signature
from popgraph.backends.reference.meaning import assert_same_meaning, random_inputs
from popgraph.dialects.program import GraphOp, WeightStore
from popgraph.dialects.tile import BufferOp, CallOp, ProgramOp
from popgraph.passes.base import Compilation
from popgraph.passes.program import plan_memory, storage
from popgraph.passes.program.pack_intervals import Interval, lower_bound, pack
from popgraph.passes.program.plan_memory import PlanMemory
from popgraph.passes.structured.hoist_constants import HoistConstants
from popgraph.passes.structured.to_loops import StructuredToLoops
from popgraph.support.errors import PassError
from tests.checking import check_ir
from tests.passes.launch_graphs import Plan, Step, module_of, plans
from tests.sampling import examples


def outlined(plan: Plan, hoist: bool = False) -> tuple[Compilation, ModuleOp]:
    compilation = Compilation()
    module = module_of(plan, compilation.weights)
    if hoist:
        HoistConstants().run(compilation, module)
    StructuredToLoops().run(compilation, module)
    return compilation, module


def planned(plan: Plan, hoist: bool = False) -> tuple[Compilation, ModuleOp, ModuleOp]:
    compilation, module = outlined(plan, hoist)
    before = module.clone()
    PlanMemory().run(compilation, module)
    return compilation, before, module


def program_of(module: ModuleOp) -> ProgramOp:
    (program,) = (op for op in module.ops if isinstance(op, ProgramOp))
    return program


def calls(module: ModuleOp) -> list[tuple[str, list[str]]]:
    """Kernel and memories of every call in the body."""
    found = []
    for op in program_of(module).body.block.ops:
        if isinstance(op, CallOp):
            places = []
            for argument in op.arguments:
                buffer = argument.owner
                assert isinstance(buffer, BufferOp)
                name = buffer.label.text or str(buffer.offset.value.data)
                places.append(f"{buffer.space.data} {name}")
            found.append((op.callee.string_value().split("_")[0], places))
    return found


@given(plans(), st.booleans())
@settings(max_examples=examples(80))
def test_random_graphs_keep_their_meaning(plan: Plan, hoist: bool) -> None:
    compilation, before, after = planned(plan, hoist)
    check_ir(after)
    assert_same_meaning(before, after, compilation.weights, steps=3)
    program = program_of(after)
    assert program.arena.value.data >= program.lower_bound.value.data
    again = after.clone()
    PlanMemory().run(compilation, again)
    assert str(again) == str(after)


def test_pieces_of_a_concatenation_are_computed_in_place() -> None:
    """Both halves of a concatenation, one with another reader, without a copy."""
    plan = Plan(
        (
            Step("reverse", 40, (0, 0)),
            Step("add", 40, (0, 0)),
            Step("join", 40, (2, 3)),
            Step("add", 40, (2, 4)),
        ),
        ((1, 5),),
        (),
    )
    _, before, after = planned(plan)
    assert_same_meaning(before, after, WeightStore(), steps=1)
    (_, (_, first)), (_, (*_, second)), (_, (whole, _)), (_, (again, *_)) = calls(after)
    start = int(first.removeprefix("arena "))
    assert second == f"arena {start + 160}"
    assert whole == again == first


def test_a_concatenation_is_live_from_its_first_piece() -> None:
    between = [Step("reverse", 40, (at, 0)) for at in (0, 3, 4, 5)]
    plan = Plan((Step("reverse", 40, (0, 0)), *between, Step("join", 40, (2, 6))), ((1, 7),), ())
    _, before, after = planned(plan)
    assert_same_meaning(before, after, WeightStore(), steps=1)
    assert len(calls(after)) == len(plan.steps), "nothing is copied"


def test_memory_of_a_piece_is_not_reused() -> None:
    """The last reader of a piece must not reuse its memory, because the whole is larger."""
    steps = (*[Step("reverse", 40, (0, 0))] * 2, Step("join", 40, (2, 3)))
    plan = Plan((*steps, Step("negate_in_place", 40, (2, 0))), ((1, 4), (1, 5)), ())
    _, before, after = planned(plan)
    assert_same_meaning(before, after, WeightStore(), steps=1)


@pytest.mark.parametrize("other", ["output", "join", "variable", "input"])
def test_pieces_with_memory_of_their_own_are_copied(other: str) -> None:
    """Outputs, pieces of another concatenation, variables and inputs stay in their own memory."""
    steps = (Step("reverse", 4, (0, 0)), Step("negate_in_place", 4, (0, 0)))
    picks = (0, 6) if other == "input" else (5, 6)
    joins = (Step("join", 4, picks),) * (2 if other == "join" else 1)
    plan = Plan(
        (*steps, *joins),
        ((0, -1), *([(0, 5)] if other == "output" else [])),
        (("u", 5),) if other == "variable" else (),
    )
    _, before, after = planned(plan)
    assert_same_meaning(before, after, WeightStore(), steps=2)
    assert len(calls(after)) > len(plan.steps), "something is copied"


@given(plans(most=20))
@settings(max_examples=6)
def test_random_graphs_run_in_c_as_in_numpy(plan: Plan) -> None:
    compilation, before, after = planned(plan, hoist=True)
    executable = build(after, compilation.weights)
    inputs, state = random_inputs(signature(before)), None
    for _ in range(3):
        wanted, state = evaluate(before, inputs, compilation.weights, state)
        found = executable.run(inputs)
        assert set(found) == set(wanted)
        for name, array in wanted.items():
            np.testing.assert_array_equal(found[name], array)
        for name, array in state.items():
            np.testing.assert_array_equal(executable.read(name), array)


def bug_is_found() -> bool:
    """Whether a random graph shows that the pass is wrong."""

    @given(plans())
    @settings(max_examples=400, database=None, phases=[Phase.generate])
    def fuzz(plan: Plan) -> None:
        compilation, before, after = planned(plan)
        assert_same_meaning(before, after, compilation.weights, steps=3)

    try:
        fuzz()
    except (AssertionError, BaseExceptionGroup):
        return True
    return False


MUTANTS = {
    "the last reader is forgotten": (storage.Storage, "read", lambda self, time: None),
    "variables are overwritten at once": (plan_memory.InPlace, "may_replace", lambda *_: True),
    "swapped variables are not saved": (
        plan_memory._Planner,
        "_save",
        lambda self, value, source: source,
    ),
    "operands read twice are shared": (
        plan_memory.InPlace,
        "pairs",
        lambda self, launch: [
            (self.storage[operand].root, self.storage[launch.outputs[0]])
            for operand in launch.inputs[:1]
            if launch.inputs[0].type == launch.outputs[0].type
        ],
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_fuzz_of_memory_plans_finds_bugs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, wrong = MUTANTS[name]
    monkeypatch.setattr(owner, attribute, wrong)
    assert bug_is_found()


# Numbers of values of size 4: 0 the input, 1 the constant, 2 3 4 the variables u v w.
U, V = 2, 3
FIRST = 5


def plan(
    steps: list[tuple[str, tuple[int, ...]]],
    outputs: list[int],
    updates: dict[str, int] | None = None,
) -> Plan:
    return Plan(
        tuple(Step(kind, 4, picks) for kind, picks in steps),
        tuple((0, output) for output in outputs),
        tuple((updates or {}).items()),
    )


def test_an_output_is_computed_in_the_callers_memory() -> None:
    *_, after = planned(plan([("add", (0, 1))], [FIRST]))
    assert calls(after) == [("addf", ["input in4", "constant 0", "output out0"])]
    assert program_of(after).arena.value.data == 0


def test_a_value_returned_twice_is_copied_once() -> None:
    *_, after = planned(plan([("add", (0, 1))], [FIRST, FIRST]))
    assert calls(after)[1:] == [("copy", ["output out0", "output out1"])]


def test_an_input_that_is_returned_is_copied() -> None:
    *_, after = planned(plan([], [0, 1, U]))
    assert calls(after) == [
        ("copy", ["input in4", "output out0"]),
        ("copy", ["constant 0", "output out1"]),
        ("copy", ["variable u", "output out2"]),
    ]


def test_a_chain_in_place_needs_no_arena() -> None:
    steps = [("add_in_place", (0, 1)), ("negate_in_place", (FIRST, 0))]
    *_, after = planned(plan(steps, [FIRST + 1]))
    assert calls(after) == [
        ("addf", ["input in4", "constant 0", "output out0"]),
        ("negf", ["output out0", "output out0"]),
    ]


def test_a_long_chain_in_place_uses_one_buffer() -> None:
    """The chain is longer than Python's recursion limit."""
    steps = [("negate_in_place", (number and FIRST + number - 1, 0)) for number in range(1500)]
    steps += [("reverse", (FIRST + 1499, 0))]
    *_, after = planned(plan(steps, [FIRST + 1500]))
    (first, *others) = calls(after)
    assert first == ("negf", ["input in4", "arena 0"])
    assert len(others) == 1500 and all(places[0] == "arena 0" for _, places in others)


def test_inputs_and_constants_are_never_overwritten() -> None:
    *_, after = planned(plan([("negate_in_place", (0, 0)), ("negate_in_place", (1, 0))], [5, 6]))
    assert all(places[-1].startswith("output") for _, places in calls(after))


def test_a_variable_is_updated_in_place() -> None:
    """Gradient descent: the launch that reads the old value last may write the new one over it."""
    *_, after = planned(plan([("add_in_place", (U, 0))], [0], {"u": FIRST}))
    assert calls(after)[-1] == ("addf", ["variable u", "input in4", "variable u"])


def test_a_variable_with_later_readers_is_updated_at_the_end() -> None:
    steps = [("add_in_place", (U, 0)), ("reverse", (U, 0))]
    *_, after = planned(plan(steps, [FIRST + 1], {"u": FIRST}))
    assert calls(after) == [
        ("addf", ["variable u", "input in4", "arena 0"]),
        ("move", ["variable u", "output out0"]),
        ("copy", ["arena 0", "variable u"]),
    ]


def test_swapped_variables() -> None:
    compilation, before, after = planned(plan([], [U, V], {"u": V, "v": U}))
    assert_same_meaning(before, after, compilation.weights, steps=3)
    written = [places[-1] for _, places in calls(after)]
    assert written.count("variable u") == written.count("variable v") == 1


def test_an_unchanged_variable_is_not_copied() -> None:
    *_, after = planned(plan([("add", (0, U))], [FIRST], {"u": U}))
    assert len(calls(after)) == 1


def test_momentum_in_place() -> None:
    """v = v + g; w = w + v: both in place; the update of w reads the new v."""
    steps = [("add_in_place", (V, 0)), ("add_in_place", (U, FIRST))]
    compilation, before, after = planned(plan(steps, [0], {"v": FIRST, "u": FIRST + 1}))
    assert_same_meaning(before, after, compilation.weights, steps=3)
    assert calls(after)[1:] == [
        ("addf", ["variable v", "input in4", "variable v"]),
        ("addf", ["variable u", "variable v", "variable u"]),
    ]


def test_constant_work_is_planned_in_prepare() -> None:
    steps = [("add", (1, 1)), ("reverse", (FIRST, 0)), ("add", (FIRST + 1, 0))]
    compilation, before, after = planned(plan(steps, [FIRST + 2]), hoist=True)
    assert_same_meaning(before, after, compilation.weights)
    program = program_of(after)
    assert calls(after) == [("addf", ["persistent 0", "input in4", "output out0"])]
    assert sum(isinstance(op, CallOp) for op in program.prepare.block.ops) == 2
    assert program.persistent.value.data == 64


def test_operations_without_memory_are_refused() -> None:
    compilation = Compilation()
    module = module_of(plan([("join", (0, 1))], [FIRST]), compilation.weights)
    with pytest.raises(PassError, match=r"does not support tile\.assemble"):
        PlanMemory().run(compilation, module)


def test_every_graph_of_a_module_is_planned() -> None:
    compilation, module = outlined(plan([], [0, U]))
    (graph,) = (op for op in module.ops if isinstance(op, GraphOp))
    other = graph.clone()
    other.properties["sym_name"] = StringAttr("other")
    module.body.block.add_op(other)
    PlanMemory().run(compilation, module)
    assert sum(isinstance(op, ProgramOp) for op in module.ops) == 2
    names = [op.sym_name.data for op in module.ops if hasattr(op, "function_type")]
    assert len(names) == len(set(names)) == 1


interval = st.builds(
    lambda first, length, size: Interval(first, first + length, 64 * size),
    st.integers(0, 60),
    st.integers(0, 12),
    st.integers(0, 40),
)


@given(st.lists(interval, max_size=60))
@settings(max_examples=examples(200))
def test_intervals_live_at_once_do_not_overlap(intervals: list[Interval]) -> None:
    offsets, size = pack(intervals)
    alive_most = 0
    for time in range(80):
        alive = sorted(
            (offset, offset + piece.size)
            for offset, piece in zip(offsets, intervals, strict=True)
            if piece.first <= time <= piece.last and piece.size
        )
        assert all(a[1] <= b[0] for a, b in pairwise(alive))
        assert all(begin >= 0 and end <= size for begin, end in alive)
        alive_most = max(alive_most, sum(end - begin for begin, end in alive))
    assert alive_most == lower_bound(intervals) <= size


@pytest.mark.parametrize("seed", range(5))
def test_packing_is_close_to_the_bound(seed: int) -> None:
    """Lifetimes as in training: long nested ones, and short ones in between."""
    generator = np.random.default_rng(seed)
    pieces = []
    for time in range(200):
        size = 64 * int(generator.integers(1, 200))
        pieces.append(Interval(time, 400 - time, size))
        pieces.append(Interval(time, time + int(generator.integers(0, 4)), 2 * size))
        pieces.append(Interval(400 - time, 402 - time, size))
    _, size = pack(pieces)
    assert size <= 1.1 * lower_bound(pieces)
