"""Tests the functions of kernels: equal operations share one, different operations do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from xdsl.builder import ImplicitBuilder
from xdsl.dialects import func
from xdsl.dialects.builtin import FileLineColLoc, IntAttr, ModuleOp, StringAttr, TensorType, f32
from xdsl.ir import Operation, SSAValue

from popgraph.backends.reference.meaning import assert_same_meaning
from popgraph.dialects import graphcore as gc
from popgraph.dialects.program import GraphOp, ReturnOp, WeightStore
from popgraph.dialects.tile import LaunchOp, MapOp
from popgraph.passes.analysis.structural_hash import StructuralHasher
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.to_structured import GraphcoreToStructured
from popgraph.passes.structured.to_loops import StructuredToLoops, emitters
from popgraph.passes.structured.to_loops.emit.emitter import Emitter
from popgraph.support.tuning import Target
from tests.checking import check_ir
from tests.passes.launch_graphs import Plan, Step, module_of

Build = Callable[[SSAValue, SSAValue], Sequence[SSAValue]]


def structured(build: Build, *shape: int) -> ModuleOp:
    """Structured operations on two tensors of a shape."""
    graph = GraphOp("main", ["x", "y"], [TensorType(f32, shape)] * 2)
    with ImplicitBuilder(graph.block):
        found = build(*graph.block.args)
        ReturnOp(list(found), [f"out{number}" for number in range(len(found))])
    module = ModuleOp([graph])
    GraphcoreToStructured().run(Compilation(), module)
    return module


def lowered(build: Build, *shape: int) -> ModuleOp:
    before = structured(build, *shape)
    module = before.clone()
    StructuredToLoops().run(Compilation(), module)
    check_ir(module)
    assert_same_meaning(before, module, WeightStore())
    return module


def functions(module: ModuleOp) -> list[str]:
    return [op.sym_name.data for op in module.ops if isinstance(op, func.FuncOp)]


def launches(module: ModuleOp) -> list[LaunchOp]:
    return [op for op in module.walk() if isinstance(op, LaunchOp)]


def sums(x: SSAValue, y: SSAValue) -> list[SSAValue]:
    """Three additions; the last one reads the same tensor twice."""
    first = gc.AddOp(x, y).result
    second = gc.AddOp(first, x).result
    return [second, gc.AddOp(second, second).result]


def test_equal_operations_share_a_function() -> None:
    module = lowered(sums, 4)
    assert functions(module) == ["addf_4_f32_0", "addf_4_f32_1"]
    assert [op.callee.string_value() for op in launches(module)] == [
        *("addf_4_f32_0", "addf_4_f32_0", "addf_4_f32_1")
    ]
    assert [len(op.inputs) for op in launches(module)] == [2, 2, 1]


def test_loops_of_equal_operations_are_emitted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Operation] = []
    emitter_of = emitters.emitter_of

    def noted(op: Operation, target: Target) -> Emitter:
        written.append(op)
        return emitter_of(op, target)

    monkeypatch.setattr(emitters, "emitter_of", noted)
    module = structured(sums, 4)
    assert sum(isinstance(op, MapOp) for op in module.walk()) == 3
    StructuredToLoops().run(Compilation(), module)
    assert len(written) == 2


def test_function_names_are_numbered_and_unique() -> None:
    module = structured(lambda x, y: [gc.SubOp(x, y).result, gc.SubOp(y, x).result], 2, 3)
    taken = func.FuncOp.external("subf_6_f32_0", [], [])
    module.body.block.add_op(taken)
    StructuredToLoops().run(Compilation(), module)
    assert functions(module) == ["subf_6_f32_1", "subf_6_f32_0"]


def test_locations_are_kept() -> None:
    module = structured(lambda x, y: [gc.AddOp(x, y).result], 4)
    (op,) = (op for op in module.walk() if isinstance(op, MapOp))
    op.location = location = FileLineColLoc(StringAttr("net.pgraph"), IntAttr(2), IntAttr(1))
    StructuredToLoops().run(Compilation(), module)
    (launch,) = launches(module)
    (function,) = (op for op in module.ops if isinstance(op, func.FuncOp))
    assert launch.location == function.location == location


def test_structural_hash_ignores_names_only() -> None:
    compilation = Compilation()
    steps = tuple(Step(kind, 4, (0, 1)) for kind in ("add", "both", "reverse"))
    module = module_of(Plan(steps, ((0, 5),), ()), compilation.weights)
    bodies = [op.body for op in module.ops if isinstance(op, func.FuncOp)]
    named = bodies[0].clone()
    for argument in named.block.args:
        argument.name_hint = "another"
    hasher = StructuralHasher()
    keys = [hasher.of_region(body) for body in (named, *bodies)]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3
