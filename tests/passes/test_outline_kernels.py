"""Tests `outline-kernels`: equal kernels share a function, different ones do not."""

from __future__ import annotations

from hypothesis import given, settings
from xdsl.dialects import func
from xdsl.dialects.builtin import FileLineColLoc, IntAttr, ModuleOp, StringAttr

from popgraph.backends.reference.meaning import assert_same_meaning
from popgraph.dialects.tile import KernelOp, LaunchOp
from popgraph.passes.analysis.structural_hash import StructuralHasher
from popgraph.passes.base import Compilation
from popgraph.passes.loops.outline_kernels import OutlineKernels
from tests.checking import check_ir
from tests.passes.launch_graphs import Plan, Step, module_of, plans
from tests.sampling import examples


def outline(plan: Plan) -> tuple[Compilation, ModuleOp]:
    compilation = Compilation()
    module = module_of(plan, compilation.weights)
    OutlineKernels().run(compilation, module)
    return compilation, module


def functions(module: ModuleOp) -> list[str]:
    return [op.sym_name.data for op in module.ops if isinstance(op, func.FuncOp)]


def launched(module: ModuleOp) -> list[str]:
    return [op.callee.string_value() for op in module.walk() if isinstance(op, LaunchOp)]


@given(plans())
@settings(max_examples=examples(50))
def test_random_graphs_keep_their_meaning(plan: Plan) -> None:
    compilation = Compilation()
    module = module_of(plan, compilation.weights)
    before = module.clone()
    OutlineKernels().run(compilation, module)
    check_ir(module)
    assert_same_meaning(before, module, compilation.weights)
    assert not any(isinstance(op, KernelOp) for op in module.walk())
    once = str(module)
    OutlineKernels().run(compilation, module)
    assert str(module) == once


def test_equal_kernels_are_one_function() -> None:
    steps = [Step("add", 4, (0, 1)), Step("add", 4, (5, 0)), Step("add", 40, (0, 1))]
    _, module = outline(Plan(tuple(steps), ((0, 6), (1, 2)), ()))
    assert functions(module) == ["addf_4_f32_0", "addf_40_f32_0"]
    assert launched(module) == ["addf_4_f32_0", "addf_4_f32_0", "addf_40_f32_0"]


def test_sharing_memory_is_a_matter_of_the_launch_not_of_the_function() -> None:
    steps = [Step("add", 4, (0, 1)), Step("add_in_place", 4, (0, 1))]
    _, module = outline(Plan(tuple(steps), ((0, 5), (0, 6)), ()))
    assert functions(module) == ["addf_4_f32_0"]
    inplace = [op.inplace.data for op in module.walk() if isinstance(op, LaunchOp)]
    assert inplace == [(), (0, 0)]


def test_names_of_one_kind_are_numbered() -> None:
    steps = [Step("reverse", 4, (0, 0)), Step("grow", 40, (0, 0)), Step("both", 4, (0, 1))]
    _, module = outline(Plan(tuple(steps), ((0, 5),), ()))
    assert functions(module) == ["move_4_f32_0", "move_4_f32_1", "subf_addf_4_f32_0"]


def test_locations_are_kept() -> None:
    compilation = Compilation()
    module = module_of(Plan((Step("add", 4, (0, 1)),), ((0, 5),), ()), compilation.weights)
    (kernel,) = (op for op in module.walk() if isinstance(op, KernelOp))
    kernel.location = FileLineColLoc(StringAttr("net.pgraph"), IntAttr(2), IntAttr(1))
    location = kernel.location
    OutlineKernels().run(compilation, module)
    (launch,) = (op for op in module.walk() if isinstance(op, LaunchOp))
    (function,) = (op for op in module.ops if isinstance(op, func.FuncOp))
    assert launch.location == function.location == location


def test_structure_sees_every_difference_but_names() -> None:
    compilation = Compilation()
    steps = tuple(Step(kind, 4, (0, 1)) for kind in ("add", "add", "both", "reverse"))
    module = module_of(Plan(steps, ((0, 5),), ()), compilation.weights)
    bodies = [op.body for op in module.walk() if isinstance(op, KernelOp)]
    for argument in bodies[0].block.args:
        argument.name_hint = "another"
    keys = list(map(StructuralHasher().of_region, bodies))
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3
