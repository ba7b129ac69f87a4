"""Tests `hoist-constants`: constant work runs once when the program is loaded."""

from __future__ import annotations

from hypothesis import given, settings
from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.reference.meaning import assert_same_meaning
from popgraph.dialects.program import GraphOp, PrepareOp, VariableOp
from popgraph.dialects.tile import LaunchOp, ViewOp
from popgraph.passes.base import Compilation
from popgraph.passes.structured.hoist_constants import HoistConstants
from tests.checking import check_ir
from tests.passes.launch_graphs import Kernels, Plan, Step, module_of, plans
from tests.sampling import examples

CONSTANT, FIRST = 1, 5


def hoisted(steps: list[tuple[str, tuple[int, ...]]], output: int) -> tuple[Compilation, ModuleOp]:
    compilation = Compilation()
    plan = Plan(tuple(Step(kind, 4, picks) for kind, picks in steps), ((0, output),), ())
    module = module_of(plan, compilation.weights)
    HoistConstants().run(compilation, module)
    check_ir(module)
    return compilation, module


def prepares(module: ModuleOp) -> list[PrepareOp]:
    return [op for op in module.walk() if isinstance(op, PrepareOp)]


def graph_of(module: ModuleOp) -> GraphOp:
    (graph,) = (op for op in module.ops if isinstance(op, GraphOp))
    return graph


@given(plans())
@settings(max_examples=examples(60))
def test_random_graphs_keep_their_meaning(plan: Plan) -> None:
    compilation = Compilation()
    module = module_of(plan, compilation.weights)
    before = module.clone()
    HoistConstants().run(compilation, module)
    check_ir(module)
    assert_same_meaning(before, module, compilation.weights)
    once = str(module)
    HoistConstants().run(compilation, module)
    assert str(module) == once


@given(plans())
@settings(max_examples=examples(60))
def test_all_constant_work_is_hoisted(plan: Plan) -> None:
    compilation = Compilation()
    module = module_of(plan, compilation.weights)
    HoistConstants().run(compilation, module)
    block = graph_of(module).block
    changing = set(block.args)
    for op in block.ops:
        if isinstance(op, VariableOp) or any(operand in changing for operand in op.operands):
            changing.update(op.results)
        assert not isinstance(op, LaunchOp) or op.outputs[0] in changing
    assert len(prepares(module)) <= 1


def test_chains_of_constant_work_are_hoisted_together() -> None:
    steps = [("add", (1, 1)), ("view", (FIRST, 0)), ("reverse", (6, 0)), ("add", (7, 0))]
    _, module = hoisted(steps, 8)
    (prepare,) = prepares(module)
    inside = [type(op) for op in prepare.body.block.ops]
    assert inside[:-1] == [LaunchOp, ViewOp, ViewOp, LaunchOp]
    assert len(prepare.outputs) == 1
    assert sum(isinstance(op, LaunchOp) for op in graph_of(module).block.ops) == 1


def test_a_view_of_a_constant_is_not_hoisted() -> None:
    _, module = hoisted([("view", (CONSTANT, 0)), ("add", (FIRST, 0))], 6)
    assert not prepares(module)


def test_work_on_variables_is_not_hoisted() -> None:
    _, module = hoisted([("add", (1, 2))], FIRST)
    assert not prepares(module)


def test_new_constant_work_joins_the_prepare_region() -> None:
    compilation, module = hoisted([("add", (1, 1)), ("add", (FIRST, 0))], 6)
    before = module.clone()
    (prepare,) = prepares(module)
    (prepared,) = prepare.outputs
    kernels = Kernels(module)
    later = kernels.launch("reverse", [prepared], 4)
    kernels.functions.insert()
    prepare.parent.insert_op_after(later, prepare)  # type: ignore[union-attr]
    for use in list(prepared.uses):
        if use.operation is not later:
            use.operation.operands[use.index] = later.outputs[0]
    changed = module.clone()
    HoistConstants().run(compilation, module)
    check_ir(module)
    (prepare,) = prepares(module)
    assert sum(isinstance(op, LaunchOp) for op in prepare.body.block.ops) == 2
    assert_same_meaning(changed, module, compilation.weights)
    assert str(module) != str(before)
